/* fake_blas — a libcublasLt.so.13 for tests: the calls that src/dev makes, with cuBLASLt's
 * conventions (column major, transposes, leading dimensions, epilogues), in plain loops over
 * ordinary memory. What NVIDIA's manual does not allow is refused, and so is anything doubtful:
 *
 *   types        A, B, C, D: all fp32; all bf16; all fp16; or A and B 16 bits, C and D fp32. Bias
 *                and bias gradient as D, the kept input of GELU as D. alpha, beta and sums are
 *   fp32. tf32         for fp32 only
 *   layouts      ld ≥ rows; C as D but for its ld; the sizes of A, B and D agree
 *   aux          its ld is a multiple of 8 and ≥ rows of D; with 16 bits also ld of D
 *   attributes   those that the program uses, with their sizes; others are invalid
 *   algorithms   are for the types, sizes, strides, transposes, epilogue and alignments that they
 *                were found for, and need the workspace that was found
 *   alignment    of A, B, C and D as was promised to the search; of bias and aux as their addresses
 *                were then
 *   partial sums the search must not allow them in 16 bits
 *
 * For fp32 the sum of a product's sizes decides whether it has all epilogues, none (not supported),
 * or is not possible at all, so a test of many shapes takes all three ways. 16-bit products are
 * refused only by the rules. fake_blas_counts() counts what happens, and steers it. */
#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fake_blas.h"
#ifdef FAKE_HIP
#include "tests/hip/fake_hipblaslt.h"
#endif

struct desc {
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    cudaDataType_t bias_type;
    void *bias, *aux;
    int64_t aux_ld;
    int32_t sm_target;
    cublasComputeType_t compute;
};
struct layout {
    int64_t rows, cols, ld;
    cudaDataType_t type;
};
struct preference {
    uint64_t workspace;
    uint32_t reduction, align[4];
};

static int counts[FAKE_COUNTS];
int *fake_blas_counts(void);
int *fake_blas_counts(void) { return counts; }

static cublasStatus_t wrong(void)
{
    counts[FAKE_WRONG]++;
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* Runs a product, as tests/emu/emu_control.h describes; notes what it reads and writes. */
typedef int device_fn(void *stream, int (*run)(void *arg), const void *arg, size_t bytes);
typedef void touch_fn(const char *who, const void *at, size_t bytes, int is_write);
static device_fn *device;
static touch_fn *touch;
void fake_blas_device(device_fn *by, touch_fn *noted);
void fake_blas_device(device_fn *by, touch_fn *noted) { device = by, touch = noted; }

/* The parts in which hipBLASLt differs (tests/hip/fake_hipblaslt.h). */
#ifdef FAKE_HIP
static const struct preference no_wish = {.align = {16, 16, 16, 16}};

device_fn fake_hip_device; /* of tests/hip/fake_amdhip64.c */
__attribute__((constructor)) static void begin(void) { device = fake_hip_device; }
__attribute__((destructor)) static void end(void)
{
    FILE *f = getenv("FAKE_BLAS_COUNTS") != NULL ? fopen(getenv("FAKE_BLAS_COUNTS"), "w") : NULL;
    if (f == NULL)
        return;
    fprintf(f, "with %d without %d halves %d wrong %d\n", counts[FAKE_WITH], counts[FAKE_WITHOUT],
            counts[FAKE_HALVES], counts[FAKE_WRONG]);
    fclose(f);
}

#ifndef FAKE_VERSION
#define FAKE_VERSION 100100
#endif
cublasStatus_t hipblasLtGetVersion(void *handle, int *version);
cublasStatus_t hipblasLtGetVersion(void *handle, int *version)
{
    *version = FAKE_VERSION;
    return handle != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

#ifdef FAKE_RUNTIME
int hipGetDevice(int *device_i);
int hipGetDevice(int *device_i)
{
    *device_i = 0;
    return 0;
}
#endif
#else
static const struct preference no_wish = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};

size_t cublasLtGetVersion(void) { return 130002; }
size_t cublasLtGetCudartVersion(void) { return 13000; }
#endif

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptions ---- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct desc *d = calloc(1, sizeof *d);
    d->ta = d->tb = CUBLAS_OP_N;
    d->compute = compute;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    d->bias_type = (cudaDataType_t)-1; /* as D */
    *out = (cublasLtMatmulDesc_t)d;
    return scale == CUDA_R_32F &&
                   (compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32)
               ? CUBLAS_STATUS_SUCCESS
               : wrong();
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}
#define ATTRIBUTE(prefix, name, field)   \
    case CUBLASLT_MATMUL_##prefix##name: \
        if (bytes != sizeof d->field)    \
            return wrong();              \
        memcpy(&d->field, value, bytes); \
        return CUBLAS_STATUS_SUCCESS;
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    struct desc *d = (struct desc *)desc;
    switch ((int)what) {
        ATTRIBUTE(DESC_, TRANSA, ta)
        ATTRIBUTE(DESC_, TRANSB, tb)
        ATTRIBUTE(DESC_, EPILOGUE, epilogue)
        ATTRIBUTE(DESC_, BIAS_DATA_TYPE, bias_type)
        ATTRIBUTE(DESC_, BIAS_POINTER, bias)
        ATTRIBUTE(DESC_, EPILOGUE_AUX_POINTER, aux)
        ATTRIBUTE(DESC_, EPILOGUE_AUX_LD, aux_ld)
#ifndef FAKE_HIP
        ATTRIBUTE(DESC_, SM_COUNT_TARGET, sm_target)
#endif
    default:
        return wrong();
    }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    struct layout *l = malloc(sizeof *l);
    *l = (struct layout){(int64_t)rows, (int64_t)cols, ld, type};
    *out = (cublasLtMatrixLayout_t)l;
    bool is_known = type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
    return is_known && rows > 0 && cols > 0 && ld >= l->rows ? CUBLAS_STATUS_SUCCESS : wrong();
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *d = malloc(sizeof *d);
    *d = no_wish;
    *out = (cublasLtMatmulPreference_t)d;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    struct preference *d = (struct preference *)p;
    switch ((int)what) {
        ATTRIBUTE(PREF_, MAX_WORKSPACE_BYTES, workspace)
#ifndef FAKE_HIP
        ATTRIBUTE(PREF_, REDUCTION_SCHEME_MASK, reduction)
        ATTRIBUTE(PREF_, MIN_ALIGNMENT_A_BYTES, align[0])
        ATTRIBUTE(PREF_, MIN_ALIGNMENT_B_BYTES, align[1])
        ATTRIBUTE(PREF_, MIN_ALIGNMENT_C_BYTES, align[2])
        ATTRIBUTE(PREF_, MIN_ALIGNMENT_D_BYTES, align[3])
#endif
    default:
        return wrong();
    }
}

