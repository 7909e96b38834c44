/* real — runs the tests of the CUDA kernels (tests/cuda) on a real GPU instead of the emulation,
 * all in one program.
 *
 * The tests are unchanged.
 *   buffers    are pinned memory of the host, and so is the stack of the tests; malloc and its kin
 *              are renamed at compile time. Kernels get device memory of the same layout: before a
 *              launch the buffers of its arguments are copied there, after it they are copied back.
 *              So a test finds the results when the launch has ended, guards included.
 *   controls   of the emulation become: wait for the GPU and report its error. Orders of threads
 *              are the GPU's own.
 *   launchers  are called through a check that no tensor lies among constants or static data,
 *              which have no place on the device. Spans, which launchers read on the host, may lie
 *              there.
 * Less memory is allocated if the host or the device has little, and a line reports it.
 *
 *   gpu_tests                    every family; TAP of each, a line "# family NAME ok|failed", and
 *                                before it "# worst ERROR LIMIT TEST": the error nearest its limit
 *   gpu_tests NAME...            these
 *   gpu_tests golden             the golden cases, with GOLDEN_DEVICE=cuda
 *   gpu_tests runtime            what src/dev relies on of CUDA's runtime (real_runtime.c)
 *   gpu_tests bench [EXPRESSION] the kernels' speed (gpu_bench.c), of rows with such a name
 *   gpu_tests tune FILE          the fastest algorithms of cuBLASLt, as entries (gpu_tune.c)
 *   gpu_tests list               what may be named
 *   gpu_tests cudnn              cuDNN's attention beside the program's own (real_cudnn.c)
 * Compiled with REAL_DRY, without CUDA: ordinary memory and the emulation, to try all of this
 * without a GPU. During a launch the tests' buffers cannot be accessed then, so a kernel that gets
 * an address of the host fails as it would on a GPU. With REAL_NUMBERS, too: kernels get the tests'
 * own buffers, and tests that leave out barriers are skipped; for runs that test the limits of
 * errors only (test_numbers.sh). With REAL_HIP for an AMD GPU: the families and golden. */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "kernels/column.h"
#include "kernels/cuda.h"
#include "real.h"

#ifdef REAL_HIP
#include "real_hip.h"
#elif !defined(REAL_DRY)
#include <cuda_runtime_api.h>
#endif
#ifndef REAL_DRY
#include "base/status.h"
#include "dev/cuda/cuda.h"
#include "dev/nvidia/library.h"
#include "tests/emu/emu_control.h"
#endif

/* ---- memory ---- */

#define ALIGN ((size_t)4096)
#define STACK_BYTES ((size_t)60 << 20)

/* Before each block; a free list for each power of two. Blocks lie one after the other. */
struct block {
    struct block *next;
    size_t class_i, bytes;
};
static struct {
    char *base;   /* host memory, for the tests */
    char *device; /* its copy on the device, for the kernels */
    size_t bytes, used;
    struct block *idle[48];
    pthread_mutex_t lock;
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void die(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    fflush(stdout);
    _exit(1);
}

/* code, constants and static data */
extern char __executable_start, _end;

/* allocate_arena — Returns 1 if the host and the device have this much, else 0 and the reason. */
static int allocate_arena(size_t bytes, const char **why)
{
#ifdef REAL_DRY
    arena.base = aligned_alloc(ALIGN, bytes);
    arena.device = aligned_alloc(ALIGN, bytes);
    *why = arena.base && arena.device ? NULL : "malloc fails";
#else
    void *base = NULL, *device = NULL;
    cudaError_t error = cudaHostAlloc(&base, bytes, cudaHostAllocDefault);
    if (error == cudaSuccess && (error = cudaMalloc(&device, bytes)) != cudaSuccess)
        (void)cudaFreeHost(base);
    *why = error == cudaSuccess ? NULL : cudaGetErrorString(error);
    (void)cudaGetLastError();
    arena.base = base;
    arena.device = device;
#endif
    arena.bytes = bytes;
    return *why == NULL;
}

static void arena_open(void)
{
    static const size_t mib[] = {3072, 1024, 512};
    const char *why = NULL;
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
        if (allocate_arena(mib[i] << 20, &why)) {
            printf("# memory of the tests: %zu MiB, pinned and on the device\n", mib[i]);
            return;
        }
        printf("# %zu MiB cannot be had, pinned and on the device: %s\n", mib[i], why);
    }
    die("memory of the tests", why);
}

/* is_in_arena — Returns true if this is an address that the tests allocated, or of their stack. */
static bool is_in_arena(const void *at)
{
    return arena.base && (const char *)at >= arena.base &&
           (const char *)at < arena.base + arena.used;
}

static struct block *block_of(void *data) { return (struct block *)(void *)((char *)data - ALIGN); }

