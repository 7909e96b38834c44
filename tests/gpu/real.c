/* real — runs the tests of the CUDA kernels (tests/cuda) on a real GPU instead of the emulation,
 * all in one program.
 *
 * The tests are unchanged.
 *   buffers    are pinned memory, which the GPU reads and writes in place, so a test can look at
 *              results when the launch has ended. malloc and its kin are renamed at compile time.
 *              The stack of the tests is pinned too.
 *   controls   of the emulation become: wait for the GPU and report its error. Orders of threads
 *              are the GPU's own.
 *   launchers  are called through a check that no tensor lies among constants or static data,
 *              which a GPU cannot reach. What launchers read on the host (spans) may lie anywhere.
 * Where the host has little memory that can be pinned, less is taken, and that is said.
 *
 *   gpu_tests                    every family; TAP of each, and a line "# family NAME ok|failed"
 *   gpu_tests NAME...            these
 *   gpu_tests golden             the golden cases, with GOLDEN_DEVICE=cuda
 *   gpu_tests runtime            what src/dev relies on of CUDA's runtime (real_runtime.c)
 *   gpu_tests bench [EXPRESSION] the kernels' speed (gpu_bench.c), of rows with such a name
 *   gpu_tests tune FILE          the fastest algorithms of cuBLASLt, as entries (gpu_tune.c)
 *   gpu_tests list               what may be named
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

#include "base/status.h"
#include "dev/dev_cuda.h"
#include "dev/library.h"
#include "tests/emu/emu_control.h"
#endif

/* ---- memory ---- */

#define ALIGN ((size_t)4096)
#define STACK_BYTES ((size_t)60 << 20)

/* Before each piece; a free list for each power of two. */
struct piece {
    struct piece *next;
    size_t class_i, bytes;
};
static struct {
    char *base;
    size_t bytes, used;
    struct piece *idle[48];
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

/* take_arena — false: this much cannot be pinned, and why. */
static int take_arena(size_t bytes, const char **why)
{
#ifdef REAL_DRY
    arena.base = aligned_alloc(ALIGN, bytes);
    *why = arena.base ? NULL : "malloc fails";
#else
    void *base = NULL;
    cudaError_t error = cudaHostAlloc(&base, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    *why = error == cudaSuccess ? NULL : cudaGetErrorString(error);
    (void)cudaGetLastError();
    arena.base = base;
#endif
    arena.bytes = bytes;
    return *why == NULL;
}

static void arena_open(void)
{
    static const size_t mib[] = {3072, 1024, 512};
    const char *why = NULL;
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
        if (take_arena(mib[i] << 20, &why)) {
            printf("# pinned memory: %zu MiB\n", mib[i]);
            return;
        }
        printf("# %zu MiB of pinned memory cannot be had: %s\n", mib[i], why);
    }
    die("pinned memory", why);
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
    } else if (arena.used + ((size_t)1 << class_i) <= arena.bytes) {
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
    if ((char *)data < arena.base || (char *)data >= arena.base + arena.bytes) {
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
float emu_quick_error; /* the GPU has its own */
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
    if (dev_cuda_blas(about, sizeof about) == ST_OK)
        printf("# products: CONVOY_BLAS=%s, cuBLASLt %s\n", words[use], about);
    else
        printf("# products: this program's kernels, %s\n", status_message());
    fflush(stdout);
}

/* What is not a family: called with the words after its name. */
static int golden(int words_n, char **words)
{
    (void)words_n, (void)words;
    return real_golden();
}
static int runtime(int words_n, char **words)
{
    (void)words_n, (void)words;
    return real_runtime();
}
static int bench(int words_n, char **words) { return real_bench(words_n > 0 ? words[0] : NULL); }
static int run_tune(int words_n, char **words) { return real_tune(words_n > 0 ? words[0] : NULL); }
static const struct {
    const char *name;
    int (*run)(int words_n, char **words);
} commands[] = {{"golden", golden}, {"runtime", runtime}, {"bench", bench}, {"tune", run_tune}};
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
#ifndef REAL_DRY
    cmocka_set_skip_filter("*barriers*"); /* leaving one out is for the emulation */
#endif
    char *stack = real_malloc(STACK_BYTES);
    pthread_attr_init(&attr);
    if (pthread_attr_setstack(&attr, stack, STACK_BYTES) != 0 ||
        pthread_create(&thread, &attr, run_all, argv + 1) != 0 ||
        pthread_join(thread, &failed) != 0)
        die("the tests' thread", "does not start");
    return failed != NULL;
}
