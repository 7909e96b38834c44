/* step — one update of one worker (step.h).
 *
 * Memory: six arenas — parameters, gradients, optimiser state, activations, scratch, inputs — measured by running
 * plan() without memory, taken whole, dealt by the same plan(), and sealed; planned = taken is asserted. After
 * step_open nothing is allocated.
 *
 * A step: the whole global batch is read first, because the loss is divided by what counts in all of it (batch.c).
 * Each micro-batch goes forward through the units, through the head (which does both directions) and back. Its
 * first run writes gradients, the others add; only what no product writes (param.h: grad_is_added) is zeroed. In
 * the last micro-batch each unit's squares are added to the global norm right after its backward, while it is in
 * cache, in the order last unit … first. Losses go to the host one by one and are summed there in the order of
 * samples, so that how the batch is cut does not show. The host looks at loss and norm before it lets the optimiser
 * run; clipping happens inside the optimiser. */
#include "train/step.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/must.h"
#include "base/rand.h"
#include "base/task.h"

enum { ARENA_PARAMS, ARENA_GRADS, ARENA_STATE, ARENA_ACTS, ARENA_SCRATCH, ARENA_INPUT, ARENA_N };

struct step {
    struct step_config config;
    const struct model_ops *model;
    struct param_table table;
    struct stream *stream;
    struct arena arena[ARENA_N];
    struct optim_arrays arrays;
    struct model_acts *acts;
    struct tensor tokens, targets, mask, starts, ends, losses, norm_sq; /* on the device; norm_sq (1) f64 */
    struct tensor logits; /* LM (V), QA (B·T,2) f32 */
    struct optim_span *spans;
    int64_t spans_n;
    struct batch batch; /* on the host, global_samples */
    float *losses_host; /* all of the global batch */
    int64_t lap_ns;
};

static int64_t losses_per_sample(const struct step_config *c)
{
    return c->dims.task == MODEL_TASK_LM ? c->seq_tokens : 2;
}

static enum feed_task task_of(const struct step_config *c)
{
    return c->dims.task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA;
}

/* --- memory ------------------------------------------------------------------------------------------------ */

static struct tensor take(struct arena *a, int64_t elems, enum dtype dtype)
{
    return (struct tensor){arena_take(a, (size_t)elems * dtype_bytes(dtype)), dtype};
}

static enum status plan(struct step *s, struct arena arena[ARENA_N])
{
    const struct step_config *c = &s->config;
    int64_t b = c->batch_samples, n = b * c->seq_tokens, elems = s->table.total_elems;
    int moments = step_parts(s) - 1;
    struct arena *input = &arena[ARENA_INPUT];
    s->arrays.p = take(&arena[ARENA_PARAMS], elems, DTYPE_F32);
    s->arrays.g = c->is_eval ? (struct tensor){0} : take(&arena[ARENA_GRADS], elems, DTYPE_F32);
    s->arrays.m = moments > 0 ? take(&arena[ARENA_STATE], elems, DTYPE_F32) : (struct tensor){0};
    s->arrays.v = moments > 1 ? take(&arena[ARENA_STATE], elems, DTYPE_F32) : (struct tensor){0};
    s->norm_sq = take(input, 1, DTYPE_F64);
    s->losses = take(input, b * losses_per_sample(c), DTYPE_F32);
    s->tokens = take(input, n, DTYPE_I32);
    s->logits = take(input, c->dims.task == MODEL_TASK_LM ? c->dims.vocab : 2 * n, DTYPE_F32);
    if (c->dims.task == MODEL_TASK_LM) {
        s->targets = take(input, n, DTYPE_I32);
    } else {
        s->mask = take(input, n, DTYPE_U8);
        s->starts = take(input, b, DTYPE_I32);
        s->ends = take(input, b, DTYPE_I32);
    }
    model_plan_free(s->acts);
    s->acts = NULL;
    return model_plan(&c->dims, b, c->seq_tokens, c->recompute, !c->is_eval, &arena[ARENA_ACTS], &arena[ARENA_SCRATCH],
                      &s->acts);
}

static void beat(const struct step *s)
{
    if (s->config.beat)
        s->config.beat(s->config.beat_arg);
}

