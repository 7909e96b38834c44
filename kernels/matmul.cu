/* matmul — the dense products on tensor cores or matrix instructions: for products that the
 * vendor's library cannot do, or if it is missing.
 *
 * All three products are C (M,N) = A (M,K)·B (K,N) with an epilogue (matmul_finish.cuh). They
 * differ in how the factors lie: A as (M,K) or (K,M), B as (N,K) or (K,N). A block computes 128×128
 * of C, a warp 64×32 (a wavefront of AMD 64×64). cp.async loads 64 of k at a time into three
 * swizzled buffers (two on chips with 64 KiB of shared memory); fragments are transposed when they
 * are loaded from there, if needed. Rows that are not 16-byte aligned are loaded element by
 * element. float tensors: matmul_f32.cuh. Sums run in order of k. K is not split: dw of small
 * layers leaves some of a large chip idle. */
#include "kernels/tile.cuh"
#include "kernels/column.h"
#include "kernels/matmul_f32.cuh"
#include "kernels/matmul_finish.cuh"

constexpr int MM_TILE = 128, MM_K = 64, MM_COLS = 4 * MMA_N, /* columns of a warp */
    MM_ROW_WARPS = MM_TILE / MM_COLS, MM_THREADS = 2 * MM_ROW_WARPS * MMA_LANES;
constexpr int MM_BYTES = MM_TILE * MM_K * 2; /* bytes of one factor in one buffer */
constexpr int MM_STAGES = BLOCK_SHARED >= 3 * 2 * MM_BYTES ? 3 : 2;
static_assert(MM_STAGES * 2 * MM_BYTES >= FINISH_BYTES && MM_TILE == FINISH_TILE,
              "the sums fit where the factors lay");

/* A factor of 16-bit elements, rows of `stride` elements. is_k_first: a row is one k; else a row is
 * one line (a row of A, a column of B). */
template <typename T> struct matmul_side {
    const T *data;
    int64_t stride;
    int lines_n;
    bool is_wide; /* every row begins at a multiple of 16 bytes */
};

/* Loads a tile of ROWS × COLS at (row, col) of the factor into shared memory; zeros beyond rows_n
 * and cols_n. */
template <typename T, int ROWS, int COLS>
__device__ static inline void mm_copy(unsigned char *tile, const matmul_side<T> &s, int row,
                                      int col, int rows_n, int cols_n)
{
    constexpr int VECTORS = COLS / 8, STEP = MM_THREADS / VECTORS;
    int r = (int)threadIdx.x / VECTORS, vector = (int)threadIdx.x % VECTORS;
    int columns = min(8, max(0, cols_n - col - 8 * vector));
    const T *at = s.data + (int64_t)(row + r) * s.stride + col + 8 * vector;
    shared_at to = shared_address(tile);
#pragma unroll
    for (int i = 0; i < ROWS / STEP; i++, r += STEP, at += STEP * s.stride) {
        int n = row + r < rows_n ? columns : 0;
        if (s.is_wide) {
            cp_async(to + (shared_at)swizzle<VECTORS>(r, vector), n > 0 ? at : s.data, 2 * n);
        } else {
            float x[8];
#pragma unroll
            for (int e = 0; e < 8; e++)
                x[e] = e < n ? to_float(at[e]) : 0;
            store_floats((T *)(tile + swizzle<VECTORS>(r, vector)), x);
        }
    }
}

template <typename T, bool K_FIRST>
__device__ static inline void mm_fetch(unsigned char *tile, const matmul_side<T> &s, int line,
                                       int k, int k_n)
{
    if constexpr (K_FIRST)
        mm_copy<T, MM_K, MM_TILE>(tile, s, k, line, k_n, s.lines_n);
    else
        mm_copy<T, MM_TILE, MM_K>(tile, s, line, k, s.lines_n, k_n);
}

