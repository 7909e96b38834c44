/* blas_lt — see blas/lt.h. */
#include "dev/blas/lt.h"

#ifdef CONVOY_CUDA
#include "base/text.h"
#include "dev/cuda/internal.h"

#define BLAS_SYMBOL(name) LIBRARY_SYMBOL(blas_lt, name),
static const struct library_symbol symbols[] = {BLAS_LT_LIST(BLAS_SYMBOL)};
#if CUBLAS_VER_MAJOR >= 13
static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
#define PACKAGES "libcublas-13-0 (NVIDIA's Debian and Ubuntu packages) or nvidia-cublas (PyPI)"
#else
static const char *const names[] = {"libcublasLt.so.12", "libcublasLt.so.13", NULL};
#define PACKAGES "libcublas-12-8 (NVIDIA's Debian and Ubuntu packages) or nvidia-cublas-cu12 (PyPI)"
#endif

/* Returns false and the reason if the library is for a newer CUDA than the driver. */
static bool fits(const void *opened, char *why, size_t cap)
{
    const struct blas_lt *lt = opened;
    return dev_cuda_driver_fits(lt->cublasLtGetCudartVersion(), why, cap);
}

static const struct library_spec spec = {.what = "cuBLASLt",
                                         .names = names,
                                         .packages = PACKAGES,
                                         .symbols = symbols,
                                         .symbols_n = sizeof symbols / sizeof *symbols,
                                         .fits = fits};

enum status blas_lt_open(struct library *library, struct blas_lt *lt)
{
    return library_open(&spec, library, lt);
}

void blas_lt_about(const struct blas_lt *lt, const struct library *library, char *out, size_t cap)
{
    size_t v = lt->cublasLtGetVersion();
    text_format(out, cap, "%zu.%zu.%zu from %s", v / 10000, v / 100 % 100, v % 100, library->path);
}

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

/* Sets an attribute of the product; false: refused. */
static bool set_attr(const struct blas_lt *lt, cublasLtMatmulDesc_t desc,
                     cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
    return lt->cublasLtMatmulDescSetAttribute(desc, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool set_descriptor(const struct blas_lt *lt, const struct blas_shape *s,
                           cublasLtMatmulDesc_t desc)
{
    const cublasOperation_t turn[2] = {CUBLAS_OP_N, CUBLAS_OP_T};
    const cublasLtEpilogue_t epilogue = epilogue_of(s->epilogue);
    const cudaDataType_t bias = type_of(s->bias);
    const int32_t target = s->sm_target;
    bool ok = set_attr(lt, desc, CUBLASLT_MATMUL_DESC_TRANSA, &turn[s->is_a_transposed],
                       sizeof turn[0]) &&
              set_attr(lt, desc, CUBLASLT_MATMUL_DESC_TRANSB, &turn[s->is_b_transposed],
                       sizeof turn[0]) &&
              set_attr(lt, desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (ok && has_bias(s->epilogue))
        ok = set_attr(lt, desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias);
    if (ok && has_aux(s->epilogue))
        ok = set_attr(lt, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->ld_aux, sizeof s->ld_aux);
    if (ok && s->sm_target > 0)
        ok = set_attr(lt, desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &target, sizeof target);
    return ok;
}

bool blas_lt_addresses(const struct blas_lt *lt, const struct blas_call *call,
                       cublasLtMatmulDesc_t desc)
{
    bool ok = true;
    if (has_bias(call->shape.epilogue))
        ok = set_attr(lt, desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call->bias, sizeof call->bias);
    if (ok && has_aux(call->shape.epilogue))
        ok = set_attr(lt, desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &call->aux,
                      sizeof call->aux);
    return ok;
}

static bool lay_out(const struct blas_lt *lt, const struct blas_shape *s,
                    struct blas_lt_objects *out)
{
    int64_t a_rows = s->is_a_transposed ? s->k : s->m, b_rows = s->is_b_transposed ? s->n : s->k;
    const struct {
        cublasLtMatrixLayout_t *out;
        enum dtype dtype;
        int64_t rows, cols, ld;
    } list[] = {{&out->a, s->a, a_rows, s->m + s->k - a_rows, s->lda},
                {&out->b, s->b, b_rows, s->n + s->k - b_rows, s->ldb},
                {&out->c, s->d, s->m, s->n, s->ldc},
                {&out->d, s->d, s->m, s->n, s->ldd}};
    for (int i = 0; i < 4; i++)
        if (lt->cublasLtMatrixLayoutCreate(list[i].out, type_of(list[i].dtype),
                                           (uint64_t)list[i].rows, (uint64_t)list[i].cols,
                                           list[i].ld) != CUBLAS_STATUS_SUCCESS)
            return false;
    return true;
}

/* Makes the objects. The search derives the alignment of bias and aux from their addresses
 * (cublasLt.h) and does not read them: it gets addresses aligned to exactly BLAS_ALIGN. Some
 * versions fail on the GPU with less, so such products are refused. */
bool blas_lt_make(const struct blas_lt *lt, const struct blas_shape *shape,
                  struct blas_lt_objects *out)
{
    void *aligned = (void *)(uintptr_t)BLAS_ALIGN;
    const struct blas_call call = {.shape = *shape, .bias = aligned, .aux = aligned};
    cublasComputeType_t compute =
        shape->is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    return !shape->is_misaligned &&
           lt->cublasLtMatmulDescCreate(&out->desc, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           set_descriptor(lt, shape, out->desc) && blas_lt_addresses(lt, &call, out->desc) &&
           lay_out(lt, shape, out);
}

void blas_lt_free(const struct blas_lt *lt, struct blas_lt_objects *objects)
{
    cublasLtMatrixLayout_t *const layouts[] = {&objects->a, &objects->b, &objects->c, &objects->d};
    if (objects->desc)
        lt->cublasLtMatmulDescDestroy(objects->desc);
    for (int i = 0; i < 4; i++)
        if (*layouts[i])
            lt->cublasLtMatrixLayoutDestroy(*layouts[i]);
    *objects = (struct blas_lt_objects){.desc = NULL};
}

static bool set_preference(const struct blas_lt *lt, const struct blas_shape *s, size_t workspace,
                           cublasLtMatmulPreference_t out)
{
    const uint64_t bytes = workspace;
    const uint32_t reduction = s->d == DTYPE_F32 ? CUBLASLT_REDUCTION_SCHEME_INPLACE |
                                                       CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                 : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t align[4] = {(uint32_t)s->align_a, (uint32_t)s->align_b, (uint32_t)s->align_c,
                               (uint32_t)s->align_d};
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } list[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align[0], sizeof align[0]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align[1], sizeof align[1]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align[2], sizeof align[2]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align[3], sizeof align[3]},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (lt->cublasLtMatmulPreferenceSetAttribute(out, list[i].what, list[i].value,
                                                     list[i].bytes) != CUBLAS_STATUS_SUCCESS)
            return false;
    return true;
}

cublasLtMatmulPreference_t blas_lt_preference(const struct blas_lt *lt,
                                              const struct blas_shape *shape, size_t workspace)
{
    cublasLtMatmulPreference_t out = NULL;
    if (lt->cublasLtMatmulPreferenceCreate(&out) != CUBLAS_STATUS_SUCCESS)
        return NULL;
    if (set_preference(lt, shape, workspace, out))
        return out;
    lt->cublasLtMatmulPreferenceDestroy(out);
    return NULL;
}
#endif