void *real_aligned_alloc(size_t align, size_t bytes)
{
    size_t class_i = 13;
    if (align > ALIGN)
        die("aligned_alloc", "a larger alignment than the tests ask for");
    while (((size_t)1 << class_i) < bytes + ALIGN)
        class_i++;
    pthread_mutex_lock(&arena.lock);
    struct block *block = arena.idle[class_i];
    if (block) {
        arena.idle[class_i] = block->next;
    } else if (arena.used + ((size_t)1 << class_i) <= arena.bytes) {
        block = (struct block *)(void *)(arena.base + arena.used);
        arena.used += (size_t)1 << class_i;
    }
    pthread_mutex_unlock(&arena.lock);
    if (!block)
        die("memory of the tests", "all taken");
    block->class_i = class_i;
    block->bytes = bytes;
    return (char *)block + ALIGN;
}

void *real_malloc(size_t bytes) { return real_aligned_alloc(ALIGN, bytes); }

void *real_calloc(size_t n, size_t each) { return memset(real_malloc(n * each), 0, n * each); }

void real_free(void *data)
{
    if (!data)
        return;
    if (!is_in_arena(data)) {
        free(data); /* of a library */
        return;
    }
    struct block *block = block_of(data);
    pthread_mutex_lock(&arena.lock);
    block->next = arena.idle[block->class_i];
    arena.idle[block->class_i] = block;
    pthread_mutex_unlock(&arena.lock);
}

void *real_realloc(void *data, size_t bytes)
{
    void *grown = real_malloc(bytes);
    if (data) {
        size_t had = block_of(data)->bytes;
        memcpy(grown, data, had < bytes ? had : bytes);
        real_free(data);
    }
    return grown;
}

/* ---- the emulation's controls ---- */

#ifndef REAL_DRY
float emu_quick_error; /* the GPU has its own */
void emu_seed(uint64_t seed) { (void)seed; }
void emu_shared_max(size_t bytes) { (void)bytes; }
bool emu_is_hip(void)
{
#ifdef REAL_HIP
    return true;
#else
    return false;
#endif
}
void emu_skip_barrier(int n) { (void)n; }
int emu_barriers(void) { return 0; }

const char *emu_error(void)
{
    cudaError_t error = cudaDeviceSynchronize();
    cudaError_t last = cudaGetLastError();
    error = error != cudaSuccess ? error : last;
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}
#endif

/* ---- launchers ---- */

static int is_host_only(uintptr_t word)
{
    return word >= (uintptr_t)&__executable_start && word < (uintptr_t)&_end;
}

/* A tensor is an address and a dtype; spans are the host's. Padding holds anything. */
static void check_args(const char *op, const void *args, size_t bytes, const void *spans)
{
    for (size_t i = 0; i + sizeof(struct tensor) <= bytes; i += sizeof(uintptr_t)) {
        uintptr_t word;
        int dtype;
        memcpy(&word, (const char *)args + i, sizeof word);
        memcpy(&dtype, (const char *)args + i + sizeof word, sizeof dtype);
        if (is_host_only(word) && dtype >= 0 && dtype < DTYPE_N && word != (uintptr_t)spans)
            die(op, "an argument lies in the program's own data, where a GPU does not reach");
    }
}

/* ---- buffers of a launch, on the device ---- */

#define LAUNCH_BUFFERS 16

#ifdef REAL_NUMBERS
#define IS_ALL_HOST true /* kernels get the tests' own buffers */
#else
#define IS_ALL_HOST false
#endif

/* The buffers that a launch may read and write. frame: of the wrapper; the tests' stack is a buffer
 * from there on. */
struct launch {
    char *frame;
    struct {
        char *data;
        size_t bytes;
    } buffer[LAUNCH_BUFFERS];
    int n;
};

/* block_at — Returns the block that holds this address of the arena. */
static struct block *block_at(const char *at)
{
    char *p = arena.base;
    for (;;) {
        struct block *block = (struct block *)(void *)p;
        p += (size_t)1 << block->class_i;
        if (at < p)
            return block;
    }
}

static bool is_stack(const struct block *block) { return (char *)block == arena.base; }

static void add_buffer(struct launch *l, const char *at)
{
    struct block *block = block_at(at);
    char *data = (char *)block + ALIGN, *end = data + block->bytes;
    if (is_stack(block))
        data = l->frame;
    for (int i = 0; i < l->n; i++)
        if (l->buffer[i].data == data)
            return;
    if (l->n == LAUNCH_BUFFERS)
        die("a launch", "it has more buffers than LAUNCH_BUFFERS");
    l->buffer[l->n].data = data;
    l->buffer[l->n++].bytes = (size_t)(end - data);
}

/* move_to_device — Replaces the addresses of buffers in the arguments of a launch by those on the
 * device. Their padding must be zero: with other bytes in it, a number of 32 bits can look like an
 * address. spans stays: launchers read it on the host. */
