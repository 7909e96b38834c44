/* blas_plan — cuBLASLt's objects for each shape, made once and kept (blas_plan.h). Must not know
 * rows, layers or layouts of kernels/matmul.h. */
#include "dev/blas_plan.h"

#ifdef CONVOY_CUDA
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"
#include "dev/dev_cuda_internal.h"
#include "dev/library.h"

#define BLAS_LIST(X)                        \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtGetVersion)                   \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)

struct blas_table {
#define BLAS_ENTRY(name) __typeof__(name) *name;
    BLAS_LIST(BLAS_ENTRY)
#undef BLAS_ENTRY
};
#define BLAS_SYMBOL(name) LIBRARY_SYMBOL(blas_table, name),
static const struct library_symbol symbols[] = {BLAS_LIST(BLAS_SYMBOL)};
static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
static const struct library_spec spec = {
    .what = "cuBLASLt",
    .names = names,
    .packages = "libcublas-13-0 (NVIDIA's Debian and Ubuntu packages) or nvidia-cublas (PyPI)",
    .symbols = symbols,
    .symbols_n = sizeof symbols / sizeof *symbols};

/* One shape, made at its first use. is_possible false: the library refused it once. */
struct plan {
    struct blas_shape shape;
    bool is_possible;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
};

struct blas {
    struct library library;
    struct blas_table lt;
    cublasLtHandle_t handle;
    struct plan *plans;
    size_t plans_n, plans_cap;
    char about[LIBRARY_PATH_MAX + 32];
};

/* ---- open, close ---- */

static void tell_about(const struct blas_table *lt, const struct library *library, char *out,
                       size_t cap)
{
    size_t v = lt->cublasLtGetVersion();
    text_format(out, cap, "%zu.%zu.%zu from %s", v / 10000, v / 100 % 100, v % 100, library->path);
}

enum status blas_plan_find(char *about, size_t cap)
{
    struct library library;
    struct blas_table lt;
    TRY(library_open(&spec, &library, &lt));
    tell_about(&lt, &library, about, cap);
    library_close(&library);
    return ST_OK;
}

enum status blas_plan_open(struct blas **out)
{
    struct blas *b = calloc(1, sizeof *b);
    if (!b)
        return FAIL(ST_RETRY, "out of memory: tables of %zu bytes for cuBLASLt", sizeof *b);
    enum status st = library_open(&spec, &b->library, &b->lt);
    if (st != ST_OK) {
        free(b);
        return st;
    }
    cublasStatus_t rc = b->lt.cublasLtCreate(&b->handle);
    if (rc != CUBLAS_STATUS_SUCCESS) {
        st = FAIL(ST_NO_DEVICE, "cuBLASLt from %s does not start: status %d", b->library.path, rc);
        library_close(&b->library);
        free(b);
        return st;
    }
    tell_about(&b->lt, &b->library, b->about, sizeof b->about);
    *out = b;
    return ST_OK;
}

static void free_plan(const struct blas *b, struct plan *p)
{
    if (p->desc)
        b->lt.cublasLtMatmulDescDestroy(p->desc);
    cublasLtMatrixLayout_t *const layouts[] = {&p->a, &p->b, &p->c, &p->d};
    for (int i = 0; i < 4; i++)
        if (*layouts[i])
            b->lt.cublasLtMatrixLayoutDestroy(*layouts[i]);
}

void blas_plan_close(struct blas *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->plans_n; i++)
        free_plan(b, &b->plans[i]);
    free(b->plans);
    b->lt.cublasLtDestroy(b->handle);
    library_close(&b->library);
    free(b);
}

const char *blas_plan_about(const struct blas *b) { return b->about; }

/* ---- a plan ---- */

