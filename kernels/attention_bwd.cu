/* attention_bwd — gradients of causal attention on tensor cores, without atomics: the same bits
 * every time.
 *
 * A block owns one key head's keys, or every splits_n-th run of BK of them, and goes over the
 * queries at or after each run, BQ at a time, in two buffers, of one query head after the other. So
 * dk and dv are sums over the query heads in order. A warp owns 16 keys: it computes Sᵀ = K·Qᵀ and
 * dPᵀ = V·dOᵀ, so Pᵀ and dSᵀ are, in place, the factors of dV += Pᵀ·dO and dK += dSᵀ·Q. dQ needs
 * all keys: dSᵀ goes through shared memory, and the block adds dS·K to float sums in scratch that
 * no other block touches, each element by one thread. A last kernel adds the splits in order and
 * rounds. These are five products, as in Dao 2023. D 256 works on two halves of the columns and
 * computes S twice. splits_n grows when key heads are few, by the shape only. delta = Σ dout·out is
 * computed first. The sums of all query heads of a key head must fit into scratch: H/K · (4·D + 4)
 * bytes for each token, with D as below (256 MiB: 8 heads of 128 go up to 65,000 tokens).
 *
 * Chips with 99 KiB of shared memory for a block (sm_86, sm_89, sm_120) use smaller tiles when D is
 * over 64.
 *
 * nvcc 13, sm_90a:
 *   D 64   254 registers, no spills, 256 threads, 81 KiB of shared memory
 *   D 128  254 registers, no spills, 256 threads, 112.5 KiB
 *   D 256  255 registers, 16 bytes spilled, 128 threads, 136.5 KiB */
#include "kernels/attention_args.cuh"
#include "kernels/attention_f32.cuh"
#include "kernels/tile.cuh"

constexpr int BWD_PAD = 64;     /* queries in scratch are a multiple of this: of every BQ */
constexpr int BWD_BLOCKS = 512; /* blocks to aim for */

/* delta[bh - bh_first, i] = Σ_e dout[i,e]·out[i,e]; eight lanes a row. */
template <typename T>
__global__ void __launch_bounds__(256) attention_bwd_delta(attention_args<T> a)
{
    int64_t row = ((int64_t)blockIdx.x * 256 + threadIdx.x) / 8, rows_n = (int64_t)a.bh_n * a.rows;
    int lane = (int)threadIdx.x % 8;
    int64_t local = row < rows_n ? row / a.rows : 0, i = row < rows_n ? row % a.rows : 0,
            bh = a.bh_first + local;
    int64_t at = attention_out_at<true>(a, bh / a.h, bh % a.h) + i * a.h * a.d;
    float sum = 0, x[8], y[8];
    for (int e = 8 * lane; e < a.d; e += 64) {
        load_floats(x, a.dout + at + e);
        load_floats(y, a.out_in + at + e);
#pragma unroll
        for (int n = 0; n < 8; n++)
            sum = fmaf(x[n], y[n], sum);
    }
#pragma unroll
    for (int step = 4; step > 0; step /= 2)
        sum += __shfl_xor_sync(WARP_ALL, sum, step);
    if (lane == 0 && row < rows_n)
        a.delta[row] = sum;
}

/* Computes dq of rows from the sums of the splits that reached them; D as in scratch, BK and BQ as
 * in the kernel that computed them. */
template <typename T, bool OWN>
__global__ void __launch_bounds__(256)
    attention_bwd_join(attention_args<T> a, int width, int bk, int bq)
{
    int vectors = a.d / 8, rows_padded = (int)round_up(ATTENTION_R, BWD_PAD);
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, row = i / vectors, col = i % vectors * 8,
            local = row / ATTENTION_R;
    if (local >= a.bh_n)
        return;
    int query = (int)(row % ATTENTION_R);
    float sum[8] = {}, x[8];
    for (int split = 0; split < a.splits_n && (OWN ? query >= attention_tile_from(a, split * bk, bq)
                                                   : query / bq >= split * bk / bq);
         split++) {
        load_floats<CACHE_STREAM>(
            x, a.acc + (((int64_t)split * a.bh_n + local) * rows_padded + query) * width + col);
#pragma unroll
        for (int n = 0; n < 8; n++)
            sum[n] += x[n];
    }
    int64_t bh = a.bh_first + local;
    store_floats(a.dqkv + attention_query_at<OWN>(a, bh / a.h, bh % a.h) + (int64_t)query * a.row +
                     col,
                 sum);
}

