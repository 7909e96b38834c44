/* real — the interface between tests/gpu/real.c and the tests of the CUDA kernels: their memory,
 * and the names of their mains. */
#ifndef CONVOY_TESTS_GPU_REAL_H
#define CONVOY_TESTS_GPU_REAL_H

#include <stddef.h>

#define REAL_FAMILIES(X) \
    X(adamw)             \
    X(attention)         \
    X(attention_own)     \
    X(attention_ranks)   \
    X(branch_add)        \
    X(cast)              \
    X(checksum)          \
    X(combine)           \
    X(compress)          \
    X(copy_2d)           \
    X(dropout)           \
    X(embed)             \
    X(gelu)              \
    X(grad_scale)        \
    X(halves)            \
    X(head_norm)         \
    X(matmul)            \
    X(norm)              \
    X(reduce)            \
    X(relu2)             \
    X(rope)              \
    X(rows)              \
    X(softcap)           \
    X(swiglu)            \
    X(xent)

#define REAL_DECLARE(name) int real_main_##name(void);
REAL_FAMILIES(REAL_DECLARE)
#undef REAL_DECLARE

/* real_bench — the kernels against the limits of the GPU (gpu_bench.c); only: a word in the names
 * of the rows to measure; NULL: all. */
int real_bench(const char *only);
/* real_tune — the fastest algorithms of cuBLASLt, written to this file (gpu_tune.c). */
int real_tune(const char *path);
/* real_runtime — what we lean on of CUDA's runtime (real_runtime.c). */
int real_runtime(void);
/* real_cudnn — cuDNN's attention beside the program's own (real_cudnn.c). */
int real_cudnn(void);
/* real_golden — are we GPT-2? (tests/golden); memory as usual. */
int real_golden(void);

/* Notes an error of a test beside its limit (KT_SEEN of tests/kernels/kernel_test.h). */
void real_error(const char *test, double error, double limit);

void *real_malloc(size_t bytes);
void *real_calloc(size_t n, size_t each);
void *real_aligned_alloc(size_t align, size_t bytes);
void *real_realloc(void *data, size_t bytes);
void real_free(void *data);

#endif
