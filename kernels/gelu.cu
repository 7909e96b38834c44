/* gelu — the tanh form of GELU, element by element (gelu.h). 16-bit results
 * take the quick exponential and reciprocal, which stay below their rounding. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

template <typename T, int W> __global__ void gelu_fwd_wide(T *y, const T *x, int64_t n)
{
    for (int64_t i = thread_first() * W; i < n; i += thread_step() * W) {
        float v[W];
        load_n(v, x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = gelu<T>(v[j]);
        store_n(y + i, v);
    }
}

template <typename T, int W>
__global__ void gelu_bwd_wide(T *dx, const T *dy, const T *x, int64_t n)
{
    for (int64_t i = thread_first() * W; i < n; i += thread_step() * W) {
        float v[W], g[W];
        load_n(v, x + i);
        load_n(g, dy + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            g[j] *= gelu_grad<T>(v[j]);
        store_n(dx + i, g);
    }
}

extern "C" int gelu_fwd_cuda(const struct cuda *cuda, const struct gelu_fwd *a)
{
    if (a->n == 0)
        return 0;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->n, {a->y.data, a->x.data}), [&](auto w) {
            constexpr int W = decltype(w)::value;
            return cuda_launch(gelu_fwd_wide<T, W>, cuda_blocks(cuda, a->n / W, THREADS), THREADS,
                               0, cuda->stream, (T *)a->y.data, (const T *)a->x.data, a->n);
        });
    });
}

extern "C" int gelu_bwd_cuda(const struct cuda *cuda, const struct gelu_bwd *a)
{
    if (a->n == 0)
        return 0;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->n, {a->dx.data, a->dy.data, a->x.data}), [&](auto w) {
            constexpr int W = decltype(w)::value;
            return cuda_launch(gelu_bwd_wide<T, W>, cuda_blocks(cuda, a->n / W, THREADS), THREADS,
                               0, cuda->stream, (T *)a->dx.data, (const T *)a->dy.data,
                               (const T *)a->x.data, a->n);
        });
    });
}
