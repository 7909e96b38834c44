/* attention_f32 — attention of float tensors, all in float: tiles in shared memory, no tensor
 * cores. The path of PRECISION=fp32: for proofs and small runs, written to be right and not too
 * slow. Must not know layers.
 *
 * It goes over tiles in the order of attention.cu and attention_bwd.cu. Rows in shared memory are
 * D+1 floats apart, so that lanes that read one column of 16 rows meet different banks. Wide heads
 * have smaller tiles on chips with 64 KiB of shared memory. */
#include "kernels/attention_f32.cuh"

constexpr int F32_THREADS = 256;
constexpr bool F32_IS_SMALL = BLOCK_SHARED <= 64 * 1024;
/* Queries and keys in a tile of the forward pass for heads of width D. */
template <int D> constexpr int F32_BM = !F32_IS_SMALL || D <= 64 ? 64 : D <= 128 ? 32 : 16;
template <int D> constexpr int F32_BN = !F32_IS_SMALL || D <= 128 ? 32 : 16;

/* Copies ROWS rows of d floats to shared memory, D+1 apart; rows that do not exist become zero. */
template <int ROWS, int D>
__device__ static inline void f32_fetch(float *tile, const float *from, int64_t stride, int rows_n,
                                        int d)
{
    for (int i = (int)threadIdx.x; i < ROWS * D; i += F32_THREADS) {
        int row = i / D, col = i % D;
        tile[row * (D + 1) + col] = row < rows_n && col < d ? from[row * stride + col] : 0;
    }
}

/* Return the sum, or the maximum, over the 16 lanes that share a row. */
__device__ static inline float f32_row_sum(float x)
{
#pragma unroll
    for (int step = 8; step > 0; step /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, step);
    return x;
}
__device__ static inline float f32_row_max(float x)
{
#pragma unroll
    for (int step = 8; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, step));
    return x;
}

/* Thread (ty,tx) of 16×16 has queries ROWS·ty … ROWS·ty+ROWS-1, keys tx and, if a tile has
 * 32, tx+16; columns tx, tx+16, … of the result. */
