/* attention — causal attention forward on tensor cores, and the decoding of one token.
 *
 * Forward (Dao et al. 2022, Dao 2023). A block owns 128 queries of one head (64 when D > 128) and
 * goes over the keys at or before them, BN at a time, in two buffers: while one tile of K and V is
 * used, cp.async loads the next. A warp owns whole rows, so the running maximum and sum never leave
 * its registers, and scores become the next product's factor in place. Blocks with the most keys
 * come first. float tensors: attention_f32.cu.
 *
 * nvcc 13, sm_90a, no spills (registers, with dropout in brackets):
 *   D 64   243 (236), 128 threads, 48 KiB of shared memory
 *   D 128  184 (201), 256 threads, 96 KiB
 *   D 256  244, 128 threads, 96 KiB */
#include "kernels/attention_args.cuh"
#include "kernels/attention_f32.cuh"
#include "kernels/tile.cuh"

/* MR tiles of 16 queries a warp, D/MMA_N tiles of columns of the result. */
template <int MR, int D> struct fwd_rows {
    float o[MR][D / MMA_N][4];
    /* max: maxima of the lane's rows, in units of log2; sum: sums over this lane's columns only */
    float max[MR][MMA_ROWS], sum[MR][MMA_ROWS];
};

/* s = q·kᵀ of the warp's rows. The fragments of q are kept in registers unless D is 256. */
template <typename T, int D, int MR, int BN>
__device__ static inline void fwd_scores(float (&s)[MR][BN / MMA_N][4],
                                         uint32_t (&q)[MR][D / 16][2 * MMA_ROWS], shared_at q_tile,
                                         shared_at k_tile, int warp_row)
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < BN / MMA_N; n++)
            s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        if constexpr (D > 128)
#pragma unroll
            for (int m = 0; m < MR; m++)
                frag_a<D / 8>(q[m][k], q_tile, warp_row + 16 * m, 2 * k);
#pragma unroll
        for (int n = 0; n < BN / 16; n++) {
            uint32_t b[16 / MMA_N][2];
            frag_b<D / 8>(b, k_tile, 16 * n, 2 * k);
#pragma unroll
            for (int m = 0; m < MR; m++)
                mma_16<T>(s[m] + n * (16 / MMA_N), q[m][k], b);
        }
    }
}

/* Sets to -inf the scores of keys after the query, keys before its first one and keys that the mask
 * hides. row, col: position of the fragments' first element. */
template <bool OWN, typename T, int MR, int BN>
__device__ static inline void fwd_hide(float (&s)[MR][BN / MMA_N][4], const attention_args<T> &x,
                                       int64_t b, int row, int col)
{
    int from[MR][2] = {};
#pragma unroll
    for (int m = 0; OWN && m < MR; m++) {
        from[m][0] = attention_first_key(x, b, row + 16 * m);
        if (MMA_ROWS == 2)
            from[m][1] = attention_first_key(x, b, row + 16 * m + 8);
    }
#pragma unroll
    for (int n = 0; n < BN / MMA_N; n++)
#pragma unroll
        for (int c = 0; c < MMA_COLS; c++) {
            int j = col + MMA_N * n + c;
            bool is_hidden = attention_is_hidden(x, b, j);
#pragma unroll
            for (int m = 0; m < MR; m++) {
                if (is_hidden || (OWN && j < from[m][0]) ||
                    j > (OWN ? attention_position_at(x, row + 16 * m) : row + 16 * m))
                    s[m][n][c] = -INFINITY;
                if (MMA_ROWS == 2 &&
                    (is_hidden || (OWN && j < from[m][1]) ||
                     j > (OWN ? attention_position_at(x, row + 16 * m + 8) : row + 16 * m + 8)))
                    s[m][n][MMA_COLS % 4 + c] = -INFINITY;
            }
        }
}

