/* xent — cross-entropy and its gradient (xent.h). A block processes a row. The first pass finds the
 * largest logit and the sum of exponentials together; a larger logit rescales the sum. The second
 * pass writes the gradient in place of the logits. Sums are in float, in an order fixed by the
 * width.
 *
 * A row that fits stays on the chip between the passes: it is read from memory once and written
 * once. The copy into shared memory is asynchronous and in STAGES stages, so the first pass begins
 * when the first stage has arrived. Each thread copies its own elements: no barrier orders the
 * passes. Both forms have the same bits. */
#include "kernels/stride.cuh"
#include "kernels/tensor_core.cuh" /* cp_async */

constexpr int THREADS = 512, STAGES = 4;

/* The most shared memory of a row: two blocks on a multiprocessor with 228 KiB, one with less.
 * REST: the other shared memory of a block. */
constexpr size_t ROW_BYTES_MOST = 112 * 1024, REST = 1024;

/* The largest of some numbers, and the sum of e^(x - largest). */
struct soft {
    float most, sum;
};

/* Adds W numbers, NaN among them too: it must not get lost. The largest is found first, so that
 * lanes diverge once for all of them. */
template <typename T, int W>
__device__ static inline void soft_add(struct soft &s, const float (&x)[W])
{
    float top = x[0];
#pragma unroll
    for (int j = 1; j < W; j++)
        top = fmaxf(top, x[j]);
    if (top > s.most) {
        s.sum *= exp_of<T>(s.most - top);
        s.most = top;
    }
    float from = s.most == -INFINITY ? 0 : s.most;
#pragma unroll
    for (int j = 0; j < W; j++)
        s.sum += exp_of<T>(x[j] - from);
}

/* Returns log Σ e^x over a block; s: the numbers of each thread. */
__device__ static inline float soft_log(struct soft s)
{
    float most = block_max(s.most);
    float sum = block_sum(s.most == -INFINITY ? s.sum : s.sum * expf(s.most - most));
    return most + logf(sum);
}

/* A row of n elements: whole 16-byte vectors from `head` to `body`, single elements before and
 * after. */
struct cut {
    int head, body, n;
};
template <typename T> __device__ static inline struct cut cut_of(const T *row, int n)
{
    int head = min((int)((16 - (uintptr_t)row % 16) % 16 / sizeof(T)), n);
    return {head, head + (n - head) / WIDE<T> * WIDE<T>, n};
}

/* each_before, each_vector, each_after — call run(index, width) for the single elements before the
 * 16-byte vectors, for the vectors, and for the single elements after them. A block does one
 * row. */
template <typename Run> __device__ static inline void each_before(const struct cut &cut, Run run)
{
    for (int i = (int)threadIdx.x; i < cut.head; i += THREADS)
        run(i, width<1>());
}
template <typename T, typename Run>
__device__ static inline void each_vector(int first, int end, Run run)
{
    for (int i = first + (int)threadIdx.x * WIDE<T>; i < end; i += THREADS * WIDE<T>)
        run(i, width<WIDE<T>>());
}
template <typename Run> __device__ static inline void each_after(const struct cut &cut, Run run)
{
    for (int i = cut.body + (int)threadIdx.x; i < cut.n; i += THREADS)
        run(i, width<1>());
}
/* each_of_row — does the three in this order, for a whole row. */
template <typename T, typename Run>
__device__ static inline void each_of_row(const struct cut &cut, Run run)
{
    each_before(cut, run);
    each_vector<T>(cut.head, cut.body, run);
    each_after(cut, run);
}

/* The values that determine a row's gradient. */
struct slope {
    float lse, scale;
    int target;        /* < 0: the row is ignored */
    float inverse_cap; /* 1 / the soft cap that made the logits; 0: none */
};

/* Returns the slope of a soft cap at its output x; 1 without a soft cap. */
__device__ static inline float cap_slope(float x, float inverse_cap)
{
    return inverse_cap > 0 ? 1.0f - x * inverse_cap * (x * inverse_cap) : 1.0f;
}

/* Replaces W logits, the outputs of a soft cap, by the gradients of its inputs. */
template <typename T, int W>
__device__ static inline void slope_of_capped(float (&x)[W], int i, const struct slope &s)
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        float g = exp_of<T>(x[j] - s.lse) - (i + j == s.target ? 1.0f : 0.0f);
        x[j] = s.target < 0 ? 0 : s.scale * g * cap_slope(x[j], s.inverse_cap);
    }
}

