/* emulated — runs the tests of the CPU kernels with the CUDA kernels, on the emulation.
 *
 * Include it before the unchanged file of tests/unit/kernels or tests/kernels (emu.mk does that for
 * tests/unit/kernels). The truth stays the plain CPU. ISA level 2 becomes the emulation; 1, 2 and 3
 * threads become three orders of blocks and threads; the other levels are absent. So each kernel
 * meets the same sizes, guards and limits as the CPU's, and must give the same bits in every
 * order. */
#ifndef CONVOY_TESTS_EMULATED_H
#define CONVOY_TESTS_EMULATED_H

#define KT_DEVICE
#include "kernel_test.h"

#include "dev/dev_check.h"
#include "kernels/cuda.h"
#include "kernels/op_list.h"
#include "tests/emu/emu_control.h"

#define EMULATED_SCRATCH ((size_t)8 << 20)

/* A device of the emulation: only its operations are there. */
struct emulated {
    struct dev_head head;
    uint64_t seed;
};

static struct cuda emulated_cuda(void)
{
    static void *scratch;
    if (!scratch)
        scratch = aligned_alloc(256, EMULATED_SCRATCH);
    assert_non_null(scratch);
    memset(scratch, 0xff, EMULATED_SCRATCH); /* what is left there means nothing: NaN */
    return (struct cuda){.scratch = scratch, .scratch_bytes = EMULATED_SCRATCH, .sm_count = 4};
}

static inline enum status emulated_end(const char *op, int rc)
{
    const char *error = emu_error();
    return rc == 0 && !error
               ? ST_OK
               : FAIL(ST_BUG, "%s: status %d, %s", op, rc, error ? error : "no mistake seen");
}

#define EMULATED_DEFINE(name)                                                  \
    static enum status emulated_##name(struct stream *s, const struct name *a) \
    {                                                                          \
        struct cuda cuda = emulated_cuda();                                    \
        TRY(dev_check_##name(a, true));                                        \
        emu_seed(((struct emulated *)((struct stream_head *)s)->dev)->seed);   \
        return emulated_end(#name, name##_cuda(&cuda, a));                     \
    }
OP_LIST(EMULATED_DEFINE)

#define EMULATED_ROW(name) .name = emulated_##name,
static const struct op_table emulated_op = {OP_LIST(EMULATED_ROW)};

static struct kt_device *kt_device(int level, int threads_n)
{
    static struct kt_device plain, none, devices[KT_THREADS + 1];
    static struct emulated emulated[KT_THREADS + 1];
    static struct stream_head streams[KT_THREADS + 1];
    if (level == CPU_ISA_PLAIN) {
        if (!plain.dev && dev_cpu_open(1, level, &plain.dev) == ST_OK)
            assert_int_equal(dev_stream_open(plain.dev, &plain.stream), ST_OK);
        return &plain;
    }
    if (level != CPU_ISA_V2)
        return &none;
    emulated[threads_n] =
        (struct emulated){.head.op = &emulated_op, .seed = (uint64_t)threads_n - 1};
    streams[threads_n].dev = (struct dev *)&emulated[threads_n];
    devices[threads_n] = (struct kt_device){.dev = (struct dev *)&emulated[threads_n],
                                            .stream = (struct stream *)&streams[threads_n]};
    return &devices[threads_n];
}

#endif
