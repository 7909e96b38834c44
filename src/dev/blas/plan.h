/* blas_plan — one product as cuBLASLt or hipBLASLt sees it, and the algorithm for that shape: from
 * the table that is checked in (blas/tuned.h), else the library's own first proposal. For src/dev
 * only: blas.c describes the product, blas/plan.c calls the library, the device opens and closes
 * it. Must not know operations of kernels/matmul.h. */
#ifndef CONVOY_DEV_BLAS_PLAN_H
#define CONVOY_DEV_BLAS_PLAN_H

#include "dev/blas/blas.h"

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
    int sm_target;     /* set by blas_plan_run: multiprocessors for the product; 0: all */
};
struct blas_call {
    struct blas_shape shape;
    const void *a, *b, *c;
    void *d, *bias, *aux; /* bias, aux: inputs or outputs of the epilogue */
    float beta;
};

/* The GPU as identified in the table of algorithms. */
struct blas_chip {
    char name[128];
    int sm_count;
};

/* blas_plan_open — opens the library of the chosen vendor. ST_NO_DEVICE: it is missing, with the
 * folders searched. */
enum status blas_plan_open(const struct blas_chip *chip, struct blas **out);
/* blas_plan_find — writes the string of blas_plan_about without a device: opens the library for a
 * moment. is_hip: hipBLASLt, else cuBLASLt. */
enum status blas_plan_find(bool is_hip, char *about, size_t cap);
void blas_plan_close(struct blas *b); /* accepts NULL */
/* blas_plan_about — returns "13.0.2 from /usr/…/libcublasLt.so.13"; valid until it is closed. */
const char *blas_plan_about(const struct blas *b);
/* blas_plan_epilogue — returns the name in the manuals: "GELU_AUX_BIAS". */
const char *blas_plan_epilogue(enum blas_epilogue epilogue);
/* blas_plan_capture — marks the beginning or the end of a capture of the stream. Meanwhile no plan
 * is made, and a product that the library refuses is an error: the capture ends, and the work is
 * submitted one by one. */
void blas_plan_capture(struct blas *b, bool is_captured);
/* blas_plan_leave — leaves `sms` multiprocessors to other work (NCCL) in products from now on, if
 * the library can (hipBLASLt cannot); 0: none. The table of algorithms, which was measured with all
 * of them, is not used then. */
void blas_plan_leave(struct blas *b, int sms);
/* blas_plan_run — runs a product. *is_done false: the library cannot do it, or the table of
 * algorithms lists another form of it as faster; nothing was submitted. */
enum status blas_plan_run(struct blas *b, const struct cuda *cuda, const struct blas_call *call,
                          bool *is_done);

/* blas_plan_version — returns the library's number of its version; for tests and for the
 * measurement of algorithms, like the functions below. */
size_t blas_plan_version(const struct blas *b);
struct blas_tuned;
/* blas_plan_table — replaces the table of algorithms for plans that are made from now on (gpu_tests
 * tune); forgets all plans. The text is borrowed. */
void blas_plan_table(struct blas *b, const char *table);
/* blas_plan_candidates — writes the library's proposals for a shape, best first, at most `most`;
 * returns their number. */
int blas_plan_candidates(struct blas *b, const struct cuda *cuda, const struct blas_shape *shape,
                         struct blas_tuned *out, int most);
/* blas_plan_set — makes the plan of this shape use this algorithm from now on; false: the library
 * refuses it. */
bool blas_plan_set(struct blas *b, const struct cuda *cuda, const struct blas_shape *shape,
                   const struct blas_tuned *tuned);

#endif
