/* gelu — both kinds of GELU, element by element (gelu.h). 16-bit results use the quick exponential
 * and reciprocal, whose errors are below their rounding. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

/* The density's exponential exp(-u²/2), and Φ(u) made of it: for u > 0 it is 1 - Φ(-u). Beyond
 * GELU_ERF_MOST it is 0: the remainder of expf there would count again when multiplied by a huge
 * u. */
struct normal {
    float bell, phi;
};
template <typename T> __device__ static inline struct normal normal_of(float u)
{
    float a = u != u ? u : fminf(fabsf(u), GELU_ERF_MOST), step = 1.0f + GELU_ERF_STEP * a;
    float bell = a < GELU_ERF_MOST ? exp_of<T>(-0.5f * a * a) : 0.0f, q = 0;
    float t = sizeof(T) == 4 ? 1.0f / step : rcp_quick(step);
#define NEXT(coefficient) q = q * t + coefficient;
    GELU_ERF_LIST(NEXT)
#undef NEXT
    float tail = bell * t * q;
    struct normal x = {bell, u > 0 ? 1.0f - tail : tail};
    return x;
}

template <typename T, enum gelu_kind KIND> __device__ static inline float gelu_of(float u)
{
    if constexpr (KIND == GELU_KIND_TANH)
        return gelu<T>(u);
    else
        return u * normal_of<T>(u).phi;
}
/* ERF: Φ(u) + u·exp(-u²/2)/√(2π) */
template <typename T, enum gelu_kind KIND> __device__ static inline float gelu_grad_of(float u)
{
    if constexpr (KIND == GELU_KIND_TANH) {
        return gelu_grad<T>(u);
    } else {
        struct normal x = normal_of<T>(u);
        return x.phi + u * (0.398942280401432678f * x.bell);
    }
}

template <typename T, int W, enum gelu_kind KIND>
__global__ void gelu_fwd_wide(T *y, const T *x, int n)
{
    for (int i = (int)thread_first() * W; i < n; i += (int)thread_step() * W) {
        float v[W];
        load_n(v, x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = gelu_of<T, KIND>(v[j]);
        store_n(y + i, v);
    }
}

template <typename T, int W, enum gelu_kind KIND>
__global__ void gelu_bwd_wide(T *dx, const T *dy, const T *x, int n)
{
    for (int i = (int)thread_first() * W; i < n; i += (int)thread_step() * W) {
        float v[W], g[W];
        load_n(v, x + i);
        load_n(g, dy + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            g[j] *= gelu_grad_of<T, KIND>(v[j]);
        store_n(dx + i, g);
    }
}

extern "C" int gelu_fwd_cuda(const struct cuda *cuda, const struct gelu_fwd *a)
{
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->n, {a->y.data, a->x.data}), [&](auto w) {
            constexpr int W = decltype(w)::value;
            return cuda_ranges(a->n, [&](int64_t first, int n) {
                return cuda_launch(a->kind == GELU_KIND_ERF ? gelu_fwd_wide<T, W, GELU_KIND_ERF>
                                                            : gelu_fwd_wide<T, W, GELU_KIND_TANH>,
                                   cuda_blocks(cuda, n / W, THREADS), THREADS, 0, cuda->stream,
                                   (T *)a->y.data + first, (const T *)a->x.data + first, n);
            });
        });
    });
}

extern "C" int gelu_bwd_cuda(const struct cuda *cuda, const struct gelu_bwd *a)
{
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->n, {a->dx.data, a->dy.data, a->x.data}), [&](auto w) {
            constexpr int W = decltype(w)::value;
            return cuda_ranges(a->n, [&](int64_t first, int n) {
                return cuda_launch(a->kind == GELU_KIND_ERF ? gelu_bwd_wide<T, W, GELU_KIND_ERF>
                                                            : gelu_bwd_wide<T, W, GELU_KIND_TANH>,
                                   cuda_blocks(cuda, n / W, THREADS), THREADS, 0, cuda->stream,
                                   (T *)a->dx.data + first, (const T *)a->dy.data + first,
                                   (const T *)a->x.data + first, n);
            });
        });
    });
}
