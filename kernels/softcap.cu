/* softcap — the soft cap of logits (softcap.h): a thread processes W columns of every gridDim.y-th
 * row, so each element is read once and no address needs a division. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;
constexpr int64_t ROWS_MOST = 65535;

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    softcap_wide(T *x, int64_t n, int64_t v, int64_t stride, float cap)
{
    int64_t at = thread_first() * W;
    if (at >= v)
        return;
    for (int64_t row = blockIdx.y; row < n; row += gridDim.y) {
        float y[W];
        load_n(y, x + row * stride + at);
#pragma unroll
        for (int j = 0; j < W; j++)
            y[j] = cap * tanhf(y[j] / cap);
        store_n(x + row * stride + at, y);
    }
}

extern "C" int softcap_cuda(const struct cuda *cuda, const struct softcap *a)
{
    if (a->n == 0)
        return 0;
    if (a->v > (int64_t)INT32_MAX * THREADS)
        return CUDA_REFUSAL_SHAPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        bool is_wide = all_aligned<T>(a->v, {a->x.data}) && all_aligned<T>(a->stride, {a->x.data});
        return cuda_wide<T>(is_wide, [&](auto w) {
            constexpr int W = decltype(w)::value;
            dim3 grid((unsigned)ceil_div(ceil_div(a->v, W), THREADS),
                      (unsigned)(a->n < ROWS_MOST ? a->n : ROWS_MOST));
            return cuda_launch(softcap_wide<T, W>, grid, THREADS, 0, cuda->stream, (T *)a->x.data,
                               a->n, a->v, a->stride, a->cap);
        });
    });
}