/* Replaces W logits from element i on by their gradient. */
template <typename T, int W>
__device__ static inline void slope_of(float (&x)[W], int i, const struct slope &s)
{
    if (s.inverse_cap > 0)
        return slope_of_capped<T>(x, i, s);
#pragma unroll
    for (int j = 0; j < W; j++)
        x[j] = exp_of<T>(x[j] - s.lse);
    if ((unsigned)(s.target - i) < W)
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] -= i + j == s.target ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < W; j++)
        x[j] = s.target < 0 ? 0 : s.scale * x[j];
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    xent_row(T *logits, float *losses, const int32_t *targets, int v, int64_t stride, float scale,
             const struct step_scalars *scalars, float inverse_cap, bool want_grad)
{
    T *row = logits + blockIdx.x * stride;
    struct cut cut = cut_of(row, v);
    struct slope at = {0, scalars ? scalars->scale[0] : scale, targets[blockIdx.x], inverse_cap};
    float hit = at.target < 0 || threadIdx.x > 0 ? 0 : to_float(row[at.target]);
    if (at.target >= 0) {
        struct soft s = {-INFINITY, 0};
        each_of_row<T>(cut, [&](int i, auto w) {
            float x[decltype(w)::value];
            load_n(x, row + i);
            soft_add<T>(s, x);
        });
        at.lse = soft_log(s); /* the target's logit has been read at this barrier */
    }
    if (threadIdx.x == 0)
        losses[blockIdx.x] = at.target < 0 ? 0 : at.lse - hit;
    if (!want_grad)
        return;
    each_of_row<T>(cut, [&](int i, auto w) {
        float x[decltype(w)::value];
        load_n(x, row + i);
        slope_of<T>(x, i, at);
        store_n(row + i, x);
    });
}

/* Copies the thread's elements of a row to `kept`, in STAGES groups of vectors; returns how many
 * elements a group spans. */
template <typename T>
__device__ static inline int keep_row(T *kept, const T *row, const struct cut &cut)
{
    constexpr int ROUND = THREADS * WIDE<T>; /* elements that the block copies at once */
    int span = (int)ceil_div(ceil_div(cut.body - cut.head, ROUND), STAGES) * ROUND;
    auto one = [&](int i, auto) { kept[i] = row[i]; };
    for (int k = 0; k < STAGES; k++) {
        each_vector<T>(cut.head + k * span, min(cut.body, cut.head + (k + 1) * span),
                       [&](int i, auto) { cp_async(shared_address(kept + i), row + i, 16); });
        cp_commit();
    }
    each_before(cut, one);
    each_after(cut, one);
    return span;
}

/* Returns log Σ e^x of a row, from the copy that keep_row began. */
template <typename T>
__device__ static inline float kept_log(const T *kept, const struct cut &cut, int span)
{
    struct soft s = {-INFINITY, 0};
    auto add = [&](int i, auto w) {
        float x[decltype(w)::value];
        load_n(x, kept + i);
        soft_add<T>(s, x);
    };
    auto stage = [&](auto left) { /* groups that may still be in progress */
                                  constexpr int K = STAGES - 1 - decltype(left)::value;
                                  cp_wait<decltype(left)::value>();
                                  each_vector<T>(cut.head + K * span,
                                                 min(cut.body, cut.head + (K + 1) * span), add);
    };
    static_assert(STAGES == 4, "the calls below");
    each_before(cut, add);
    stage(width<3>());
    stage(width<2>());
    stage(width<1>());
    stage(width<0>());
    each_after(cut, add);
    return soft_log(s);
}