static enum status take_memory(struct step *s)
{
    static const char *const name[ARENA_N] = {"params", "grads", "state", "acts", "scratch", "input"};
    struct arena planned[ARENA_N];
    for (int i = 0; i < ARENA_N; i++)
        arena_init(&planned[i], name[i], NULL, 0);
    TRY(plan(s, planned));
    for (int i = 0; i < ARENA_N; i++) {
        void *base = NULL;
        if (planned[i].used_bytes > 0)
            TRY(dev_alloc(s->config.dev, planned[i].used_bytes, &base));
        arena_init(&s->arena[i], name[i], base, planned[i].used_bytes);
        beat(s);
    }
    TRY(plan(s, s->arena));
    for (int i = 0; i < ARENA_N; i++) {
        ASSERTF(s->arena[i].used_bytes == planned[i].used_bytes, "arena %s: planned %zu taken %zu", name[i],
                planned[i].used_bytes, s->arena[i].used_bytes);
        arena_seal(&s->arena[i]);
    }
    return ST_OK;
}

/* --- initial values ---------------------------------------------------------------------------------------- */

#define FILL_PART ((int64_t)1 << 16)
#define FILL_PARTS 32

struct fill {
    const struct param_table *table;
    uint64_t seed;
    int row;
    int64_t first, n;
    float *out;
};

static void fill_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct fill *f = arg;
    int64_t at = part_i * FILL_PART, n = f->n - at < FILL_PART ? f->n - at : FILL_PART;
    param_fill(f->table, f->row, f->seed, f->first + at, n, f->out + at);
}

static enum status fill_row(struct step *s, struct task_pool *pool, int row, float *stage)
{
    const struct param *p = &s->table.row[row];
    for (int64_t first = 0; first < p->elems; first += FILL_PARTS * FILL_PART) {
        struct fill f = {.table = &s->table,
                         .seed = s->config.seed,
                         .row = row,
                         .first = first,
                         .n = p->elems - first,
                         .out = stage};
        if (f.n > FILL_PARTS * FILL_PART)
            f.n = FILL_PARTS * FILL_PART;
        task_run(pool, (int)((f.n + FILL_PART - 1) / FILL_PART), fill_part, &f);
        TRY(dev_copy(s->stream, tensor_at(s->arrays.p, p->offset + first).data, stage,
                     (size_t)f.n * sizeof *stage));
        TRY(dev_sync(s->stream));
        beat(s);
    }
    return ST_OK;
}

/* A pool of its own, for a second: the device's belongs to the device. */
static enum status fill_all(struct step *s)
{
    enum status st = ST_OK;
    struct task_pool *pool = NULL;
    float *stage = malloc(FILL_PARTS * FILL_PART * sizeof *stage);
    if (!stage)
        return FAIL(ST_RETRY, "out of memory: a stage for initial values; use a machine with more memory");
    TRY_OR(task_open(task_cores() < TASK_THREADS_MAX ? task_cores() : TASK_THREADS_MAX, &pool), out_stage);
    for (int row = 0; st == ST_OK && row < s->table.rows_n; row++)
        st = fill_row(s, pool, row, stage);
    task_close(pool);
out_stage:
    free(stage);
    return st;
}

/* --- life -------------------------------------------------------------------------------------------------- */

static enum status check_config(const struct step_config *c)
{
    TRY(model_check(&c->dims));
    ASSERTF(c->batch_samples > 0 && c->global_samples % c->batch_samples == 0 && c->global_samples > 0,
            "batch_samples %lld global_samples %lld", (long long)c->batch_samples, (long long)c->global_samples);
    if (c->seq_tokens < 1 || c->seq_tokens > c->dims.context)
        return FAIL(ST_BAD_SETTING, "SEQ_LEN=%lld is outside 1 … CONTEXT=%lld; lower it", (long long)c->seq_tokens,
                    (long long)c->dims.context);
    int64_t elems;
    if (__builtin_mul_overflow(c->global_samples, c->seq_tokens, &elems) ||
        __builtin_mul_overflow(elems, 64 * c->dims.embed, &elems))
        return FAIL(ST_BAD_SETTING, "GLOBAL_BATCH=%lld with SEQ_LEN=%lld is too large to address; lower it",
                    (long long)c->global_samples, (long long)c->seq_tokens);
    return ST_OK;
}

static enum status open_all(struct step *s)
{
    const struct step_config *c = &s->config;
    TRY(check_config(c));
    s->model = model_ops(&c->dims);
    TRY(s->model->describe(&c->dims, &s->table));
    TRY(optim_spans(&s->table, optim_decay(&c->optim), &s->spans, &s->spans_n));
    TRY(dev_stream_open(c->dev, &s->stream));
    TRY(take_memory(s));
    TRY(batch_init(&s->batch, task_of(c), c->global_samples, c->seq_tokens));
    s->losses_host = calloc((size_t)(c->global_samples * losses_per_sample(c)), sizeof *s->losses_host);
    if (!s->losses_host)
        return FAIL(ST_RETRY, "out of memory: losses of %lld samples; use a smaller GLOBAL_BATCH",
                    (long long)c->global_samples);
    return c->is_loaded ? ST_OK : fill_all(s);
}

