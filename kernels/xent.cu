/* xent — cross-entropy and its gradient (xent.h). A block takes a row. The first pass finds the
 * largest logit and the sum of exponentials together; a larger logit rescales the sum. The second
 * pass writes the gradient where the logits were. Sums are in float, in an order fixed by the
 * width. */
#include "kernels/stride.cuh"

constexpr int THREADS = 512;
constexpr float LOG2E = 1.44269504088896341f;

/* The largest of some numbers, and the sum of e^(x - largest). */
struct soft {
    float most, sum;
};

/* soft_exp — for 16-bit logits faster, and within 2e-6, which is below their rounding. */
template <typename T> __device__ static inline float soft_exp(float x)
{
    return sizeof(T) == 4 ? expf(x) : exp2_quick(x * LOG2E);
}

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
        s.sum *= soft_exp<T>(s.most - top);
        s.most = top;
    }
    float from = s.most == -INFINITY ? 0 : s.most;
#pragma unroll
    for (int j = 0; j < W; j++)
        s.sum += soft_exp<T>(x[j] - from);
}

/* log Σ e^x over a block, of each thread's part. */
__device__ static inline float soft_log(struct soft s)
{
    float most = block_max(s.most);
    float sum = block_sum(s.most == -INFINITY ? s.sum : s.sum * expf(s.most - most));
    return most + logf(sum);
}

/* each_of_row — run(index, width) over [0, n) of a row by a block: whole 16-byte pieces, and single
 * elements before and after them. */
template <typename T, typename Run>
__device__ static inline void each_of_row(const T *row, int64_t n, Run run)
{
    int64_t head = (int64_t)((16 - (uintptr_t)row % 16) % 16 / sizeof(T));
    head = head < n ? head : n;
    int64_t body = head + (n - head) / WIDE<T> * WIDE<T>;
    for (int64_t i = threadIdx.x; i < head; i += THREADS)
        run(i, width<1>());
    for (int64_t i = head + threadIdx.x * WIDE<T>; i < body; i += THREADS * WIDE<T>)
        run(i, width<WIDE<T>>());
    for (int64_t i = body + threadIdx.x; i < n; i += THREADS)
        run(i, width<1>());
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    xent_row(T *logits, float *losses, const int32_t *targets, int64_t v, int64_t stride,
             float scale, const struct step_scalars *scalars, bool want_grad)
{
    if (scalars)
        scale = scalars->scale[0];
    T *row = logits + blockIdx.x * stride;
    int64_t target = targets[blockIdx.x];
    bool ignored = target < 0;
    float hit = ignored ? 0 : to_float(row[target]), lse = 0;
    if (!ignored) {
        struct soft s = {-INFINITY, 0};
        each_of_row(row, v, [&](int64_t i, auto w) {
            float x[decltype(w)::value];
            load_n(x, row + i);
            soft_add<T>(s, x);
        });
        lse = soft_log(s); /* all threads have read the target's logit at this barrier */
    }
    if (threadIdx.x == 0)
        losses[blockIdx.x] = ignored ? 0 : lse - hit;
    if (!want_grad)
        return;
    each_of_row(row, v, [&](int64_t i, auto w) {
        constexpr int W = decltype(w)::value;
        float x[W];
        load_n(x, row + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] =
                ignored ? 0 : scale * (soft_exp<T>(x[j] - lse) - (i + j == target ? 1.0f : 0.0f));
        store_n(row + i, x);
    });
}

extern "C" int xent_cuda(const struct cuda *cuda, const struct xent *a)
{
    if (a->n == 0)
        return 0;
    if (a->n > INT32_MAX)
        return CUDA_REFUSAL_SHAPE;
    return cuda_floats(a->logits.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_launch(xent_row<T>, (unsigned)a->n, THREADS, 0, cuda->stream,
                           (T *)a->logits.data, (float *)a->losses.data,
                           (const int32_t *)a->targets.data, a->v, a->stride, a->scale,
                           cuda->scalars, a->want_grad);
    });
}

/* ---- the two ends of an answer ---- */

template <typename T> struct qa_args {
    T *dlogits;
    const T *logits;
    float *losses;
    const int32_t *labels[2];
    float scale[2];
    const struct step_scalars *scalars; /* read it there; NULL: `scale` has it */
    int64_t t;
};

/* A block for each end of each sample; positions are two elements apart. */
template <typename T> __global__ void __launch_bounds__(THREADS) qa_xent_end(struct qa_args<T> a)
{
    int64_t first = blockIdx.x / 2 * a.t * 2 + blockIdx.x % 2;
    const T *logits = a.logits + first;
    int64_t label = a.labels[blockIdx.x % 2][blockIdx.x / 2];
    label = label < 0 ? 0 : label > a.t ? a.t : label;
    bool ignored = label == a.t;
    float hit = ignored ? 0 : to_float(logits[2 * label]);
    float scale = a.scalars ? a.scalars->scale[blockIdx.x % 2] : a.scale[blockIdx.x % 2];
    struct soft s = {-INFINITY, 0};
    for (int64_t i = threadIdx.x; i < a.t; i += THREADS) {
        const float x[1] = {to_float(logits[2 * i])};
        soft_add<T>(s, x);
    }
    float lse = soft_log(s);
    if (threadIdx.x == 0)
        a.losses[blockIdx.x] = ignored ? 0 : lse - hit;
    for (int64_t i = threadIdx.x; i < a.t && a.dlogits; i += THREADS) {
        float g = scale * (soft_exp<T>(to_float(logits[2 * i]) - lse) - (i == label ? 1.0f : 0.0f));
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
