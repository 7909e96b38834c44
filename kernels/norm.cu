/* norm — LayerNorm and RMSNorm, forward and backward (norm.h).
 *
 * A warp processes a row. A lane keeps its elements in registers if the row is short enough, so
 * each row is read from memory once. Wider rows, and rows without 16-byte accesses, are read again
 * in each pass. The backward pass adds dw and db of a block's rows in shared memory, one copy for
 * each warp, in the pass that writes dx. The copies are added in order, then the sums of the blocks
 * (two stages, cut by the shape only). If not even one copy of a very wide row fits, a separate
 * kernel sums the columns. w, b, dy, x, dx and dresidual have one element type; dw, db, mean and
 * rstd are float. */
#include "kernels/stride.cuh"

constexpr int WARPS = 8;
constexpr int64_t C_MOST = INT32_MAX - 16 * WARP; /* a row's elements are counted in int */

/* lane_row — a lane's elements of a row of c: W of them in each of K vectors, WARP·W apart. K 0:
 * they are read from memory in each pass. */
template <typename T, int W, int K> struct lane_row {
    words<T, W> kept[K];

    __device__ void fetch(const T *row, int lane, int c)
    {
#pragma unroll
        for (int k = 0; k < K; k++)
            if (lane + k * WARP * W < c)
                move_words<CACHE_KEEP>(kept[k].w, (const uint32_t *)(row + lane + k * WARP * W));
    }
    __device__ void get(float (&x)[W], int k, int) const { unpack<T, W>(x, kept[k]); }
    /* Between passes: the kept elements stay packed. */
    __device__ void forget_floats()
    {
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int i = 0; i < W * (int)sizeof(T) / 4; i++)
                forget(kept[k].w[i]);
    }
};
template <typename T, int W> struct lane_row<T, W, 0> {
    const T *row = nullptr;

    __device__ void fetch(const T *from, int, int) { row = from; }
    __device__ void get(float (&x)[W], int, int i) const { load_n(x, row + i); }
    __device__ void forget_floats() {}
};

/* lane_each — calls run(k, i) for each of a lane's vectors: its number, and its first element. */
template <int W, int K, typename Run>
__device__ static inline void lane_each(int lane, int c, Run run)
{
    if constexpr (K == 0) {
        for (int i = lane; i < c; i += WARP * W)
            run(0, i);
    } else {
#pragma unroll
        for (int k = 0; k < K; k++)
            if (lane + k * WARP * W < c)
                run(k, lane + k * WARP * W);
    }
}

/* norm_kept — calls run(width<K>) with the fewest vectors a lane that hold a row of c; 0: none
 * does. */
template <typename T, int W, typename Run> static inline int norm_kept(int64_t c, Run run)
{
    constexpr int F = W == 1 ? 0 : sizeof(T) / 2;
    int64_t vectors = ceil_div(c, WARP * W);
    if constexpr (F > 0) {
        if (vectors <= F)
            return run(width<F>());
        if (vectors <= 3 * F)
            return run(width<3 * F>());
        if (vectors <= 4 * F)
            return run(width<4 * F>());
        if (F == 1 && vectors <= 6)
            return run(width < F == 1 ? 6 : 0 > ());
        if (F == 1 && vectors <= 8)
            return run(width < F == 1 ? 8 : 0 > ());
    }
    return run(width<0>());
}

template <typename T, int W, int K>
__global__ void __launch_bounds__(WARPS *WARP)
    norm_fwd_warp(T *y, float *mean, float *rstd, const T *x, const T *w, const T *b, int64_t n,
                  int c, float eps)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP * W;
    if (row >= n)
        return;
    struct lane_row<T, W, K> kept;
    kept.fetch(x + row * c, lane, c);
    float sum = 0, rest = 0, var = 0;
    lane_each<W, K>(lane, c, [&](int k, int i) {
        float v[W];
        kept.get(v, k, i);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += v[j];
    });
    float m = warp_sum(sum) / (float)c;
    lane_each<W, K>(lane, c, [&](int k, int i) {
        float v[W];
        kept.get(v, k, i);
#pragma unroll
        for (int j = 0; j < W; j++) {
            rest += v[j] - m;
            var += (v[j] - m) * (v[j] - m);
        }
    });
    /* m loses digits when a row lies far from zero: d is the remainder. */
    float d = warp_sum(rest) / (float)c;
    float r = 1.0f / sqrtf(fmaxf(warp_sum(var) / (float)c - d * d, 0.0f) + eps);
    lane_each<W, K>(lane, c, [&](int k, int i) {
        float v[W], scale[W], shift[W] = {};
        kept.get(v, k, i);
        load_n(scale, w + i);
        if (b)
            load_n(shift, b + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = ((v[j] - m) - d) * r * scale[j] + shift[j];
        store_n(y + row * c + i, v);
    });
    if (lane == 0 && mean)
        mean[row] = m + d;
    if (lane == 0 && rstd)
        rstd[row] = r;
}

