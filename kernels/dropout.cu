/* dropout — as an operation (dropout.h): the CPU's random numbers, four from each Philox block. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

/* A dropped element is 0, even if it was infinite or NaN. */
template <typename T, int W>
__global__ void drop_wide(T *y, const T *x, int64_t n, struct drop_args drop)
{
    for (int64_t i = thread_first() * W; i < n; i += thread_step() * W) {
        float v[W], factor[W];
        load_n(v, x + i);
        drop_factors(factor, drop, (uint64_t)i);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = factor[j] == 0 ? 0.0f : v[j] * factor[j];
        store_n(y + i, v);
    }
}

extern "C" int drop_cuda(const struct cuda *cuda, const struct drop *a)
{
    if (a->n == 0)
        return 0;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->n, {a->y.data, a->x.data}), [&](auto w) {
            constexpr int W = decltype(w)::value;
            return cuda_launch(drop_wide<T, W>, cuda_blocks(cuda, a->n / W, THREADS), THREADS, 0,
                               cuda->stream, (T *)a->y.data, (const T *)a->x.data, a->n,
                               drop_args_of(cuda, &a->dropout));
        });
    });
}
