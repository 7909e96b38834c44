/* fake_blas — a libcublasLt.so.13 for tests: the calls that src/dev/blas_plan.c makes, with
 * cuBLASLt's conventions (column major, transposes, leading dimensions, epilogues), in plain loops
 * over ordinary memory. Anything doubtful is an error.
 *
 * The sum of a product's sizes decides whether it has all epilogues, none (not supported), or is
 * not possible at all, so a test of many shapes takes all three ways; fake_blas_counts() counts
 * them. counts[NEVER] != 0: no product is possible. */
#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct desc {
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    cudaDataType_t bias_type;
    float *bias, *aux;
    int64_t aux_ld;
};
struct layout {
    int64_t rows, cols, ld;
};

enum { WITH, WITHOUT, REFUSED, SHAPES, NEVER, COUNTS };
static int counts[COUNTS];
int *fake_blas_counts(void);
int *fake_blas_counts(void) { return counts; }

/* Runs a product, as tests/emu/emu_control.h describes. */
typedef int device_fn(void *stream, int (*run)(void *arg), const void *arg, size_t bytes);
static device_fn *device;
void fake_blas_device(device_fn *by);
void fake_blas_device(device_fn *by) { device = by; }

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
size_t cublasLtGetVersion(void) { return 130002; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    *out = calloc(1, sizeof(struct desc));
    return scale == CUDA_R_32F &&
                   (compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}
#define ATTRIBUTE(name, field)                  \
    case CUBLASLT_MATMUL_DESC_##name:           \
        if (bytes != sizeof d->field)           \
            return CUBLAS_STATUS_INVALID_VALUE; \
        memcpy(&d->field, value, bytes);        \
        return CUBLAS_STATUS_SUCCESS;
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    struct desc *d = (struct desc *)desc;
    switch (what) {
        ATTRIBUTE(TRANSA, ta)
        ATTRIBUTE(TRANSB, tb)
        ATTRIBUTE(EPILOGUE, epilogue)
        ATTRIBUTE(BIAS_DATA_TYPE, bias_type)
        ATTRIBUTE(BIAS_POINTER, bias)
        ATTRIBUTE(EPILOGUE_AUX_POINTER, aux)
        ATTRIBUTE(EPILOGUE_AUX_LD, aux_ld)
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    struct layout *l = malloc(sizeof *l);
    *l = (struct layout){(int64_t)rows, (int64_t)cols, ld};
    *out = (cublasLtMatrixLayout_t)l;
    return type == CUDA_R_32F && ld >= l->rows ? CUBLAS_STATUS_SUCCESS
                                               : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = malloc(1);
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
    (void)p, (void)value;
    return what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
               ? (bytes == 8 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE)
           : bytes == 4 ? CUBLAS_STATUS_SUCCESS
                        : CUBLAS_STATUS_INVALID_VALUE;
}

/* As cublasLt.h says of both pointers: the heuristic takes from them how far they are aligned. */
static uint64_t align_of(const void *p)
{
    uint64_t low = (uint64_t)(uintptr_t)p & -(uint64_t)(uintptr_t)p;
    return low == 0 || low > 256 ? 256 : low;
}
static bool is_aligned(const void *p, uint64_t to) { return (uintptr_t)p % to == 0; }

static int way_of(const struct layout *a, const struct layout *d)
{
    int way = (int)((a->rows + a->cols + d->cols) % 4);
    return way == WITHOUT || way == REFUSED ? way : WITH;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
                                              cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
                                              cublasLtMatmulPreference_t wish, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *n)
{
    (void)h, (void)B, (void)C, (void)wish, (void)most;
    const struct desc *d = (struct desc *)desc;
    int way = counts[NEVER] ? REFUSED : way_of((struct layout *)A, (struct layout *)D);
    counts[SHAPES]++;
    *n = way == REFUSED || (way == WITHOUT && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT) ? 0 : 1;
    counts[REFUSED] += way == REFUSED;
    if (*n) {
        memset(out, 0, sizeof *out);
        out->algo.data[0] = align_of(d->bias), out->algo.data[1] = align_of(d->aux);
    }
    return *n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
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

/* One element of D from its sum. */
static float finish(const struct desc *d, int64_t row, int64_t col, double x)
{
    switch (d->epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return (float)(x + (double)d->bias[row]);
    case CUBLASLT_EPILOGUE_GELU_BIAS:
        return (float)gelu(x + (double)d->bias[row]);
    case CUBLASLT_EPILOGUE_GELU:
        return (float)gelu(x);
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        x += (double)d->bias[row];
        d->aux[row + col * d->aux_ld] = (float)x;
        return (float)gelu(x);
    case CUBLASLT_EPILOGUE_GELU_AUX:
        d->aux[row + col * d->aux_ld] = (float)x;
        return (float)gelu(x);
    case CUBLASLT_EPILOGUE_DGELU:
        return (float)(x * gelu_grad((double)d->aux[row + col * d->aux_ld]));
    default:
        return (float)x;
    }
}

/* Sums over the inner index, of A's rows or B's columns. */
static void bias_gradient(const struct desc *d, const float *a, const struct layout *la,
                          const float *b, const struct layout *lb, int64_t m, int64_t n, int64_t k)
{
    int64_t count = d->epilogue == CUBLASLT_EPILOGUE_BGRADA   ? m
                    : d->epilogue == CUBLASLT_EPILOGUE_BGRADB ? n
                                                              : 0;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t p = 0; p < k; p++)
            sum += d->epilogue == CUBLASLT_EPILOGUE_BGRADA
                       ? (double)a[d->ta == CUBLAS_OP_N ? i + p * la->ld : p + i * la->ld]
                       : (double)b[d->tb == CUBLAS_OP_N ? p + i * lb->ld : i + p * lb->ld];
        d->bias[i] = (float)sum;
    }
}