/* Normalises a row (RMSNorm); the value is rounded before it is multiplied by w. */
template <typename T, int W, int K>
__global__ void __launch_bounds__(WARPS *WARP)
    norm_rms_warp(T *y, float *rstd, const T *x, const T *w, int64_t n, int c, float eps)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP * W;
    if (row >= n)
        return;
    struct lane_row<T, W, K> kept;
    kept.fetch(x + row * c, lane, c);
    float sum = 0;
    lane_each<W, K>(lane, c, [&](int k, int i) {
        float v[W];
        kept.get(v, k, i);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += v[j] * v[j];
    });
    float r = 1.0f / sqrtf(warp_sum(sum) / (float)c + eps);
    lane_each<W, K>(lane, c, [&](int k, int i) {
        float v[W], scale[W];
        kept.get(v, k, i);
        load_n(scale, w + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = to_float(from_float<T>(v[j] * r)) * scale[j];
        store_n(y + row * c + i, v);
    });
    if (lane == 0 && rstd)
        rstd[row] = r;
}

template <typename T, int W, int K>
static int norm_fwd_launch(const struct cuda *cuda, const struct norm_fwd *a)
{
    unsigned blocks = (unsigned)ceil_div(a->n, WARPS);
    T *y = (T *)a->y.data;
    const T *x = (const T *)a->x.data, *w = (const T *)a->w.data, *b = (const T *)a->b.data;
    float *mean = (float *)a->mean.data, *rstd = (float *)a->rstd.data;
    if (a->kind == NORM_KIND_RMS)
        return cuda_launch(norm_rms_warp<T, W, K>, blocks, WARPS * WARP, 0, cuda->stream, y, rstd,
                           x, w, a->n, (int)a->c, a->eps);
    return cuda_launch(norm_fwd_warp<T, W, K>, blocks, WARPS * WARP, 0, cuda->stream, y, mean, rstd,
                       x, w, b, a->n, (int)a->c, a->eps);
}

extern "C" int norm_fwd_cuda(const struct cuda *cuda, const struct norm_fwd *a)
{
    if (a->n == 0)
        return 0;
    if (a->y.dtype != a->x.dtype || a->w.dtype != a->x.dtype)
        return CUDA_REFUSAL_DTYPE;
    if (a->c > C_MOST)
        return CUDA_REFUSAL_SHAPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(a->c, {a->y.data, a->x.data, a->w.data, a->b.data}),
                            [&](auto w) {
                                constexpr int W = decltype(w)::value;
                                return norm_kept<T, W>(a->c, [&](auto k) {
                                    return norm_fwd_launch<T, W, decltype(k)::value>(cuda, a);
                                });
                            });
    });
}

/* ---- backward ---- */

template <typename T> struct norm_bwd_args {
    T *dx;
    const T *dy, *x, *w, *residual;
    const float *mean, *rstd;
    int64_t n;
    int c;
};

/* Floats of a warp's copy of dw, or of db, in shared memory. Column i, the element j of lane l at
 * vector k, is number (k·W + j)·WARP + l: each of a lane's is a constant away from the others, and
 * lanes meet different banks. */
template <int W> __host__ __device__ static inline int norm_copy(int c)
{
    return (c + WARP * W - 1) / (WARP * W) * (WARP * W);
}

/* Processes one row by one warp. dw, db: this warp's copies; a lane touches only its own columns;
 * NULL: not wanted. RMS has no mean and no db. */
