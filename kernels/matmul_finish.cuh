/* matmul_finish — the epilogue of a product, for each finished pair of sums: bias, GELU, residual,
 * dropout, accumulation. Element types are run-time values here: the branches are the same for a
 * whole launch. Must not know tiles. */
#ifndef CONVOY_KERNELS_MATMUL_FINISH_CUH
#define CONVOY_KERNELS_MATMUL_FINISH_CUH

#include "kernels/common.cuh"
#include "kernels/matmul.h"

/* C (M,N) = finish(A (M,K) · B (K,N)). A tensor with data NULL is left out. */
struct finish {
    struct tensor c, bias, pre, residual, gelu_of;
    int64_t c_stride; /* stride of c and residual; the others are dense, N apart */
    int m, n, k;
    bool has_gelu;   /* c = gelu(u) */
    bool accumulate; /* c += u */
    bool is_even;    /* columns 2i and 2i+1 of every tensor here may be moved in one access */
    struct drop_args drop;
};

static inline bool finish_pairs(const struct tensor t, int64_t stride)
{
    return t.data == NULL ||
           ((uintptr_t)t.data % (2 * dtype_bytes(t.dtype)) == 0 && stride % 2 == 0);
}
static inline void finish_look(struct finish *f)
{
    f->is_even = f->n % 2 == 0 && finish_pairs(f->c, f->c_stride) && finish_pairs(f->bias, 0) &&
                 finish_pairs(f->pre, f->n) && finish_pairs(f->residual, f->c_stride) &&
                 finish_pairs(f->gelu_of, f->n);
}
static inline bool finish_is_float(struct tensor t)
{
    return t.data == NULL || t.dtype == DTYPE_F32 || t.dtype == DTYPE_BF16 || t.dtype == DTYPE_F16;
}

template <typename T>
__device__ static inline void finish_get_as(float (&x)[2], const T *p, int n, bool is_even)
{
    if (is_even) {
        load_floats(x, p);
    } else {
        x[0] = to_float(p[0]);
        x[1] = n > 1 ? to_float(p[1]) : 0;
    }
}
template <typename T>
__device__ static inline void finish_put_as(T *p, const float (&x)[2], int n, bool is_even)
{
    if (is_even) {
        store_floats(p, x);
    } else {
        p[0] = from_float<T>(x[0]);
        if (n > 1)
            p[1] = from_float<T>(x[1]);
    }
}
/* Loads n (1 or 2) elements from `at` on. */
__device__ static inline void finish_get(float (&x)[2], const struct tensor &t, int64_t at, int n,
                                         bool is_even)
{
    if (t.dtype == DTYPE_F32)
        finish_get_as(x, (const float *)t.data + at, n, is_even);
    else if (t.dtype == DTYPE_BF16)
        finish_get_as(x, (const bf16 *)t.data + at, n, is_even);
    else
        finish_get_as(x, (const f16 *)t.data + at, n, is_even);
}
__device__ static inline void finish_put(const struct tensor &t, int64_t at, const float (&x)[2],
                                         int n, bool is_even)
{
    if (t.dtype == DTYPE_F32)
        finish_put_as((float *)t.data + at, x, n, is_even);
    else if (t.dtype == DTYPE_BF16)
        finish_put_as((bf16 *)t.data + at, x, n, is_even);
    else
        finish_put_as((f16 *)t.data + at, x, n, is_even);
}

/* finish_round — rounds u as it was stored in t: the next steps give the bits of a kernel that
 * reads t. */
__device__ static inline void finish_round(float (&u)[2], const struct tensor &t)
{
    if (t.dtype == DTYPE_BF16)
        u[0] = to_float(from_float<bf16>(u[0])), u[1] = to_float(from_float<bf16>(u[1]));
    else if (t.dtype == DTYPE_F16)
        u[0] = to_float(from_float<f16>(u[0])), u[1] = to_float(from_float<f16>(u[1]));
}

/* Finishes sums u0, u1 of row `row`, columns col and col+1 (col even); skips elements outside of
 * C. */
__device__ static inline void finish_pair(const struct finish &f, int row, int col, float u0,
                                          float u1)
{
    if (row >= f.m || col >= f.n)
        return;
    int n = col + 1 < f.n ? 2 : 1;
    int64_t at = (int64_t)row * f.n + col, to = row * f.c_stride + col;
    float u[2] = {u0, u1}, x[2];
    if (f.bias.data) {
        finish_get(x, f.bias, col, n, f.is_even);
        u[0] += x[0], u[1] += x[1];
    }
    if (f.pre.data) {
        finish_put(f.pre, at, u, n, f.is_even);
        finish_round(u, f.pre);
    }
    if (f.has_gelu && f.c.dtype == DTYPE_F32)
        u[0] = gelu<float>(u[0]), u[1] = gelu<float>(u[1]);
    else if (f.has_gelu)
        u[0] = gelu<bf16>(u[0]), u[1] = gelu<bf16>(u[1]);
    if (f.gelu_of.data) {
        finish_get(x, f.gelu_of, at, n, f.is_even);
        bool is_half = f.c.dtype != DTYPE_F32;
        u[0] *= is_half ? gelu_grad<bf16>(x[0]) : gelu_grad<float>(x[0]);
        u[1] *= is_half ? gelu_grad<bf16>(x[1]) : gelu_grad<float>(x[1]);
    }
    if (f.residual.data) {
        float keep[2];
        drop_factors(keep, f.drop, (uint64_t)at);
        finish_get(x, f.residual, to, n, f.is_even);
        u[0] = x[0] + (keep[0] == 0 ? 0 : keep[0] * u[0]);
        u[1] = x[1] + (keep[1] == 0 ? 0 : keep[1] * u[1]);
    }
    if (f.accumulate) {
        finish_get(x, f.c, to, n, f.is_even);
        u[0] += x[0], u[1] += x[1];
    }
    finish_put(f.c, to, u, n, f.is_even);
}

/* A block's 128×128 sums are stored in shared memory first, rows FINISH_ROW floats apart: so the
 * epilogue exists once and not once for every register, and whole rows go to memory. Four floats
 * between rows spread columns over the banks, if there is room for them. */
constexpr int FINISH_TILE = 128, FINISH_ROW = FINISH_TILE + (BLOCK_SHARED > 64 * 1024 ? 4 : 0),
              FINISH_BYTES = FINISH_TILE * FINISH_ROW * 4;

/* finish_block — finishes the tile whose first element is (row, col). All threads call it, after a
 * barrier. */
__device__ static inline void finish_block(const struct finish &f, const float *sums, int row,
                                           int col)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < FINISH_TILE * FINISH_TILE / 2; i += (int)blockDim.x) {
        int r = i / (FINISH_TILE / 2), c = i % (FINISH_TILE / 2) * 2;
        finish_pair(f, row + r, col + c, sums[r * FINISH_ROW + c], sums[r * FINISH_ROW + c + 1]);
    }
}

/* Returns the tile of C of a block: columns of tiles, in bands of 8 rows of tiles, so that blocks
 * that run at the same time share factors in L2. */
__device__ static inline void finish_tile(int tiles_m, int tiles_n, int &tile_m, int &tile_n)
{
    constexpr int BAND = 8;
    int block = (int)blockIdx.x, band = block / (BAND * tiles_n),
        in_band = block % (BAND * tiles_n);
    int rows = min(BAND, tiles_m - band * BAND);
    tile_m = band * BAND + in_band % rows;
    tile_n = in_band / rows;
}

#endif