/* Turns scores into exp(score - running maximum); rescales earlier sums to the new maximum. */
template <int MR, int D, int BN>
__device__ static inline void fwd_softmax(float (&s)[MR][BN / MMA_N][4], fwd_rows<MR, D> &x,
                                          float scale)
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int r = 0; r < MMA_ROWS; r++) {
            const int from_e = r * MMA_COLS, end = from_e + MMA_COLS;
            float top = -INFINITY;
#pragma unroll
            for (int n = 0; n < BN / MMA_N; n++)
#pragma unroll
                for (int e = from_e; e < end; e += 2)
                    top = fmaxf(top, fmaxf(s[m][n][e], s[m][n][e + 1]));
            top = fmaxf(top, mma_row_peer(top, 0));
            top = fmaxf(top, mma_row_peer(top, 1));
            float max = fmaxf(x.max[m][r], top * scale), from = max == -INFINITY ? 0 : max;
            float keep = exp2_quick(x.max[m][r] - from), sum = 0;
            x.max[m][r] = max;
#pragma unroll
            for (int n = 0; n < BN / MMA_N; n++)
#pragma unroll
                for (int e = from_e; e < end; e++)
                    sum += s[m][n][e] = exp2_quick(fmaf(s[m][n][e], scale, -from));
            x.sum[m][r] = x.sum[m][r] * keep + sum;
#pragma unroll
            for (int n = 0; n < D / MMA_N; n++)
#pragma unroll
                for (int e = from_e; e < end; e++)
                    x.o[m][n][e] *= keep;
        }
}

template <bool OWN, typename T, int MR, int BN>
__device__ static inline void fwd_drop(float (&s)[MR][BN / MMA_N][4], const attention_args<T> &x,
                                       int64_t bh, int row, int col)
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < BN / MMA_N; n++)
#pragma unroll
            for (int r = 0; r < MMA_ROWS; r++) {
                float keep[MMA_COLS];
                int i = OWN ? attention_position_at(x, row + 16 * m + 8 * r) : row + 16 * m + 8 * r;
                drop_factors(keep, x.drop, attention_drop_at(x, bh, i, col + MMA_N * n));
#pragma unroll
                for (int c = 0; c < MMA_COLS; c++)
                    s[m][n][r * MMA_COLS + c] *= keep[c];
            }
}

/* o += p·v */
template <typename T, int D, int MR, int BN>
__device__ static inline void fwd_values(float (&o)[MR][D / MMA_N][4],
                                         const float (&p)[MR][BN / MMA_N][4], shared_at v_tile)
{
#pragma unroll
    for (int k = 0; k < BN / 16; k++) {
        uint32_t a[MR][2 * MMA_ROWS];
#pragma unroll
        for (int m = 0; m < MR; m++)
            frag_of_sums<T>(a[m], p[m] + k * (16 / MMA_N));
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[16 / MMA_N][2];
            frag_b_trans<D / 8>(b, v_tile, 16 * k, 2 * n);
#pragma unroll
            for (int m = 0; m < MR; m++)
                mma_16<T>(o[m] + n * (16 / MMA_N), a[m], b);
        }
    }
}

/* Divides the warp's rows by their sums and stores them in `tile` (its own rows of the queries'
 * tile, which are no longer needed), and from there to memory in vectors of 16 bytes. */
