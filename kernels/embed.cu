/* embed — token and position embedding and its adjoint (embed.h).
 *
 * The adjoint adds rows of dx to rows of dwte in order of n, so the result has the CPU's bits.
 * First it finds the positions of each token:
 *   count the tokens · prefix sums · put positions into their token's list, in any order · rank
 *   each list
 * Ranking compares the positions of one token with each other. That is little work for text, and at
 * worst (all tokens equal) N² comparisons over the chip. dwte and dwpe are float; x, wte, wpe and
 * dx have one type. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

__device__ static inline float dropped(float x, float factor)
{
    return factor == 0 ? 0.0f : x * factor;
}

/* The rows [first, first + n) of the vocabulary that a table has. */
struct own_rows {
    int32_t first, n;
};
static inline struct own_rows own_rows_of(int64_t first, int64_t rows)
{
    return rows ? own_rows{(int32_t)first, (int32_t)rows} : own_rows{0, INT32_MAX};
}
/* Returns the row of the table for a token; -1: none. */
__device__ static inline int32_t row_of(const struct own_rows &own, int32_t token)
{
    return token >= own.first && token - own.first < own.n ? token - own.first : -1;
}

/* SHARD: the table has some rows of the vocabulary. The kernel for a whole table needs fewer
 * registers. */
template <typename T, int W, bool SHARD>
__global__ void embed_fwd_wide(T *x, const int32_t *tokens, const T *wte, const T *wpe,
                               const int32_t *positions, int64_t n, int64_t t, int64_t c,
                               struct drop_args drop, struct own_rows own)
{
    int64_t groups = c / W;
    for (int64_t i = thread_first(); i < n * groups; i += thread_step()) {
        int64_t row = i / groups, at = i % groups * W;
        float a[W] = {}, b[W] = {}, factor[W];
        int32_t from = SHARD ? row_of(own, tokens[row]) : tokens[row];
        if (!SHARD || from >= 0)
            load_n(a, wte + from * c + at);
        if (wpe)
            load_n(b, wpe + (positions ? positions[row] : row % t) * c + at);
        drop_factors(factor, drop, (uint64_t)(row * c + at));
#pragma unroll
        for (int j = 0; j < W; j++)
            a[j] = dropped(a[j] + b[j], factor[j]);
        store_n(x + row * c + at, a);
    }
}

extern "C" int embed_fwd_cuda(const struct cuda *cuda, const struct embed_fwd *a)
{
    if (a->n == 0)
        return 0;
    if (a->first > INT32_MAX || a->rows > INT32_MAX)
        return CUDA_REFUSAL_SHAPE;
    if (a->wte.dtype != a->x.dtype || (a->wpe.data && a->wpe.dtype != a->x.dtype))
        return CUDA_REFUSAL_DTYPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(
            all_aligned<T>(a->c, {a->x.data, a->wte.data, a->wpe.data}), [&](auto w) {
                constexpr int W = decltype(w)::value;
                return cuda_launch(
                    a->rows ? embed_fwd_wide<T, W, true> : embed_fwd_wide<T, W, false>,
                    cuda_blocks(cuda, a->n * (a->c / W), THREADS), THREADS, 0, cuda->stream,
                    (T *)a->x.data, (const int32_t *)a->tokens.data, (const T *)a->wte.data,
                    (const T *)a->wpe.data, (const int32_t *)a->positions.data, a->n, a->t, a->c,
                    drop_args_of(cuda, &a->dropout), own_rows_of(a->first, a->rows));
            });
    });
}

/* ---- the positions of each token ---- */

/* Lists for the V rows of the table. start (V+1): the beginning of each token's list; used (V): its
 * filled length; list, order (N): positions, unordered and ranked. */
struct lists {
    int32_t *start, *used, *list, *order;
    struct own_rows own;
};

static __global__ void embed_zero(int32_t *x, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_step())
        x[i] = 0;
}

static __global__ void embed_count(struct lists l, const int32_t *tokens, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_step()) {
        int32_t row = row_of(l.own, tokens[i]);
        if (row >= 0)
            atomicAdd(l.used + row, 1);
    }
}

