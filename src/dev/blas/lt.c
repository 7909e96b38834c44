/* blas_lt — see blas/lt.h. The numbers are of cublasLt.h 13.0 (tests/cuda/test_blas_rules_cuda.c
 * compares them) and of hipblaslt.h of ROCm 6.0 to 7.2 (by name in tests/hip/hipblaslt.def). */
#include "dev/blas/lt.h"

#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "dev/cuda/internal.h"

enum { SUCCESS = 0, PREFERENCE_WORKSPACE = 1 };
enum {
    CUDA_PREFERENCE_REDUCTION = 3,
    CUDA_PREFERENCE_ALIGN_A = 5, /* then B, C, D */
    CUDA_REDUCTION_INPLACE = 1,
    CUDA_REDUCTION_COMPUTE_TYPE = 2,
    HIP_VERSION_LEAST = 600 /* 0.6.0: before, types of elements had other numbers */
};

static const struct blas_lt_numbers of_cuda = {.compute = {68, 77},
                                               .transpose = {0, 1},
                                               .trans_a = 3,
                                               .trans_b = 4,
                                               .epilogue = 7,
                                               .bias = 8,
                                               .bias_type = 26,
                                               .aux = 11,
                                               .aux_ld = 12,
                                               .sm_target = 15,
                                               .invalid_value = 7,
                                               .execution_failed = 13,
                                               .not_supported = 15,
                                               .algo_bytes = 64,
                                               .version_unit = 10000};
static const struct blas_lt_numbers of_hip = {.compute = {2, 6},
                                              .transpose = {111, 112},
                                              .trans_a = 0,
                                              .trans_b = 1,
                                              .epilogue = 2,
                                              .bias = 3,
                                              .bias_type = 4,
                                              .aux = 10,
                                              .aux_ld = 11,
                                              .invalid_value = 3,
                                              .execution_failed = 5,
                                              .not_supported = 7,
                                              .algo_bytes = 24,
                                              .version_unit = 100000};

const struct blas_lt_numbers *blas_lt_numbers(bool is_hip) { return is_hip ? &of_hip : &of_cuda; }

/* ---- the libraries ---- */

#define CUDA_SYMBOL(name, parameters) {"cublasLt" #name, offsetof(struct blas_lt, name)},
#define HIP_SYMBOL(name, parameters) {"hipblasLt" #name, offsetof(struct blas_lt, name)},
static const struct library_symbol cuda_symbols[] = {
    BLAS_LT_CALLS(CUDA_SYMBOL) LIBRARY_SYMBOL(blas_lt, cublasLtGetCudartVersion),
    LIBRARY_SYMBOL(blas_lt, cublasLtGetVersion), LIBRARY_SYMBOL(blas_lt, cublasLtMatmulAlgoCheck)};
static const struct library_symbol hip_symbols[] = {
    BLAS_LT_CALLS(HIP_SYMBOL) LIBRARY_SYMBOL(blas_lt, hipblasLtGetVersion)};
#define SYMBOLS(list) .symbols = list, .symbols_n = sizeof list / sizeof *list

/* Returns false and the reason if the library is for a newer CUDA than the driver. */
static bool fits_driver(const void *opened, char *why, size_t cap)
{
    const struct blas_lt *lt = opened;
    return dev_cuda_driver_fits(lt->cublasLtGetCudartVersion(), why, cap);
}

static void text_version(size_t version, size_t unit, char out[24])
{
    text_format(out, 24, "%zu.%zu.%zu", version / unit, version % unit / 100, version % 100);
}

/* Returns false and the reason if hipBLASLt is too old. */
static bool fits_version(const void *opened, char *why, size_t cap)
{
    char has[24];
    const size_t version = blas_lt_version(opened);
    text_version(version, of_hip.version_unit, has);
    text_format(why, cap, "%s is too old: this program needs 0.6.0 (ROCm 6.0) or newer", has);
    return version >= HIP_VERSION_LEAST;
}

