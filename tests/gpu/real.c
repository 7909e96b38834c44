/* real — runs the tests of the CUDA kernels (tests/cuda) on a real GPU instead of the emulation,
 * all in one program.
 *
 * The tests are unchanged.
 *   buffers    are pinned memory, which the GPU reads and writes in place, so a test can look at
 *              results when the launch has ended. malloc and its kin are renamed at compile time.
 *              The stack of the tests is pinned too, and static data are registered with the GPU.
 *   controls   of the emulation become: wait for the GPU and report its error. Orders of threads
 *              are the GPU's own.
 *   launchers  are called through a check that no tensor lies among constants, which a GPU cannot
 *              reach. What launchers read on the host (spans) may lie anywhere.
 *
 *   gpu_tests                    every family; TAP of each, and a line "# family NAME ok|failed"
 *   gpu_tests NAME               one
 *   gpu_tests golden             the golden cases, with GOLDEN_DEVICE=cuda
 *   gpu_tests runtime            what src/dev relies on of CUDA's runtime (real_runtime.c)
 *   gpu_tests bench              the kernels' speed (gpu_bench.c)
 * Compiled with REAL_DRY, without CUDA: ordinary memory and the emulation, to try all of this
 * without a GPU. */
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "kernels/cuda.h"
#include "real.h"

#ifndef REAL_DRY
#include <cuda_runtime_api.h>

#include "tests/emu/emu_control.h"
#endif

/* ---- memory ---- */

#define ARENA_BYTES ((size_t)3 << 30)
#define ALIGN ((size_t)4096)
#define STACK_BYTES ((size_t)60 << 20)

/* Before each piece; a free list for each power of two. */
struct piece {
    struct piece *next;
    size_t class_i, bytes;
};
static struct {
    char *base;
    size_t used;
    struct piece *idle[48];
    pthread_mutex_t lock;
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void die(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    fflush(stdout);
    _exit(1);
}

/* constants and code end where static data begin */
extern char __executable_start, __data_start, _end;
#define PAGE ((uintptr_t)4096)

static void arena_open(void)
{
#ifdef REAL_DRY
    arena.base = aligned_alloc(ALIGN, ARENA_BYTES);
    if (!arena.base)
        die("memory", "none");
#else
    void *base = NULL;
    cudaError_t error =
        cudaHostAlloc(&base, ARENA_BYTES, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess)
        die("pinned memory", cudaGetErrorString(error));
    arena.base = base;
    char *first = (char *)((uintptr_t)&__data_start / PAGE * PAGE);
    size_t bytes = ((uintptr_t)&_end - (uintptr_t)first + PAGE - 1) / PAGE * PAGE;
    error = cudaHostRegister(first, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error != cudaSuccess)
        die("static data", cudaGetErrorString(error));
    void *seen = NULL;
    error = cudaHostGetDevicePointer(&seen, first, 0);
    if (error != cudaSuccess || seen != first)
        die("static data", "this GPU sees registered memory at other addresses than the host, so "
                           "these tests cannot be run on it");
#endif
}

static struct piece *piece_of(void *data) { return (struct piece *)(void *)((char *)data - ALIGN); }

void *real_aligned_alloc(size_t align, size_t bytes)
{
    size_t class_i = 13;
    if (align > ALIGN)
        die("aligned_alloc", "a larger alignment than the tests ask for");
    while (((size_t)1 << class_i) < bytes + ALIGN)
        class_i++;
    pthread_mutex_lock(&arena.lock);
    struct piece *piece = arena.idle[class_i];
    if (piece) {
        arena.idle[class_i] = piece->next;
    } else if (arena.used + ((size_t)1 << class_i) <= ARENA_BYTES) {
        piece = (struct piece *)(void *)(arena.base + arena.used);
        arena.used += (size_t)1 << class_i;
    }
    pthread_mutex_unlock(&arena.lock);
    if (!piece)
        die("memory of the tests", "all taken");
    piece->class_i = class_i;
    piece->bytes = bytes;
    return (char *)piece + ALIGN;
}

void *real_malloc(size_t bytes) { return real_aligned_alloc(ALIGN, bytes); }

void *real_calloc(size_t n, size_t each) { return memset(real_malloc(n * each), 0, n * each); }

void real_free(void *data)
{
    if (!data)
        return;
    if ((char *)data < arena.base || (char *)data >= arena.base + ARENA_BYTES) {
        free(data); /* of a library */
        return;
    }
    struct piece *piece = piece_of(data);
    pthread_mutex_lock(&arena.lock);
    piece->next = arena.idle[piece->class_i];
    arena.idle[piece->class_i] = piece;
    pthread_mutex_unlock(&arena.lock);
}

void *real_realloc(void *data, size_t bytes)
{
    void *grown = real_malloc(bytes);
    if (data) {
        size_t had = piece_of(data)->bytes;
        memcpy(grown, data, had < bytes ? had : bytes);
        real_free(data);
    }
    return grown;
}

/* ---- the emulation's controls ---- */

#ifndef REAL_DRY
void emu_seed(uint64_t seed) { (void)seed; }
void emu_shared_max(size_t bytes) { (void)bytes; }
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
    return word >= (uintptr_t)&__executable_start && word < (uintptr_t)&__data_start;
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
            die(op, "an argument lies among constants, where a GPU does not reach");
    }
}