/* c (16 keys, BQ) = rows of `keys` (BK,D) · rows of `queries` (BQ,D)ᵀ */
template <typename T, int D, int BQ>
__device__ static inline void bwd_scores(float (&c)[BQ / MMA_N][4], shared_at keys,
                                         shared_at queries, int warp_row)
{
    [[maybe_unused]] constexpr int UNROLLED = D > 64 ? 2 : 4;
#pragma unroll
    for (int n = 0; n < BQ / MMA_N; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll UNROLLED
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[2 * MMA_ROWS];
        frag_a<D / 8>(a, keys, warp_row, 2 * k);
#pragma unroll
        for (int n = 0; n < BQ / 16; n++) {
            uint32_t b[16 / MMA_N][2];
            frag_b<D / 8>(b, queries, 16 * n, 2 * k);
            mma_16<T>(c + n * (16 / MMA_N), a, b);
        }
    }
}

/* sum (16 keys, N columns from col on) += c (16 keys, BQ) · rows of `queries` (BQ,D) */
template <typename T, int D, int N, int BQ>
__device__ static inline void bwd_sum(float (&sum)[N / MMA_N][4], const float (&c)[BQ / MMA_N][4],
                                      shared_at queries, int col)
{
#pragma unroll
    for (int k = 0; k < BQ / 16; k++) {
        uint32_t a[2 * MMA_ROWS];
        frag_of_sums<T>(a, c + k * (16 / MMA_N));
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[16 / MMA_N][2];
            frag_b_trans<D / 8>(b, queries, 16 * k, col / 8 + 2 * n);
            mma_16<T>(sum + n * (16 / MMA_N), a, b);
        }
    }
}

/* s: scores → probabilities after dropout; dp → ds. key, query: position of the fragments' first
 * element. WHOLE: no key is hidden. */
template <typename T, int BQ, bool DROP, bool WHOLE, bool OWN>
__device__ static inline void bwd_probs(float (&s)[BQ / MMA_N][4], float (&dp)[BQ / MMA_N][4],
                                        const attention_args<T> &a, const float *lse,
                                        const float *delta, const bool (&is_hidden)[2], int64_t bh,
                                        int key, int query)
{
    float scale = a.scale * ATTENTION_LOG2E;
    int in_tile = MMA_PART((int)threadIdx.x) * MMA_COLS;
#pragma unroll
    for (int n = 0; n < BQ / MMA_N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int j = key + e / MMA_COLS * 8, i = query + MMA_N * n + e % MMA_COLS,
                at = MMA_N * n + in_tile + e % MMA_COLS;
            const bool is_before = OWN && !WHOLE && j < attention_first_key(a, bh / a.h, i);
            if constexpr (OWN)
                i = attention_position_at(a, i);
            float p = !WHOLE && (j > i || is_before || is_hidden[e / MMA_COLS])
                          ? 0
                          : exp2_quick(fmaf(s[n][e], scale, -lse[at]));
            float keep = DROP ? drop_factor(a.drop, attention_drop_at(a, bh, i, j)) : 1.0f;
            s[n][e] = p * keep;
            dp[n][e] = p * (keep * dp[n][e] - delta[at]) * a.scale;
        }
}

/* Stores the warp's dsᵀ in shared memory, (BK, 64) in 8 vectors a row. */
template <typename T, int BQ>
__device__ static inline void bwd_put(unsigned char *tile, const float (&ds)[BQ / MMA_N][4],
                                      int warp_row)
{
    int lane = mma_lane(), row = warp_row + MMA_LINE(lane);
#pragma unroll
    for (int n = 0; n < BQ / MMA_N; n++) {
        store_sums<T>(sums_at<8>(tile, row, n, lane), ds[n]);
        if (MMA_ROWS == 2)
            store_sums<T>(sums_at<8>(tile, row + 8, n, lane), ds[n] + MMA_COLS % 4);
    }
}