static cudaDataType_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? CUDA_R_16BF : dtype == DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cublasLtEpilogue_t epilogue_of(enum blas_epilogue epilogue)
{
    static const cublasLtEpilogue_t list[BLAS_EPILOGUES] = {
        [BLAS_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [BLAS_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [BLAS_GELU] = CUBLASLT_EPILOGUE_GELU,
        [BLAS_GELU_BIAS] = CUBLASLT_EPILOGUE_GELU_BIAS,
        [BLAS_GELU_AUX] = CUBLASLT_EPILOGUE_GELU_AUX,
        [BLAS_GELU_AUX_BIAS] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        [BLAS_DGELU] = CUBLASLT_EPILOGUE_DGELU,
        [BLAS_BGRAD_A] = CUBLASLT_EPILOGUE_BGRADA,
        [BLAS_BGRAD_B] = CUBLASLT_EPILOGUE_BGRADB,
    };
    return list[epilogue];
}

static bool has_bias(enum blas_epilogue e)
{
    return e == BLAS_BIAS || e == BLAS_GELU_BIAS || e == BLAS_GELU_AUX_BIAS || e == BLAS_BGRAD_A ||
           e == BLAS_BGRAD_B;
}

static bool has_aux(enum blas_epilogue e)
{
    return e == BLAS_GELU_AUX || e == BLAS_GELU_AUX_BIAS || e == BLAS_DGELU;
}

/* set — sets an attribute of the product; false: refused. */
static bool set(const struct blas *b, cublasLtMatmulDesc_t desc,
                cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
    return b->lt.cublasLtMatmulDescSetAttribute(desc, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool describe(const struct blas *b, const struct blas_shape *s, cublasLtMatmulDesc_t desc)
{
    const cublasOperation_t turn[2] = {CUBLAS_OP_N, CUBLAS_OP_T};
    const cublasLtEpilogue_t epilogue = epilogue_of(s->epilogue);
    const cudaDataType_t bias = type_of(s->bias);
    bool ok =
        set(b, desc, CUBLASLT_MATMUL_DESC_TRANSA, &turn[s->is_a_transposed], sizeof turn[0]) &&
        set(b, desc, CUBLASLT_MATMUL_DESC_TRANSB, &turn[s->is_b_transposed], sizeof turn[0]) &&
        set(b, desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (ok && has_bias(s->epilogue))
        ok = set(b, desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias);
    if (ok && has_aux(s->epilogue))
        ok = set(b, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->ld_aux, sizeof s->ld_aux);
    return ok;
}

/* addresses — sets the addresses of this call. */
static bool addresses(const struct blas *b, const struct blas_call *call, cublasLtMatmulDesc_t desc)
{
    bool ok = true;
    if (has_bias(call->shape.epilogue))
        ok = set(b, desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call->bias, sizeof call->bias);
    if (ok && has_aux(call->shape.epilogue))
        ok = set(b, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &call->aux, sizeof call->aux);
    return ok;
}

static bool lay_out(const struct blas *b, const struct blas_shape *s, struct plan *p)
{
    int64_t a_rows = s->is_a_transposed ? s->k : s->m, b_rows = s->is_b_transposed ? s->n : s->k;
    const struct {
        cublasLtMatrixLayout_t *out;
        enum dtype dtype;
        int64_t rows, cols, ld;
    } list[] = {{&p->a, s->a, a_rows, s->m + s->k - a_rows, s->lda},
                {&p->b, s->b, b_rows, s->n + s->k - b_rows, s->ldb},
                {&p->c, s->d, s->m, s->n, s->ldc},
                {&p->d, s->d, s->m, s->n, s->ldd}};
    for (int i = 0; i < 4; i++)
        if (b->lt.cublasLtMatrixLayoutCreate(list[i].out, type_of(list[i].dtype),
                                             (uint64_t)list[i].rows, (uint64_t)list[i].cols,
                                             list[i].ld) != CUBLAS_STATUS_SUCCESS)
            return false;
    return true;
}

/* choose — the library's first proposal for this shape, these alignments and this workspace. */
static bool choose(const struct blas *b, const struct cuda *cuda, const struct blas_shape *s,
                   struct plan *p)
{
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found = {0};
    int found_n = 0;
    uint64_t workspace = cuda->scratch_bytes;
    uint32_t align[4] = {(uint32_t)s->align_a, (uint32_t)s->align_b, (uint32_t)s->align_c,
                         (uint32_t)s->align_d};
    static const cublasLtMatmulPreferenceAttributes_t what[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    if (b->lt.cublasLtMatmulPreferenceCreate(&wish) != CUBLAS_STATUS_SUCCESS)
        return false;
    bool ok = b->lt.cublasLtMatmulPreferenceSetAttribute(
                  wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace) ==
              CUBLAS_STATUS_SUCCESS;
    for (int i = 0; ok && i < 4; i++)
        ok = b->lt.cublasLtMatmulPreferenceSetAttribute(wish, what[i], &align[i],
                                                        sizeof align[i]) == CUBLAS_STATUS_SUCCESS;
    ok =
        ok && b->lt.cublasLtMatmulAlgoGetHeuristic(b->handle, p->desc, p->a, p->b, p->c, p->d, wish,
                                                   1, &found, &found_n) == CUBLAS_STATUS_SUCCESS;
    b->lt.cublasLtMatmulPreferenceDestroy(wish);
    p->algo = found.algo;
    p->workspace_bytes = found.workspaceSize;
    return ok && found_n > 0 && found.state == CUBLAS_STATUS_SUCCESS;
}

/* The heuristic takes the alignment of bias and aux from their addresses (cublasLt.h) and does not
 * read them: it gets addresses aligned to exactly BLAS_ALIGN. Some versions fail on the GPU with
 * less, so such products are refused. */
static bool make(const struct blas *b, const struct cuda *cuda, const struct blas_shape *shape,
                 struct plan *p)
{
    void *aligned = (void *)(uintptr_t)BLAS_ALIGN;
    const struct blas_call call = {.shape = *shape, .bias = aligned, .aux = aligned};
    cublasComputeType_t compute =
        shape->is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    return !shape->is_misaligned &&
           b->lt.cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           describe(b, shape, p->desc) && addresses(b, &call, p->desc) && lay_out(b, shape, p) &&
           choose(b, cuda, shape, p);
}

/* log_refused — once for a shape: a product that is split, or done by this program's kernels, costs
 * time that a user may look for. */
static void log_refused(const struct blas_shape *s)
{
    static const char *const epilogues[BLAS_EPILOGUES] = {
        [BLAS_NONE] = "no epilogue",  [BLAS_BIAS] = "BIAS",
        [BLAS_GELU] = "GELU",         [BLAS_GELU_BIAS] = "GELU_BIAS",
        [BLAS_GELU_AUX] = "GELU_AUX", [BLAS_GELU_AUX_BIAS] = "GELU_AUX_BIAS",
        [BLAS_DGELU] = "DGELU",       [BLAS_BGRAD_A] = "BGRADA",
        [BLAS_BGRAD_B] = "BGRADB"};
    LOG_INFO("cuBLASLt does not support %lldx%lldx%lld with %s, %zu-bit to %zu-bit numbers: this "
             "product is split, or done by the program's own kernels",
             (long long)s->m, (long long)s->n, (long long)s->k, epilogues[s->epilogue],
             8 * dtype_bytes(s->a), 8 * dtype_bytes(s->d));
}

/* find — the plan of a shape; made when it is new. A run has a few dozen. */
static enum status find(struct blas *b, const struct cuda *cuda, const struct blas_call *call,
                        struct plan **out)
{
    for (size_t i = 0; i < b->plans_n; i++)
        if (memcmp(&b->plans[i].shape, &call->shape, sizeof call->shape) == 0) {
            *out = &b->plans[i];
            return ST_OK;
        }
    if (b->plans_n == b->plans_cap) {
        size_t cap = b->plans_cap ? 2 * b->plans_cap : 64;
        struct plan *grown = realloc(b->plans, cap * sizeof *grown);
        if (!grown)
            return FAIL(ST_RETRY, "out of memory: %zu shapes of products", cap);
        b->plans = grown;
        b->plans_cap = cap;
    }
    struct plan *p = &b->plans[b->plans_n++];
    memset(p, 0, sizeof *p);
    memcpy(&p->shape, &call->shape, sizeof p->shape);
    p->is_possible = make(b, cuda, &p->shape, p);
    if (!p->is_possible)
        log_refused(&p->shape);
    *out = p;
    return ST_OK;
}

enum status blas_plan_run(struct blas *b, const struct cuda *cuda, const struct blas_call *call,
                          bool *is_done)
{
    struct plan *p = NULL;
    const float one = 1;
    *is_done = false;
    TRY(find(b, cuda, call, &p));
    if (!p->is_possible || !addresses(b, call, p->desc))
        return ST_OK;
    cublasStatus_t rc = b->lt.cublasLtMatmul(
        b->handle, p->desc, &one, call->a, p->a, call->b, p->b, &call->beta, call->c, p->c, call->d,
        p->d, &p->algo, cuda->scratch, p->workspace_bytes, (cudaStream_t)cuda->stream);
    if (rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE) {
        /* refused before anything was submitted: this program's kernel takes this shape */
        p->is_possible = false;
        log_refused(&p->shape);
        return ST_OK;
    }
    if (rc != CUBLAS_STATUS_SUCCESS)
        return FAIL(
            rc == CUBLAS_STATUS_EXECUTION_FAILED ? ST_FAULT : ST_BUG,
            "cuBLASLt %s: status %d for a product of %lld x %lld x %lld; see dmesg for an Xid",
            b->about, rc, (long long)call->shape.m, (long long)call->shape.n,
            (long long)call->shape.k);
    *is_done = true;
    return ST_OK;
}
#endif