static const char *const names_13[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
static const char *const names_12[] = {"libcublasLt.so.12", "libcublasLt.so.13", NULL};
static const char *const names_hip[] = {"libhipblaslt.so.1", "libhipblaslt.so.0", NULL};
static const struct library_spec spec_13 = {
    .what = "cuBLASLt",
    .names = names_13,
    .packages = "libcublas-13-0 (NVIDIA's Debian and Ubuntu packages) or nvidia-cublas (PyPI)",
    SYMBOLS(cuda_symbols),
    .fits = fits_driver};
static const struct library_spec spec_12 = {
    .what = "cuBLASLt",
    .names = names_12,
    .packages = "libcublas-12-8 (NVIDIA's Debian and Ubuntu packages) or nvidia-cublas-cu12 (PyPI)",
    SYMBOLS(cuda_symbols),
    .fits = fits_driver};
static const struct library_spec spec_hip = {.what = "hipBLASLt",
                                             .names = names_hip,
                                             .packages = "hipblaslt of ROCm 6.0 or newer",
                                             SYMBOLS(hip_symbols),
                                             .fits = fits_version};

enum status blas_lt_open(bool is_hip, struct library *library, struct blas_lt *lt)
{
    const bool is_12 = dev_cuda_driver_least() < 580; /* this build is of CUDA 12 */
    const struct library_spec *spec = is_hip ? &spec_hip : is_12 ? &spec_12 : &spec_13;
    *lt =
        (struct blas_lt){.is_hip = is_hip, .name = spec->what, .numbers = blas_lt_numbers(is_hip)};
    TRY(library_open(spec, library, lt));
    return is_hip ? library_check_runtime(spec, library, dev_hip_function()) : ST_OK;
}

/* Passes hipBLASLt an address as its handle, because a real one needs a GPU; hipBLASLt only
 * compares it with NULL. */
size_t blas_lt_version(const struct blas_lt *lt)
{
    int version = 0;
    if (lt->cublasLtGetVersion)
        return lt->cublasLtGetVersion();
    return lt->hipblasLtGetVersion(&version, &version) == SUCCESS ? (size_t)version : 0;
}

void blas_lt_about(const struct blas_lt *lt, const struct library *library, char *out, size_t cap)
{
    char version[24];
    text_version(blas_lt_version(lt), lt->numbers->version_unit, version);
    text_format(out, cap, "%s from %s", version, library->path);
}

/* ---- a product ---- */

static unsigned type_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? 14 : dtype == DTYPE_F16 ? 2 : 0;
}

static const unsigned epilogues[BLAS_EPILOGUES] = {
    [BLAS_NONE] = 1,       [BLAS_BIAS] = 4,       [BLAS_GELU] = 32,
    [BLAS_GELU_BIAS] = 36, [BLAS_GELU_AUX] = 160, [BLAS_GELU_AUX_BIAS] = 164,
    [BLAS_DGELU] = 192,    [BLAS_BGRAD_A] = 256,  [BLAS_BGRAD_B] = 512,
};

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
static bool set_attr(const struct blas_lt *lt, lt_desc desc, unsigned what, const void *value,
                     size_t bytes)
{
    return lt->MatmulDescSetAttribute(desc, what, value, bytes) == SUCCESS;
}

static bool set_descriptor(const struct blas_lt *lt, const struct blas_shape *s, lt_desc desc)
{
    const struct blas_lt_numbers *n = lt->numbers;
    const unsigned bias = type_of(s->bias), *turn = n->transpose;
    const int32_t target = s->sm_target;
    bool ok = set_attr(lt, desc, n->trans_a, &turn[s->is_a_transposed], sizeof *turn) &&
              set_attr(lt, desc, n->trans_b, &turn[s->is_b_transposed], sizeof *turn) &&
              set_attr(lt, desc, n->epilogue, &epilogues[s->epilogue], sizeof *epilogues);
    if (ok && has_bias(s->epilogue))
        ok = set_attr(lt, desc, n->bias_type, &bias, sizeof bias);
    if (ok && has_aux(s->epilogue))
        ok = set_attr(lt, desc, n->aux_ld, &s->ld_aux, sizeof s->ld_aux);
    if (ok && s->sm_target > 0 && n->sm_target > 0)
        ok = set_attr(lt, desc, n->sm_target, &target, sizeof target);
    return ok;
}