template <typename T, int W, int K, enum norm_kind KIND>
__device__ static inline void norm_bwd_row(const struct norm_bwd_args<T> &a, int64_t row, float *dw,
                                           float *db)
{
    int lane = (int)threadIdx.x % WARP * W;
    constexpr bool LAYER = KIND == NORM_KIND_LAYER;
    float m = LAYER ? a.mean[row] : 0, r = a.rstd[row], g_sum = 0, gx_sum = 0;
    struct lane_row<T, W, K> dy, x, residual;
    dy.fetch(a.dy + row * a.c, lane, a.c);
    x.fetch(a.x + row * a.c, lane, a.c);
    if (a.residual)
        residual.fetch(a.residual + row * a.c, lane, a.c);
    lane_each<W, K>(lane, a.c, [&](int k, int i) {
        float g[W], v[W], w[W];
        dy.get(g, k, i);
        x.get(v, k, i);
        load_n(w, a.w + i);
#pragma unroll
        for (int j = 0; j < W; j++) {
            g_sum += LAYER ? g[j] * w[j] : 0;
            gx_sum += g[j] * w[j] * ((v[j] - m) * r);
        }
    });
    float g_mean = LAYER ? warp_sum(g_sum) / (float)a.c : 0,
          gx_mean = warp_sum(gx_sum) / (float)a.c;
    const T *weights = a.w;
    dy.forget_floats();
    x.forget_floats();
    forget(weights);
    lane_each<W, K>(lane, a.c, [&](int k, int i) {
        float g[W], v[W], w[W], rest[W] = {};
        dy.get(g, k, i);
        x.get(v, k, i);
        load_n(w, weights + i);
        if (a.residual)
            residual.get(rest, k, i);
#pragma unroll
        for (int j = 0; j < W; j++) {
            float x_hat = (v[j] - m) * r;
            if (dw) {
                int at = ((K ? k : i / (WARP * W)) * W + j) * WARP + lane / W;
                dw[at] += g[j] * x_hat;
                if (LAYER)
                    db[at] += g[j];
            }
            rest[j] += r * (g[j] * w[j] - g_mean - x_hat * gx_mean);
        }
        store_n(a.dx + row * a.c + i, rest);
    });
}

/* Blocks that fit on a multiprocessor without spilling registers. */
template <int K> constexpr int NORM_BLOCKS = K == 0 ? 2 : K <= 3 ? 3 : K <= 6 ? 2 : 1;

/* Returns the number of sums of a row: dw, and LAYER also db. */
__host__ __device__ static inline int norm_sums(enum norm_kind kind)
{
    return kind == NORM_KIND_LAYER ? 2 : 1;
}

/* A block processes the rows [blockIdx.x·run, …): partial[blockIdx.x] gets their dw (C), then db
 * (C). */
template <typename T, int W, int K, enum norm_kind KIND>
__global__ void __launch_bounds__(WARPS *WARP, NORM_BLOCKS<K>)
    norm_bwd_runs(struct norm_bwd_args<T> a, float *partial, int64_t run)
{
    constexpr int SUMS = KIND == NORM_KIND_LAYER ? 2 : 1;
    CUDA_SHARED(bytes);
    float *all = (float *)bytes;
    int warps_n = (int)blockDim.x / WARP, warp = (int)threadIdx.x / WARP, copy = norm_copy<W>(a.c);
    int64_t first = blockIdx.x * run, end = first + run < a.n ? first + run : a.n;
    for (int i = (int)threadIdx.x; i < warps_n * SUMS * copy; i += (int)blockDim.x)
        all[i] = 0;
    __syncthreads();
    float *dw = all + warp * SUMS * copy;
    for (int64_t row = first + warp; row < end; row += warps_n)
        norm_bwd_row<T, W, K, KIND>(a, row, dw, dw + copy);
    __syncthreads();
    partial += (int64_t)blockIdx.x * SUMS * a.c;
    for (int i = (int)threadIdx.x; i < SUMS * copy / W; i += (int)blockDim.x) {
        int lane = i % (copy / W), column = lane * W; /* column of dw, then of db */
        const float *at = all + i / (copy / W) * copy + lane / WARP * WARP * W + lane % WARP;
        float sum[W] = {};
        for (int k = 0; k < warps_n; k++)
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += at[k * SUMS * copy + j * WARP];
        if (column < a.c)
            store_n(partial + i / (copy / W) * a.c + column, sum);
    }
}

/* Writes to partial[blockIdx.y] a column's sums over a run of rows, one thread for each column, for
 * rows of any width. */
template <typename T>
__global__ void norm_bwd_columns(struct norm_bwd_args<T> a, float *partial, int64_t run, int sums)
{
    int64_t c = thread_first(), first = blockIdx.y * run,
            end = first + run < a.n ? first + run : a.n;
    float dw = 0, db = 0;
    if (c >= a.c)
        return;
    for (int64_t row = first; row < end; row++) {
        float g = to_float(a.dy[row * a.c + c]);
        float m = a.mean ? a.mean[row] : 0;
        dw += g * ((to_float(a.x[row * a.c + c]) - m) * a.rstd[row]);
        db += g;
    }
    partial[blockIdx.y * sums * (int64_t)a.c + c] = dw;
    if (sums == 2)
        partial[blockIdx.y * sums * (int64_t)a.c + a.c + c] = db;
}

template <typename T, int W, enum norm_kind KIND>
__global__ void norm_bwd_rows(struct norm_bwd_args<T> a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row < a.n)
        norm_bwd_row<T, W, 0, KIND>(a, row, nullptr, nullptr);
}

/* Runs the second stage: dw and db from partials_n partial sums of `width` columns, 32 columns a
 * block; a warp adds every WARPS-th partial sum. */