/* acc (16 queries, N columns), at `acc` with rows D apart, (+)= ds (BQ,BK) · k (BK,D), both in
 * shared memory. */
template <typename T, int D, int N, int BK>
__device__ static inline void bwd_queries(float *acc, shared_at ds, shared_at k_tile, int query,
                                          int col, bool is_first)
{
    [[maybe_unused]] constexpr int UNROLLED = D > 64 ? 1 : 4;
    int lane = mma_lane();
    float c[N / MMA_N][4];
    float *to = acc + (int64_t)(query + MMA_LINE(lane)) * D + col + MMA_PART(lane) * MMA_COLS;
#pragma unroll
    for (int n = 0; n < N / MMA_N; n++)
#pragma unroll
        for (int r = 0; r < MMA_ROWS; r++) {
            float old[MMA_COLS] = {};
            if (!is_first)
                load_floats(old, to + 8 * r * D + MMA_N * n);
#pragma unroll
            for (int e = 0; e < MMA_COLS; e++)
                c[n][r * MMA_COLS + e] = old[e];
        }
#pragma unroll UNROLLED
    for (int k = 0; k < BK / 16; k++) {
        uint32_t a[2 * MMA_ROWS];
        frag_a_trans<8>(a, ds, 16 * k, query / 8);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[16 / MMA_N][2];
            frag_b_trans<D / 8>(b, k_tile, 16 * k, col / 8 + 2 * n);
            mma_16<T>(c + n * (16 / MMA_N), a, b);
        }
    }
#pragma unroll
    for (int n = 0; n < N / MMA_N; n++)
#pragma unroll
        for (int r = 0; r < MMA_ROWS; r++) {
            float x[MMA_COLS];
            sums_row(x, c[n], r);
            store_floats(to + 8 * r * D + MMA_N * n, x);
        }
}

/* Clears N columns of the sums of rows from `row` on that see none of a split's first keys (only
 * OWN). */
template <int D, int N, int THREADS>
__device__ static inline void bwd_zero(float *acc, int row, int end)
{
    for (int i = row * (N / 4) + (int)threadIdx.x; i < end * (N / 4); i += THREADS)
        *(float4 *)(acc + (int64_t)(i / (N / 4)) * D + i % (N / 4) * 4) = make_float4(0, 0, 0, 0);
}

/* Stores 16 keys' rows of dk or dv, columns col … col+N-1. */
template <bool OWN, typename T, int N>
__device__ static inline void bwd_store(T *rows, const float (&sum)[N / MMA_N][4],
                                        const attention_args<T> &a, int key, int col)
{
    int lane = mma_lane();
#pragma unroll
    for (int n = 0; n < N / MMA_N; n++)
#pragma unroll
        for (int r = 0; r < MMA_ROWS; r++) {
            int j = key + MMA_LINE(lane) + 8 * r, e = col + MMA_N * n + MMA_PART(lane) * MMA_COLS;
            if (j < a.t && e < a.d)
                store_sums<T>(rows + (int64_t)j * (OWN ? a.kv_row : a.row) + e,
                              sum[n] + r * MMA_COLS);
        }
}

/* Within attention_bwd_mma. */
#define BWD_PROBS_ARGS                                                          \
    (s, dp, a, lse + half * BQ, delta + half * BQ, is_hidden, bh + head, first, \
     query + MMA_PART(lane) * MMA_COLS)
#define BWD_COPY(tile, at)                                                                    \
    tile_copy<T, BK, D, THREADS>(tile, ATTENTION_KV + at + (int64_t)key * k_stride, k_stride, \
                                 a.t - key, a.d)
#define BWD_AT(heads) ((int64_t)(heads + head) * ATTENTION_R + i)
#define BWD_WHOLE_FROM (OWN ? attention_row_from(a, key + 16 * warp + 15) : key + 16 * warp + 15)
#define BWD_HEADS (OWN && attention_tile_from(a, key, BQ) >= a.rows ? 0 : a.group)
#define BWD_ACC_AT \
    (((int64_t)blockIdx.x * a.bh_n + local + head) * round_up(ATTENTION_R, BWD_PAD) * D)
