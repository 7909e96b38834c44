/* adamw — both optimisers (adamw.h): one launch for up to SPANS spans, which are an argument of the
 * kernel. A block processes a tile of one span. Four elements of every array lie in 16 bytes: a
 * group of four inside a span moves in one access, and elements at the ends of a span move one by
 * one. Arithmetic is in float, with constants from double. Sums of bits are made in registers, and
 * each block adds its own to the sums of the call. */
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

/* The bits that a thread reads and writes: added up as the members of struct optim_sums, or not. */
enum { BITS_READ = 0, BITS_WRITTEN = 3, BITS_UPDATES = 6, BITS_N };
static_assert(sizeof(struct optim_sums) == BITS_N * sizeof(uint32_t), "whole words");
struct bits {
    uint32_t sum[BITS_N] = {};
    __device__ void add(int when, float p, float m, float v)
    {
        sum[when] += __float_as_uint(p);
        sum[when + 1] += __float_as_uint(m);
        sum[when + 2] += __float_as_uint(v);
    }
    __device__ void give(struct optim_sums *to)
    {
        sum[BITS_UPDATES] = blockIdx.x == 0 && threadIdx.x == 0;
        block_add((uint32_t *)to, sum);
    }
};
struct no_bits {
    __device__ void add(int, float, float, float) {}
    __device__ void give(struct optim_sums *) {}
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

    template <typename Bits>
    __device__ void one(int64_t i, float scale, float decay, Bits &bits) const
    {
        float grad = g[i] * scale, mi = m[i], vi = v[i], pi = p[i];
        bits.add(BITS_READ, pi, mi, vi);
        step(grad, mi, vi, pi, decay);
        bits.add(BITS_WRITTEN, pi, mi, vi);
        m[i] = mi, v[i] = vi, p[i] = pi;
        if constexpr (sizeof(Copy) == 2)
            copy[i] = from_float<Copy>(pi);
    }
    template <typename Bits>
    __device__ void four(int64_t i, float scale, float decay, Bits &bits) const
    {
        float grad[4], mi[4], vi[4], pi[4];
        load_floats<CACHE_STREAM>(grad, g + i);
        load_floats<CACHE_STREAM>(mi, m + i);
        load_floats<CACHE_STREAM>(vi, v + i);
        load_floats<CACHE_STREAM>(pi, p + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            bits.add(BITS_READ, pi[j], mi[j], vi[j]);
            step(grad[j] * scale, mi[j], vi[j], pi[j], decay);
            bits.add(BITS_WRITTEN, pi[j], mi[j], vi[j]);
        }
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

    template <typename Bits>
    __device__ void one(int64_t i, float scale, float decay, Bits &bits) const
    {
        float pi = p[i], mi = m ? m[i] : 0, step = g[i] * scale + decay * pi;
        bits.add(BITS_READ, pi, mi, 0);
        if (m) {
            step += scalars.is_first ? 0 : momentum * mi;
            m[i] = step;
        }
        p[i] = pi = pi - scalars.lr * step;
        bits.add(BITS_WRITTEN, pi, m ? step : 0, 0);
    }
    template <typename Bits>
    __device__ void four(int64_t i, float scale, float decay, Bits &bits) const
    {
        for (int64_t j = i; j < i + 4; j++)
            one(j, scale, decay, bits);
    }
};

template <typename Rule, typename Bits>
__global__ void __launch_bounds__(THREADS)
    optim_tiles(Rule rule, struct tiles t, bool is_aligned, struct optim_sums *sums)
{
    Bits bits;
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
            rule.four(i, scale, decay, bits);
        else
            for (int64_t j = i < begin ? begin : i; j < i + 4 && j < end; j++)
                rule.one(j, scale, decay, bits);
    }
    bits.give(sums);
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
                        int64_t spans_n, bool is_aligned, struct optim_sums *sums)
{
    auto *tiles = sums ? optim_tiles<Rule, struct bits> : optim_tiles<Rule, struct no_bits>;
    for (int64_t at = 0; at < spans_n;) {
        struct tiles t = {};
        int64_t blocks, before = at;
        add_spans(spans, spans_n, &at, &t, &blocks);
        if (at == before)
            return CUDA_REFUSAL_SHAPE; /* one span of more blocks than a launch has */
        if (blocks > 0)
            CUDA_TRY(cuda_launch(tiles, (unsigned)blocks, THREADS, 0, cuda->stream, rule, t,
                                 is_aligned, sums));
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
                        all_aligned<float>(4, {rule.p, rule.g, rule.m, rule.v}) && is_copy_aligned,
                        a->sums);
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
    return launch_spans(cuda, rule, a->spans, a->spans_n, true, a->sums);
}