/* A product as a stream keeps it. */
struct product {
    struct desc desc;
    struct layout la, lb, lc, ld;
    const float *a, *b, *c;
    float *out, alpha, beta;
    int64_t m, n, k;
};

static int multiply(void *arg)
{
    const struct product *p = arg;
    const struct desc *d = &p->desc;
    bias_gradient(d, p->a, &p->la, p->b, &p->lb, p->m, p->n, p->k);
    for (int64_t col = 0; col < p->n; col++)
        for (int64_t row = 0; row < p->m; row++) {
            double sum = 0;
            for (int64_t i = 0; i < p->k; i++)
                sum +=
                    (double)p->a[d->ta == CUBLAS_OP_N ? row + i * p->la.ld : i + row * p->la.ld] *
                    (double)p->b[d->tb == CUBLAS_OP_N ? i + col * p->lb.ld : col + i * p->lb.ld];
            sum *= (double)p->alpha;
            if (p->beta != 0)
                sum += (double)p->beta * (double)p->c[row + col * p->lc.ld];
            p->out[row + col * p->ld.ld] = finish(d, row, col, sum);
        }
    return 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t Al, const void *B,
                              cublasLtMatrixLayout_t Bl, const void *beta, const void *C,
                              cublasLtMatrixLayout_t Cl, void *D, cublasLtMatrixLayout_t Dl,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    (void)h, (void)workspace, (void)workspace_bytes;
    struct product p = {.desc = *(struct desc *)desc,
                        .la = *(struct layout *)Al,
                        .lb = *(struct layout *)Bl,
                        .lc = *(struct layout *)Cl,
                        .ld = *(struct layout *)Dl,
                        .a = A,
                        .b = B,
                        .c = C,
                        .out = D,
                        .alpha = *(const float *)alpha,
                        .beta = *(const float *)beta};
    bool is_a = p.desc.ta == CUBLAS_OP_N, is_b = p.desc.tb == CUBLAS_OP_N;
    p.m = p.ld.rows, p.n = p.ld.cols, p.k = is_a ? p.la.cols : p.la.rows;
    if ((is_a ? p.la.rows : p.la.cols) != p.m || (is_b ? p.lb.cols : p.lb.rows) != p.n ||
        (is_b ? p.lb.rows : p.lb.cols) != p.k || p.lc.rows != p.m || p.lc.cols != p.n)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(p.desc.bias, algo->data[0]) || !is_aligned(p.desc.aux, algo->data[1]))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(p.desc.bias, 16) || !is_aligned(p.desc.aux, 16))
        /* seen with some versions on A100: a misaligned access */
        return CUBLAS_STATUS_EXECUTION_FAILED;
    counts[p.desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? WITHOUT : WITH]++;
    int rc = device ? device(stream, multiply, &p, sizeof p) : multiply(&p);
    return rc == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