#define BWD_TILE_FROM (OWN ? attention_tile_from(a, key, BQ) : key / BQ * BQ)
#define BWD_END (OWN ? rows_end : ATTENTION_R)
#define BWD_ZERO_ARGS \
    (acc + column, max((int)round_up(rows_end, BQ), BWD_TILE_FROM), (int)round_up(ATTENTION_R, BQ))
#define BWD_IS_CUT \
    (query < whole_from || (OWN && attention_first_key(a, b, query + BQ - 1) > key + 16 * warp))

/* DO columns of the results from blockIdx.z·DO on. DROP: with dropout; with OWN: perhaps. */
template <typename T, int D, int DO, int WARPS, int BQ, bool DROP, bool OWN>
__global__ void __launch_bounds__(WARPS *MMA_LANES) attention_bwd_mma(attention_args<T> a)
{
    constexpr int BK = 16 * WARPS, TILE = BQ * D * 2, THREADS = WARPS * MMA_LANES,
                  GROUPS = WARPS / (BQ / 16), N = DO / GROUPS;
    CUDA_SHARED(shared);
    constexpr int DS = 2 * BK * D * 2 + 4 * TILE; /* position of ds, followed by lse and delta */
    shared_at k_tile = shared_address(shared), v_tile = k_tile + BK * D * 2,
              q_tile = v_tile + BK * D * 2, dout_tile = q_tile + 2 * TILE;
    float *lse = (float *)(shared + DS + BK * 128), *delta = lse + 2 * BQ;
    int lane = mma_lane(), warp = (int)threadIdx.x / MMA_LANES, column = (int)blockIdx.z * DO;
    int local = (int)blockIdx.y * a.group, bh = a.bh_first + local, b = bh / a.h;
    int c = a.h * a.d, stride = a.row, k_stride = OWN ? a.kv_row : stride;
    const int64_t k_at = attention_key_at<OWN>(a, b, bh % a.h / a.group);
    const T *q = a.qkv + attention_query_at<OWN>(a, b, bh % a.h),
            *dout = a.dout + attention_out_at<OWN>(a, b, bh % a.h);
    auto fetch = [&](int head, int query) {
        int half = query / BQ % 2, i = query + (int)threadIdx.x;
        tile_copy<T, BQ, D, THREADS>(q_tile + (shared_at)(half * TILE),
                                     q + head * a.head + (int64_t)query * stride, stride,
                                     ATTENTION_R - query, a.d);
        tile_copy<T, BQ, D, THREADS>(dout_tile + (shared_at)(half * TILE),
                                     dout + head * a.d + (int64_t)query * c, c, ATTENTION_R - query,
                                     a.d);
        if (threadIdx.x < BQ) {
            float x = i < ATTENTION_R ? a.lse_in[BWD_AT(bh)] : -INFINITY;
            /* the row's probabilities are all 0 */
            lse[half * BQ + threadIdx.x] = x == -INFINITY ? INFINITY : x * ATTENTION_LOG2E;
            delta[half * BQ + threadIdx.x] = i < ATTENTION_R ? a.delta[BWD_AT(local)] : 0;
        }
    };
    for (int key = (int)blockIdx.x * BK; key < a.t; key += a.splits_n * BK) {
        bool is_first = key == (int)blockIdx.x * BK;
        int first = key + 16 * warp + MMA_LINE(lane);
        const bool is_hidden[2] = {attention_is_hidden(a, b, first),
                                   MMA_ROWS == 2 && attention_is_hidden(a, b, first + 8)};
        /* From this query on, no key of the warp is hidden by causality. */
        const int whole_from =
            __any_sync(WARP_ALL, is_hidden[0] || is_hidden[1]) ? INT32_MAX : BWD_WHOLE_FROM;
        /* Queries from here on see none of these keys. */
        const int rows_end = OWN ? attention_rows_below(a, b, key + BK) : 0;
        float dk[DO / MMA_N][4] = {}, dv[DO / MMA_N][4] = {};
        __syncthreads(); /* all threads are done with the previous keys */
        if (!OWN || attention_tile_from(a, key, BQ) < a.rows)
            BWD_COPY(k_tile, k_at), BWD_COPY(v_tile, k_at + (a.v - a.k));
        for (int head = 0; head < BWD_HEADS; head++) {
            float *acc = a.acc + BWD_ACC_AT;
            /* No thread reads tiles of queries any more: the barrier before a tile's last product
             * comes after their uses. */
            if (!OWN || BWD_TILE_FROM < rows_end)
                fetch(head, BWD_TILE_FROM);
            cp_commit();
            for (int query = BWD_TILE_FROM; query < BWD_END; query += BQ) {
                int half = query / BQ % 2;
                cp_wait<0>();
                __syncthreads(); /* tiles loaded; all threads are done with the previous ones */
                if (query + BQ < BWD_END)
                    fetch(head, query + BQ);
                cp_commit();
                float s[BQ / MMA_N][4], dp[BQ / MMA_N][4];
                bwd_scores<T, D, BQ>(s, k_tile, q_tile + (shared_at)(half * TILE), 16 * warp);
                bwd_scores<T, D, BQ>(dp, v_tile, dout_tile + (shared_at)(half * TILE), 16 * warp);
                if (OWN && a.drop.threshold)
                    bwd_probs<T, BQ, true, false, OWN> BWD_PROBS_ARGS;
                else if (BWD_IS_CUT)
                    bwd_probs<T, BQ, DROP && !OWN, false, OWN> BWD_PROBS_ARGS;
                else
                    bwd_probs<T, BQ, DROP && !OWN, true, OWN> BWD_PROBS_ARGS;
                bwd_sum<T, D, DO, BQ>(dv, s, dout_tile + (shared_at)(half * TILE), column);
                bwd_put<T, BQ>(shared + DS, dp, 16 * warp);
                bwd_sum<T, D, DO, BQ>(dk, dp, q_tile + (shared_at)(half * TILE), column);
                __syncthreads();
                bwd_queries<T, D, N, BK>(acc + (int64_t)query * D, k_tile + DS, k_tile,
                                         16 * (warp / GROUPS), column + warp % GROUPS * N,
                                         is_first);
            }
            if (OWN && is_first)
                bwd_zero<D, DO, THREADS> BWD_ZERO_ARGS;
        }
        bwd_store<OWN, T, DO>(ATTENTION_DKV + k_at, dk, a, key + 16 * warp, column);
        bwd_store<OWN, T, DO>(ATTENTION_DKV + k_at + (a.v - a.k), dv, a, key + 16 * warp, column);
    }
}