template <int D, bool OWN>
__global__ void __launch_bounds__(F32_THREADS) attention_fwd_f32(attention_args<float> a)
{
    CUDA_SHARED(shared);
    constexpr int BM = F32_BM<D>, BN = F32_BN<D>, ROWS = BM / 16, KEYS = BN / 16;
    float *q_tile = (float *)shared, *k_tile = q_tile + BM * (D + 1),
          *v_tile = k_tile + BN * (D + 1);
    float *p_tile = v_tile + BN * (D + 1); /* (BM, BN+1) */
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16,
        first = (int)(gridDim.x - 1 - blockIdx.x) * BM;
    const int keys_n =
        OWN ? attention_position_at(a, min(a.rows, first + BM) - 1) + 1 : min(a.t, first + BM);
    int64_t b = blockIdx.z, bh = b * a.h + blockIdx.y, c = (int64_t)a.h * a.d, stride = a.row,
            k_stride = OWN ? a.kv_row : stride;
    const float *q = a.qkv + attention_query_at<OWN>(a, b, blockIdx.y),
                *k = ATTENTION_KV + attention_key_at<OWN>(a, b, blockIdx.y / (unsigned)a.group);
    float o[ROWS][D / 16] = {}, max[ROWS], sum[ROWS] = {};
    for (int r = 0; r < ROWS; r++)
        max[r] = -INFINITY;
    f32_fetch<BM, D>(q_tile, q + first * stride, stride, ATTENTION_R - first, a.d);
    const int key_first = OWN ? attention_first_key(a, b, first) / BN * BN : 0;
    for (int key = key_first; key < (OWN ? keys_n : min(a.t, first + BM)); key += BN) {
        __syncthreads();
        f32_fetch<BN, D>(k_tile, k + key * k_stride, k_stride, a.t - key, a.d);
        f32_fetch<BN, D>(v_tile, k + (a.v - a.k) + key * k_stride, k_stride, a.t - key, a.d);
        __syncthreads();
        float s[ROWS][KEYS] = {};
        for (int e = 0; e < D; e++) {
            float k0 = k_tile[tx * (D + 1) + e], k1 = k_tile[(tx + BN - 16) * (D + 1) + e];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float x = q_tile[(ROWS * ty + r) * (D + 1) + e];
                s[r][0] = fmaf(x, k0, s[r][0]);
                if constexpr (KEYS > 1)
                    s[r][1] = fmaf(x, k1, s[r][1]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int i = OWN ? attention_position_at(a, first + ROWS * ty + r) : first + ROWS * ty + r,
                from_key = OWN ? attention_first_key(a, b, first + ROWS * ty + r) : 0;
            for (int e = 0; e < KEYS; e++) {
                int j = key + tx + 16 * e;
                bool is_hidden = j > i || (OWN && j < from_key) || attention_is_hidden(a, b, j);
                s[r][e] = is_hidden ? -INFINITY : s[r][e] * a.scale;
            }
            float top = fmaxf(max[r], f32_row_max(fmaxf(s[r][0], s[r][KEYS - 1]))),
                  from = top == -INFINITY ? 0 : top;
            float keep = expf(max[r] - from);
            max[r] = top;
            float p0 = expf(s[r][0] - from), p1 = KEYS > 1 ? expf(s[r][KEYS - 1] - from) : 0;
            sum[r] = sum[r] * keep + (p0 + p1);
            for (int n = 0; n < D / 16; n++)
                o[r][n] *= keep;
            p_tile[(ROWS * ty + r) * (BN + 1) + tx] =
                p0 * drop_factor(a.drop, attention_drop_at(a, bh, i, key + tx));
            if constexpr (KEYS > 1)
                p_tile[(ROWS * ty + r) * (BN + 1) + tx + 16] =
                    p1 * drop_factor(a.drop, attention_drop_at(a, bh, i, key + tx + 16));
        }
        __syncwarp(); /* a row's 16 threads are in one warp */
        for (int j = 0; j < BN; j++)
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                float x = v_tile[j * (D + 1) + tx + 16 * n];
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    o[r][n] = fmaf(p_tile[(ROWS * ty + r) * (BN + 1) + j], x, o[r][n]);
            }
    }
    float *out = a.out + attention_out_at<OWN>(a, b, blockIdx.y);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int i = first + ROWS * ty + r;
        float all = f32_row_sum(sum[r]), by = all > 0 ? 1.0f / all : 0;
        if (i < ATTENTION_R && tx == 0)
            a.lse[bh * ATTENTION_R + i] = all > 0 ? max[r] + logf(all) : -INFINITY;
#pragma unroll
        for (int n = 0; n < D / 16; n++)
            if (i < ATTENTION_R && tx + 16 * n < a.d)
                out[(int64_t)i * c + tx + 16 * n] = o[r][n] * by;
    }
}

template <int D>
static inline int f32_fwd_launch(const struct cuda *cuda, const attention_args<float> &x, int64_t b)
{
    constexpr int BM = F32_BM<D>, BN = F32_BN<D>;
    dim3 grid((unsigned)ceil_div(x.rows, BM), (unsigned)x.h, (unsigned)b);
    size_t floats = (size_t)(BM + 2 * BN) * (D + 1) + BM * (BN + 1);
    if (!cuda_shares(cuda, floats * sizeof(float)))
        return CUDA_REFUSAL_SHARED;
    return cuda_launch(x.kv ? attention_fwd_f32<D, true> : attention_fwd_f32<D, false>, grid,
                       dim3(F32_THREADS), floats * sizeof(float), cuda->stream, x);
}
int attention_f32_fwd(const struct cuda *cuda, const attention_args<float> &x, int64_t b)
{
    return x.d <= 64    ? f32_fwd_launch<64>(cuda, x, b)
           : x.d <= 128 ? f32_fwd_launch<128>(cuda, x, b)
                        : f32_fwd_launch<256>(cuda, x, b);
}