/* Does the same as xent_row with want_grad, for a row that fits into shared memory. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 2)
    xent_row_kept(T *logits, float *losses, const int32_t *targets, int v, int64_t stride,
                  float scale, const struct step_scalars *scalars, float inverse_cap)
{
    CUDA_SHARED(bytes);
    T *row = logits + blockIdx.x * stride;
    struct cut cut = cut_of(row, v);
    T *kept = (T *)bytes + WIDE<T> - cut.head; /* vectors are 16-byte aligned here, too */
    struct slope at = {0, scalars ? scalars->scale[0] : scale, targets[blockIdx.x], inverse_cap};
    if (at.target >= 0)
        at.lse = kept_log(kept, cut, keep_row(kept, row, cut)); /* has barriers */
    if (threadIdx.x == 0)
        losses[blockIdx.x] = at.target < 0 ? 0 : at.lse - to_float(kept[at.target]);
    each_of_row<T>(cut, [&](int i, auto w) {
        float x[decltype(w)::value] = {};
        if (at.target >= 0)
            load_n(x, kept + i);
        slope_of<T>(x, i, at);
        store_n(row + i, x);
    });
}

static float inverse_of(float cap) { return cap > 0 ? 1 / cap : 0; }

/* ---- the argmax of each row ---- */

template <typename T> struct hits_args {
    const T *logits;
    const float *stats; /* NULL: the vocabulary is whole */
    float *hits;
    const int32_t *targets;
    int64_t stride, stats_stride;
    int v_first, v_n, shards;
};

/* A block processes a row of logits that were only read. */
template <typename T>
__global__ void __launch_bounds__(THREADS) xent_hits_row(struct hits_args<T> a)
{
    const T *row = a.logits + blockIdx.x * a.stride;
    int target = a.targets[blockIdx.x], own = target - a.v_first;
    bool is_own = target >= 0 && own >= 0 && own < a.v_n, is_less = false;
    if (is_own) {
        const float hit = to_float(row[own]);
        is_less = !(hit == hit) || (a.stats && !xent_leads(a.stats + 3 * (int64_t)blockIdx.x,
                                                           a.shards, a.stats_stride, hit));
        each_of_row<T>(cut_of(row, a.v_n), [&](int i, auto w) {
            constexpr int W = decltype(w)::value;
            float x[W];
            load_n(x, row + i);
#pragma unroll
            for (int j = 0; j < W; j++)
                is_less = is_less || x[j] > hit || (x[j] == hit && i + j < own);
        });
    }
    float less = block_max(is_less ? 1.0f : 0.0f);
    if (threadIdx.x == 0)
        a.hits[blockIdx.x] = is_own && less < 0.5f ? 1 : 0;
}

static int launch_hits(const struct cuda *cuda, const struct xent_join *a)
{
    return cuda_floats(a->logits.dtype, [&](auto t) {
        using T = decltype(t);
        struct hits_args<T> args = {
            (const T *)a->logits.data, (const float *)a->stats.data, (float *)a->hits.data,
                (const int32_t *)a->targets.data, a->stride,
                a->stats_stride ? a->stats_stride : 3 * a->n, (int)a->v_first, (int)a->v_n,
                (int)a->shards
        };
        return cuda_launch(xent_hits_row<T>, (unsigned)a->n, THREADS, 0, cuda->stream, args);
    });
}

extern "C" int xent_cuda(const struct cuda *cuda, const struct xent *a)
{
    if (a->n == 0)
        return 0;
    if (a->n > INT32_MAX || a->v > INT32_MAX - THREADS * 8)
        return CUDA_REFUSAL_SHAPE;
    CUDA_TRY(cuda_floats(a->logits.dtype, [&](auto t) {
        using T = decltype(t);
        T *logits = (T *)a->logits.data;
        float *losses = (float *)a->losses.data;
        const int32_t *targets = (const int32_t *)a->targets.data;
        size_t bytes = (size_t)(a->v + 2 * WIDE<T>)*sizeof(T);
        if (a->want_grad && bytes <= ROW_BYTES_MOST && cuda_shares(cuda, bytes + REST))
            return cuda_launch(xent_row_kept<T>, (unsigned)a->n, THREADS, bytes, cuda->stream,
                               logits, losses, targets, (int)a->v, a->stride, a->scale,
                               cuda->scalars, inverse_of(a->cap));
        return cuda_launch(xent_row<T>, (unsigned)a->n, THREADS, 0, cuda->stream, logits, losses,
                           targets, (int)a->v, a->stride, a->scale, cuda->scalars,
                           inverse_of(a->cap), a->want_grad);
    }));
    struct xent_join whole = {};
    whole.logits = a->logits, whole.targets = a->targets, whole.hits = a->hits;
    whole.n = a->n, whole.v_n = a->v, whole.stride = a->stride;
    return a->hits.data ? launch_hits(cuda, &whole) : 0;
}

