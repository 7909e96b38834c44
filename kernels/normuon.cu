/* normuon — divides neurons by their root mean square (normuon.h). A row is a warp's. Of columns a
 * block takes 32, a lane each, and each of its warps every WARPS-th row; the warps' sums are added
 * in order. Either way x is read a second time to be divided, from the cache where it fits. */
#include "kernels/grad_scale.h"
#include "kernels/stride.cuh"

constexpr int WARPS = 8, AHEAD = 4;

struct normuon_args {
    float *x, *v;
    int64_t rows, columns;
    float toward, eps;
    const double *grad_scale;
};

__device__ static inline bool is_skipped(const normuon_args &a)
{
    return isnan(grad_scale_get(a.grad_scale));
}

/* new_mean — what v becomes; factor_of: what elements are then multiplied by. */
__device__ static inline float new_mean(const normuon_args &a, float v, float mean)
{
    return v + a.toward * (mean - v);
}
__device__ static inline float factor_of(const normuon_args &a, float v)
{
    return 1.0f / (sqrtf(v) + a.eps);
}

template <int W> __global__ void __launch_bounds__(WARPS *WARP) normuon_rows(normuon_args a)
{
    int lane = (int)threadIdx.x % WARP;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= a.rows || is_skipped(a))
        return;
    float *x = a.x + row * a.columns, sum = 0;
    for (int64_t i = lane * W; i < a.columns; i += WARP * W) {
        float y[W];
        load_n(y, x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += y[j] * y[j];
    }
    float v = new_mean(a, a.v[row], warp_sum(sum) / (float)a.columns), factor = factor_of(a, v);
    __syncwarp(); /* every lane has read v */
    if (lane == 0)
        a.v[row] = v;
    for (int64_t i = lane * W; i < a.columns; i += WARP * W) {
        float y[W];
        load_n(y, x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            y[j] *= factor;
        store_n(x + i, y);
    }
}

static __global__ void __launch_bounds__(WARPS *WARP) normuon_columns(normuon_args a)
{
    __shared__ float part[WARPS][WARP];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t column = (int64_t)blockIdx.x * WARP + lane;
    bool is_inside = column < a.columns && !is_skipped(a);
    float *x = a.x + column, sum = 0;
    for (int64_t row = warp; row < a.rows && is_inside; row += AHEAD * WARPS) {
        float y[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) /* all loads start before the first sum */
            y[k] = row + k * WARPS < a.rows ? x[(row + k * WARPS) * a.columns] : 0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            sum += y[k] * y[k];
    }
    part[warp][lane] = sum;
    __syncthreads();
    float all = 0, v = is_inside ? a.v[column] : 0;
    for (int w = 0; w < WARPS; w++)
        all += part[w][lane];
    v = new_mean(a, v, all / (float)a.rows);
    float factor = factor_of(a, v);
    __syncthreads(); /* every warp has read v */
    if (warp == 0 && is_inside)
        a.v[column] = v;
    for (int64_t row = warp; row < a.rows && is_inside; row += WARPS)
        x[row * a.columns] *= factor;
}

extern "C" int normuon_cuda(const struct cuda *cuda, const struct normuon *a)
{
    const normuon_args args = {
        (float *)a->x.data, (float *)a->v.data,          a->rows, a->columns, (float)(1 - a->beta2),
        (float)a->eps,      (double *)a->grad_scale.data};
    int64_t blocks =
        ceil_div(a->is_by_column ? a->columns : a->rows, a->is_by_column ? WARP : WARPS);
    if (a->x.dtype != DTYPE_F32)
        return CUDA_REFUSAL_DTYPE;
    if (blocks > INT32_MAX)
        return CUDA_REFUSAL_SHAPE;
    if (a->is_by_column)
        return cuda_launch(normuon_columns, (unsigned)blocks, WARPS * WARP, 0, cuda->stream, args);
    return cuda_wide<float>(all_aligned<float>(a->columns, {a->x.data}), [&](auto w) {
        return cuda_launch(normuon_rows<decltype(w)::value>, (unsigned)blocks, WARPS * WARP, 0,
                           cuda->stream, args);
    });
}