/* ---- launches ---- */

/* The tile of a block: heads of up to d columns, dout columns of the results, 16 keys for each
 * warp, bq queries at a time. The first tile of a width is the best; the next is for chips with 99
 * KiB of shared memory. AMD GPUs have 64 KiB. */
struct bwd_tile {
    int d, dout, warps, bq;
};
constexpr struct bwd_tile BWD_TILES[] = {
#ifndef CONVOY_HIP
    {64, 64, 8, 64}, {128, 128, 8, 32}, {128, 128, 4, 32}, {256, 128, 4, 32}, {256, 128, 2, 16},
#else
    {64, 64, 4, 64},
    {128, 128, 4, 16},
    {256, 128, 1, 16},
#endif
};
constexpr int BWD_TILES_N = (int)(sizeof BWD_TILES / sizeof *BWD_TILES);

/* Returns the bytes of shared memory of a block. */
static constexpr size_t bwd_bytes(const struct bwd_tile &x)
{
    return (size_t)(2 * 16 * x.warps * x.d * 2 + 4 * x.bq * x.d * 2 + 16 * x.warps * 128) +
           4 * (size_t)x.bq * sizeof(float);
}

/* Returns the first tile that fits heads of width d and the chip; BWD_TILES_N: none fits. */
static int bwd_tile_of(const struct cuda *cuda, int d)
{
    int i = 0;
    while (i < BWD_TILES_N && (d > BWD_TILES[i].d || !cuda_shares(cuda, bwd_bytes(BWD_TILES[i]))))
        i++;
    return i;
}