/* ---- rules ---- */

static int64_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

/* As cublasLt.h says of both pointers: the search takes from them how far they are aligned. */
static uint16_t align_of(const void *p)
{
    uint64_t low = (uint64_t)(uintptr_t)p & -(uint64_t)(uintptr_t)p;
    return low == 0 || low > 256 ? 256 : (uint16_t)low;
}

static bool has_aux(const struct desc *d)
{
    return d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || d->epilogue == CUBLASLT_EPILOGUE_DGELU;
}
static bool has_bias(const struct desc *d)
{
    return d->epilogue == CUBLASLT_EPILOGUE_BIAS || d->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           d->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           d->epilogue == CUBLASLT_EPILOGUE_BGRADA || d->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

/* What a search and a product are given. */
struct problem {
    struct desc desc;
    struct layout a, b, c, d;
};

static bool are_types_allowed(const struct problem *p)
{
    cudaDataType_t type = p->a.type;
    if (p->b.type != type || p->c.type != p->d.type)
        return false;
    if (p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && type != CUDA_R_32F)
        return false;
    if (has_bias(&p->desc) && p->desc.bias_type != (cudaDataType_t)-1 &&
        p->desc.bias_type != p->d.type)
        return false;
    return p->d.type == type || p->d.type == CUDA_R_32F;
}

static bool are_sizes_allowed(const struct problem *p)
{
    bool is_a = p->desc.ta == CUBLAS_OP_N, is_b = p->desc.tb == CUBLAS_OP_N;
    int64_t m = p->d.rows, n = p->d.cols, k = is_a ? p->a.cols : p->a.rows;
    if ((!is_a && p->desc.ta != CUBLAS_OP_T) || (!is_b && p->desc.tb != CUBLAS_OP_T))
        return false;
    return (is_a ? p->a.rows : p->a.cols) == m && (is_b ? p->b.cols : p->b.rows) == n &&
           (is_b ? p->b.rows : p->b.cols) == k && p->c.rows == m && p->c.cols == n;
}

static bool is_epilogue_allowed(const struct problem *p)
{
    const struct desc *d = &p->desc;
    switch (d->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        break;
    default:
        return false;
    }
    if (has_bias(d) && !d->bias)
        return false;
    return !has_aux(d) || (d->aux && d->aux_ld >= p->d.rows);
}

/* The manual: "Must be divisible by 8". A kernel that writes 16 bytes of 16-bit numbers at a time
 * needs it of D as well. */
static bool is_aux_aligned(const struct problem *p)
{
    return !has_aux(&p->desc) ||
           (p->desc.aux_ld % 8 == 0 && (bytes_of(p->d.type) == 4 || p->d.ld % 8 == 0));
}

/* ---- algorithms ---- */

/* The bytes of an algorithm. */
struct algo {
    uint64_t hash;     /* of all that it was found for */
    uint16_t align[6]; /* A, B, C, D, bias, aux */
    uint16_t number, workspace;
};
_Static_assert(sizeof(struct algo) <= sizeof(cublasLtMatmulAlgo_t), "fits");

static void mix(uint64_t *hash, int64_t x) { *hash = (*hash ^ (uint64_t)x) * 1099511628211u; }

static uint64_t hash_of(const struct problem *p)
{
    uint64_t hash = 14695981039346656037u;
    const struct layout *const list[] = {&p->a, &p->b, &p->c, &p->d};
    for (int i = 0; i < 4; i++)
        mix(&hash, list[i]->rows), mix(&hash, list[i]->cols), mix(&hash, list[i]->ld),
            mix(&hash, (int64_t)list[i]->type);
    mix(&hash, (int64_t)p->desc.ta), mix(&hash, (int64_t)p->desc.tb);
    mix(&hash, (int64_t)p->desc.epilogue), mix(&hash, (int64_t)p->desc.compute);
    mix(&hash, has_aux(&p->desc) ? p->desc.aux_ld : 0);
    return hash;
}

static struct problem problem_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                 cublasLtMatrixLayout_t d)
{
    return (struct problem){*(struct desc *)desc, *(struct layout *)a, *(struct layout *)b,
                            *(struct layout *)c, *(struct layout *)d};
}