static const void *spans_of_adamw(const void *a) { return ((const struct adamw *)a)->spans; }
static const void *spans_of_sgd(const void *a) { return ((const struct sgd *)a)->spans; }
static const void *spans_of(const char *op, const void *a)
{
    return strcmp(op, "adamw") == 0 ? spans_of_adamw(a)
           : strcmp(op, "sgd") == 0 ? spans_of_sgd(a)
                                    : NULL;
}

#define WRAP(name)                                                           \
    int __real_##name##_cuda(const struct cuda *cuda, const struct name *a); \
    int __wrap_##name##_cuda(const struct cuda *cuda, const struct name *a); \
    int __wrap_##name##_cuda(const struct cuda *cuda, const struct name *a)  \
    {                                                                        \
        check_args(#name, a, sizeof *a, spans_of(#name, a));                 \
        return __real_##name##_cuda(cuda, a);                                \
    }
OP_LIST(WRAP)

/* ---- the program ---- */

static const struct {
    const char *name;
    int (*main)(void);
} families[] = {
#define FAMILY(name) {#name, real_main_##name},
    REAL_FAMILIES(FAMILY)};
#define FAMILIES_N (sizeof families / sizeof *families)

static int run(size_t i)
{
    int failed = families[i].main();
    printf("# family %s %s\n", families[i].name, failed ? "failed" : "ok");
    fflush(stdout);
    return failed != 0;
}

static void *run_named(void *arg)
{
    const char *name = arg;
    intptr_t failed = 0, ran = 0;
    for (size_t i = 0; i < FAMILIES_N; i++)
        if (!name || strcmp(name, families[i].name) == 0) {
            failed += run(i);
            ran++;
        }
    if (ran == 0)
        die(name, "no such family");
    return (void *)failed;
}

int main(int argc, char **argv)
{
    pthread_attr_t attr;
    pthread_t thread;
    void *failed = NULL;
#ifndef REAL_DRY
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return real_bench();
    if (argc > 1 && strcmp(argv[1], "runtime") == 0)
        return real_runtime();
    if (argc > 1 && strcmp(argv[1], "golden") == 0)
        return real_golden();
#endif
    arena_open();
#ifndef REAL_DRY
    cmocka_set_skip_filter("*barriers*"); /* leaving one out is for the emulation */
#endif
    char *stack = real_malloc(STACK_BYTES);
    pthread_attr_init(&attr);
    if (pthread_attr_setstack(&attr, stack, STACK_BYTES) != 0 ||
        pthread_create(&thread, &attr, run_named, argc > 1 ? argv[1] : NULL) != 0 ||
        pthread_join(thread, &failed) != 0)
        die("the tests' thread", "does not start");
    return failed != NULL;
}