template <typename T, bool A_K_FIRST, bool B_K_FIRST>
__device__ static inline void mm_add(float (&sum)[4][4][4], shared_at a, shared_at b, int row,
                                     int col)
{
#pragma unroll
    for (int k = 0; k < MM_K; k += 16) {
        uint32_t fa[4][2 * MMA_ROWS], fb[MM_COLS / 16][16 / MMA_N][2];
#pragma unroll
        for (int m = 0; m < 4; m++)
            if constexpr (A_K_FIRST)
                frag_a_trans<MM_TILE / 8>(fa[m], a, k, (row + 16 * m) / 8);
            else
                frag_a<MM_K / 8>(fa[m], a, row + 16 * m, k / 8);
#pragma unroll
        for (int n = 0; n < MM_COLS / 16; n++)
            if constexpr (B_K_FIRST)
                frag_b_trans<MM_TILE / 8>(fb[n], b, k, (col + 16 * n) / 8);
            else
                frag_b<MM_K / 8>(fb[n], b, col + 16 * n, k / 8);
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int n = 0; n < MM_COLS / 16; n++)
                mma_16<T>(sum[m] + n * (16 / MMA_N), fa[m], fb[n]);
    }
}

template <typename T, bool A_K_FIRST, bool B_K_FIRST>
__global__ void __launch_bounds__(MM_THREADS, 2)
    matmul_mma(matmul_side<T> a, matmul_side<T> b, struct finish f)
{
    CUDA_SHARED(shared);
    int warp = (int)threadIdx.x / MMA_LANES, tile_m, tile_n, steps = (f.k + MM_K - 1) / MM_K;
    finish_tile((f.m + MM_TILE - 1) / MM_TILE, (f.n + MM_TILE - 1) / MM_TILE, tile_m, tile_n);
    int first_row = tile_m * MM_TILE, first_col = tile_n * MM_TILE, row = warp / MM_ROW_WARPS * 64,
        col = warp % MM_ROW_WARPS * MM_COLS;
    auto fetch = [&](int step) {
        unsigned char *to = shared + step % MM_STAGES * 2 * MM_BYTES;
        if (step < steps) {
            mm_fetch<T, A_K_FIRST>(to, a, first_row, step * MM_K, f.k);
            mm_fetch<T, B_K_FIRST>(to + MM_BYTES, b, first_col, step * MM_K, f.k);
        }
        cp_commit(); /* an empty group keeps the count */
    };
    float sum[4][4][4] = {};
#pragma unroll
    for (int i = 0; i < MM_STAGES - 1; i++)
        fetch(i);
    for (int i = 0; i < steps; i++) {
        cp_wait<MM_STAGES - 2>();
        /* tile i is loaded, and all threads are done with tile i-1; its buffer is loaded next */
        __syncthreads();
        fetch(i + MM_STAGES - 1);
        shared_at at = shared_address(shared) + (shared_at)(i % MM_STAGES * 2 * MM_BYTES);
        mm_add<T, A_K_FIRST, B_K_FIRST>(sum, at, at + MM_BYTES, row, col);
    }
    cp_wait<0>();
    __syncthreads(); /* the buffers hold the sums now */
    mf_store((float *)shared, sum, row, col);
    __syncthreads();
    finish_block(f, (const float *)shared, first_row, first_col);
}

/* ---- launches ---- */

/* The layout of a product's factors: rows of `stride` elements, each one k (is_k_first) or one
 * line. */
struct matmul_factor {
    struct tensor t;
    int64_t stride;
    bool is_k_first;
};

static matmul_side_f32 side_f32(const matmul_factor &x, int lines_n)
{
    return {(const float *)x.t.data, x.is_k_first ? 1 : x.stride, x.is_k_first ? x.stride : 1,
            lines_n};
}