static void move_to_device(struct launch *l, void *args, size_t bytes, const void *spans)
{
    for (size_t i = 0; i + sizeof(uintptr_t) <= bytes; i += sizeof(uintptr_t)) {
        char *at;
        memcpy(&at, (char *)args + i, sizeof at);
        if (IS_ALL_HOST || !is_in_arena(at) || at == spans)
            continue;
        add_buffer(l, at);
        at = arena.device + (at - arena.base);
        memcpy((char *)args + i, &at, sizeof at);
    }
}

#ifdef REAL_DRY
static void copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

/* allow — Sets the access to all buffers but the stack. */
static void allow(int access)
{
    char *from = arena.base + ((size_t)1 << ((struct block *)(void *)arena.base)->class_i);
    char *end = arena.base + arena.used;
    if (end > from && mprotect(from, (size_t)(end - from), access) != 0)
        die("mprotect", "the buffers' access cannot be changed");
}
#else
static void copy(void *to, const void *from, size_t bytes)
{
    (void)cudaMemcpy(to, from, bytes, cudaMemcpyDefault); /* emu_error reports what fails */
}
static void allow(int access) { (void)access; }
#endif

/* copy_buffers — Copies the buffers to the device or back. */
static void copy_buffers(const struct launch *l, bool is_back)
{
    for (int i = 0; i < l->n; i++) {
        char *here = l->buffer[i].data, *there = arena.device + (here - arena.base);
        copy(is_back ? here : there, is_back ? there : here, l->buffer[i].bytes);
    }
}

static void begin_launch(const struct launch *l)
{
    if (l->n == 0)
        return;
    copy_buffers(l, false);
    allow(PROT_NONE);
}

/* end_launch — Waits for the launch, makes its results visible to the test, and returns rc. */
static int end_launch(const struct launch *l, int rc)
{
    if (l->n == 0)
        return rc;
    allow(PROT_READ | PROT_WRITE);
    copy_buffers(l, true);
    return rc;
}

static const void *spans_of_adamw(const void *a) { return ((const struct adamw *)a)->spans; }
static const void *spans_of_sgd(const void *a) { return ((const struct sgd *)a)->spans; }
static const void *spans_of(const char *op, const void *a)
{
    return strcmp(op, "adamw") == 0 ? spans_of_adamw(a)
           : strcmp(op, "sgd") == 0 ? spans_of_sgd(a)
                                    : NULL;
}