/* One block: start[v] = the count of tokens below v. used becomes 0 again. */
static __global__ void embed_scan(struct lists l, int64_t v)
{
    __shared__ int32_t sums[1024];
    int64_t each = ceil_div(v, blockDim.x), first = threadIdx.x * each,
            end = first + each < v ? first + each : v;
    int32_t sum = 0;
    for (int64_t i = first; i < end; i++)
        sum += l.used[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        int32_t before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    int32_t at = sums[threadIdx.x] - sum;
    for (int64_t i = first; i < end; i++) {
        int32_t count = l.used[i];
        l.start[i] = at;
        l.used[i] = 0;
        at += count;
    }
    if (threadIdx.x == blockDim.x - 1)
        l.start[v] = sums[threadIdx.x];
}

static __global__ void embed_list(struct lists l, const int32_t *tokens, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_step()) {
        int32_t row = row_of(l.own, tokens[i]);
        if (row >= 0)
            l.list[l.start[row] + atomicAdd(l.used + row, 1)] = (int32_t)i;
    }
}

static __global__ void embed_rank(struct lists l, const int32_t *tokens, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_step()) {
        int32_t row = row_of(l.own, tokens[i]);
        if (row < 0)
            continue;
        int32_t first = l.start[row], end = l.start[row + 1], rank = 0;
        for (int32_t k = first; k < end; k++)
            rank += l.list[k] < (int32_t)i;
        l.order[first + rank] = (int32_t)i;
    }
}

/* ---- sums ---- */

constexpr int AHEAD = 8; /* rows on their way to a thread */

/* Adds whole groups of AHEAD positions from *k on, without dropout, to `sum`: all loads start
 * before the first is added. For frequent tokens: one block adds their positions one after the
 * other, and memory latency would dominate. */
template <typename T, int W>
__device__ static inline void embed_bwd_ahead(float (&sum)[W], int32_t *k, int32_t end, const T *dx,
                                              const int32_t *order, int64_t c, float factor)
{
    for (; *k + AHEAD <= end; *k += AHEAD) {
        float x[AHEAD][W];
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
            load_n(x[n], dx + order[*k + n] * c);
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += dropped(x[n][j], factor);
    }
}

/* A block adds up the row of one token, if the token occurs: a thread W columns, positions in
 * order. */
template <typename T, int W>
__global__ void embed_bwd_tokens(float *dwte, const T *dx, struct lists l, int64_t c,
                                 struct drop_args drop)
{
    int32_t first = l.start[blockIdx.x], end = l.start[blockIdx.x + 1];
    if (first == end)
        return;
    for (int64_t at = threadIdx.x * W; at < c; at += blockDim.x * W) {
        float sum[W], factor[W];
        float *out = dwte + blockIdx.x * c + at;
        load_n(sum, out);
        int32_t k = first;
        if (drop.threshold == 0)
            embed_bwd_ahead<T, W>(sum, &k, end, dx + at, l.order, c, drop.factor);
        for (; k < end; k++) {
            int64_t from = l.order[k] * c + at;
            float x[W];
            load_n(x, dx + from);
            drop_factors(factor, drop, (uint64_t)from);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += dropped(x[j], factor[j]);
        }
        store_n(out, sum);
    }
}

/* A thread sums W columns of one position over the samples, in their order. Positions without a
 * sample become 0 unless accumulate. */
template <typename T, int W>
__global__ void embed_bwd_positions(float *dwpe, const T *dx, int64_t n, int64_t t, int64_t c,
                                    int64_t context, bool accumulate, struct drop_args drop)
{
    int64_t groups = c / W;
    for (int64_t i = thread_first(); i < context * groups; i += thread_step()) {
        int64_t position = i / groups, at = i % groups * W;
        float sum[W] = {};
        for (int64_t row = position; row < n && position < t; row += t) {
            float x[W], factor[W];
            load_n(x, dx + row * c + at);
            drop_factors(factor, drop, (uint64_t)(row * c + at));
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += dropped(x[j], factor[j]);
        }
        float *out = dwpe + position * c + at, before[W] = {};
        if (accumulate)
            load_n(before, out);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] = accumulate ? before[j] + sum[j] : sum[j];
        store_n(out, sum);
    }
}

