/* adamw — both optimisers (adamw.h): one launch for up to SPANS spans, which are an argument of the
 * kernel. A block processes a tile of one span. Four elements of every array lie in 16 bytes: a
 * group of four inside a span moves in one access, and elements at the ends of a span move one by
 * one. Arithmetic is in float, with constants from double. */
#include "kernels/grad_scale.h" /* grad_scale_get */
#include "kernels/step_scalars.h"
#include "kernels/stride.cuh"

constexpr int THREADS = 256, GROUPS = 2; /* groups of four that a thread has in a tile */
constexpr int64_t TILE = THREADS * GROUPS * 4;
constexpr int SPANS = 96;

struct tiles {
    int64_t offset[SPANS], end[SPANS];
    float decay[SPANS];
    int32_t first[SPANS + 1]; /* the block of the first tile of a span */
    int n;
};

/* Copy: the type of the copy of p; float: no copy. */
template <typename Copy> struct adamw_rule {
    float *p, *m, *v;
    Copy *copy;
    const float *g;
    const double *grad_scale;
    const struct step_scalars *from; /* scalars on the device; NULL: `scalars` has them */
    struct step_scalars scalars;
    float beta1, beta1_rest, beta2, beta2_rest, eps;

    __device__ void one(int64_t i, float scale, float decay) const
    {
        float grad = g[i] * scale, mi = m[i], vi = v[i], pi = p[i];
        step(grad, mi, vi, pi, decay);
        m[i] = mi, v[i] = vi, p[i] = pi;
        if constexpr (sizeof(Copy) == 2)
            copy[i] = from_float<Copy>(pi);
    }
    __device__ void four(int64_t i, float scale, float decay) const
    {
        float grad[4], mi[4], vi[4], pi[4];
        load_floats<CACHE_STREAM>(grad, g + i);
        load_floats<CACHE_STREAM>(mi, m + i);
        load_floats<CACHE_STREAM>(vi, v + i);
        load_floats<CACHE_STREAM>(pi, p + i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            step(grad[j] * scale, mi[j], vi[j], pi[j], decay);
        store_floats<CACHE_STREAM>(m + i, mi);
        store_floats<CACHE_STREAM>(v + i, vi);
        store_floats<CACHE_STREAM>(p + i, pi);
        if constexpr (sizeof(Copy) == 2)
            store_floats(copy + i, pi); /* the next pass reads it */
    }
    __device__ void step(float grad, float &mi, float &vi, float &pi, float decay) const
    {
        mi = beta1 * mi + beta1_rest * grad;
        vi = beta2 * vi + beta2_rest * grad * grad;
        pi = pi - scalars.lr * decay * pi -
             scalars.lr * (mi * scalars.m_fix) / (sqrtf(vi * scalars.v_fix) + eps);
    }
};

struct sgd_rule {
    float *p, *m; /* m NULL: no momentum */
    const float *g;
    const double *grad_scale;
    const struct step_scalars *from;
    struct step_scalars scalars;
    float momentum;

    __device__ void one(int64_t i, float scale, float decay) const
    {
        float pi = p[i], step = g[i] * scale + decay * pi;
        if (m) {
            step += scalars.is_first ? 0 : momentum * m[i];
            m[i] = step;
        }
        p[i] = pi - scalars.lr * step;
    }
    __device__ void four(int64_t i, float scale, float decay) const
    {
        for (int64_t j = i; j < i + 4; j++)
            one(j, scale, decay);
    }
};

template <typename Rule>
__global__ void __launch_bounds__(THREADS) optim_tiles(Rule rule, struct tiles t, bool is_aligned)
{
    /* the same for every thread of every block: all elements are updated, or none */
    const float scale = (float)grad_scale_get(rule.grad_scale);
    if (isnan(scale))
        return;
    if (rule.from)
        rule.scalars = *rule.from;
    /* the last span that begins at this block or before */
    int lo = 0, hi = t.n - 1, block = (int)blockIdx.x;
    while (lo < hi) {
        int middle = (lo + hi + 1) / 2;
        if (t.first[middle] <= block)
            lo = middle;
        else
            hi = middle - 1;
    }
    int64_t begin = t.offset[lo], end = t.end[lo];
    float decay = t.decay[lo];
    int64_t tile = begin / 4 * 4 + (block - t.first[lo]) * TILE;
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        int64_t i = tile + (k * THREADS + threadIdx.x) * 4;
        if (is_aligned && i >= begin && i + 4 <= end)
            rule.four(i, scale, decay);
        else
            for (int64_t j = i < begin ? begin : i; j < i + 4 && j < end; j++)
                rule.one(j, scale, decay);
    }
}

