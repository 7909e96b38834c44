/* tile — tiles of 16-bit rows in shared memory, and the fragments that products read from them.
 *
 * A row of a tile has D/8 vectors of 16 bytes, swizzled (tensor_core.cuh). The name of a fragment
 * states how the tile holds the factor: frag_a for a tile (m,k), frag_a_trans for (k,m); frag_b for
 * (n,k), frag_b_trans for (k,n). Used by attention and matmul; must not know either. */
#ifndef CONVOY_KERNELS_TILE_CUH
#define CONVOY_KERNELS_TILE_CUH

#include "kernels/tensor_core.cuh"

#ifdef CONVOY_HIP
/* AMD GPUs: a and b have the same layout, of 16 lines (rows of a, columns of b). */
template <int VECTORS>
__device__ static inline void frag_a(uint32_t (&a)[2], shared_at tile, int row, int vector)
{
    int line = MMA_LINE(mma_lane()), part = MMA_PART(mma_lane());
    shared_at at = swizzle_at<VECTORS>(swizzle_lane<VECTORS>(tile, line, part / 2), row, vector);
    move_words<CACHE_KEEP>(a, HIP_AT(const uint32_t, at + (shared_at)(part % 2 * 8)));
}
template <int VECTORS>
__device__ static inline void frag_a_trans(uint32_t (&a)[2], shared_at tile, int k, int vector)
{
    int line = MMA_LINE(mma_lane()), part = MMA_PART(mma_lane());
    uint32_t x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        shared_at row = swizzle_lane<VECTORS>(tile, 4 * part + i, line / 8);
        x[i] = HIP_AT(const uint16_t, swizzle_at<VECTORS>(row, k, vector))[line % 8];
    }
    a[0] = x[0] | x[1] << 16, a[1] = x[2] | x[3] << 16;
}
template <int VECTORS>
__device__ static inline void frag_b(uint32_t (&b)[1][2], shared_at tile, int n, int vector)
{
    frag_a<VECTORS>(b[0], tile, n, vector);
}
template <int VECTORS>
__device__ static inline void frag_b_trans(uint32_t (&b)[1][2], shared_at tile, int k, int vector)
{
    frag_a_trans<VECTORS>(b[0], tile, k, vector);
}
#else
/* Loads a: rows row … row+15 (row a multiple of 8) and columns 8·vector … 8·vector+15 (vector
 * even). */
template <int VECTORS>
__device__ static inline void frag_a(uint32_t (&a)[4], shared_at tile, int row, int vector)
{
    int lane = (int)threadIdx.x % WARP;
    ldmatrix_x4(
        a, swizzle_at<VECTORS>(swizzle_lane<VECTORS>(tile, lane % 16, lane / 16), row, vector));
}
/* Loads a of the transpose: rows of the tile are k … k+15, columns m = 8·vector … 8·vector+15. */
template <int VECTORS>
__device__ static inline void frag_a_trans(uint32_t (&a)[4], shared_at tile, int k, int vector)
{
    int lane = (int)threadIdx.x % WARP;
    ldmatrix_x4_trans(
        a, swizzle_at<VECTORS>(swizzle_lane<VECTORS>(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2),
                               k, vector));
}
/* Loads b: 16 columns n … n+15 (b[0]: the first eight, b[1]: the others) and k = 8·vector …
 * 8·vector+15. */
template <int VECTORS>
__device__ static inline void frag_b(uint32_t (&b)[2][2], shared_at tile, int n, int vector)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t r[4];
    ldmatrix_x4(
        r, swizzle_at<VECTORS>(swizzle_lane<VECTORS>(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2),
                               n, vector));
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}
/* Loads b of the transpose: rows of the tile are k … k+15, columns n = 8·vector … 8·vector+15. */
template <int VECTORS>
__device__ static inline void frag_b_trans(uint32_t (&b)[2][2], shared_at tile, int k, int vector)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t r[4];
    ldmatrix_x4_trans(
        r, swizzle_at<VECTORS>(swizzle_lane<VECTORS>(tile, lane % 16, lane / 16), k, vector));
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}
#endif

/* frag_of_sums — rounds d of 16 columns to a, whose k are these columns. */
template <typename T>
__device__ static inline void frag_of_sums(uint32_t (&a)[2 * MMA_ROWS], const float (*d)[4])
{
#pragma unroll
    for (int i = 0; i < 2 * MMA_ROWS; i++)
        a[i] = pack2<T>(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
}

/* sums_at — returns the place of the lane's columns of d in a row of a swizzled tile; d begins at
 * column MMA_N·n. */
template <int VECTORS>
__device__ static inline unsigned char *sums_at(unsigned char *tile, int row, int n, int lane)
{
    int part = MMA_PART(lane);
    return MMA_N == 8 ? tile + swizzle<VECTORS>(row, n) + part * 4
                      : tile + swizzle<VECTORS>(row, 2 * n + part / 2) + part % 2 * 8;
}

/* store_sums — stores MMA_COLS elements of d, rounded, in shared or global memory. */
template <typename T> __device__ static inline void store_sums(void *to, const float *d)
{
#pragma unroll
    for (int c = 0; c < MMA_COLS; c += 2)
        ((uint32_t *)to)[c / 2] = pack2<T>(d[c], d[c + 1]);
}

/* tile_copy — starts to copy ROWS rows of D elements into the tile; rows ≥ rows_n and columns ≥
 * width become zeros. Row r of the source lies at from + r·stride. All threads of the block call
 * it; the caller calls cp_commit. */
template <typename T, int ROWS, int D, int THREADS>
__device__ static inline void tile_copy(shared_at tile, const T *from, int stride, int rows_n,
                                        int width)
{
    constexpr int VECTORS = D / 8, STEP = THREADS / VECTORS;
    static_assert(THREADS % VECTORS == 0 && ROWS % STEP == 0, "each thread keeps to its column");
    int row = (int)threadIdx.x / VECTORS, vector = (int)threadIdx.x % VECTORS;
    const T *at = from + ((int64_t)row * stride + vector * 8);
    bool is_column = vector * 8 < width;
#pragma unroll
    for (int i = 0; i < ROWS / STEP; i++, at += (int64_t)STEP * stride) {
        bool is_there = is_column && row + i * STEP < rows_n;
        cp_async(tile + (shared_at)swizzle<VECTORS>(row + i * STEP, vector), is_there ? at : from,
                 is_there ? 16 : 0);
    }
}

#endif
