/* swiglu — the gated activation and its gradient (swiglu.h): a thread processes W columns of every
 * gridDim.y-th row, so each element is read once and no address needs a division. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;
constexpr int64_t ROWS_MOST = 65535;

/* s = 1/(1+exp(-g)) and 1-s, from exp(-|g|), which never overflows. T: the type of the result. */
struct gate {
    float s, rest;
};
template <typename T> __device__ static inline struct gate gate_of(float g)
{
    float e = exp_of<T>(-fabsf(g)), r = sizeof(T) == 4 ? 1.0f / (1.0f + e) : rcp_quick(1.0f + e);
    struct gate x = {g > 0 ? r : e * r, g > 0 ? e * r : r};
    return x;
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) swiglu_fwd_wide(T *y, const T *gu, int64_t n, int64_t f)
{
    int64_t at = thread_first() * W;
    if (at >= f)
        return;
    for (int64_t row = blockIdx.y; row < n; row += gridDim.y) {
        float g[W], u[W];
        load_n(g, gu + row * 2 * f + at);
        load_n(u, gu + row * 2 * f + f + at);
#pragma unroll
        for (int j = 0; j < W; j++)
            g[j] = g[j] * gate_of<T>(g[j]).s * u[j];
        store_n(y + row * f + at, g);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    swiglu_bwd_wide(T *dgu, const T *dy, const T *gu, int64_t n, int64_t f)
{
    int64_t at = thread_first() * W;
    if (at >= f)
        return;
    for (int64_t row = blockIdx.y; row < n; row += gridDim.y) {
        float d[W], g[W], u[W];
        load_n(d, dy + row * f + at);
        load_n(g, gu + row * 2 * f + at);
        load_n(u, gu + row * 2 * f + f + at);
#pragma unroll
        for (int j = 0; j < W; j++) {
            struct gate x = gate_of<T>(g[j]);
            float dg = d[j] * u[j] * (x.s * (1.0f + g[j] * x.rest));
            u[j] = d[j] * (g[j] * x.s);
            g[j] = dg;
        }
        store_n(dgu + row * 2 * f + at, g);
        store_n(dgu + row * 2 * f + f + at, u);
    }
}

/* Returns a grid of threads for W columns each, and of rows. */
static dim3 swiglu_grid(int64_t n, int64_t f, int w)
{
    return dim3((unsigned)ceil_div(ceil_div(f, w), THREADS),
                (unsigned)(n < ROWS_MOST ? n : ROWS_MOST));
}

static bool swiglu_fits(int64_t f) { return f <= (int64_t)INT32_MAX * THREADS; }

extern "C" int swiglu_fwd_cuda(const struct cuda *cuda, const struct swiglu_fwd *a)
{
    if (a->n == 0)
        return 0;
    if (a->y.dtype != a->gu.dtype)
        return CUDA_REFUSAL_DTYPE;
    if (!swiglu_fits(a->f))
        return CUDA_REFUSAL_SHAPE;
    return cuda_floats(a->gu.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->f, {a->y.data, a->gu.data}), [&](auto w) {
            constexpr int W = decltype(w)::value;
            return cuda_launch(swiglu_fwd_wide<T, W>, swiglu_grid(a->n, a->f, W), THREADS, 0,
                               cuda->stream, (T *)a->y.data, (const T *)a->gu.data, a->n, a->f);
        });
    });
}

extern "C" int swiglu_bwd_cuda(const struct cuda *cuda, const struct swiglu_bwd *a)
{
    if (a->n == 0)
        return 0;
    if (a->dgu.dtype != a->gu.dtype || a->dy.dtype != a->gu.dtype)
        return CUDA_REFUSAL_DTYPE;
    if (!swiglu_fits(a->f))
        return CUDA_REFUSAL_SHAPE;
    return cuda_floats(a->gu.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(
            all_aligned<T>(a->f, {a->dgu.data, a->dy.data, a->gu.data}), [&](auto w) {
                constexpr int W = decltype(w)::value;
                return cuda_launch(swiglu_bwd_wide<T, W>, swiglu_grid(a->n, a->f, W), THREADS, 0,
                                   cuda->stream, (T *)a->dgu.data, (const T *)a->dy.data,
                                   (const T *)a->gu.data, a->n, a->f);
            });
    });
}
