/* head_norm — RMSNorm of each head of a row, forward and backward (norm.h).
 *
 * Some lanes of a warp hold one head in registers, so each head is read from memory once. The
 * backward pass keeps dw there too, from head to head. Then a block's sums are added in shared
 * memory and the blocks' sums by column_sum, in an order that depends only on the shape. */
#include "kernels/column.h"
#include "kernels/stride.cuh"

constexpr int THREADS = 256;
constexpr int64_t RUNS_MOST = 528; /* blocks of the backward pass: four for each of an H200's 132
                                      multiprocessors */

/* A head of d elements in `lanes` lanes, a power of two: W elements in each of K vectors. */
struct heads {
    int64_t units, heads, stride; /* units: heads of all rows */
    int d, lanes;
    float eps;
};

/* Return the lane's number within its head, and its head within the block. */
__device__ static inline int lane_of(const struct heads &h) { return (int)threadIdx.x % h.lanes; }
__device__ static inline int head_of(const struct heads &h) { return (int)threadIdx.x / h.lanes; }

__device__ static inline int64_t address_of(const struct heads &h, int64_t unit)
{
    return unit / h.heads * h.stride + unit % h.heads * h.d;
}

/* Returns the sum over the lanes of a head; every lane of the warp calls it. */
__device__ static inline float lanes_sum(float x, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, step);
    return x;
}

/* Loads the lane's elements of the head at p; zeros beyond its end, or if there is no head
 * (NULL). */
template <typename T, int W, int K>
__device__ static inline void head_load(float (&x)[K][W], const T *p, const struct heads &h)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = (k * h.lanes + lane_of(h)) * W;
#pragma unroll
        for (int j = 0; j < W; j++)
            x[k][j] = 0;
        if (p && i < h.d)
            load_n(x[k], p + i);
    }
}
template <typename T, int W, int K>
__device__ static inline void head_store(T *p, const float (&x)[K][W], const struct heads &h)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = (k * h.lanes + lane_of(h)) * W;
        if (p && i < h.d)
            store_n(p + i, x[k]);
    }
}

template <int W, int K>
__device__ static inline float head_rstd(const float (&x)[K][W], const struct heads &h)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += x[k][j] * x[k][j];
    return 1.0f / sqrtf(lanes_sum(sum, h.lanes) / (float)h.d + h.eps);
}

template <typename T, int W, int K>
__global__ void __launch_bounds__(THREADS)
    head_norm_fwd_lanes(T *y, const T *x, const T *w, struct heads h)
{
    int64_t unit = (int64_t)blockIdx.x * (THREADS / h.lanes) + head_of(h);
    bool is_head = unit < h.units;
    int64_t at = is_head ? address_of(h, unit) : 0;
    float v[K][W], scale[K][W];
    head_load(v, is_head ? x + at : nullptr, h);
    head_load(scale, w, h);
    float r = head_rstd(v, h);
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int j = 0; j < W; j++)
            v[k][j] = to_float(from_float<T>(v[k][j] * r)) * scale[k][j];
    head_store(is_head ? y + at : nullptr, v, h);
}

/* Processes one head: dx, and its terms of dw. */
template <typename T, int W, int K>
__device__ static inline void head_norm_bwd_one(T *dx, const T *dy, const T *x,
                                                const float (&w)[K][W], float (&dw)[K][W],
                                                const struct heads &h)
{
    float g[K][W], v[K][W], sum = 0;
    head_load(g, dy, h);
    head_load(v, x, h);
    float r = head_rstd(v, h);
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int j = 0; j < W; j++) {
            v[k][j] *= r;
            dw[k][j] += g[k][j] * v[k][j];
            g[k][j] *= w[k][j];
            sum += g[k][j] * v[k][j];
        }
    float mean = lanes_sum(sum, h.lanes) / (float)h.d;
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int j = 0; j < W; j++)
            g[k][j] = r * (g[k][j] - v[k][j] * mean);
    head_store(dx, g, h);
}

/* Blocks on a multiprocessor: no more than fit without spilling registers. */
template <int ELEMS> constexpr int HEAD_BLOCKS = ELEMS <= 8 ? 3 : 1;

/* A block processes the heads [blockIdx.x·run, …): partial[blockIdx.x] gets their dw (D). */
template <typename T, int W, int K>
__global__ void __launch_bounds__(THREADS, HEAD_BLOCKS<K * W>)
    head_norm_bwd_runs(T *dx, const T *dy, const T *x, const T *w, float *partial, struct heads h,
                       int64_t run)
{
    CUDA_SHARED(bytes);
    float *all = (float *)bytes, scale[K][W], dw[K][W] = {};
    int groups = THREADS / h.lanes;
    int64_t first = blockIdx.x * run, end = first + run < h.units ? first + run : h.units;
    head_load(scale, w, h);
    for (int64_t i = first; i < end; i += groups) {
        int64_t unit = i + head_of(h), at = unit < end ? address_of(h, unit) : 0;
        bool is_head = unit < end;
        head_norm_bwd_one(is_head ? dx + at : nullptr, is_head ? dy + at : nullptr,
                          is_head ? x + at : nullptr, scale, dw, h);
    }
    head_store(all + head_of(h) * h.d, dw, h);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < h.d; i += THREADS) {
        float sum = 0;
        for (int k = 0; k < groups; k++)
            sum += all[k * h.d + i];
        partial[blockIdx.x * (int64_t)h.d + i] = sum;
    }
}