template <bool OWN, typename T, int D, int MR>
__device__ static inline void fwd_store(fwd_rows<MR, D> &x, const attention_args<T> &a,
                                        unsigned char *tile, int64_t bh, int warp_row,
                                        int block_row)
{
    constexpr int VECTORS = D / 8;
    int lane = mma_lane(), first = block_row + warp_row;
    mma_fence();
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int r = 0; r < MMA_ROWS; r++) {
            int row = 16 * m + 8 * r + MMA_LINE(lane);
            float sum = x.sum[m][r];
            sum += mma_row_peer(sum, 0);
            sum += mma_row_peer(sum, 1);
            float by = sum > 0 ? 1.0f / sum : 0;
            if (MMA_PART(lane) == 0 && first + row < ATTENTION_R)
                a.lse[bh * ATTENTION_R + first + row] =
                    sum > 0 ? (x.max[m][r] + log2f(sum)) * ATTENTION_LN2 : -INFINITY;
#pragma unroll
            for (int n = 0; n < D / MMA_N; n++) {
                uint32_t *to = (uint32_t *)sums_at<VECTORS>(tile, warp_row + row, n, lane);
                const float *o = x.o[m][n] + r * MMA_COLS;
#pragma unroll
                for (int c = 0; c < MMA_COLS; c += 2)
                    to[c / 2] = pack2<T>(o[c] * by, o[c + 1] * by);
            }
        }
    mma_fence();
    T *out = a.out + attention_out_at<OWN>(a, bh / a.h, bh % a.h);
    for (int i = lane; i < 16 * MR * VECTORS; i += MMA_LANES) {
        int row = i / VECTORS, vector = i % VECTORS;
        if (first + row < ATTENTION_R && vector * 8 < a.d)
            *(uint4 *)(out + (int64_t)(first + row) * a.h * a.d + vector * 8) =
                *(const uint4 *)(tile + swizzle<VECTORS>(warp_row + row, vector));
    }
}

/* DROP: with dropout; with OWN: perhaps with dropout. */
template <typename T, int D, int MR, int WARPS, int BN, bool DROP, bool OWN>
__global__ void __launch_bounds__(WARPS *MMA_LANES) attention_fwd_mma(attention_args<T> a)
{
    constexpr int BM = WARPS * MR * 16, TILE = BN * D * 2;
    CUDA_SHARED(shared);
    shared_at q_tile = shared_address(shared), k_tile = q_tile + BM * D * 2,
              v_tile = k_tile + 2 * TILE;
    constexpr int THREADS = WARPS * MMA_LANES;
    int lane = mma_lane(), warp_row = (int)threadIdx.x / MMA_LANES * MR * 16;
    int block_row = (int)(gridDim.x - 1 - blockIdx.x) * BM, first = block_row + warp_row;
    int64_t b = blockIdx.z, bh = b * a.h + blockIdx.y;
    int stride = a.row, k_stride = OWN ? a.kv_row : stride;
    const T *q = a.qkv + attention_query_at<OWN>(a, b, blockIdx.y),
            *k = ATTENTION_KV + attention_key_at<OWN>(a, b, blockIdx.y / (unsigned)a.group),
            *v = k + (a.v - a.k);
    int keys_n = OWN ? attention_position_at(a, min(a.rows, block_row + BM) - 1) + 1
                     : min(a.t, block_row + BM),
        tiles_n = (keys_n + BN - 1) / BN;
    const int tile_first = OWN ? attention_first_key(a, b, block_row) / BN : 0,
              whole_from = OWN ? attention_first_key(a, b, first + 16 * MR - 1) : 0;
    auto fetch = [&](int tile) {
        int64_t at = (int64_t)tile * BN * k_stride; /* a row is at most 3·65535·256 elements */
        tile_copy<T, BN, D, THREADS>(k_tile + (shared_at)(tile % 2 * TILE), k + at, k_stride,
                                     a.t - tile * BN, a.d);
        tile_copy<T, BN, D, THREADS>(v_tile + (shared_at)(tile % 2 * TILE), v + at, k_stride,
                                     a.t - tile * BN, a.d);
    };
    tile_copy<T, BM, D, THREADS>(q_tile, q + (int64_t)block_row * stride, stride,
                                 ATTENTION_R - block_row, a.d);
    fetch(tile_first);
    cp_commit();
    fwd_rows<MR, D> x = {};
    uint32_t q_frag[MR][D / 16][2 * MMA_ROWS];
    for (int m = 0; m < MR; m++)
        for (int r = 0; r < MMA_ROWS; r++)
            x.max[m][r] = -INFINITY;
    cp_wait<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; D <= 128 && n < D / 16; n++)
            frag_a<D / 8>(q_frag[m][n], q_tile, warp_row + 16 * m, 2 * n);
    float scale = a.scale * ATTENTION_LOG2E;
    for (int tile = tile_first; tile < tiles_n; tile++) {
        cp_wait<0>();
        __syncthreads(); /* the tile is loaded, and all threads are done with the previous one */
        if (tile + 1 < tiles_n)
            fetch(tile + 1);
        cp_commit();
        float s[MR][BN / MMA_N][4];
        int row = first + MMA_LINE(lane), col = tile * BN + MMA_PART(lane) * MMA_COLS;
        fwd_scores<T, D, MR, BN>(s, q_frag, q_tile, k_tile + (shared_at)(tile % 2 * TILE),
                                 warp_row);
        if (a.mask || (OWN && tile * BN < whole_from) ||
            (tile + 1) * BN > (OWN ? attention_position_at(a, first) : first))
            fwd_hide<OWN, T, MR, BN>(s, a, b, row, col);
        fwd_softmax<MR, D, BN>(s, x, scale);
        if (DROP && (!OWN || a.drop.threshold))
            fwd_drop<OWN, T, MR, BN>(s, a, bh, row, col);
        fwd_values<T, D, MR, BN>(x.o, s, v_tile + (shared_at)(tile % 2 * TILE));
    }
    fwd_store<OWN, T, D, MR>(x, a, shared, bh, warp_row, block_row);
}