/* ---- backward: a block processes a key head's keys BK at a time (attention_f32_bk) and goes over
 * queries at or after them, BK at a time, of one query head after the other ---- */

/* Thread (ty,tx): queries ROWS·ty … and keys tx, tx+16 of S; for sums over rows, row ty or ty+16,
 * columns tx, tx+16, … Threads beyond a tile of 8 rows compute none. */
template <int D> struct f32_bwd_tiles {
    float *q, *dout, *k, *v, *p, *ds, *lse, *delta; /* p, ds (queries, BK+1) */
};

template <int D, bool OWN>
__device__ static inline void f32_bwd_probs(const attention_args<float> &a,
                                            const f32_bwd_tiles<D> &x, int64_t bh, int query,
                                            int key)
{
    constexpr int BK = attention_f32_bk(D), ROWS = BK < 16 ? 1 : BK / 16;
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    if (BK < 16 && (tx >= BK || ty >= BK))
        return;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            int row = ROWS * ty + r, col = tx + 16 * e,
                i = OWN ? attention_position_at(a, query + row) : query + row, j = key + col;
            float s = 0, dp = 0;
            for (int n = 0; n < D; n++) {
                s = fmaf(x.q[row * (D + 1) + n], x.k[col * (D + 1) + n], s);
                dp = fmaf(x.dout[row * (D + 1) + n], x.v[col * (D + 1) + n], dp);
            }
            bool is_seen = j <= i && !attention_is_hidden(a, bh / a.h, j) &&
                           !(OWN && j < attention_first_key(a, bh / a.h, query + row));
            float p = is_seen ? expf(s * a.scale - x.lse[row]) : 0;
            float keep = drop_factor(a.drop, attention_drop_at(a, bh, i, j));
            x.p[row * (BK + 1) + col] = p * keep;
            x.ds[row * (BK + 1) + col] = p * (keep * dp - x.delta[row]) * a.scale;
        }
}

