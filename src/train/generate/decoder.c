/* decoder — see decoder.h. */
#include "train/generate/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/memory.h"

enum { ARENA_PARAMS, ARENA_ACTS, ARENA_SCRATCH, ARENA_INPUT, ARENA_N };

struct decoder {
    struct dev *dev;
    struct model_dims dims;
    const struct model_ops *model;
    struct param_table table;
    struct stream *stream;
    struct arena arena[ARENA_N];
    enum dtype dtype;
    struct tensor masters; /* the parameters as loaded, f32; the pass reads them in dtype */
    bool is_rounded;       /* the copy in dtype is current */
    struct pass pass;
    struct tensor logits; /* (V), on the device */
    float *logits_host;
    int64_t window;
    int32_t *cached; /* (window): the tokens 0 … cached_n-1 whose keys and values are cached */
    int64_t cached_n;
};

/* ---- memory ---- */

static struct tensor allocate_tensor(struct arena *a, int64_t elems, enum dtype dtype)
{
    return (struct tensor){arena_alloc(a, (size_t)elems * dtype_bytes(dtype)), dtype};
}

static enum status plan_arenas(struct decoder *d)
{
    struct pass *p = &d->pass;
    p->params = d->masters =
        allocate_tensor(&d->arena[ARENA_PARAMS], d->table.total_elems, DTYPE_F32);
    if (d->dtype != DTYPE_F32)
        p->params = allocate_tensor(&d->arena[ARENA_PARAMS], d->table.total_elems, d->dtype);
    p->tokens = allocate_tensor(&d->arena[ARENA_INPUT], d->window, DTYPE_I32);
    d->logits = allocate_tensor(&d->arena[ARENA_INPUT], d->dims.vocab, DTYPE_F32);
    model_plan_free(p->acts);
    p->acts = NULL;
    TRY(model_plan(&d->dims, 1, d->window, (struct model_recomputed){0}, false, d->dtype,
                   &d->arena[ARENA_ACTS], &d->arena[ARENA_SCRATCH], &p->acts));
    model_plan_kv_cache(&d->dims, p->acts, &d->arena[ARENA_ACTS]);
    return ST_OK;
}

/* measure_arenas — Plans without memory, for the sizes. */
static enum status measure_arenas(struct decoder *d)
{
    for (int i = 0; i < ARENA_N; i++)
        arena_init(&d->arena[i], "decoder", NULL, 0);
    return plan_arenas(d);
}

enum status decoder_plan(const struct model_dims *dims, int64_t window, enum dtype dtype,
                         struct decoder_memory *out)
{
    struct decoder d = {.dims = *dims, .window = window, .dtype = dtype};
    enum status st = model_ops(dims)->describe(dims, &d.table);
    if (st == ST_OK)
        st = measure_arenas(&d);
    if (st == ST_OK)
        *out = (struct decoder_memory){.params = (int64_t)d.arena[ARENA_PARAMS].used_bytes,
                                       .activations = (int64_t)d.arena[ARENA_ACTS].used_bytes,
                                       .workspace = (int64_t)(d.arena[ARENA_SCRATCH].used_bytes +
                                                              d.arena[ARENA_INPUT].used_bytes)};
    model_plan_free(d.pass.acts);
    param_table_free(&d.table);
    return st;
}

enum status decoder_open(struct dev *dev, const struct model_dims *dims, int64_t window,
                         enum dtype dtype, struct decoder **out)
{
    ASSERTF(dims->task == MODEL_TASK_LM && window > 0 && window <= dims->context,
            "window %lld of %lld", (long long)window, (long long)dims->context);
    struct decoder *d = memory_new(1, sizeof *d);
    d->dev = dev;
    d->dims = *dims;
    d->model = model_ops(dims);
    d->window = window;
    d->dtype = dtype;
    d->logits_host = malloc((size_t)dims->vocab * sizeof *d->logits_host);
    d->cached = malloc((size_t)window * sizeof *d->cached);
    enum status st =
        d->logits_host && d->cached
            ? ST_OK
            : FAIL(ST_RETRY, "out of memory: logits of %lld tokens", (long long)dims->vocab);
    TRY_OR(st, failed);
    TRY_OR(dev_stream_open(dev, &d->stream), failed);
    TRY_OR(d->model->describe(dims, &d->table), failed);
    TRY_OR(measure_arenas(d), failed);
    for (int i = 0; i < ARENA_N; i++) {
        size_t bytes = d->arena[i].used_bytes;
        void *base = NULL;
        TRY_OR(dev_alloc(dev, bytes, &base), failed);
        arena_init(&d->arena[i], "decoder", base, bytes);
    }
    TRY_OR(plan_arenas(d), failed);
    d->pass.dims = &d->dims;
    d->pass.table = &d->table;
    d->pass.tensor = d->pass.context = &model_axis_self;
    d->pass.b = 1;
    d->pass.op = dev_op(dev);
    d->pass.stream = d->stream;
    d->pass.tensor = d->pass.context = &model_axis_self;
    *out = d;
    return ST_OK;
failed:
    decoder_close(d);
    return st;
}

struct load_target decoder_target(const struct decoder *d)
{
    return (struct load_target){.table = &d->table, .stream = d->stream, .data = d->masters};
}

void decoder_close(struct decoder *d)
{
    if (!d)
        return;
    for (int i = 0; i < ARENA_N; i++)
        if (d->arena[i].base)
            dev_free(d->dev, d->arena[i].base, d->arena[i].cap_bytes);
    model_plan_free(d->pass.acts);
    param_table_free(&d->table);
    dev_stream_close(d->stream);
    free(d->logits_host);
    free(d->cached);
    free(d);
}

/* ---- a token ---- */

enum status decoder_logits(struct decoder *d, const int32_t *tokens, int64_t n, const float **out)
{
    ASSERTF(n > 0, "n %lld", (long long)n);
    struct pass *p = &d->pass;
    int64_t seen = n < d->window ? n : d->window, before = seen - 1;
    const int32_t *recent = tokens + n - seen;
    bool is_cached =
        d->cached_n >= before && memcmp(d->cached, recent, (size_t)before * sizeof *recent) == 0;
    p->past = is_cached ? before : 0;
    p->t = seen - p->past;
    d->cached_n = 0; /* until the pass is done */
    if (d->dtype != DTYPE_F32 && !d->is_rounded) {
        d->is_rounded = true;
        TRY(p->op->cast(
            d->stream, &(struct cast){.y = p->params, .x = d->masters, .n = d->table.total_elems}));
    }
    TRY(dev_copy(d->stream, p->tokens.data, recent + p->past, (size_t)p->t * sizeof *recent));
    TRY(d->model->embed_fwd(p));
    for (int block = 0; block < d->dims.layers; block++)
        TRY(d->model->block_fwd(p, block));
    TRY(d->model->logits(p, p->t - 1, d->logits));
    TRY(dev_copy(d->stream, d->logits_host, d->logits.data, (size_t)d->dims.vocab * sizeof(float)));
    TRY(dev_sync(d->stream));
    memcpy(d->cached, recent, (size_t)seen * sizeof *recent);
    d->cached_n = seen;
    *out = d->logits_host;
    return ST_OK;
}

void decoder_reset(struct decoder *d)
{
    d->cached_n = 0;
    d->is_rounded = false;
}