static int64_t rows_of(const struct embed_bwd *a) { return a->rows ? a->rows : a->v; }

static int embed_lists(const struct cuda *cuda, const struct embed_bwd *a, struct lists *l)
{
    const int64_t v = rows_of(a);
    if (a->n >= INT32_MAX || v >= INT32_MAX || a->first > INT32_MAX)
        return CUDA_REFUSAL_SHAPE;
    if ((size_t)(2 * v + 1 + 2 * a->n) * sizeof(int32_t) > cuda->scratch_bytes)
        return CUDA_REFUSAL_SCRATCH;
    const int32_t *tokens = (const int32_t *)a->tokens.data;
    unsigned blocks = cuda_blocks(cuda, a->n, THREADS);
    l->start = (int32_t *)cuda->scratch;
    l->used = l->start + v + 1;
    l->list = l->used + v;
    l->order = l->list + a->n;
    l->own = own_rows_of(a->first, a->rows);
    CUDA_TRY(cuda_launch(embed_zero, cuda_blocks(cuda, v, THREADS), THREADS, 0, cuda->stream,
                         l->used, v));
    CUDA_TRY(cuda_launch(embed_count, blocks, THREADS, 0, cuda->stream, *l, tokens, a->n));
    CUDA_TRY(cuda_launch(embed_scan, 1, 1024, 0, cuda->stream, *l, v));
    CUDA_TRY(cuda_launch(embed_list, blocks, THREADS, 0, cuda->stream, *l, tokens, a->n));
    return cuda_launch(embed_rank, blocks, THREADS, 0, cuda->stream, *l, tokens, a->n);
}

/* Four columns a thread: 16 bytes of each sum, so the lanes of a warp fill whole sectors. */
template <typename T, typename Run> static int embed_bwd_wide(const struct embed_bwd *a, Run run)
{
    bool is_aligned = all_aligned<T>(a->c, {a->dx.data}) &&
                      all_aligned<float>(a->c, {a->dwte.data, a->dwpe.data});
    return is_aligned ? run(width<4>()) : run(width<1>());
}

extern "C" int embed_bwd_cuda(const struct cuda *cuda, const struct embed_bwd *a)
{
    struct lists l = {};
    const bool has_tokens = a->n > 0 && a->dwte.data;
    if ((a->dwte.data && a->dwte.dtype != DTYPE_F32) ||
        (a->dwpe.data && a->dwpe.dtype != DTYPE_F32))
        return CUDA_REFUSAL_DTYPE;
    if (has_tokens)
        CUDA_TRY(embed_lists(cuda, a, &l));
    return cuda_floats(a->dx.dtype, [&](auto t) {
        using T = decltype(t);
        return embed_bwd_wide<T>(a, [&](auto w) -> int {
            constexpr int W = decltype(w)::value;
            struct drop_args drop = drop_args_of(cuda, &a->dropout);
            int threads =
                (int)round_up(ceil_div(a->c, W) < THREADS ? ceil_div(a->c, W) : THREADS, WARP);
            if (has_tokens)
                CUDA_TRY(cuda_launch(embed_bwd_tokens<T, W>, (unsigned)rows_of(a), threads, 0,
                                     cuda->stream, (float *)a->dwte.data, (const T *)a->dx.data, l,
                                     a->c, drop));
            if (!a->dwpe.data)
                return 0;
            return cuda_launch(embed_bwd_positions<T, W>,
                               cuda_blocks(cuda, a->context * (a->c / W), THREADS), THREADS, 0,
                               cuda->stream, (float *)a->dwpe.data, (const T *)a->dx.data, a->n,
                               a->t, a->c, a->context, a->accumulate, drop);
        });
    });
}