template <int D, bool OWN>
__global__ void __launch_bounds__(F32_THREADS) attention_bwd_f32(attention_args<float> a)
{
    CUDA_SHARED(shared);
    constexpr int BK = attention_f32_bk(D), ROWS = BK < 16 ? 1 : BK / 16;
    constexpr int TILE = BK * (D + 1), SQUARE = BK * (BK + 1);
    float *all = (float *)shared;
    f32_bwd_tiles<D> x = {all,
                          all + TILE,
                          all + 2 * TILE,
                          all + 3 * TILE,
                          all + 4 * TILE,
                          all + 4 * TILE + SQUARE,
                          all + 4 * TILE + 2 * SQUARE,
                          all + 4 * TILE + 2 * SQUARE + BK};
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16,
        rows_padded = (int)round_up(ATTENTION_R, 64);
    int local = (int)blockIdx.y * a.group, bh = a.bh_first + local, b = bh / a.h;
    int64_t c = (int64_t)a.h * a.d, stride = a.row, k_stride = OWN ? a.kv_row : stride;
    const float *q = a.qkv + attention_query_at<OWN>(a, b, bh % a.h),
                *dout = a.dout + attention_out_at<OWN>(a, b, bh % a.h);
    const int64_t k_at = attention_key_at<OWN>(a, b, bh % a.h / a.group);
    float *acc = a.acc + ((int64_t)blockIdx.x * a.bh_n + local) * rows_padded * D;
    for (int key = (int)blockIdx.x * BK; key < a.t; key += a.splits_n * BK) {
        float dk[ROWS][D / 16] = {}, dv[ROWS][D / 16] = {};
        __syncthreads();
        f32_fetch<BK, D>(x.k, ATTENTION_KV + k_at + key * k_stride, k_stride, a.t - key, a.d);
        f32_fetch<BK, D>(x.v, ATTENTION_KV + k_at + (a.v - a.k) + key * k_stride, k_stride,
                         a.t - key, a.d);
        /* rows of queries, for each head */
        const int row_first = OWN ? attention_tile_from(a, key, BK) : key,
                  tiles_n = (ATTENTION_R - row_first + BK - 1) / BK;
        for (int n_tile = 0; n_tile < a.group * tiles_n; n_tile++) {
            const int head = n_tile / tiles_n, query = row_first + n_tile % tiles_n * BK;
            if (OWN && key != (int)blockIdx.x * BK && attention_first_key(a, b, query) >= key + BK)
                continue; /* the head's queries see none of these keys; their sums are complete */
            __syncthreads();
            f32_fetch<BK, D>(x.q, q + head * a.head + query * stride, stride, ATTENTION_R - query,
                             a.d);
            f32_fetch<BK, D>(x.dout, dout + head * a.d + query * c, c, ATTENTION_R - query, a.d);
            if (threadIdx.x < BK) {
                int i = query + (int)threadIdx.x;
                float lse =
                    i < ATTENTION_R ? a.lse_in[(int64_t)(bh + head) * ATTENTION_R + i] : INFINITY;
                /* such a row's probabilities are all 0 */
                x.lse[threadIdx.x] = lse == -INFINITY ? INFINITY : lse;
                x.delta[threadIdx.x] =
                    i < ATTENTION_R ? a.delta[(int64_t)(local + head) * ATTENTION_R + i] : 0;
            }
            __syncthreads();
            f32_bwd_probs<D, OWN>(a, x, bh + head, query, key);
            __syncthreads();
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int row = ty + 16 * r;
#pragma unroll
                for (int n = 0; n < D / 16 && (BK >= 16 || ty < BK); n++) {
                    int col = tx + 16 * n;
                    float *to = acc + ((int64_t)head * rows_padded + query + row) * D + col,
                          dq = key == (int)blockIdx.x * BK ? 0 : *to;
                    HIP_ROLLED
                    for (int i = 0; i < BK; i++) {
                        dv[r][n] =
                            fmaf(x.p[i * (BK + 1) + row], x.dout[i * (D + 1) + col], dv[r][n]);
                        dk[r][n] = fmaf(x.ds[i * (BK + 1) + row], x.q[i * (D + 1) + col], dk[r][n]);
                        dq = fmaf(x.ds[row * (BK + 1) + i], x.k[i * (D + 1) + col], dq);
                    }
                    *to = dq; /* the same thread writes it at every tile of keys */
                }
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                int row = key + ty + 16 * r, col = tx + 16 * n;
                if (row < a.t && col < a.d && (BK >= 16 || ty < BK)) {
                    ATTENTION_DKV[k_at + row * k_stride + col] = dk[r][n];
                    ATTENTION_DKV[k_at + (a.v - a.k) + row * k_stride + col] = dv[r][n];
                }
            }
    }
}

template <int D>
static inline int f32_bwd_launch(const struct cuda *cuda, const attention_args<float> &x)
{
    constexpr int BK = attention_f32_bk(D);
    size_t floats = (size_t)4 * BK * (D + 1) + 2 * BK * (BK + 1) + 2 * BK;
    if (!cuda_shares(cuda, floats * sizeof(float)))
        return CUDA_REFUSAL_SHARED;
    return cuda_launch(x.kv ? attention_bwd_f32<D, true> : attention_bwd_f32<D, false>,
                       dim3((unsigned)x.splits_n, (unsigned)(x.bh_n / x.group)), dim3(F32_THREADS),
                       floats * sizeof(float), cuda->stream, x);
}
int attention_f32_bwd(const struct cuda *cuda, const attention_args<float> &x, int width)
{
    return width == 64    ? f32_bwd_launch<64>(cuda, x)
           : width == 128 ? f32_bwd_launch<128>(cuda, x)
                          : f32_bwd_launch<256>(cuda, x);
}
