/* guarded — a CUDA device for tests without a GPU: src/dev as it is built, over a runtime that
 * checks every access (runtime.h); kernels run on the emulation, cuBLASLt is a library of loops
 * (fake_blas.c). */
#ifndef CONVOY_TESTS_GUARDED_H
#define CONVOY_TESTS_GUARDED_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dev/cuda/cuda.h"
#include "dev/nvidia/library.h"
#include "kernels/column.h"
#include "tests/cuda/fake_blas.h"
#ifdef GUARDED_STREAMS /* streams that run beside each other, without checks of memory */
#include "tests/cuda/streams.h"
#else
#include "tests/cuda/runtime.h"
#endif
#include "tests/emu/emu_control.h"

/* Named here, so that the linker takes the emulation's launchers before nvcc's. */
#define LAUNCHER(name) (void (*)(void)) name##_cuda,
static void (*const launchers[])(void) = {OP_LIST(LAUNCHER)(void (*)(void)) column_sum_cuda,
                                          (void (*)(void))column_add_cuda};

/* ---- a device that counts operations and reports errors of the emulation ---- */

static const struct op_table *inner_op;
#define GUARDED_NUMBER(name) GUARDED_##name,
enum { OP_LIST(GUARDED_NUMBER) GUARDED_N };
static atomic_int guarded_calls[GUARDED_N]; /* how often each operation was asked for */

#define GUARDED_DEFINE(name)                                                  \
    static enum status guarded_##name(struct stream *s, const struct name *a) \
    {                                                                         \
        guarded_calls[GUARDED_##name]++;                                      \
        enum status st = inner_op->name(s, a);                                \
        const char *error = emu_error();                                      \
        return error ? FAIL(ST_BUG, "%s: %s", #name, error) : st;             \
    }
OP_LIST(GUARDED_DEFINE)
#define GUARDED_ROW(name) .name = guarded_##name,
static const struct op_table guarded_op = {OP_LIST(GUARDED_ROW)};

static const char *here(const char *below)
{
    static char path[700];
    ssize_t n = readlink("/proc/self/exe", path, 512);
    assert_true(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/'), below);
    return path;
}

static void *fake;

static inline int *fake_counts(void)
{
    int *(*counts)(void) = NULL;
    void *symbol = dlsym(fake, "fake_blas_counts");
    assert_non_null(symbol);
    memcpy(&counts, &symbol, sizeof counts);
    return counts();
}

/* fake_counted — of `what` (fake_blas.h) since the last fake_count. */
static int fake_before[FAKE_COUNTS];
static inline void fake_count(void) { memcpy(fake_before, fake_counts(), sizeof fake_before); }
static inline int fake_counted(int what) { return fake_counts()[what] - fake_before[what]; }

/* Gives a library the runtime's functions that run its work and note what it reads and writes. */
static void guarded_through(void *library, const char *name)
{
    void (*through)(int (*)(void *, int (*)(void *), const void *, size_t),
                    void (*)(const char *, const void *, size_t, int)) = NULL;
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    memcpy(&through, &symbol, sizeof through);
    through(runtime_device, runtime_touch);
}

static void use_fake(void)
{
    library_dir(here(""));
    if (!fake)
        fake = dlopen(here("/libcublasLt.so.13"), RTLD_NOW);
    assert_non_null(fake);
    guarded_through(fake, "fake_blas_device");
    emu_device = runtime_device;
}

/* open_device — the caller closes it. */
static inline struct dev *open_device_as(bool is_tf32)
{
    struct dev *dev = NULL;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        assert_non_null(launchers[i]);
    use_fake();
    kt_ok(dev_cuda_open(0, is_tf32, &dev));
    struct dev_head *head = (struct dev_head *)dev;
    inner_op = head->op;
    head->op = &guarded_op;
    return dev;
}

static inline struct dev *open_device(void) { return open_device_as(false); }

/* open_once — for ranks that are threads: opens beforehand what they would race for, the library of
 * products, once for a process. */
static inline void open_once(struct dev *dev)
{
    struct stream *s = NULL;
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_graph_begin(s));
    dev_stream_close(s);
}

#endif