template <typename T>
static int launch_typed(const struct cuda *cuda, const matmul_factor &a, const matmul_factor &b,
                        const struct finish &f)
{
    int64_t blocks = ceil_div(f.m, MM_TILE) * ceil_div(f.n, MM_TILE);
    dim3 grid((unsigned)blocks);
    if (blocks > INT32_MAX)
        return CUDA_REFUSAL_SHAPE;
    if constexpr (sizeof(T) == 4) {
        return cuda_launch(cuda->is_tf32 ? matmul_f32<mf_tf32> : matmul_f32<mf_plain>, grid,
                           dim3(MF_THREADS), FINISH_BYTES, cuda->stream, side_f32(a, f.m),
                           side_f32(b, f.n), f);
    } else {
        matmul_side<T> x = {(const T *)a.t.data, a.stride, f.m,
                            cuda_aligned((const T *)a.t.data, a.stride)};
        matmul_side<T> y = {(const T *)b.t.data, b.stride, f.n,
                            cuda_aligned((const T *)b.t.data, b.stride)};
        if (a.is_k_first && !b.is_k_first)
            return CUDA_REFUSAL_SHAPE; /* not a product */
        return cuda_launch(a.is_k_first   ? matmul_mma<T, true, true>
                           : b.is_k_first ? matmul_mma<T, false, true>
                                          : matmul_mma<T, false, false>,
                           grid, dim3(MM_THREADS), (size_t)MM_STAGES * 2 * MM_BYTES, cuda->stream,
                           x, y, f);
    }
}

static bool size_is_good(int64_t n) { return n >= 1 && n <= INT32_MAX - MM_TILE; }

static int launch_matmul(const struct cuda *cuda, const matmul_factor &a, const matmul_factor &b,
                         struct finish f, int64_t m, int64_t n, int64_t k)
{
    if (!size_is_good(m) || !size_is_good(n) || !size_is_good(k))
        return CUDA_REFUSAL_SHAPE;
    if (a.t.dtype != b.t.dtype || !finish_is_float(f.c) || !finish_is_float(f.bias) ||
        !finish_is_float(f.pre) || !finish_is_float(f.residual) || !finish_is_float(f.gelu_of))
        return CUDA_REFUSAL_DTYPE;
    f.m = (int)m, f.n = (int)n, f.k = (int)k;
    finish_look(&f);
    return cuda_floats(a.t.dtype, [&](auto t) { return launch_typed<decltype(t)>(cuda, a, b, f); });
}

int matmul_fwd_cuda(const struct cuda *cuda, const struct matmul_fwd *a)
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    struct finish f = {};
    f.c = a->y, f.bias = a->b, f.pre = a->pre, f.residual = a->residual;
    f.c_stride = a->y_stride ? a->y_stride : a->out;
    f.has_gelu = a->act == MATMUL_ACT_GELU;
    f.drop = drop_args_of(cuda, &a->dropout);
    return launch_matmul(cuda, {a->x, a->in, false}, {a->w, is_io ? a->out : a->in, is_io}, f, a->n,
                         a->out, a->in);
}

int matmul_bwd_x_cuda(const struct cuda *cuda, const struct matmul_bwd_x *a)
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    struct finish f = {};
    f.c = a->dx, f.gelu_of = a->pre, f.c_stride = a->in;
    return launch_matmul(cuda, {a->dy, a->dy_stride ? a->dy_stride : a->out, false},
                         {a->w, is_io ? a->out : a->in, !is_io}, f, a->n, a->in, a->out);
}

int matmul_bwd_w_cuda(const struct cuda *cuda, const struct matmul_bwd_w *a)
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    int64_t stride = a->dy_stride ? a->dy_stride : a->out, rows = is_io ? a->in : a->out,
            columns = is_io ? a->out : a->in;
    matmul_factor x = {a->x, a->in, true}, dy = {a->dy, stride, true};
    struct finish f = {};
    f.c = a->dw, f.c_stride = columns, f.accumulate = a->accumulate;
    CUDA_TRY(launch_matmul(cuda, is_io ? x : dy, is_io ? dy : x, f, rows, columns, a->n));
    struct column_sum sum = {a->db, a->dy, a->n, a->out, stride, a->accumulate};
    return a->db.data ? column_sum_cuda(cuda, &sum) : 0;
}