/* The tile of a block: heads of up to d columns, mr·16 queries for each warp, bn keys at a time. */
struct fwd_tile {
    int d, mr, warps, bn;
};
constexpr struct fwd_tile FWD_TILES[] = {
    {64, 2, 4, 64},
#ifndef CONVOY_HIP
    {128, 1, 8, 64},
    {256, 1, 4, 32},
#else /* 64 KiB of shared memory */
    {128, 1, 4, 32},
    {256, 1, 4, 16},
#endif
};

/* Launches the first tile from number I on that is wide enough. */
template <typename T, int I = 0>
static int fwd_launch(const struct cuda *cuda, const attention_args<T> &x, int64_t b)
{
    constexpr struct fwd_tile TILE = FWD_TILES[I];
    constexpr int D = TILE.d, MR = TILE.mr, WARPS = TILE.warps, BN = TILE.bn, BM = WARPS * MR * 16;
    if constexpr (D < 256)
        if (x.d > D)
            return fwd_launch<T, I + 1>(cuda, x, b);
    dim3 grid((unsigned)ceil_div(x.rows, BM), (unsigned)x.h, (unsigned)b);
    return cuda_launch(x.kv               ? attention_fwd_mma<T, D, MR, WARPS, BN, true, true>
                       : x.drop.threshold ? attention_fwd_mma<T, D, MR, WARPS, BN, true, false>
                                          : attention_fwd_mma<T, D, MR, WARPS, BN, false, false>,
                       grid, dim3(WARPS * MMA_LANES), (size_t)(BM + 4 * BN) * D * 2, cuda->stream,
                       x);
}

template <typename T> static int fwd_any(const struct cuda *cuda, const struct attention_fwd *a)
{
    attention_args<T> x = {};
    x.qkv = (const T *)a->qkv.data, x.out = (T *)a->out.data, x.lse = (float *)a->lse.data;
    x.mask = (const uint8_t *)a->mask.data;
    attention_sizes(&x, a);
    attention_own(&x, a);
    x.drop = drop_args_of(cuda, &a->dropout);
    if (!cuda_aligned(x.qkv, a->d) || !cuda_aligned(x.out, a->d) || !cuda_aligned(x.kv, a->d))
        return CUDA_REFUSAL_SHAPE;
    if constexpr (sizeof(T) == 4)
        return attention_f32_fwd(cuda, x, a->b);
    else
        return fwd_launch<T>(cuda, x, a->b);
}

/* Checks the limits of the kernels' counters: tokens in int, heads and samples as dimensions of the
 * grid. */
static bool shape_is_good(int64_t b, int64_t t, int64_t h, int64_t d)
{
    return b >= 1 && b <= 65535 && t >= 1 && t <= INT32_MAX / 2 && h >= 1 && h <= 65535 && d >= 8 &&
           d <= 256 && d % 8 == 0;
}