/* The cut of a call's key heads: into runs whose scratch fits, as equal as possible, and each
 * head's keys into splits. */
struct bwd_cut {
    int width, bk, bq; /* same values as in the kernel that computes the sums */
    int tile;          /* index into BWD_TILES; unused in float */
    int64_t heads_n, group, each, splits_n, rows_padded; /* heads_n, each: key heads */
};

template <typename T>
static int bwd_join(const struct cuda *cuda, const attention_args<T> &x, const struct bwd_cut &cut)
{
    return cuda_launch(x.kv ? attention_bwd_join<T, true> : attention_bwd_join<T, false>,
                       dim3((unsigned)ceil_div((int64_t)x.bh_n * x.rows * (x.d / 8), 256)),
                       dim3(256), 0, cuda->stream, x, cut.width, cut.bk, cut.bq);
}

/* Computes the sums of a run of heads, with the tile number I or a later one. */
template <typename T, int I = 0>
static int bwd_sums(const struct cuda *cuda, const attention_args<T> &x, int tile)
{
    constexpr struct bwd_tile TILE = BWD_TILES[I];
    constexpr int D = TILE.d, DO = TILE.dout, WARPS = TILE.warps, BQ = TILE.bq;
    static_assert(BWD_PAD % BQ == 0 && WARPS % (BQ / 16) == 0 && DO / (WARPS / (BQ / 16)) % 16 == 0,
                  "tiles");
    if constexpr (I + 1 < BWD_TILES_N)
        if (tile > I)
            return bwd_sums<T, I + 1>(cuda, x, tile);
    dim3 grid((unsigned)x.splits_n, (unsigned)(x.bh_n / x.group), D / DO);
    return cuda_launch(x.kv               ? attention_bwd_mma<T, D, DO, WARPS, BQ, true, true>
                       : x.drop.threshold ? attention_bwd_mma<T, D, DO, WARPS, BQ, true, false>
                                          : attention_bwd_mma<T, D, DO, WARPS, BQ, false, false>,
                       grid, dim3(WARPS * MMA_LANES), bwd_bytes(TILE), cuda->stream, x);
}

template <typename T>
static int bwd_run(const struct cuda *cuda, const attention_args<T> &x, const struct bwd_cut &cut)
{
    CUDA_TRY(cuda_launch(attention_bwd_delta<T>,
                         dim3((unsigned)ceil_div((int64_t)x.bh_n * x.rows, 32)), dim3(256), 0,
                         cuda->stream, x));
    if constexpr (sizeof(T) == 4)
        CUDA_TRY(attention_f32_bwd(cuda, x, cut.width));
    else
        CUDA_TRY(bwd_sums(cuda, x, cut.tile));
    return bwd_join(cuda, x, cut);
}

/* Returns the bytes of scratch for delta of a key head's query heads, or for their sums of one
 * split. */
static int64_t bwd_delta_bytes(const struct bwd_cut &cut, int64_t rows)
{
    return cut.group * round_up(rows * (int64_t)sizeof(float), 256);
}
static int64_t bwd_sums_bytes(const struct bwd_cut &cut)
{
    return cut.group * cut.rows_padded * cut.width * (int64_t)sizeof(float);
}

/* Fills in `each` and splits_n; the other fields are set. t: keys; rows: queries. */
static int bwd_cut_heads(const struct cuda *cuda, struct bwd_cut &cut, int64_t t, int64_t rows)
{
    int64_t capacity = (int64_t)cuda->scratch_bytes - 256, sums = bwd_sums_bytes(cut);
    int64_t splits_n = ceil_div(BWD_BLOCKS, cut.heads_n), most = ceil_div(t, cut.bk),
            fit = (capacity - bwd_delta_bytes(cut, rows)) / sums;
    if (fit < 1)
        return CUDA_REFUSAL_SCRATCH;
    splits_n = splits_n < most ? splits_n : most;
    cut.splits_n = splits_n < fit ? splits_n : fit;
    int64_t room = capacity / (bwd_delta_bytes(cut, rows) + cut.splits_n * sums);
    room = room < 65535 ? room : 65535;
    cut.each = ceil_div(cut.heads_n, ceil_div(cut.heads_n, room));
    return 0;
}