/* head_vectors — calls run(width<W>, width<K>, lanes) for heads of d elements; beyond K·W = 32
 * elements a lane, or 8 without 16-byte accesses, no kernel has the registers. */
template <typename T, typename Run>
static inline int head_vectors(int64_t d, bool is_aligned, Run run)
{
    constexpr int W = WIDE<T>;
    int lanes = 1;
    if (!is_aligned)
        return d > 8 * WARP ? CUDA_REFUSAL_SHAPE : run(width<1>(), width<8>(), WARP);
    if (d > 32 * WARP)
        return CUDA_REFUSAL_SHAPE;
    while (lanes < WARP && lanes * W < d)
        lanes *= 2;
    if (d <= lanes * W)
        return run(width<W>(), width<1>(), lanes);
    if (sizeof(T) == 4 && d <= 2 * WARP * W)
        return run(width<W>(), width < sizeof(T) == 4 ? 2 : 4 > (), WARP);
    return run(width<W>(), width<32 / W>(), WARP);
}

extern "C" int head_norm_fwd_cuda(const struct cuda *cuda, const struct head_norm_fwd *a)
{
    if (a->n == 0)
        return 0;
    if (a->y.dtype != a->x.dtype || a->w.dtype != a->x.dtype)
        return CUDA_REFUSAL_DTYPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        bool is_aligned = all_aligned<T>(a->d, {a->y.data, a->x.data, a->w.data}) &&
                          all_aligned<T>(a->stride, {a->x.data});
        return head_vectors<T>(a->d, is_aligned, [&](auto w, auto k, int lanes) -> int {
            struct heads h = {a->n * a->heads, a->heads, a->stride, (int)a->d, lanes, a->eps};
            int64_t blocks = ceil_div(h.units, THREADS / lanes);
            if (blocks > INT32_MAX)
                return CUDA_REFUSAL_SHAPE;
            return cuda_launch(head_norm_fwd_lanes<T, decltype(w)::value, decltype(k)::value>,
                               (unsigned)blocks, THREADS, 0, cuda->stream, (T *)a->y.data,
                               (const T *)a->x.data, (const T *)a->w.data, h);
        });
    });
}

/* Runs the first stage; *runs_out: partial sums of dw at the beginning of the scratch. */
template <typename T>
static int head_norm_bwd_first(const struct cuda *cuda, const struct head_norm_bwd *a,
                               int64_t *runs_out)
{
    bool is_aligned = all_aligned<T>(a->d, {a->dx.data, a->dy.data, a->x.data, a->w.data}) &&
                      all_aligned<T>(a->stride, {a->x.data});
    return head_vectors<T>(a->d, is_aligned, [&](auto w, auto k, int lanes) -> int {
        struct heads h = {a->n * a->heads, a->heads, a->stride, (int)a->d, lanes, a->eps};
        int64_t groups = THREADS / lanes, run = round_up(ceil_div(h.units, RUNS_MOST), groups),
                runs = ceil_div(h.units, run);
        if ((size_t)(runs * a->d) * sizeof(float) > cuda->scratch_bytes)
            return CUDA_REFUSAL_SCRATCH;
        *runs_out = runs;
        return cuda_launch(head_norm_bwd_runs<T, decltype(w)::value, decltype(k)::value>,
                           (unsigned)runs, THREADS, (size_t)(groups * a->d) * sizeof(float),
                           cuda->stream, (T *)a->dx.data, (const T *)a->dy.data,
                           (const T *)a->x.data, (const T *)a->w.data, (float *)cuda->scratch, h,
                           run);
    });
}

extern "C" int head_norm_bwd_cuda(const struct cuda *cuda, const struct head_norm_bwd *a)
{
    struct cuda rest = *cuda;
    int64_t runs = 0;
    if (a->dx.dtype != a->x.dtype || a->dy.dtype != a->x.dtype || a->w.dtype != a->x.dtype ||
        a->dw.dtype != DTYPE_F32)
        return CUDA_REFUSAL_DTYPE;
    if (a->n > 0)
        CUDA_TRY(cuda_floats(
            a->x.dtype, [&](auto t) { return head_norm_bwd_first<decltype(t)>(cuda, a, &runs); }));
    size_t used = (size_t)round_up(runs * a->d * (int64_t)sizeof(float), 256);
    if (used > cuda->scratch_bytes)
        return CUDA_REFUSAL_SCRATCH;
    rest.scratch = (char *)cuda->scratch + used;
    rest.scratch_bytes -= used;
    struct column_sum sum = {a->dw, {cuda->scratch, DTYPE_F32}, runs, a->d, a->d, a->accumulate};
    return column_sum_cuda(&rest, &sum);
}