bool blas_lt_addresses(const struct blas_lt *lt, const struct blas_call *call, lt_desc desc)
{
    bool ok = true;
    if (has_bias(call->shape.epilogue))
        ok = set_attr(lt, desc, lt->numbers->bias, &call->bias, sizeof call->bias);
    if (ok && has_aux(call->shape.epilogue))
        ok = set_attr(lt, desc, lt->numbers->aux, &call->aux, sizeof call->aux);
    return ok;
}

static bool lay_out(const struct blas_lt *lt, const struct blas_shape *s,
                    struct blas_lt_objects *out)
{
    int64_t a_rows = s->is_a_transposed ? s->k : s->m, b_rows = s->is_b_transposed ? s->n : s->k;
    const struct {
        lt_layout *out;
        enum dtype dtype;
        int64_t rows, cols, ld;
    } list[] = {{&out->a, s->a, a_rows, s->m + s->k - a_rows, s->lda},
                {&out->b, s->b, b_rows, s->n + s->k - b_rows, s->ldb},
                {&out->c, s->d, s->m, s->n, s->ldc},
                {&out->d, s->d, s->m, s->n, s->ldd}};
    for (int i = 0; i < 4; i++)
        if (lt->MatrixLayoutCreate(list[i].out, type_of(list[i].dtype), (uint64_t)list[i].rows,
                                   (uint64_t)list[i].cols, list[i].ld) != SUCCESS)
            return false;
    return true;
}

/* Returns false if an address is not aligned as hipBLASLt may need it: its search is not informed
 * of alignments. */
static bool is_aligned(const struct blas_lt *lt, const struct blas_shape *s)
{
    return !s->is_misaligned &&
           (!lt->is_hip || (s->align_a & s->align_b & s->align_c & s->align_d) == BLAS_ALIGN);
}

/* Makes the objects. cuBLASLt's search derives the alignment of bias and aux from their addresses
 * (cublasLt.h) and does not read them: it gets addresses aligned to exactly BLAS_ALIGN. Some
 * versions fail on the GPU with less, so such products are refused. */
bool blas_lt_make(const struct blas_lt *lt, const struct blas_shape *shape,
                  struct blas_lt_objects *out)
{
    void *aligned = (void *)(uintptr_t)BLAS_ALIGN;
    const struct blas_call call = {.shape = *shape, .bias = aligned, .aux = aligned};
    const unsigned compute = lt->numbers->compute[shape->is_tf32];
    return is_aligned(lt, shape) &&
           lt->MatmulDescCreate(&out->desc, compute, type_of(DTYPE_F32)) == SUCCESS &&
           set_descriptor(lt, shape, out->desc) && blas_lt_addresses(lt, &call, out->desc) &&
           lay_out(lt, shape, out);
}

void blas_lt_free(const struct blas_lt *lt, struct blas_lt_objects *objects)
{
    lt_layout *const layouts[] = {&objects->a, &objects->b, &objects->c, &objects->d};
    if (objects->desc)
        lt->MatmulDescDestroy(objects->desc);
    for (int i = 0; i < 4; i++)
        if (*layouts[i])
            lt->MatrixLayoutDestroy(*layouts[i]);
    *objects = (struct blas_lt_objects){.desc = NULL};
}