template <typename T>
static int bwd_any(const struct cuda *cuda, attention_args<T> x, int64_t heads_n)
{
    struct bwd_cut cut = {};
    cut.heads_n = heads_n, cut.group = x.group, cut.rows_padded = round_up(x.rows, BWD_PAD);
    if constexpr (sizeof(T) == 4) {
        cut.width = x.d <= 64 ? 64 : x.d <= 128 ? 128 : 256;
        cut.bk = cut.bq = attention_f32_bk(cut.width);
    } else {
        cut.tile = bwd_tile_of(cuda, x.d);
        if (cut.tile == BWD_TILES_N)
            return CUDA_REFUSAL_SHARED;
        const struct bwd_tile &tile = BWD_TILES[cut.tile];
        cut.width = tile.d, cut.bk = 16 * tile.warps, cut.bq = tile.bq;
    }
    CUDA_TRY(bwd_cut_heads(cuda, cut, x.t, x.rows));
    x.splits_n = (int)cut.splits_n;
    for (int64_t first = 0; first < heads_n; first += cut.each) {
        int64_t n = heads_n - first < cut.each ? heads_n - first : cut.each;
        x.bh_first = (int)(first * x.group), x.bh_n = (int)(n * x.group);
        x.acc = (float *)cuda->scratch;
        x.delta = x.acc + cut.splits_n * x.bh_n * cut.rows_padded * cut.width;
        CUDA_TRY(bwd_run(cuda, x, cut));
    }
    return 0;
}

template <typename T> static int bwd_typed(const struct cuda *cuda, const struct attention_bwd *a)
{
    attention_args<T> x = {};
    x.qkv = (const T *)a->qkv.data, x.dout = (const T *)a->dout.data,
    x.out_in = (const T *)a->out.data;
    x.dqkv = (T *)a->dqkv.data, x.lse_in = (const float *)a->lse.data,
    x.mask = (const uint8_t *)a->mask.data;
    attention_sizes(&x, a);
    attention_own(&x, a);
    x.dkv = (T *)(a->kv.data ? a->dkv.data : a->dqkv.data);
    x.drop = drop_args_of(cuda, &a->dropout);
    if (!cuda_aligned(x.qkv, a->d) || !cuda_aligned(x.dout, a->d) ||
        !cuda_aligned(x.out_in, a->d) || !cuda_aligned(x.dqkv, a->d) || !cuda_aligned(x.kv, a->d) ||
        !cuda_aligned(x.dkv, a->d))
        return CUDA_REFUSAL_SHAPE;
    return bwd_any(cuda, x, a->b * a->hk);
}

int attention_bwd_cuda(const struct cuda *cuda, const struct attention_bwd *a)
{
    if (a->b < 1 || a->t < 1 || a->t > INT32_MAX / 2 || a->h < 1 || a->b * a->h > INT32_MAX ||
        a->d < 8 || a->d > 256 || a->d % 8 != 0 || !attention_is_heads(a) || !attention_draws(a))
        return CUDA_REFUSAL_SHAPE;
    enum dtype dtype = a->qkv.dtype;
    if (a->dqkv.dtype != dtype || a->dout.dtype != dtype || a->out.dtype != dtype ||
        a->lse.dtype != DTYPE_F32 || (a->mask.data && a->mask.dtype != DTYPE_U8) ||
        (a->first_key.data && a->first_key.dtype != DTYPE_I32) ||
        (a->kv.data && (a->kv.dtype != dtype || a->dkv.dtype != dtype)))
        return CUDA_REFUSAL_DTYPE;
    return cuda_floats(dtype, [&](auto t) { return bwd_typed<decltype(t)>(cuda, a); });
}