static __global__ void norm_bwd_partials(float *dw, float *db, const float *partial,
                                         int64_t partials_n, int64_t c, int64_t width,
                                         bool accumulate)
{
    __shared__ float sums[WARPS][WARP];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t i = (int64_t)blockIdx.x * WARP + lane;
    float sum = 0;
    for (int64_t p = warp; p < partials_n && i < width; p += WARPS)
        sum += partial[p * width + i];
    sums[warp][lane] = sum;
    __syncthreads();
    float *out = i < c ? dw + i : db ? db + (i - c) : nullptr;
    if (warp != 0 || i >= width || !out)
        return;
    sum = 0;
    for (int w = 0; w < WARPS; w++)
        sum += sums[w][lane];
    *out = accumulate ? *out + sum : sum;
}

/* Blocks: four for each of an H200's 132 multiprocessors; the cut depends on the shape only. */
constexpr int64_t RUNS_MOST = 528;
constexpr size_t SHARED_MOST = BLOCK_SHARED < 96 * 1024 ? BLOCK_SHARED : 96 * 1024;

template <typename T, int W, enum norm_kind KIND>
static int norm_bwd_first(const struct cuda *cuda, const struct norm_bwd_args<T> &a, float *partial,
                          int64_t *runs_out)
{
    int warps = WARPS, sums = norm_sums(KIND);
    size_t partial_bytes = (size_t)sums * (size_t)a.c * sizeof(float),
           copy_bytes = (size_t)sums * sizeof(float) * (size_t)norm_copy<W>(a.c);
    while (warps > 1 && warps * copy_bytes > SHARED_MOST)
        warps /= 2;
    if (warps * copy_bytes <= SHARED_MOST) {
        int64_t run = round_up(ceil_div(a.n, RUNS_MOST), warps),
                runs = *runs_out = ceil_div(a.n, run);
        if (runs * partial_bytes > cuda->scratch_bytes)
            return CUDA_REFUSAL_SCRATCH;
        return norm_kept<T, W>(a.c, [&](auto k) {
            return cuda_launch(norm_bwd_runs<T, W, decltype(k)::value, KIND>, (unsigned)runs,
                               warps * WARP, warps * copy_bytes, cuda->stream, a, partial, run);
        });
    }
    int64_t run = ceil_div(a.n, 64), runs = *runs_out = ceil_div(a.n, run);
    if (runs * partial_bytes > cuda->scratch_bytes)
        return CUDA_REFUSAL_SCRATCH;
    CUDA_TRY(cuda_launch(norm_bwd_columns<T>, dim3((unsigned)ceil_div(a.c, 128), (unsigned)runs),
                         128, 0, cuda->stream, a, partial, run, sums));
    return cuda_launch(norm_bwd_rows<T, W, KIND>, (unsigned)ceil_div(a.n, WARPS), WARPS * WARP, 0,
                       cuda->stream, a);
}

extern "C" int norm_bwd_cuda(const struct cuda *cuda, const struct norm_bwd *a)
{
    float *partial = (float *)cuda->scratch, *dw = (float *)a->dw.data, *db = (float *)a->db.data;
    int64_t runs = 0;
    if (a->dx.dtype != a->x.dtype || a->dy.dtype != a->x.dtype || a->w.dtype != a->x.dtype ||
        a->dw.dtype != DTYPE_F32)
        return CUDA_REFUSAL_DTYPE;
    if (a->c > C_MOST)
        return CUDA_REFUSAL_SHAPE;
    if (a->n > 0)
        CUDA_TRY(cuda_floats(a->x.dtype, [&](auto t) {
            using T = decltype(t);
            struct norm_bwd_args<T> args = {
                (T *)a->dx.data, (const T *)a->dy.data, (const T *)a->x.data, (const T *)a->w.data,
                    (const T *)a->dresidual.data, (const float *)a->mean.data,
                    (const float *)a->rstd.data, a->n, (int)a->c
            };
            bool is_aligned =
                all_aligned<T>(a->c, {args.dx, args.dy, args.x, args.w, args.residual});
            return cuda_wide<T>(is_aligned, [&](auto w) {
                constexpr int W = decltype(w)::value;
                return a->kind == NORM_KIND_RMS
                           ? norm_bwd_first<T, W, NORM_KIND_RMS>(cuda, args, partial, &runs)
                           : norm_bwd_first<T, W, NORM_KIND_LAYER>(cuda, args, partial, &runs);
            });
        }));
    int64_t width = norm_sums(a->kind) * a->c;
    return cuda_launch(norm_bwd_partials, (unsigned)ceil_div(width, WARP), WARPS * WARP, 0,
                       cuda->stream, dw, db, (const float *)partial, runs, a->c, width,
                       a->accumulate);
}