enum status step_open(const struct step_config *config, struct step **out)
{
    struct step *s = calloc(1, sizeof *s);
    if (!s)
        return FAIL(ST_RETRY, "out of memory: a step of %zu bytes; use a machine with more memory", sizeof *s);
    s->config = *config;
    enum status st = open_all(s);
    if (st == ST_OK)
        *out = s;
    else
        step_close(s);
    return st;
}

void step_close(struct step *s)
{
    if (!s)
        return;
    for (int i = 0; i < ARENA_N; i++)
        dev_free(s->config.dev, s->arena[i].base, s->arena[i].cap_bytes);
    model_plan_free(s->acts);
    dev_stream_close(s->stream);
    batch_free(&s->batch);
    param_table_free(&s->table);
    free(s->losses_host);
    free(s->spans);
    free(s);
}

/* --- one step ---------------------------------------------------------------------------------------------- */

/* Time since the last lap goes to *ms. On a device that works on its own this is only the time of asking. */
static void lap(struct step *s, double *ms)
{
    int64_t now = clock_ns();
    *ms += (double)(now - s->lap_ns) * 1e-6;
    s->lap_ns = now;
}

static struct pass pass_of(struct step *s, int64_t samples)
{
    const struct step_config *c = &s->config;
    return (struct pass){.dims = &c->dims,
                         .table = &s->table,
                         .b = samples,
                         .t = c->seq_tokens,
                         .recompute = c->recompute,
                         .op = dev_op(c->dev),
                         .stream = s->stream,
                         .params = s->arrays.p,
                         .acts = s->acts,
                         .tokens = s->tokens,
                         .targets = s->targets,
                         .mask = s->mask,
                         .starts = s->starts,
                         .ends = s->ends,
                         .losses = s->losses};
}

static enum status copy_in(struct step *s, struct tensor to, const void *from, int64_t first, int64_t elems)
{
    size_t each = dtype_bytes(to.dtype);
    return dev_copy(s->stream, to.data, (const char *)from + (size_t)first * each, (size_t)elems * each);
}

/* Samples [first, first + p->b) of the batch, to the device. */
static enum status load_inputs(struct step *s, const struct batch *batch, int64_t first, struct pass *p)
{
    int64_t t = p->t, n = p->b * t;
    TRY(copy_in(s, s->tokens, batch->host.tokens, first * t, n));
    if (batch->task == FEED_TASK_LM)
        return copy_in(s, s->targets, batch->host.targets, first * t, n);
    if (batch->host.mask)
        TRY(copy_in(s, s->mask, batch->host.mask, first * t, n));
    else
        p->mask = (struct tensor){0};
    TRY(copy_in(s, s->starts, batch->host.starts, first, p->b));
    return copy_in(s, s->ends, batch->host.ends, first, p->b);
}

static enum status forward(struct step *s, const struct pass *p)
{
    TRY(s->model->embed_fwd(p));
    for (int block = 0; block < p->dims->layers; block++) {
        TRY(s->model->block_fwd(p, block));
        beat(s);
    }
    return ST_OK;
}

static enum status keep_losses(struct step *s, const struct pass *p, int64_t first)
{
    int64_t each = losses_per_sample(&s->config);
    return dev_copy(s->stream, s->losses_host + first * each, s->losses.data,
                    (size_t)(p->b * each) * sizeof(float));
}

/* One unit's part of the norm; the last unit, which is first to be done, begins the sum. */
static enum status add_norm(struct step *s, const struct pass *p, int unit, double *ms)
{
    int64_t offset, elems;
    param_unit_span(&s->table, unit, &offset, &elems);
    TRY(p->op->sumsq(s->stream, &(struct sumsq){.out = s->norm_sq,
                                                .x = tensor_at(s->arrays.g, offset),
                                                .n = elems,
                                                .accumulate = unit != s->table.units_n - 1}));
    lap(s, ms);
    return ST_OK;
}

static enum status zero_added(struct step *s)
{
    for (int i = 0; i < s->table.rows_n; i++) {
        const struct param *row = &s->table.row[i];
        if (row->grad_is_added)
            TRY(dev_fill(s->stream, tensor_at(s->arrays.g, row->offset).data, 0,
                         (size_t)row->elems * sizeof(float)));
    }
    return ST_OK;
}

