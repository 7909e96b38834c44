/* blas_lt — cuBLASLt or hipBLASLt, loaded when it is needed, and its objects for one product: the
 * description, the four layouts and the preference for a search. Both have the same functions and
 * objects; the numbers in which they differ are in one table for each. For src/dev and tests.
 * Nothing here needs a device, so tests call it with NVIDIA's library on machines without one. The
 * caller chooses the algorithm. */
#ifndef CONVOY_DEV_BLAS_LT_H
#define CONVOY_DEV_BLAS_LT_H

#include "dev/blas/plan.h"
#include "dev/blas/tuned.h"
#include "dev/cuda/runtime.h"
#include "dev/nvidia/library.h"

/* Types of the list below; a test replaces them with the types of cublasLt.h. */
typedef void *lt_handle, *lt_desc, *lt_layout, *lt_preference;
typedef void lt_algo, lt_result;

/* BLAS_LT_CALLS — X(name without cublasLt or hipblasLt, parameters); all return a status. */
#define BLAS_LT_CALLS(X)                                                                        \
    X(Create, (lt_handle * out))                                                                \
    X(Destroy, (lt_handle handle))                                                              \
    X(Matmul,                                                                                   \
      (lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout of_a,        \
       const void *b, lt_layout of_b, const void *beta, const void *c, lt_layout of_c, void *d, \
       lt_layout of_d, const lt_algo *algo, void *workspace, size_t bytes, gpu_stream stream))  \
    X(MatmulAlgoGetHeuristic,                                                                   \
      (lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d,      \
       lt_preference preference, int most, lt_result *out, int *n_out))                         \
    X(MatmulDescCreate, (lt_desc * out, unsigned compute, unsigned scale))                      \
    X(MatmulDescDestroy, (lt_desc desc))                                                        \
    X(MatmulDescSetAttribute, (lt_desc desc, unsigned what, const void *value, size_t bytes))   \
    X(MatmulPreferenceCreate, (lt_preference * out))                                            \
    X(MatmulPreferenceDestroy, (lt_preference preference))                                      \
    X(MatmulPreferenceSetAttribute,                                                             \
      (lt_preference preference, unsigned what, const void *value, size_t bytes))               \
    X(MatrixLayoutCreate,                                                                       \
      (lt_layout * out, unsigned type, uint64_t rows, uint64_t cols, int64_t ld))               \
    X(MatrixLayoutDestroy, (lt_layout layout))

/* The numbers in which the libraries differ. The numbers for epilogues, types of elements, success
 * and the size of the workspace in a preference are the same in both (lt.c). */
struct blas_lt_numbers {
    unsigned compute[2];   /* fp32, TF32 */
    unsigned transpose[2]; /* no, yes */
    /* attributes of a description; sm_target 0: the library has none */
    unsigned trans_a, trans_b, epilogue, bias, bias_type, aux, aux_ld, sm_target;
    unsigned invalid_value, execution_failed, not_supported; /* status */
    unsigned algo_bytes;
    unsigned version_unit; /* unit of the major version */
};
/* blas_lt_numbers — returns the numbers of hipBLASLt or cuBLASLt; here for tests. */
const struct blas_lt_numbers *blas_lt_numbers(bool is_hip);

#define BLAS_LT_ALGOS 64 /* proposals of a search, at most */

/* An algorithm, and the workspace that it needs. */
struct blas_lt_algo {
    _Alignas(uint64_t) uint8_t data[BLAS_TUNED_ALGO];
    size_t workspace_bytes;
};

struct blas_lt {
    bool is_hip;
    const char *name; /* "cuBLASLt" */
    const struct blas_lt_numbers *numbers;
#define BLAS_LT_MEMBER(name, parameters) unsigned(*name) parameters;
    BLAS_LT_CALLS(BLAS_LT_MEMBER)
#undef BLAS_LT_MEMBER
    /* calls of one library; NULL in the other */
    size_t (*cublasLtGetCudartVersion)(void);
    size_t (*cublasLtGetVersion)(void);
    unsigned (*cublasLtMatmulAlgoCheck)(lt_handle handle, lt_desc desc, lt_layout a, lt_layout b,
                                        lt_layout c, lt_layout d, const lt_algo *algo,
                                        lt_result *out);
    unsigned (*hipblasLtGetVersion)(lt_handle handle, int *out);
};

struct blas_lt_objects {
    lt_desc desc;
    lt_layout a, b, c, d;
};

/* blas_lt_open — loads the library. ST_NO_DEVICE: it is missing, with the folders searched, or it
 * uses another runtime of AMD than this process. */
enum status blas_lt_open(bool is_hip, struct library *library, struct blas_lt *lt);
/* blas_lt_version — returns the version as the library's number. */
size_t blas_lt_version(const struct blas_lt *lt);
/* blas_lt_about — writes version and path: "13.0.2 from /usr/…/libcublasLt.so.13" */
void blas_lt_about(const struct blas_lt *lt, const struct library *library, char *out, size_t cap);
/* blas_lt_make — makes the objects of a product. false: the library refuses the product. The caller
 * frees the objects in both cases. `out` is zeroed. */
bool blas_lt_make(const struct blas_lt *lt, const struct blas_shape *shape,
                  struct blas_lt_objects *out);
/* blas_lt_free — frees the objects that are set, and zeroes *objects. */
void blas_lt_free(const struct blas_lt *lt, struct blas_lt_objects *objects);
/* blas_lt_addresses — sets the addresses of bias and aux of this call; false: refused. */
bool blas_lt_addresses(const struct blas_lt *lt, const struct blas_call *call, lt_desc desc);
/* blas_lt_preference — makes the preference for a search with at most `workspace` bytes; cuBLASLt
 * also gets the alignments, and adds partial sums as fp32, never as 16-bit numbers. NULL: refused.
 * The caller destroys it. Here for tests. */
lt_preference blas_lt_preference(const struct blas_lt *lt, const struct blas_shape *shape,
                                 size_t workspace);
/* blas_lt_search — writes the library's proposals for a product, best first, at most `most`, which
 * is at most BLAS_LT_ALGOS, and returns their number. */
int blas_lt_search(const struct blas_lt *lt, lt_handle handle, const struct blas_lt_objects *o,
                   const struct blas_shape *shape, size_t workspace, struct blas_lt_algo *out,
                   int most);
/* blas_lt_check — finds the workspace of an algorithm for a product. false: the library refuses it,
 * or cannot check algorithms (hipBLASLt). */
bool blas_lt_check(const struct blas_lt *lt, lt_handle handle, const struct blas_lt_objects *o,
                   struct blas_lt_algo *algo);

#endif