/* Adds spans from *at on until the next one does not fit; *blocks: the blocks that they need. */
static void add_spans(const struct optim_span *spans, int64_t spans_n, int64_t *at, struct tiles *t,
                      int64_t *blocks)
{
    *blocks = 0;
    t->n = 0;
    for (; *at < spans_n && t->n < SPANS; ++*at) {
        const struct optim_span *s = &spans[*at];
        int64_t more = ceil_div(s->offset + s->elems - s->offset / 4 * 4, TILE);
        if (s->elems == 0)
            continue;
        if (*blocks + more > INT32_MAX)
            break;
        t->offset[t->n] = s->offset, t->end[t->n] = s->offset + s->elems;
        t->decay[t->n] = s->weight_decay;
        t->first[t->n++] = (int32_t)*blocks;
        *blocks += more;
    }
}

template <typename Rule>
static int launch_spans(const struct cuda *cuda, const Rule &rule, const struct optim_span *spans,
                        int64_t spans_n, bool is_aligned)
{
    for (int64_t at = 0; at < spans_n;) {
        struct tiles t = {};
        int64_t blocks, before = at;
        add_spans(spans, spans_n, &at, &t, &blocks);
        if (at == before)
            return CUDA_REFUSAL_SHAPE; /* one span of more blocks than a launch has */
        if (blocks > 0)
            CUDA_TRY(cuda_launch(optim_tiles<Rule>, (unsigned)blocks, THREADS, 0, cuda->stream,
                                 rule, t, is_aligned));
    }
    return 0;
}

template <typename Copy> static int adamw_with(const struct cuda *cuda, const struct adamw *a)
{
    const struct adamw_rule<Copy> rule = {
        (float *)a->p.data, (float *)a->m.data, (float *)a->v.data, (Copy *)a->copy.data,
            (const float *)a->g.data, (const double *)a->grad_scale.data, cuda->scalars,
            step_scalars_adamw(a), (float)a->beta1, (float)(1 - a->beta1), (float)a->beta2,
            (float)(1 - a->beta2), (float)a->eps
    };
    bool is_copy_aligned = (uintptr_t)rule.copy % (4 * sizeof(Copy)) == 0;
    return launch_spans(cuda, rule, a->spans, a->spans_n,
                        all_aligned<float>(4, {rule.p, rule.g, rule.m, rule.v}) && is_copy_aligned);
}

extern "C" int adamw_cuda(const struct cuda *cuda, const struct adamw *a)
{
    if (a->p.dtype != DTYPE_F32 || a->g.dtype != DTYPE_F32 || a->m.dtype != DTYPE_F32 ||
        a->v.dtype != DTYPE_F32)
        return CUDA_REFUSAL_DTYPE;
    if (!a->copy.data)
        return adamw_with<float>(cuda, a);
    return a->copy.dtype == DTYPE_BF16  ? adamw_with<bf16>(cuda, a)
           : a->copy.dtype == DTYPE_F16 ? adamw_with<f16>(cuda, a)
                                        : CUDA_REFUSAL_DTYPE;
}

extern "C" int sgd_cuda(const struct cuda *cuda, const struct sgd *a)
{
    const struct sgd_rule rule = {(float *)a->p.data,
                                  a->momentum != 0 ? (float *)a->m.data : nullptr,
                                  (const float *)a->g.data,
                                  (const double *)a->grad_scale.data,
                                  cuda->scalars,
                                  step_scalars_sgd(a),
                                  (float)a->momentum};
    if (a->p.dtype != DTYPE_F32 || a->g.dtype != DTYPE_F32 || (rule.m && a->m.dtype != DTYPE_F32))
        return CUDA_REFUSAL_DTYPE;
    return launch_spans(cuda, rule, a->spans, a->spans_n, true);
}