int attention_fwd_cuda(const struct cuda *cuda, const struct attention_fwd *a)
{
    if (!shape_is_good(a->b, a->t, a->h, a->d) || !attention_is_heads(a) || !attention_draws(a))
        return CUDA_REFUSAL_SHAPE;
    if (a->out.dtype != a->qkv.dtype || a->lse.dtype != DTYPE_F32 ||
        (a->kv.data && a->kv.dtype != a->qkv.dtype) ||
        (a->mask.data && a->mask.dtype != DTYPE_U8) ||
        (a->first_key.data && a->first_key.dtype != DTYPE_I32))
        return CUDA_REFUSAL_DTYPE;
    return cuda_floats(a->qkv.dtype, [&](auto t) { return fwd_any<decltype(t)>(cuda, a); });
}

/* ---- decode: one query a head; keys in splits of DECODE_KEYS, each a block; a second kernel
 * merges the splits. Blocks that read the same keys are adjacent, so all but the first find them in
 * the second-level cache. ---- */

constexpr int DECODE_KEYS = 256, DECODE_WARPS = 8;

struct decode_partial {
    float max, sum; /* maximum and sum of exp(score - max) */
};

/* Merges two partial softmaxes (max, sum, acc). */
template <typename T>
__device__ static inline void decode_join(decode_partial &p, float (&acc)[8], decode_partial q,
                                          const float (&other)[8])
{
    float max = fmaxf(p.max, q.max), from = max == -INFINITY ? 0 : max;
    float keep = exp_of<T>(p.max - from), add = exp_of<T>(q.max - from);
    p.max = max, p.sum = p.sum * keep + q.sum * add;
#pragma unroll
    for (int i = 0; i < 8; i++)
        acc[i] = acc[i] * keep + other[i] * add;
}

/* `lanes` lanes (a power of two) hold a key's row, 8 columns each; a warp reads 32/lanes keys at a
 * time. */
template <typename T>
__global__ void __launch_bounds__(DECODE_WARPS *WARP)
    attention_decode_split(attention_args<T> a, float *partials, int lanes)
{
    __shared__ float all[DECODE_WARPS][32 * 8 + 2];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, col = lane % lanes * 8,
        keys = WARP / lanes;
    const int t = a.t, d = a.d, split_i = (int)blockIdx.x / a.group,
              splits_n = (int)gridDim.x / a.group,
              h = (int)blockIdx.y * a.group + (int)blockIdx.x % a.group;
    const int64_t stride = a.row, bh = (int64_t)blockIdx.z * a.h + h;
    const T *q = a.qkv + attention_query_at<false>(a, blockIdx.z, h) + (t - 1) * stride;
    const T *k = a.qkv + attention_key_at<false>(a, blockIdx.z, blockIdx.y);
    float x[8] = {}, acc[8] = {}, y[8] = {};
    if (col < d)
        load_floats(x, q + col);
    decode_partial p = {-INFINITY, 0};
    int first = split_i * DECODE_KEYS, end = min(t, first + DECODE_KEYS);
    for (int j0 = first + warp * keys; j0 < end; j0 += DECODE_WARPS * keys) {
        int j = j0 + lane / lanes;
        float score = 0;
        bool is_there = j < end && col < d;
        if (is_there)
            load_floats(y, k + j * stride + col);
#pragma unroll
        for (int i = 0; i < 8; i++)
            score += is_there ? x[i] * y[i] : 0;
        for (int step = lanes / 2; step > 0; step /= 2)
            score += __shfl_xor_sync(WARP_ALL, score, step);
        if (is_there) {
            load_floats(y, k + (a.v - a.k) + j * stride + col);
            decode_join<T>(p, acc, {score * a.scale, 1.0f}, y);
        }
    }
    for (int step = lanes; step < WARP; step *= 2) {
        decode_partial r = {__shfl_xor_sync(WARP_ALL, p.max, step),
                            __shfl_xor_sync(WARP_ALL, p.sum, step)};
#pragma unroll
        for (int i = 0; i < 8; i++)
            y[i] = __shfl_xor_sync(WARP_ALL, acc[i], step);
        /* Both sides add in the same order, so their bits stay the same. */
        if (lane & step) {
            decode_join<T>(r, y, p, acc);
            p = r;
#pragma unroll
            for (int i = 0; i < 8; i++)
                acc[i] = y[i];
        } else {
            decode_join<T>(p, acc, r, y);
        }
    }
    if (lane < lanes) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            all[warp][2 + col + i] = acc[i];
        if (lane == 0)
            all[warp][0] = p.max, all[warp][1] = p.sum;
    }
    __syncthreads();
    float *partial = partials + (bh * splits_n + split_i) * (d + 2);
    float max = -INFINITY, sum = 0, value = 0;
    for (int w = 0; w < DECODE_WARPS; w++)
        max = fmaxf(max, all[w][0]);
    for (int w = 0; w < DECODE_WARPS; w++)
        sum += all[w][1] * exp_of<T>(all[w][0] - max);
    for (int i = (int)threadIdx.x; i < d; i += DECODE_WARPS * WARP) {
        value = 0;
        for (int w = 0; w < DECODE_WARPS; w++)
            value += all[w][2 + i] * exp_of<T>(all[w][0] - max);
        partial[2 + i] = value;
    }
    if (threadIdx.x == 0)
        partial[0] = max, partial[1] = sum;
}

