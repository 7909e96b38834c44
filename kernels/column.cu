/* column — sums over rows (column.h), and a row added to each row. A sum has two stages whose cut
 * depends only on the shape. Each warp of a block adds every WARPS-th row of the block's run; a
 * lane adds four columns if addresses allow, else one. The warps' sums are added in order, then the
 * sums of the runs. */
#include "kernels/column.h"
#include "kernels/stride.cuh"

constexpr int WARPS = 8, WIDTH = 4, AHEAD = 4;
constexpr int64_t RUN_LEAST = 64, RUNS_MOST = 512;

template <typename T, int W>
__global__ void column_runs(float *partial, const T *x, int64_t n, int64_t c, int64_t stride,
                            int64_t run)
{
    __align__(16) __shared__ float all[WARPS][WARP * W];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t block = (int64_t)blockIdx.y * WARP * W, column = block + lane * W,
            first = blockIdx.x * run;
    int64_t end = first + run < n ? first + run : n;
    float sum[W] = {};
    for (int64_t i = first + warp; i < end && column < c; i += AHEAD * WARPS) {
        float v[AHEAD][W];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) /* all loads start before the first sum */
            load_n(v[k], x + (i + k * WARPS < end ? i + k * WARPS : i) * stride + column);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += i + k * WARPS < end ? v[k][j] : 0;
    }
    store_n(&all[warp][lane * W], sum);
    __syncthreads();
    for (int at = (int)threadIdx.x; at < WARP * W && block + at < c; at += WARPS * WARP) {
        float whole = 0;
        for (int w = 0; w < WARPS; w++)
            whole += all[w][at];
        partial[blockIdx.x * c + block + at] = whole;
    }
}

/* Sums each lane's value over the warps of a block; warp 0 gets the sums. Not static, for the
 * reason of block_sum (common.cuh). */
__device__ inline float over_warps(float x)
{
    __shared__ float partial[WARPS][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    partial[warp][lane] = x;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < WARPS; w++)
        sum += partial[w][lane];
    return sum;
}

static __global__ void column_partials(float *out, const float *partial, int64_t partials_n,
                                       int64_t c, bool accumulate)
{
    int64_t column = (int64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    float sum = 0;
    for (int64_t i = threadIdx.x / WARP; i < partials_n && column < c; i += WARPS)
        sum += partial[i * c + column];
    sum = over_warps(sum);
    if (threadIdx.x < WARP && column < c)
        out[column] = accumulate ? out[column] + sum : sum;
}

extern "C" int column_sum_cuda(const struct cuda *cuda, const struct column_sum *a)
{
    int64_t run = ceil_div(a->n, RUNS_MOST) > RUN_LEAST ? ceil_div(a->n, RUNS_MOST) : RUN_LEAST,
            runs = ceil_div(a->n, run);
    int64_t columns = ceil_div(a->c, WARP);
    float *partial = (float *)cuda->scratch;
    if (a->out.dtype != DTYPE_F32)
        return CUDA_REFUSAL_DTYPE;
    if (columns > 65535)
        return CUDA_REFUSAL_SHAPE;
    if ((size_t)(runs * a->c) * sizeof *partial > cuda->scratch_bytes)
        return CUDA_REFUSAL_SCRATCH;
    if (runs > 0)
        CUDA_TRY(cuda_floats(a->x.dtype, [&](auto t) {
            using T = decltype(t);
            bool is_wide = a->c % WIDTH == 0 && a->stride % WIDTH == 0 &&
                           (uintptr_t)a->x.data % (WIDTH * sizeof(T)) == 0;
            dim3 grid((unsigned)runs, (unsigned)(is_wide ? ceil_div(columns, WIDTH) : columns));
            return cuda_launch(is_wide ? column_runs<T, WIDTH> : column_runs<T, 1>, grid,
                               WARPS * WARP, 0, cuda->stream, partial, (const T *)a->x.data, a->n,
                               a->c, a->stride, run);
        }));
    return cuda_launch(column_partials, (unsigned)columns, WARPS * WARP, 0, cuda->stream,
                       (float *)a->out.data, (const float *)partial, runs, a->c, a->accumulate);
}

/* A thread adds to one column of every gridDim.y-th row. */
template <typename T>
__global__ void column_add_rows(T *x, const T *row, int64_t n, int64_t c, int64_t stride)
{
    int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= c)
        return;
    float add = to_float(row[column]);
    for (int64_t i = blockIdx.y; i < n; i += gridDim.y)
        x[i * stride + column] = from_float<T>(to_float(x[i * stride + column]) + add);
}

extern "C" int column_add_cuda(const struct cuda *cuda, const struct column_add *a)
{
    if (a->row.dtype != a->x.dtype)
        return CUDA_REFUSAL_DTYPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        dim3 grid((unsigned)ceil_div(a->c, WARPS * WARP),
                  (unsigned)(a->n < RUNS_MOST ? a->n : RUNS_MOST));
        return cuda_launch(column_add_rows<T>, grid, WARPS * WARP, 0, cuda->stream, (T *)a->x.data,
                           (const T *)a->row.data, a->n, a->c, a->stride);
    });
}