/* FAULT=nan: one gradient that is not a number, of the first unit, which is last to be looked at. */
static enum status spoil(struct step *s)
{
    const float nan = NAN;
    return dev_copy(s->stream, s->arrays.g.data, &nan, sizeof nan);
}

static enum status micro(struct step *s, struct pass *p, bool is_last, bool poison, struct step_result *r)
{
    if (!p->accumulate)
        TRY(zero_added(s));
    TRY(forward(s, p));
    lap(s, &r->forward_ms);
    int layers = (int)p->dims->layers;
    TRY(s->model->head(p));
    lap(s, &r->head_ms);
    if (is_last)
        TRY(add_norm(s, p, layers + 1, &r->norm_ms));
    for (int block = layers - 1; block >= 0; block--) {
        TRY(s->model->block_bwd(p, block));
        lap(s, &r->backward_ms);
        if (is_last)
            TRY(add_norm(s, p, block + 1, &r->norm_ms));
        beat(s);
    }
    TRY(s->model->embed_bwd(p));
    if (is_last && poison)
        TRY(spoil(s));
    lap(s, &r->backward_ms);
    return is_last ? add_norm(s, p, 0, &r->norm_ms) : ST_OK;
}

static enum status gradients(struct step *s, const struct batch *batch, int64_t step_i, bool poison,
                             struct step_result *r)
{
    const struct step_config *c = &s->config;
    struct batch_counts counts = {0};
    double scale, scale_end, norm_sq;
    batch_count(batch, &counts);
    batch_scales(batch->task, &counts, &scale, &scale_end);
    for (int64_t first = 0; first < c->global_samples; first += c->batch_samples) {
        struct pass p = pass_of(s, c->batch_samples);
        p.grads = s->arrays.g;
        p.want_grad = true;
        p.accumulate = first > 0;
        p.dropout = c->dropout;
        p.dropout_seed = rand_u64(c->seed, RAND_STREAM(DROPOUT, UINT32_MAX), (uint64_t)step_i);
        p.sample_first = first;
        p.scale = (float)scale;
        p.scale_end = (float)scale_end;
        TRY(load_inputs(s, batch, first, &p));
        TRY(micro(s, &p, first + c->batch_samples == c->global_samples, poison, r));
        TRY(keep_losses(s, &p, first));
    }
    TRY(dev_copy(s->stream, &norm_sq, s->norm_sq.data, sizeof norm_sq));
    TRY(dev_sync(s->stream));
    r->loss = batch_loss(batch->task, s->losses_host, c->global_samples * losses_per_sample(c), scale, scale_end);
    r->grad_norm = sqrt(norm_sq);
    return ST_OK;
}

enum status step_run_batch(struct step *s, const struct batch *batch, int64_t step_i, int64_t sample_first,
                           double lr, bool poison, struct step_result *out)
{
    const struct step_config *c = &s->config;
    ASSERT(!c->is_eval);
    ASSERTF(batch->samples == c->global_samples && batch->seq_tokens == c->seq_tokens && batch->task == task_of(c),
            "samples %lld seq_tokens %lld", (long long)batch->samples, (long long)batch->seq_tokens);
    struct step_result r = {0};
    int64_t start = s->lap_ns = clock_ns();
    TRY(batch_check(batch, c->dims.vocab));
    TRY(gradients(s, batch, step_i, poison, &r));
    s->lap_ns = clock_ns();
    if (!isfinite(r.loss) || !isfinite(r.grad_norm))
        return FAIL(
            ST_NOT_FINITE,
            "step %lld: loss %g, gradient norm %g; the parameters were left as they were (samples from %lld). "
            "Lower LR, or look at the data",
            (long long)step_i + 1, r.loss, r.grad_norm, (long long)sample_first);
    TRY(optim_update(&c->optim, dev_op(c->dev), s->stream, &s->arrays, s->spans, s->spans_n, s->norm_sq, lr,
                     step_i));
    TRY(dev_sync(s->stream));
    lap(s, &r.update_ms);
    r.compute_ms = (double)(s->lap_ns - start) * 1e-6;
    beat(s);
    *out = r;
    return ST_OK;
}

enum status step_run(struct step *s, const struct feed *feed, int64_t step_i, int64_t sample_first, double lr,
                     bool poison, struct step_result *out)
{
    feed_get(feed, sample_first, s->config.global_samples, &s->batch.host);
    return step_run_batch(s, &s->batch, step_i, sample_first, lr, poison, out);
}

/* --- evaluation -------------------------------------------------------------------------------------------- */

/* Sums of one batch, already multiplied by its own scales, are put back into sums: they divide by the whole in the
 * end. */
struct eval_sums {
    struct batch_counts counts;
    double loss, loss_end;
};