template <typename T>
__global__ void attention_decode_join(T *out, const float *partials, int splits_n, int d)
{
    const float *partial = partials + (int64_t)blockIdx.x * splits_n * (d + 2);
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < splits_n; i++)
        max = fmaxf(max, partial[(int64_t)i * (d + 2)]);
    for (int i = 0; i < splits_n; i++)
        sum += partial[(int64_t)i * (d + 2) + 1] * exp_of<T>(partial[(int64_t)i * (d + 2)] - max);
    for (int e = (int)threadIdx.x; e < d; e += (int)blockDim.x) {
        float value = 0;
        for (int i = 0; i < splits_n; i++)
            value += partial[(int64_t)i * (d + 2) + 2 + e] *
                     exp_of<T>(partial[(int64_t)i * (d + 2)] - max);
        out[(int64_t)blockIdx.x * d + e] = from_float<T>(value / sum);
    }
}

int attention_decode_cuda(const struct cuda *cuda, const struct attention_decode *a)
{
    if (!shape_is_good(a->b, a->t, a->h, a->d) || !attention_is_heads(a))
        return CUDA_REFUSAL_SHAPE;
    if (a->out.dtype != a->qkv.dtype)
        return CUDA_REFUSAL_DTYPE;
    int64_t splits_n = ceil_div(a->t, DECODE_KEYS);
    if ((size_t)(a->b * a->h * splits_n * (a->d + 2)) * sizeof(float) > cuda->scratch_bytes)
        return CUDA_REFUSAL_SCRATCH;
    int lanes = 1;
    while (lanes * 8 < a->d)
        lanes *= 2;
    return cuda_floats(a->qkv.dtype, [&](auto zero) {
        using T = decltype(zero);
        if (!cuda_aligned((const T *)a->qkv.data, a->d))
            return (int)CUDA_REFUSAL_SHAPE;
        attention_args<T> x = {};
        x.qkv = (const T *)a->qkv.data;
        attention_sizes(&x, a);
        dim3 grid((unsigned)(splits_n * x.group), (unsigned)a->hk, (unsigned)a->b);
        CUDA_TRY(cuda_launch(attention_decode_split<T>, grid, dim3(DECODE_WARPS * WARP), 0,
                             cuda->stream, x, (float *)cuda->scratch, lanes));
        return cuda_launch(attention_decode_join<T>, dim3((unsigned)(a->b * a->h)), dim3(64), 0,
                           cuda->stream, (T *)a->out.data, (const float *)cuda->scratch,
                           (int)splits_n, (int)a->d);
    });
}