static bool set_preference(const struct blas_lt *lt, const struct blas_shape *s, size_t workspace,
                           lt_preference out)
{
    const uint64_t bytes = workspace;
    const uint32_t reduction =
        CUDA_REDUCTION_COMPUTE_TYPE | (s->d == DTYPE_F32 ? CUDA_REDUCTION_INPLACE : 0);
    const uint32_t align[4] = {(uint32_t)s->align_a, (uint32_t)s->align_b, (uint32_t)s->align_c,
                               (uint32_t)s->align_d};
    bool ok = lt->MatmulPreferenceSetAttribute(out, PREFERENCE_WORKSPACE, &bytes, sizeof bytes) ==
              SUCCESS;
    if (lt->is_hip)
        return ok;
    ok = ok && lt->MatmulPreferenceSetAttribute(out, CUDA_PREFERENCE_REDUCTION, &reduction,
                                                sizeof reduction) == SUCCESS;
    for (unsigned i = 0; ok && i < 4; i++)
        ok = lt->MatmulPreferenceSetAttribute(out, CUDA_PREFERENCE_ALIGN_A + i, &align[i],
                                              sizeof align[i]) == SUCCESS;
    return ok;
}

lt_preference blas_lt_preference(const struct blas_lt *lt, const struct blas_shape *shape,
                                 size_t workspace)
{
    lt_preference out = NULL;
    if (lt->MatmulPreferenceCreate(&out) != SUCCESS)
        return NULL;
    if (set_preference(lt, shape, workspace, out))
        return out;
    lt->MatmulPreferenceDestroy(out);
    return NULL;
}

/* ---- algorithms ---- */

/* The members of a result after its algorithm; the same in both libraries. */
struct rest {
    size_t workspace_bytes;
    unsigned status;
    float waves;
    int reserved[4];
};
#define RESULT_BYTES (BLAS_TUNED_ALGO + sizeof(struct rest))

/* Reads a result; false: it has no algorithm. */
static bool read_result(const struct blas_lt *lt, const char *result, struct blas_lt_algo *out)
{
    struct rest rest;
    const size_t bytes = lt->numbers->algo_bytes;
    memcpy(&rest, result + bytes, sizeof rest);
    *out = (struct blas_lt_algo){.workspace_bytes = rest.workspace_bytes};
    memcpy(out->data, result, bytes);
    return rest.status == SUCCESS;
}

int blas_lt_search(const struct blas_lt *lt, lt_handle handle, const struct blas_lt_objects *o,
                   const struct blas_shape *shape, size_t workspace, struct blas_lt_algo *out,
                   int most)
{
    _Alignas(uint64_t) char results[BLAS_LT_ALGOS * RESULT_BYTES];
    int n = 0, kept = 0;
    ASSERTF(most >= 0 && most <= BLAS_LT_ALGOS, "%d proposals", most);
    lt_preference preference = blas_lt_preference(lt, shape, workspace);
    if (!preference)
        return 0;
    const unsigned rc = lt->MatmulAlgoGetHeuristic(handle, o->desc, o->a, o->b, o->c, o->d,
                                                   preference, most, results, &n);
    lt->MatmulPreferenceDestroy(preference);
    for (int i = 0; rc == SUCCESS && i < n; i++)
        kept += read_result(
            lt, results + (size_t)i * (lt->numbers->algo_bytes + sizeof(struct rest)), &out[kept]);
    return kept;
}

bool blas_lt_check(const struct blas_lt *lt, lt_handle handle, const struct blas_lt_objects *o,
                   struct blas_lt_algo *algo)
{
    _Alignas(uint64_t) char result[RESULT_BYTES] = {0};
    struct blas_lt_algo checked;
    if (!lt->cublasLtMatmulAlgoCheck ||
        lt->cublasLtMatmulAlgoCheck(handle, o->desc, o->a, o->b, o->c, o->d, algo->data, result) !=
            SUCCESS)
        return false;
    (void)read_result(lt, result, &checked);
    algo->workspace_bytes = checked.workspace_bytes;
    return true;
}