static enum status eval_batch(struct step *s, const struct feed *feed, int64_t first, int64_t samples,
                              struct eval_sums *sums)
{
    int64_t each = losses_per_sample(&s->config);
    s->batch.samples = samples;
    feed_get(feed, first, samples, &s->batch.host);
    enum status st = batch_check(&s->batch, s->config.dims.vocab);
    batch_count(&s->batch, &sums->counts);
    s->batch.samples = s->config.global_samples;
    TRY(st);
    struct pass p = pass_of(s, samples);
    TRY(load_inputs(s, &s->batch, 0, &p));
    TRY(forward(s, &p));
    TRY(s->model->head(&p));
    TRY(keep_losses(s, &p, 0));
    TRY(dev_sync(s->stream));
    sums->loss += batch_loss(s->batch.task, s->losses_host, samples * each, 1, 0);
    sums->loss_end += batch_loss(s->batch.task, s->losses_host, samples * each, 0, 1);
    return ST_OK;
}

enum status step_eval(struct step *s, const struct feed *feed, int64_t samples, bool (*stop)(void *arg), void *arg,
                      double *loss_out)
{
    struct eval_sums sums = {0};
    double scale, scale_end;
    int64_t per_batch = s->config.batch_samples;
    ASSERTF(samples > 0, "samples %lld", (long long)samples);
    for (int64_t first = 0; first < samples; first += per_batch) {
        if (stop && stop(arg))
            return FAIL(ST_RETRY, "the evaluation was asked to stop after %lld of %lld samples", (long long)first,
                        (long long)samples);
        TRY(eval_batch(s, feed, first, samples - first < per_batch ? samples - first : per_batch, &sums));
    }
    batch_scales(s->batch.task, &sums.counts, &scale, &scale_end);
    *loss_out = sums.loss * scale + sums.loss_end * scale_end;
    return ST_OK;
}

/* --- answers ----------------------------------------------------------------------------------------------- */

enum status step_logits(struct step *s, const int32_t *tokens, int64_t n, float *out)
{
    struct pass p = pass_of(s, 1);
    ASSERTF(p.dims->task == MODEL_TASK_LM && n > 0 && n <= p.t, "n %lld of %lld", (long long)n, (long long)p.t);
    p.t = n;
    TRY(copy_in(s, s->tokens, tokens, 0, n));
    TRY(forward(s, &p));
    TRY(s->model->logits(&p, n - 1, s->logits));
    TRY(dev_copy(s->stream, out, s->logits.data, (size_t)p.dims->vocab * sizeof *out));
    return dev_sync(s->stream);
}

enum status step_spans(struct step *s, const struct batch *batch, float *out)
{
    struct pass p = pass_of(s, batch->samples);
    ASSERTF(p.dims->task == MODEL_TASK_QA && p.b > 0 && p.b <= s->config.batch_samples && batch->seq_tokens == p.t,
            "samples %lld seq_tokens %lld", (long long)p.b, (long long)batch->seq_tokens);
    TRY(batch_check(batch, p.dims->vocab));
    TRY(load_inputs(s, batch, 0, &p));
    TRY(forward(s, &p));
    TRY(s->model->logits(&p, 0, s->logits));
    TRY(dev_copy(s->stream, out, s->logits.data, (size_t)(2 * p.b * p.t) * sizeof *out));
    return dev_sync(s->stream);
}

/* --- what others may see ----------------------------------------------------------------------------------- */

int step_parts(const struct step *s) { return s->config.is_eval ? 1 : 1 + optim_moments(&s->config.optim); }
const struct param_table *step_table(const struct step *s) { return &s->table; }
struct tensor step_grads(const struct step *s) { return s->arrays.g; }
struct stream *step_stream(const struct step *s) { return s->stream; }

struct tensor step_tensor(const struct step *s, int part)
{
    ASSERTF(part >= 0 && part < step_parts(s), "part %d of %d", part, step_parts(s));
    return part == 0 ? s->arrays.p : part == 1 ? s->arrays.m : s->arrays.v;
}

float *step_part(struct step *s, int part) { return step_tensor(s, part).data; }

int64_t step_memory_bytes(const struct step *s)
{
    int64_t bytes = 0;
    for (int i = 0; i < ARENA_N; i++)
        bytes += s->arena[i].base ? (int64_t)s->arena[i].cap_bytes : 0; /* without memory it only measures */
    return bytes;
}

double step_flops(const struct step *s)
{
    const struct step_config *c = &s->config;
    return model_flops_per_token(&c->dims, c->seq_tokens) * (double)(c->global_samples * c->seq_tokens);
}
