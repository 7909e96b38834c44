/* blas_plan — one product as cuBLASLt sees it, and the algorithm that it chose for that shape. For
 * src/dev only: blas.c describes the product, blas_plan.c calls the library, the device opens and
 * closes it. Must not know operations of kernels/matmul.h. */
#ifndef CONVOY_DEV_BLAS_PLAN_H
#define CONVOY_DEV_BLAS_PLAN_H

#include "dev/blas.h"

#define BLAS_ALIGN 16

enum blas_epilogue {
    BLAS_NONE,
    BLAS_BIAS,
    BLAS_GELU,
    BLAS_GELU_BIAS,
    BLAS_GELU_AUX,
    BLAS_GELU_AUX_BIAS,
    BLAS_DGELU,
    BLAS_BGRAD_A,
    BLAS_BGRAD_B,
    BLAS_EPILOGUES
};

/* Column-major: D (m,n) = op(A) (m,k) · op(B) (k,n) + beta·C. The rows of a transposed A are its k.
 * ld: elements from one column to the next. All of it is the key of a plan; addresses are not. */
struct blas_shape {
    int64_t m, n, k, lda, ldb, ldc, ldd, ld_aux;
    enum dtype a, b, d; /* C is as D */
    enum dtype bias;
    enum blas_epilogue epilogue;
    int align_a, align_b, align_c, align_d; /* bytes, at most BLAS_ALIGN */
    int is_a_transposed, is_b_transposed, is_tf32;
    int is_misaligned; /* bias or aux is not aligned to BLAS_ALIGN: refused */
};
struct blas_call {
    struct blas_shape shape;
    const void *a, *b, *c;
    void *d, *bias, *aux; /* bias, aux: what the epilogue reads or writes */
    float beta;
};

/* blas_plan_open — ST_NO_DEVICE: the library is missing, with the folders searched. */
enum status blas_plan_open(struct blas **out);
/* blas_plan_find — what blas_plan_about would return, without a device: opens the library for a
 * moment. */
enum status blas_plan_find(char *about, size_t cap);
void blas_plan_close(struct blas *b); /* accepts NULL */
/* "13.0.2 from /usr/…/libcublasLt.so.13"; until it is closed */
const char *blas_plan_about(const struct blas *b);
/* blas_plan_run — *is_done false: cuBLASLt cannot do this product; nothing was submitted. */
enum status blas_plan_run(struct blas *b, const struct cuda *cuda, const struct blas_call *call,
                          bool *is_done);

#endif