/* Whether a product of fp32 numbers has all epilogues (FAKE_WITH), none, or is not possible. */
static int way_of(const struct problem *p)
{
    int way = (int)((p->a.rows + p->a.cols + p->d.cols) % 4);
    return p->a.type == CUDA_R_32F && (way == FAKE_WITHOUT || way == FAKE_REFUSED) ? way
                                                                                   : FAKE_WITH;
}

/* Returns true if hipBLASLt lacks the product. */
static bool is_lacking(const struct problem *p)
{
#ifdef FAKE_HIP
    const char *chip = getenv("EMULATED_CHIP");
    const bool is_gradient = p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADA ||
                             p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    return (is_gradient && p->d.type != p->a.type) ||
           (p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 &&
            (chip == NULL || strcmp(chip, "gfx942") != 0));
#else
    return (void)p, false;
#endif
}

static bool is_possible(const struct problem *p)
{
    if (is_lacking(p))
        return false;
    int way = counts[FAKE_NEVER] ? FAKE_REFUSED : way_of(p);
    return way == FAKE_WITH ||
           (way == FAKE_WITHOUT && p->desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT);
}

static bool is_reduction_exact(const struct problem *p, const struct preference *wish)
{
    uint32_t in_16_bits = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    return !(wish->reduction &
             (p->d.type == CUDA_R_32F ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : in_16_bits));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
                                              cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *n)
{
    const struct preference *wish = (struct preference *)preference;
    struct problem p = problem_of(desc, A, B, C, D);
    (void)h;
    *n = 0;
    counts[FAKE_SHAPES]++;
    if (!are_types_allowed(&p) || !are_sizes_allowed(&p) || !is_epilogue_allowed(&p) ||
        !is_reduction_exact(&p, wish))
        return wrong();
    int way = counts[FAKE_NEVER] ? FAKE_REFUSED : way_of(&p);
    counts[FAKE_REFUSED] += way == FAKE_REFUSED;
    if (!is_possible(&p) || !is_aux_aligned(&p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (; *n < most && *n < FAKE_ALGOS; ++*n) {
        struct algo algo = {.hash = hash_of(&p), .number = (uint16_t)*n, .workspace = 256};
        for (int i = 0; i < 4; i++)
            algo.align[i] = (uint16_t)wish->align[i];
        algo.align[4] = align_of(p.desc.bias), algo.align[5] = align_of(p.desc.aux);
        memset(&out[*n], 0, sizeof out[*n]);
        memcpy(&out[*n].algo, &algo, sizeof algo);
        out[*n].workspaceSize = algo.workspace;
    }
    return wish->workspace >= 256 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
                                       cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
                                       const cublasLtMatmulAlgo_t *what,
                                       cublasLtMatmulHeuristicResult_t *out)
{
    struct problem p = problem_of(desc, A, B, C, D);
    struct algo algo;
    (void)h;
    memcpy(&algo, what, sizeof algo);
    if (algo.hash != hash_of(&p) || counts[FAKE_STALE])
        return CUBLAS_STATUS_NOT_SUPPORTED;
    out->workspaceSize = algo.workspace;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- numbers ---- */

static float from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 0x3FF;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
                             : ldexpf((float)(exponent ? fraction + 1024 : fraction),
                                      (exponent ? exponent : 1) - 25);
    return bits & 0x8000 ? -x : x;
}

static double load(const void *data, int64_t i, cudaDataType_t type)
{
    uint16_t bits;
    float x;
    if (type == CUDA_R_32F) {
        memcpy(&x, (const char *)data + 4 * i, sizeof x);
        return (double)x;
    }
    memcpy(&bits, (const char *)data + 2 * i, sizeof bits);
    if (type == CUDA_R_16F)
        return (double)from_half(bits);
    uint32_t wide = (uint32_t)bits << 16;
    memcpy(&x, &wide, sizeof x);
    return (double)x;
}

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)(isnan(x) ? 0x7FFF : (u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static uint16_t to_half(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float size = fabsf(x);
    int exponent;
    if (isnan(x))
        return 0x7FFF;
    if (size >= 65520)
        return (uint16_t)(sign | 0x7C00);
    frexpf(size, &exponent);
    exponent = exponent < -13 ? -13 : exponent; /* below: numbers without a leading one */
    float scaled = nearbyintf(ldexpf(size, 11 - exponent)); /* of 11 bits; to nearest, even */
    int bits = (int)scaled;
    return (uint16_t)(sign | (bits < 1024 ? bits : ((exponent + 14) << 10) + bits - 1024));
}

static void store(void *data, int64_t i, cudaDataType_t type, double value)
{
    float x = (float)value;
    uint16_t bits = type == CUDA_R_16F ? to_half(x) : to_bf16(x);
    if (type == CUDA_R_32F)
        memcpy((char *)data + 4 * i, &x, sizeof x);
    else
        memcpy((char *)data + 2 * i, &bits, sizeof bits);
}

static double gelu(double u)
{
    return 0.5 * u * (1 + tanh(0.79788456080286535588 * (u + 0.044715 * u * u * u)));
}
static double gelu_grad(double u)
{
    double a = 0.79788456080286535588, t = tanh(a * (u + 0.044715 * u * u * u));
    return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * a * (1 + 3 * 0.044715 * u * u);
}

/* ---- a product ---- */

/* As a stream keeps it. */
struct product {
    struct problem p;
    const void *a, *b, *c;
    void *out, *workspace;
    size_t workspace_bytes;
    float alpha, beta;
};

/* Notes the columns of a matrix, without what lies between them. */
static void touch_matrix(const void *data, const struct layout *l, int64_t ld, int is_write)
{
    int64_t bytes = bytes_of(l->type);
    for (int64_t i = 0; touch && i < l->cols; i++)
        touch("cublasLtMatmul", (const char *)data + i * ld * bytes, (size_t)(l->rows * bytes),
              is_write);
}

static void touch_all(const struct product *x)
{
    const struct problem *p = &x->p;
    bool is_gradient = p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADA ||
                       p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    struct layout bias = {p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p->d.cols : p->d.rows, 1,
                          0, p->d.type},
                  workspace = {(int64_t)x->workspace_bytes / 4, 1, 0, CUDA_R_32F};
    touch_matrix(x->a, &p->a, p->a.ld, 0);
    touch_matrix(x->b, &p->b, p->b.ld, 0);
    if (x->beta != 0)
        touch_matrix(x->c, &p->c, p->c.ld, 0);
    if (has_bias(&p->desc))
        touch_matrix(p->desc.bias, &bias, 0, is_gradient);
    if (has_aux(&p->desc))
        touch_matrix(p->desc.aux, &p->d, p->desc.aux_ld,
                     p->desc.epilogue != CUBLASLT_EPILOGUE_DGELU);
    touch_matrix(x->workspace, &workspace, 0, 1);
    touch_matrix(x->out, &p->d, p->d.ld, 1);
}

/* One element of D from its sum. */
static double finish(const struct problem *p, int64_t row, int64_t col, double x)
{
    const struct desc *d = &p->desc;
    cudaDataType_t type = p->d.type;
    int64_t aux = row + col * d->aux_ld;
    bool is_gelu = d->epilogue & CUBLASLT_EPILOGUE_GELU;
    if (d->epilogue & CUBLASLT_EPILOGUE_BIAS)
        x += load(d->bias, row, type);
    if (d->epilogue == CUBLASLT_EPILOGUE_DGELU)
        return x * gelu_grad(load(d->aux, aux, type));
    if (is_gelu && has_aux(d))
        store(d->aux, aux, type, x);
    return is_gelu ? gelu(x) : x;
}

/* dense — an operand as doubles, its inner index the faster one. */
static double *dense(const void *data, const struct layout *l, bool is_inner_in_rows)
{
    int64_t outer = is_inner_in_rows ? l->cols : l->rows,
            inner = is_inner_in_rows ? l->rows : l->cols;
    double *out = malloc((size_t)(outer * inner) * sizeof *out);
    for (int64_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < inner; k++)
            out[i * inner + k] =
                load(data, is_inner_in_rows ? k + i * l->ld : i + k * l->ld, l->type);
    return out;
}

/* Sums over the inner index, of A's rows or B's columns. */
static void bias_gradient(const struct problem *p, const double *x, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t at = 0; at < k; at++)
            sum += x[i * k + at];
        store(p->desc.bias, i, p->d.type, sum);
    }
}

static int multiply(void *arg)
{
    const struct product *product = arg;
    const struct problem *p = &product->p;
    bool is_a = p->desc.ta == CUBLAS_OP_N, is_b = p->desc.tb == CUBLAS_OP_N;
    int64_t m = p->d.rows, n = p->d.cols, k = is_a ? p->a.cols : p->a.rows;
    touch_all(product);
    double *a = dense(product->a, &p->a, !is_a), *b = dense(product->b, &p->b, is_b);
    if (p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        bias_gradient(p, a, m, k);
    if (p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        bias_gradient(p, b, n, k);
    for (int64_t col = 0; col < n; col++)
        for (int64_t row = 0; row < m; row++) {
            double sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += a[row * k + i] * b[col * k + i];
            sum *= (double)product->alpha;
            if (product->beta != 0)
                sum += (double)product->beta * load(product->c, row + col * p->c.ld, p->c.type);
            store(product->out, row + col * p->d.ld, p->d.type, finish(p, row, col, sum));
        }
    free(a);
    free(b);
    return 0;
}

static bool is_aligned(const struct product *p, const uint16_t align[6])
{
    const void *const list[6] = {p->a,
                                 p->b,
                                 p->c,
                                 p->out,
                                 has_bias(&p->p.desc) ? p->p.desc.bias : NULL,
                                 has_aux(&p->p.desc) ? p->p.desc.aux : NULL};
    for (int i = 0; i < 6; i++)
        if ((uintptr_t)list[i] % align[i] != 0)
            return false;
    return true;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t Al, const void *B,
                              cublasLtMatrixLayout_t Bl, const void *beta, const void *C,
                              cublasLtMatrixLayout_t Cl, void *D, cublasLtMatrixLayout_t Dl,
                              const cublasLtMatmulAlgo_t *what, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    struct algo algo;
    (void)h;
    memcpy(&algo, what, sizeof algo);
    struct product p = {problem_of(desc, Al, Bl, Cl, Dl),
                        A,
                        B,
                        C,
                        D,
                        workspace,
                        algo.workspace,
                        *(const float *)alpha,
                        *(const float *)beta};
    if (!are_types_allowed(&p.p) || !are_sizes_allowed(&p.p) || !is_epilogue_allowed(&p.p) ||
        !is_aux_aligned(&p.p) || algo.hash != hash_of(&p.p) || algo.number >= FAKE_ALGOS ||
        workspace_bytes < algo.workspace || !workspace || !is_aligned(&p, algo.align))
        return wrong();
    if (counts[FAKE_FAILS] > 0) {
        counts[FAKE_FAILS]--;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    counts[p.p.desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? FAKE_WITHOUT : FAKE_WITH]++;
    counts[FAKE_TARGET] = p.p.desc.sm_target;
    counts[FAKE_HALVES] += p.p.a.type != CUDA_R_32F;
    counts[FAKE_CHOSEN + (int)algo.number]++;
    int rc = device ? device(stream, multiply, &p, sizeof p) : multiply(&p);
    return rc == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