/* ---- a vocabulary in shards ---- */

template <typename T> struct shard_args {
    T *logits;
    float *losses, *stats;
    const int32_t *targets;
    int64_t stride, stats_stride;
    int v_first, v_n, shards;
    float scale;
    const struct step_scalars *scalars; /* scalars on the device; NULL: `scale` is used */
    float inverse_cap;
};

/* Returns the column of a target in this shard; -1: the target is in another shard. */
template <typename T>
__device__ static inline int shard_column(const struct shard_args<T> &a, int n)
{
    int target = a.targets[n];
    return target >= a.v_first && target - a.v_first < a.v_n ? target - a.v_first : -1;
}

/* A block processes a row. */
template <typename T>
__global__ void __launch_bounds__(THREADS) xent_shard_row(struct shard_args<T> a)
{
    const T *row = a.logits + blockIdx.x * a.stride;
    float *stats = a.stats + 3 * (int64_t)blockIdx.x;
    struct soft s = {-INFINITY, 0};
    if (a.targets[blockIdx.x] >= 0)
        each_of_row<T>(cut_of(row, a.v_n), [&](int i, auto w) {
            float x[decltype(w)::value];
            load_n(x, row + i);
            soft_add<T>(s, x);
        });
    float most = block_max(s.most);
    float sum = block_sum(s.most == -INFINITY ? s.sum : s.sum * expf(s.most - most));
    int own = shard_column(a, (int)blockIdx.x);
    float hit = own < 0 ? -INFINITY : to_float(row[own]);
    if (threadIdx.x < 3)
        stats[threadIdx.x] = threadIdx.x == 0 ? most : threadIdx.x == 1 ? sum : hit;
}

extern "C" int xent_shard_cuda(const struct cuda *cuda, const struct xent_shard *a)
{
    if (a->n == 0)
        return 0;
    if (a->n > INT32_MAX || a->v_first + a->v_n > INT32_MAX - THREADS * 8)
        return CUDA_REFUSAL_SHAPE;
    return cuda_floats(a->logits.dtype, [&](auto t) {
        using T = decltype(t);
        struct shard_args<T> args = {
        };
        args.logits = (T *)a->logits.data, args.stats = (float *)a->stats.data;
        args.targets = (const int32_t *)a->targets.data;
        args.stride = a->stride, args.v_first = (int)a->v_first, args.v_n = (int)a->v_n;
        return cuda_launch(xent_shard_row<T>, (unsigned)a->n, THREADS, 0, cuda->stream, args);
    });
}

/* Returns log Σ e^x of row n over all shards; *hit: the target's logit. */
template <typename T>
__device__ static inline float join_log(const struct shard_args<T> &a, int n, float *hit)
{
    const float *stats = a.stats + 3 * (int64_t)n;
    float most = -INFINITY, sum = 0;
    *hit = -INFINITY;
    for (int i = 0; i < a.shards; i++) {
        most = fmaxf(most, stats[i * a.stats_stride]);
        *hit = fmaxf(*hit, stats[i * a.stats_stride + 2]);
    }
    for (int i = 0; i < a.shards; i++) { /* a shard of logits -inf has the sum 0, or NaN */
        float top = stats[i * a.stats_stride], own = stats[i * a.stats_stride + 1];
        sum += top == -INFINITY ? own : own * expf(top - most);
    }
    return most + logf(sum);
}

/* Does the same as slope_of for a row that is not ignored; target -1: it is in another shard. */
template <typename T, int W>
__device__ static inline void shard_slope(float (&x)[W], int i, const struct slope &s)
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        float g = exp_of<T>(x[j] - s.lse) - (i + j == s.target ? 1.0f : 0.0f);
        x[j] = s.scale * g * cap_slope(x[j], s.inverse_cap);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) xent_join_row(struct shard_args<T> a, bool want_grad)
{
    T *row = a.logits + blockIdx.x * a.stride;
    struct slope at = {0, a.scalars ? a.scalars->scale[0] : a.scale, a.targets[blockIdx.x],
                       a.inverse_cap};
    float hit = 0;
    if (at.target >= 0)
        at.lse = join_log(a, (int)blockIdx.x, &hit);
    if (threadIdx.x == 0)
        a.losses[blockIdx.x] = at.target < 0 ? 0 : at.lse - hit;
    if (!want_grad)
        return;
    bool is_ignored = at.target < 0;
    at.target = shard_column(a, (int)blockIdx.x);
    each_of_row<T>(cut_of(row, a.v_n), [&](int i, auto w) {
        float x[decltype(w)::value] = {};
        if (!is_ignored) {
            load_n(x, row + i);
            shard_slope<T>(x, i, at);
        }
        store_n(row + i, x);
    });
}

