/* blas_lt — cuBLASLt's functions, loaded when they are needed, and its objects for one product: the
 * description, the four layouts and the preference for a search. For src/dev and tests, and only in
 * builds with CUDA. Nothing here needs a device, so tests call it with NVIDIA's library on machines
 * without one. Must not know which algorithm is used. */
#ifndef CONVOY_DEV_BLAS_LT_H
#define CONVOY_DEV_BLAS_LT_H

#include "dev/blas/plan.h"

#ifdef CONVOY_CUDA
#include <cublasLt.h>

#include "dev/nvidia/library.h"

#define BLAS_LT_LIST(X)                     \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtGetCudartVersion)             \
    X(cublasLtGetVersion)                   \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulAlgoCheck)              \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)

struct blas_lt {
#define BLAS_LT_ENTRY(name) __typeof__(name) *name;
    BLAS_LT_LIST(BLAS_LT_ENTRY)
#undef BLAS_LT_ENTRY
};

struct blas_lt_objects {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
};

/* blas_lt_open — loads the library. ST_NO_DEVICE: it is missing, with the folders searched. */
enum status blas_lt_open(struct library *library, struct blas_lt *lt);
/* blas_lt_about — writes version and path: "13.0.2 from /usr/…/libcublasLt.so.13" */
void blas_lt_about(const struct blas_lt *lt, const struct library *library, char *out, size_t cap);
/* blas_lt_make — makes the objects of a product. false: the library refuses the product. The caller
 * frees the objects in both cases. `out` is zeroed. */
bool blas_lt_make(const struct blas_lt *lt, const struct blas_shape *shape,
                  struct blas_lt_objects *out);
/* blas_lt_free — frees the objects that are set, and zeroes *objects. */
void blas_lt_free(const struct blas_lt *lt, struct blas_lt_objects *objects);
/* blas_lt_addresses — sets the addresses of bias and aux of this call; false: refused. */
bool blas_lt_addresses(const struct blas_lt *lt, const struct blas_call *call,
                       cublasLtMatmulDesc_t desc);
/* blas_lt_preference — makes the preference for a search with these alignments and at most
 * `workspace` bytes. Partial sums are added as fp32, never as 16-bit numbers. NULL: refused. The
 * caller destroys it. */
cublasLtMatmulPreference_t blas_lt_preference(const struct blas_lt *lt,
                                              const struct blas_shape *shape, size_t workspace);
#endif

#endif
