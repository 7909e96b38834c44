/* pipe_split — the best split by dynamic programming over chunks and layers (pipe/split.h). */
#include "mesh/pipe/split.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"

#define EMBED_FLOPS 3 /* an element of a row: copied, added to a position, added to a gradient */
#define FWD_SHARE (1.0 / 3) /* share of the forward pass in forward and backward */

/* estimate_recompute — returns the cost of recomputation in the backward pass of a layer, which
 * costs `layer`: the product for q, k and v, and causal attention; or the whole forward pass. */
static double estimate_recompute(const struct model_dims *dims, int64_t t, double layer,
                                 enum model_recompute way)
{
    double d = (double)model_head_dim(dims), heads = (double)dims->heads,
           all = heads + 2 * (double)model_kv_heads(dims);
    if (way == MODEL_RECOMPUTE_BLOCK)
        return layer * FWD_SHARE;
    return way == MODEL_RECOMPUTE_ATTENTION
               ? 2 * d * (all * (double)dims->embed + heads * (double)t)
               : 0;
}

void pipe_split_costs(const struct model_dims *dims, int64_t t, struct model_recomputed recompute,
                      double *cost)
{
    struct model_dims none = *dims, one = *dims;
    model_resolve(&none);
    model_resolve(&one);
    none.layers = 0;
    one.layers = 1;
    double head = model_flops_per_token(&none, t), layer = model_flops_per_token(&one, t) - head;
    cost[0] = EMBED_FLOPS * (double)dims->embed;
    for (int64_t i = 1; i <= dims->layers; i++)
        cost[i] = layer + estimate_recompute(&one, t, layer, model_recompute_of(recompute, i - 1));
    cost[dims->layers + 1] = head;
}

/* The best splits of the first i layers into the first j chunks: best[j][i], and the begin of the
 * last of these chunks. */
struct table {
    const double *cost;
    int64_t layers;
    int chunks_n;
    double limit; /* limit of a chunk's cost; 0: find the least limit */
    double *sum;  /* (layers + 1) cost of the layers before each layer */
    double *best;
    int64_t *begin;
};

static int64_t cell_of(const struct table *t, int chunks_n, int64_t layers)
{
    return chunks_n * (t->layers + 1) + layers;
}

static double sum_costs(const struct table *t, int chunk, int64_t first, int64_t end)
{
    double ends =
        (chunk == 0 ? t->cost[0] : 0) + (chunk == t->chunks_n - 1 ? t->cost[t->layers + 1] : 0);
    return t->sum[end] - t->sum[first] + ends;
}

/* find_begin — finds the best begin of chunk `chunk` that ends before layer `end`. The loads grow
 * as it begins earlier. Among equal splits it chooses the chunk that begins first: early stages
 * keep more activations. */
static void find_begin(struct table *t, int chunk, int64_t end)
{
    double best = DBL_MAX;
    for (int64_t first = end - 1; first >= chunk; first--) {
        double own = sum_costs(t, chunk, first, end), before = t->best[cell_of(t, chunk, first)],
               all;
        if (t->limit > 0 ? own > t->limit : own > best)
            break;
        if (t->limit > 0)
            all = before == DBL_MAX ? DBL_MAX : before + own * own;
        else
            all = own > before ? own : before;
        if (all > best || all == DBL_MAX)
            continue;
        best = all;
        t->begin[cell_of(t, chunk + 1, end)] = first;
    }
    t->best[cell_of(t, chunk + 1, end)] = best;
}

static double solve_split(struct table *t, double limit)
{
    t->limit = limit;
    for (int64_t i = 0; i <= t->layers; i++)
        t->best[cell_of(t, 0, i)] = i == 0 ? 0 : DBL_MAX;
    for (int chunk = 0; chunk < t->chunks_n; chunk++)
        for (int64_t end = 0; end <= t->layers; end++)
            if (end > chunk)
                find_begin(t, chunk, end);
            else
                t->best[cell_of(t, chunk + 1, end)] = DBL_MAX;
    return t->best[cell_of(t, t->chunks_n, t->layers)];
}

enum status pipe_split(const double *cost, int64_t layers, int stages, int chunks, int64_t *first)
{
    struct table t = {.cost = cost, .layers = layers, .chunks_n = stages * chunks};
    if (layers < t.chunks_n)
        return FAIL(ST_BAD_SETTING,
                    "PP=%d x PP_CHUNKS=%d are %d parts of a model of %lld layers; each needs a "
                    "layer: lower PP or PP_CHUNKS",
                    stages, chunks, t.chunks_n, (long long)layers);
    const size_t sums_n = (size_t)layers + 1, cells = ((size_t)t.chunks_n + 1) * sums_n;
    t.sum = memory_new(sums_n, sizeof *t.sum);
    t.best = memory_new(cells, sizeof *t.best);
    t.begin = memory_new(cells, sizeof *t.begin);
    for (int64_t i = 0; i < layers; i++)
        t.sum[i + 1] = t.sum[i] + cost[1 + i];
    double least = solve_split(&t, 0);
    double squares = solve_split(&t, least * (1 + 1e-9)); /* sums may be rounded */
    ASSERTF(least < DBL_MAX && squares < DBL_MAX, "%lld layers in %d parts", (long long)layers,
            t.chunks_n);
    first[t.chunks_n] = layers;
    for (int chunk = t.chunks_n; chunk > 0; chunk--)
        first[chunk - 1] = t.begin[cell_of(&t, chunk, first[chunk])];
    free(t.sum);
    free(t.best);
    free(t.begin);
    return ST_OK;
}

void pipe_split_shard(const int64_t *first, int stages, int chunks, int stage,
                      struct model_shard *shard)
{
    ASSERTF(chunks <= MODEL_CHUNKS_MAX, "%d chunks", chunks);
    shard->chunks_n = chunks;
    for (int i = 0; i < chunks; i++) {
        const int64_t *at_chunk = &first[i * stages + stage];
        shard->chunk[i].first = at_chunk[0];
        shard->chunk[i].n = at_chunk[1] - at_chunk[0];
    }
    shard->lacks_embed = stage > 0;
    shard->lacks_head = stage < stages - 1;
}