extern "C" int xent_join_cuda(const struct cuda *cuda, const struct xent_join *a)
{
    if (a->n == 0)
        return 0;
    if (a->n > INT32_MAX || a->v_first + a->v_n > INT32_MAX - THREADS * 8 || a->shards > INT32_MAX)
        return CUDA_REFUSAL_SHAPE;
    CUDA_TRY(cuda_floats(a->logits.dtype, [&](auto t) {
        using T = decltype(t);
        struct shard_args<T> args = {
            (T *)a->logits.data, (float *)a->losses.data, (float *)a->stats.data,
                (const int32_t *)a->targets.data, a->stride,
                a->stats_stride ? a->stats_stride : 3 * a->n, (int)a->v_first, (int)a->v_n,
                (int)a->shards, a->scale, cuda->scalars, inverse_of(a->cap)
        };
        return cuda_launch(xent_join_row<T>, (unsigned)a->n, THREADS, 0, cuda->stream, args,
                           a->want_grad);
    }));
    return a->hits.data ? launch_hits(cuda, a) : 0;
}

/* ---- the two ends of an answer ---- */

template <typename T> struct qa_args {
    T *dlogits;
    const T *logits;
    float *losses;
    const int32_t *labels[2];
    float scale[2];
    const struct step_scalars *scalars; /* scalars on the device; NULL: `scale` is used */
    int64_t t;
};

/* A block for each end of each sample; positions are two elements apart. */
template <typename T> __global__ void __launch_bounds__(THREADS) qa_xent_end(struct qa_args<T> a)
{
    int64_t first = blockIdx.x / 2 * a.t * 2 + blockIdx.x % 2;
    const T *logits = a.logits + first;
    const int32_t *labels = blockIdx.x % 2 ? a.labels[1] : a.labels[0];
    int64_t label = labels[blockIdx.x / 2];
    label = label < 0 ? 0 : label > a.t ? a.t : label;
    bool ignored = label == a.t;
    float hit = ignored ? 0 : to_float(logits[2 * label]);
    float scale = a.scalars        ? a.scalars->scale[blockIdx.x % 2]
                  : blockIdx.x % 2 ? a.scale[1]
                                   : a.scale[0];
    struct soft s = {-INFINITY, 0};
    for (int64_t i = threadIdx.x; i < a.t; i += THREADS) {
        const float x[1] = {to_float(logits[2 * i])};
        soft_add<T>(s, x);
    }
    float lse = soft_log(s);
    if (threadIdx.x == 0)
        a.losses[blockIdx.x] = ignored ? 0 : lse - hit;
    for (int64_t i = threadIdx.x; i < a.t && a.dlogits; i += THREADS) {
        float g = scale * (exp_of<T>(to_float(logits[2 * i]) - lse) - (i == label ? 1.0f : 0.0f));
        a.dlogits[first + 2 * i] = from_float<T>(ignored ? 0 : g);
    }
}

extern "C" int qa_xent_cuda(const struct cuda *cuda, const struct qa_xent *a)
{
    if (a->b == 0)
        return 0;
    if (a->b > INT32_MAX / 2)
        return CUDA_REFUSAL_SHAPE;
    return cuda_floats(a->logits.dtype, [&](auto t) {
        using T = decltype(t);
        struct qa_args<T> args = {
            (T *)a->dlogits.data, (const T *)a->logits.data, (float *)a->losses.data,
                {(const int32_t *)a->starts.data, (const int32_t *)a->ends.data},
                {a->scale_start, a->scale_end}, cuda->scalars, a->t
        };
        return cuda_launch(qa_xent_end<T>, (unsigned)(2 * a->b), THREADS, 0, cuda->stream, args);
    });
}
