/* relu2 — the squared ReLU and its gradient, element by element (relu2.h). */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

/* Uses a comparison that a NaN fails, so that it stays a NaN. */
__device__ static inline float positive(float x) { return x <= 0 ? 0 : x; }

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) relu2_fwd_wide(T *y, const T *x, int n)
{
    for (int i = (int)thread_first() * W; i < n; i += (int)thread_step() * W) {
        float v[W];
        load_n(v, x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = positive(v[j]) * positive(v[j]);
        store_n(y + i, v);
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) relu2_bwd_wide(T *dx, const T *dy, const T *x, int n)
{
    for (int i = (int)thread_first() * W; i < n; i += (int)thread_step() * W) {
        float v[W], g[W];
        load_n(v, x + i);
        load_n(g, dy + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            g[j] *= 2.0f * positive(v[j]);
        store_n(dx + i, g);
    }
}

extern "C" int relu2_fwd_cuda(const struct cuda *cuda, const struct relu2_fwd *a)
{
    if (a->y.dtype != a->x.dtype)
        return CUDA_REFUSAL_DTYPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->n, {a->y.data, a->x.data}), [&](auto w) {
            constexpr int W = decltype(w)::value;
            return cuda_ranges(a->n, [&](int64_t first, int n) {
                return cuda_launch(relu2_fwd_wide<T, W>, cuda_blocks(cuda, n / W, THREADS), THREADS,
                                   0, cuda->stream, (T *)a->y.data + first,
                                   (const T *)a->x.data + first, n);
            });
        });
    });
}

extern "C" int relu2_bwd_cuda(const struct cuda *cuda, const struct relu2_bwd *a)
{
    if (a->dx.dtype != a->x.dtype || a->dy.dtype != a->x.dtype)
        return CUDA_REFUSAL_DTYPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->n, {a->dx.data, a->dy.data, a->x.data}), [&](auto w) {
            constexpr int W = decltype(w)::value;
            return cuda_ranges(a->n, [&](int64_t first, int n) {
                return cuda_launch(relu2_bwd_wide<T, W>, cuda_blocks(cuda, n / W, THREADS), THREADS,
                                   0, cuda->stream, (T *)a->dx.data + first,
                                   (const T *)a->dy.data + first, (const T *)a->x.data + first, n);
            });
        });
    });
}
