/* matmul_f32 — products of float tensors: all in float, or, with PRECISION=tf32, on tensor cores.
 * Must not know the epilogue of a product (matmul_finish.cuh).
 *
 * A block computes 128×128 of C. 16 of k at a time lie in shared memory as (k,m) and (k,n), rows
 * 136 floats apart, so that both ways of reading use different banks; the next tile waits in
 * registers. Any strides. */
#ifndef CONVOY_KERNELS_MATMUL_F32_CUH
#define CONVOY_KERNELS_MATMUL_F32_CUH

#include "kernels/matmul_finish.cuh"
#include "kernels/tensor_core.cuh"

constexpr int MF_TILE = 128, MF_K = 16, MF_ROW = MF_TILE + 8, MF_THREADS = 256,
              MF_EACH = MF_TILE * MF_K / MF_THREADS;

/* A factor: element (line, k) lies at data[line·line_stride + k·k_stride]; one of the strides is 1.
 * Lines are rows of A, columns of B. */
struct matmul_side_f32 {
    const float *data;
    int64_t line_stride, k_stride;
    int lines_n;
};

/* Returns the position of this thread's i-th element of a tile: neighbours in memory go to
 * neighbouring threads. */
__device__ static inline void mf_locate(const matmul_side_f32 &s, int i, int &line, int &k)
{
    int at = (int)threadIdx.x + i * MF_THREADS;
    if (s.k_stride == 1)
        line = at / MF_K, k = at % MF_K;
    else
        line = at % MF_TILE, k = at / MF_TILE;
}
__device__ static inline void mf_load(float (&x)[MF_EACH], const matmul_side_f32 &s, int first_line,
                                      int first_k, int k_n)
{
#pragma unroll
    for (int i = 0; i < MF_EACH; i++) {
        int line, k;
        mf_locate(s, i, line, k);
        bool is_there = first_line + line < s.lines_n && first_k + k < k_n;
        x[i] =
            is_there ? s.data[(first_line + line) * s.line_stride + (first_k + k) * s.k_stride] : 0;
    }
}
__device__ static inline void mf_put(float *tile, const float (&x)[MF_EACH],
                                     const matmul_side_f32 &s)
{
#pragma unroll
    for (int i = 0; i < MF_EACH; i++) {
        int line, k;
        mf_locate(s, i, line, k);
        tile[k * MF_ROW + line] = x[i];
    }
}

/* The sums of thread (ty,tx) of 16×16: rows 8·ty … +7, columns 2·tx + 32·i and the next, i < 4. */
struct mf_plain {
    float sum[8][8];
    __device__ void add(const float *a, const float *b)
    {
        int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
#pragma unroll
        for (int k = 0; k < MF_K; k++) {
            float x[8], y[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x[i] = a[k * MF_ROW + 8 * ty + i];
                y[i] = b[k * MF_ROW + 2 * tx + i / 2 * 32 + i % 2];
            }
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
    }
    __device__ void store(float *tile) const
    {
        int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                tile[(8 * ty + i) * FINISH_ROW + 2 * tx + j / 2 * 32 + j % 2] = sum[i][j];
    }
};

/* Stores a warp's sums, 64 rows and MF_COLS columns, at (row, col) of the block's tile. */
constexpr int MF_COLS = 4 * MMA_N;
__device__ static inline void mf_store(float *tile, const float (&sum)[4][4][4], int row, int col)
{
    int lane = mma_lane();
    float *to = tile + (row + MMA_LINE(lane)) * FINISH_ROW + col + MMA_PART(lane) * MMA_COLS;
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int r = 0; r < MMA_ROWS; r++) {
                float x[MMA_COLS];
                sums_row(x, sum[m][n], r);
                store_floats(to + (16 * m + 8 * r) * FINISH_ROW + MMA_N * n, x);
            }
}

/* The sums of warp (wm,wn): 64 rows, MF_COLS columns. */
struct mf_tf32 {
    float sum[4][4][4];
    __device__ static int row(void) { return warp() / (MF_TILE / MF_COLS) * 64; }
    __device__ static int col(void) { return warp() % (MF_TILE / MF_COLS) * MF_COLS; }
    __device__ static int warp(void) { return (int)threadIdx.x / MMA_LANES; }
    __device__ void add(const float *a, const float *b)
    {
        int line = MMA_LINE(mma_lane()), part = MMA_PART(mma_lane());
        const float *x = a + row() + line, *y = b + col() + line;
#pragma unroll
        for (int k = 0; k < MF_K; k += 8) {
            uint32_t fb[4][2];
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    fb[n][i] = to_tf32(y[(k + part + 4 * i) * MF_ROW + MMA_N * n]);
#pragma unroll
            for (int m = 0; m < 4; m++) {
                uint32_t fa[2 * MMA_ROWS];
#pragma unroll
                for (int i = 0; i < 2 * MMA_ROWS; i++)
                    fa[i] = to_tf32(
                        x[(k + part + i / MMA_ROWS * 4) * MF_ROW + 16 * m + i % MMA_ROWS * 8]);
#pragma unroll
                for (int n = 0; n < 4; n++)
                    mma_tf32(sum[m][n], fa, fb[n]);
            }
        }
    }
    __device__ void store(float *tile) const { mf_store(tile, sum, row(), col()); }
};

template <typename Sums>
__global__ void __launch_bounds__(MF_THREADS)
    matmul_f32(matmul_side_f32 a, matmul_side_f32 b, struct finish f)
{
    CUDA_SHARED(shared);
    float *tiles_a = (float *)shared, *tiles_b = tiles_a + 2 * MF_K * MF_ROW;
    int tile_m, tile_n, steps = (f.k + MF_K - 1) / MF_K;
    finish_tile((f.m + MF_TILE - 1) / MF_TILE, (f.n + MF_TILE - 1) / MF_TILE, tile_m, tile_n);
    int row = tile_m * MF_TILE, col = tile_n * MF_TILE;
    float next_a[MF_EACH], next_b[MF_EACH];
    Sums sums = {};
    mf_load(next_a, a, row, 0, f.k);
    mf_load(next_b, b, col, 0, f.k);
    for (int i = 0; i < steps; i++) {
        float *tile_a = tiles_a + i % 2 * MF_K * MF_ROW, *tile_b = tiles_b + i % 2 * MF_K * MF_ROW;
        mf_put(tile_a, next_a, a);
        mf_put(tile_b, next_b, b);
        /* one barrier is enough: a thread that writes this half again has passed the next barrier,
         * and so have the readers of this half */
        __syncthreads();
        if (i + 1 < steps) {
            mf_load(next_a, a, row, (i + 1) * MF_K, f.k);
            mf_load(next_b, b, col, (i + 1) * MF_K, f.k);
        }
        sums.add(tile_a, tile_b);
    }
    __syncthreads();
    sums.store((float *)shared);
    __syncthreads();
    finish_block(f, (const float *)shared, row, col);
}

#endif
