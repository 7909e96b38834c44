/* tile — tiles of 16-bit rows in shared memory, and the fragments that tensor cores read from them.
 *
 * A row of a tile has D/8 vectors of 16 bytes, swizzled (tensor_core.cuh). The name of a fragment
 * states how the tile holds the factor: frag_a for a tile (m,k), frag_a_trans for (k,m); frag_b for
 * (n,k), frag_b_trans for (k,n). Used by attention and matmul; must not know either. */
#ifndef CONVOY_KERNELS_TILE_CUH
#define CONVOY_KERNELS_TILE_CUH

#include "kernels/tensor_core.cuh"

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
/* Loads b: 16 columns n … n+15 (b0: the first eight, b1: the others) and k = 8·vector …
 * 8·vector+15. */
template <int VECTORS>
__device__ static inline void frag_b(uint32_t (&b0)[2], uint32_t (&b1)[2], shared_at tile, int n,
                                     int vector)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t r[4];
    ldmatrix_x4(
        r, swizzle_at<VECTORS>(swizzle_lane<VECTORS>(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2),
                               n, vector));
    b0[0] = r[0], b0[1] = r[1], b1[0] = r[2], b1[1] = r[3];
}
/* Loads b of the transpose: rows of the tile are k … k+15, columns n = 8·vector … 8·vector+15. */
template <int VECTORS>
__device__ static inline void frag_b_trans(uint32_t (&b0)[2], uint32_t (&b1)[2], shared_at tile,
                                           int k, int vector)
{
    int lane = (int)threadIdx.x % WARP;
    uint32_t r[4];
    ldmatrix_x4_trans(
        r, swizzle_at<VECTORS>(swizzle_lane<VECTORS>(tile, lane % 16, lane / 16), k, vector));
    b0[0] = r[0], b0[1] = r[1], b1[0] = r[2], b1[1] = r[3];
}

/* frag_of_sums — rounds d of two neighbouring 8-column tiles to a of 16 columns of k. */
template <typename T>
__device__ static inline void frag_of_sums(uint32_t (&a)[4], const float (&left)[4],
                                           const float (&right)[4])
{
    a[0] = pack2<T>(left[0], left[1]);
    a[1] = pack2<T>(left[2], left[3]);
    a[2] = pack2<T>(right[0], right[1]);
    a[3] = pack2<T>(right[2], right[3]);
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