#ifdef REAL_HIP
#define LAUNCHER(name) name##_hip
#define STREAM real_hip_stream
#else
#define LAUNCHER(name) __real_##name##_cuda
#define STREAM cuda->stream
#endif
#define WRAP(name)                                                           \
    int LAUNCHER(name)(const struct cuda *cuda, const struct name *a);       \
    int __wrap_##name##_cuda(const struct cuda *cuda, const struct name *a); \
    int __wrap_##name##_cuda(const struct cuda *cuda, const struct name *a)  \
    {                                                                        \
        const void *spans = spans_of(#name, a);                              \
        struct launch launch = {.frame = __builtin_frame_address(0)};        \
        struct cuda cuda_there = *cuda;                                      \
        struct name there = *a;                                              \
        cuda_there.stream = STREAM;                                          \
        __builtin_clear_padding(&cuda_there);                                \
        __builtin_clear_padding(&there);                                     \
        check_args(#name, a, sizeof *a, spans);                              \
        move_to_device(&launch, &cuda_there, sizeof cuda_there, NULL);       \
        move_to_device(&launch, &there, sizeof there, spans);                \
        begin_launch(&launch);                                               \
        return end_launch(&launch, LAUNCHER(name)(&cuda_there, &there));     \
    }
OP_LIST(WRAP)
WRAP(column_sum)
WRAP(column_add)

/* ---- the program ---- */

static const struct {
    const char *name;
    int (*main)(void);
} families[] = {
#define FAMILY(name) {#name, real_main_##name},
    REAL_FAMILIES(FAMILY)};
#define FAMILIES_N (sizeof families / sizeof *families)

/* The error of the family that is nearest to its limit, or furthest above it. A NaN is worst. */
static struct {
    double error, limit, share;
    char test[64];
} worst;

void real_error(const char *test, double error, double limit)
{
    double share = error == 0 ? 0 : error / limit;
    if (isnan(worst.share) || share <= worst.share)
        return;
    worst.error = error, worst.limit = limit, worst.share = share;
    snprintf(worst.test, sizeof worst.test, "%s", test);
}

static int run(size_t i)
{
    worst.share = -1;
    worst.test[0] = 0;
    int failed = families[i].main();
    if (worst.test[0])
        printf("# worst %.2g %.2g %s\n", worst.error, worst.limit, worst.test);
    printf("# family %s %s\n", families[i].name, failed ? "failed" : "ok");
    fflush(stdout);
    return failed != 0;
}

/* run_named — the families that are named, the last name NULL; without any: all. */
static intptr_t run_named(const char *name)
{
    intptr_t failed = 0, ran = 0;
    for (size_t i = 0; i < FAMILIES_N; i++)
        if (!name || strcmp(name, families[i].name) == 0) {
            failed += run(i);
            ran++;
        }
    if (ran == 0)
        die(name, "no such family");
    return failed;
}

static void *run_all(void *arg)
{
    char **names = arg;
    intptr_t failed = *names ? 0 : run_named(NULL);
    for (; *names; names++)
        failed += run_named(*names);
    return (void *)failed;
}

#ifndef REAL_DRY
#ifdef REAL_HIP
static void open_products(void)
{
    char about[LIBRARY_PATH_MAX + 64];
    library_dir(getenv("CONVOY_LIB_DIR"));
    const char *why = real_hip_open();
    if (why)
        die("the AMD GPU", why);
    printf("# products: this program's kernels; libamdhip64 %s\n",
           dev_hip_find(about, sizeof about) == ST_OK ? about : status_message());
    fflush(stdout);
}
#else
/* Which cuBLASLt makes the products, as in convoy: CONVOY_LIB_DIR and CONVOY_BLAS count here
 * too. */
static void open_products(void)
{
    static const char *const words[] = {"auto", "plain", "off"};
    const char *asked = getenv("CONVOY_BLAS");
    char about[LIBRARY_PATH_MAX + 32];
    int use = DEV_CUDA_BLAS_AUTO;
    while (asked && asked[0] && use <= DEV_CUDA_BLAS_OFF && strcmp(asked, words[use]) != 0)
        use++;
    if (use > DEV_CUDA_BLAS_OFF)
        die("CONVOY_BLAS", "it is auto, plain or off");
    library_dir(getenv("CONVOY_LIB_DIR"));
    dev_cuda_blas_use((enum dev_cuda_blas_kind)use);
    if (dev_cuda_blas(DEV_GPU_CUDA, about, sizeof about) == ST_OK)
        printf("# products: CONVOY_BLAS=%s, cuBLASLt %s\n", words[use], about);
    else
        printf("# products: this program's kernels, %s\n", status_message());
    fflush(stdout);
}
#endif

/* What is not a family: called with the words after its name. */
static int golden(int words_n, char **words)
{
    (void)words_n, (void)words;
    return real_golden();
}
#ifndef REAL_HIP
static int runtime(int words_n, char **words)
{
    (void)words_n, (void)words;
    return real_runtime();
}
static int cudnn(int words_n, char **words)
{
    (void)words_n, (void)words;
    return real_cudnn();
}
static int bench(int words_n, char **words) { return real_bench(words_n > 0 ? words[0] : NULL); }
static int run_tune(int words_n, char **words) { return real_tune(words_n > 0 ? words[0] : NULL); }
#endif
static const struct {
    const char *name;
    int (*run)(int words_n, char **words);
} commands[] = {{"golden", golden},
#ifndef REAL_HIP
                {"runtime", runtime},
                {"cudnn", cudnn},
                {"bench", bench},
                {"tune", run_tune}
#endif
};
#define COMMANDS_N (sizeof commands / sizeof *commands)

static void list_commands(void)
{
    for (size_t i = 0; i < COMMANDS_N; i++)
        printf("command %s\n", commands[i].name);
}

/* run_command — its exit code; -1: argv names none. */
static int run_command(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < COMMANDS_N; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    return -1;
}
#else
static void open_products(void) {}
static void list_commands(void) {}
static int run_command(int argc, char **argv)
{
    (void)argc, (void)argv;
    return -1;
}
#endif

static int list(void)
{
    list_commands();
    for (size_t i = 0; i < FAMILIES_N; i++)
        printf("family %s\n", families[i].name);
    return 0;
}

int main(int argc, char **argv)
{
    pthread_attr_t attr;
    pthread_t thread;
    void *failed = NULL;
    if (argc > 1 && strcmp(argv[1], "list") == 0)
        return list();
    open_products();
    int rc = run_command(argc, argv);
    if (rc >= 0)
        return rc;
    arena_open();
#if !defined(REAL_DRY) || defined(REAL_NUMBERS)
    cmocka_set_skip_filter("*barriers*"); /* test_dry.sh leaves one out */
#endif
    char *stack = real_malloc(STACK_BYTES);
    pthread_attr_init(&attr);
    if (pthread_attr_setstack(&attr, stack, STACK_BYTES) != 0 ||
        pthread_create(&thread, &attr, run_all, argv + 1) != 0 ||
        pthread_join(thread, &failed) != 0)
        die("the tests' thread", "does not start");
    return failed != NULL;
}
