/* blas_plan — one product as cuBLASLt sees it, and what it found for that shape. Inside room dev
 * only: blas.c says which product, blas_plan.c talks to the library; the device opens and closes
 * it. */
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

/* Column-major: D (m,n) = op(A) (m,k) · op(B) (k,n) + beta·C. Rows of a transposed A are its k. ld:
 * elements from one column to the next. Everything here but addresses is the key of a plan. */
struct blas_shape {
    int64_t m, n, k, lda, ldb, ldc, ldd, ld_aux;
    enum dtype a, b, d; /* C is as D */
    enum dtype bias;
    enum blas_epilogue epilogue;
    int align_a, align_b, align_c, align_d; /* bytes, at most BLAS_ALIGN */
    int is_a_transposed, is_b_transposed, is_tf32;
    int is_misaligned; /* bias or aux is no multiple of BLAS_ALIGN: refused */
};
struct blas_call {
    struct blas_shape shape;
    const void *a, *b, *c;
    void *d, *bias, *aux; /* bias, aux: what the epilogue reads or writes */
    float beta;
};

/* blas_plan_open — ST_NO_DEVICE: no library, with where it was looked for. */
enum status blas_plan_open(struct blas **out);
/* blas_plan_find — opened for a moment, without a device: what blas_plan_about would say, or why
 * not. */
enum status blas_plan_find(char *about, size_t cap);
void blas_plan_close(struct blas *b); /* accepts NULL */
/* "13.0.2 from /usr/…/libcublasLt.so.13"; until it is closed */
const char *blas_plan_about(const struct blas *b);
/* blas_plan_run — *is_done false: cuBLASLt has no way to do this; nothing was asked of the
 * device. */
enum status blas_plan_run(struct blas *b, const struct cuda *cuda, const struct blas_call *call,
                          bool *is_done);

#endif
