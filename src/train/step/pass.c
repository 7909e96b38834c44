/* step_pass — the passes of a micro-batch: forward through the units, through the head, which does
 * both directions, and back (step/feature.h).
 *
 * The first micro-batch writes gradients, the others add to them. Only gradients that no matrix
 * product writes (param.h: grad_is_added) are zeroed. In the last one each unit's gradient goes to
 * the store right after its backward pass; the store reduces it over the ranks while the next unit
 * computes. Losses are copied to the host one by one, so that their sum does not depend on how the
 * batch is cut. */
#include <math.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rand.h"
#include "train/step/inside.h"
#include "train/step/pipe.h"

#define FAULT_NORM 1e6

void step_lap(struct step *s, double *ms)
{
    int64_t now = clock_ns();
    *ms += (double)(now - s->lap_ns) * 1e-6;
    s->lap_ns = now;
}

/* ---- the members of a pass ---- */

struct pass step_pass(const struct step *s, int64_t samples)
{
    const struct step_config *c = &s->core.config;
    struct pass p = {.dims = &s->core.dims,
                     .b = samples,
                     .t = s->core.own_tokens,
                     .op = dev_op(c->dev),
                     .stream = s->core.stream,
                     .acts = s->acts,
                     .tensor = s->core.tensor_axis,
                     .context = s->core.context_axis,
                     .tokens = s->in.tokens,
                     .targets = s->in.targets,
                     .first_key = s->in.first_key,
                     .positions = s->in.positions,
                     .mask = s->in.mask,
                     .starts = s->in.starts,
                     .ends = s->in.ends,
                     .losses = s->losses};
    store_bind(s->core.store, &p);
    if (s->core.pipe) /* the last chunk, which the head follows */
        step_pipe_bind(&s->core, s->core.pipe->pipe.chunks - 1, 0, &p);
    return p;
}

struct pass step_pass_train(const struct step *s, int64_t sample, int64_t step_i)
{
    const struct step_config *c = &s->core.config;
    struct pass p = step_pass(s, c->batch_samples);
    p.want_grad = true;
    p.dropout = c->dropout;
    p.dropout_seed = rand_u64(c->seed, RAND_STREAM(DROPOUT, UINT32_MAX), (uint64_t)step_i);
    p.sample_first = sample;
    return p;
}

void step_pass_scale(const struct step *s, struct pass *p)
{
    p->scale = (float)(s->scale * step_loss_factor(s));
    p->scale_end = (float)(s->scale_end * step_loss_factor(s));
}

void step_pass_begin(struct step *s, const struct step_micro *m, int at, struct pass *p)
{
    for (int i = 0; i < s->features_n; i++)
        if (s->feature[i].hooks->pass)
            s->feature[i].hooks->pass(s->feature[i].self, m, at, p);
}

enum status step_rows(struct step *s, struct tensor rows, int64_t elems)
{
    for (int i = 0; i < s->features_n; i++)
        if (s->feature[i].hooks->rows)
            TRY(s->feature[i].hooks->rows(s->feature[i].self, rows, elems));
    return ST_OK;
}

/* ---- inputs to the device, losses to host memory ---- */

static enum status copy_in(struct step *s, struct tensor to, const void *from, int64_t first,
                           int64_t elems)
{
    size_t each = dtype_bytes(to.dtype);
    return dev_copy(s->core.stream, to.data, (const char *)from + (size_t)first * each,
                    (size_t)elems * each);
}

enum status step_copy_inputs(struct step *s, const struct batch *batch, int64_t first,
                             struct pass *p)
{
    int64_t t = p->t, n = p->b * t, whole = s->core.config.seq_tokens;
    const int32_t *first_key = batch->host.first_key;
    ASSERTF(!first_key || s->in.first_key.data, "a batch of %lld samples has first keys",
            (long long)batch->samples);
    TRY(copy_in(s, s->in.tokens, batch->host.tokens, first * t, n));
    if (first_key)
        TRY(copy_in(s, s->in.first_key, first_key, first * whole, p->b * whole));
    else
        p->first_key = (struct tensor){0};
    if (batch->positions)
        TRY(copy_in(s, s->in.positions, batch->positions, first * t, n));
    else
        p->positions = (struct tensor){0};
    if (batch->task == FEED_TASK_LM)
        return copy_in(s, s->in.targets, batch->host.targets, first * t, n);
    if (batch->host.mask)
        TRY(copy_in(s, s->in.mask, batch->host.mask, first * whole, p->b * whole));
    else
        p->mask = (struct tensor){0};
    TRY(copy_in(s, s->in.starts, batch->host.starts, first, p->b));
    return copy_in(s, s->in.ends, batch->host.ends, first, p->b);
}

enum status step_copy_losses(struct step *s, const struct pass *p, int64_t first)
{
    int64_t each = step_sample_losses(&s->core);
    return dev_copy(s->core.stream, s->losses_host + first * each, s->losses.data,
                    (size_t)(p->b * each) * sizeof(float));
}

const float *step_losses(const struct step *s) { return s->losses_host; }

/* ---- forward ---- */

enum status step_forward(struct step_core *s, const struct pass *p)
{
    if (s->pipe)
        return step_pipe_run_forward(s, p);
    TRY(store_unshard(s->store, 0, 1));
    TRY(s->model->embed_fwd(p));
    for (int block = 0; block < p->dims->layers; block++) {
        TRY(store_unshard(s->store, block + 1, 1));
        TRY(s->model->block_fwd(p, block));
        step_heartbeat(s);
    }
    return ST_OK;
}

/* The head reads the last unit and the embedding. */
enum status step_unshard_head(struct step_core *s)
{
    const struct param_table *model = s->frozen.table.params_n > 0 ? &s->frozen.table : &s->table;
    TRY(store_unshard(s->store, model->units_n - 1, 0));
    return model->param[0].unit == 0 ? store_unshard(s->store, 0, 0) : ST_OK;
}

enum status step_micro_fwd(struct step *s, struct pass *p, const struct step_micro *m)
{
    step_pass_begin(s, m, 0, p);
    TRY(step_forward(&s->core, p));
    if (p->accumulate)
        return ST_OK;
    return step_zero_added(&s->core, p, m->is_last && store_embed_is_reducing(s->core.store));
}

/* ---- gradients of a unit ---- */

enum status step_zero_added(struct step_core *s, const struct pass *p, bool skips_embed)
{
    for (int i = skips_embed ? 1 : 0; i < s->table.params_n; i++) {
        const struct param *row = &s->table.param[i];
        if (row->grad_is_added && !step_pipe_ends_lacks(s, i))
            TRY(dev_fill(s->stream, tensor_at(p->grads, p->grad_table->param[i].offset).data, 0,
                         (size_t)row->elems * sizeof(float)));
    }
    return ST_OK;
}

enum status step_write_fault(struct step *s, const struct pass *p, int unit, enum step_fault fault)
{
    const struct param_table *table = &s->core.table;
    const float value = fault == STEP_FAULT_NAN ? NAN : (float)(FAULT_NORM * step_loss_factor(s));
    int row = 1;
    while (row + 1 < table->params_n && table->param[row + 1].unit == 0)
        row++;
    if (fault == STEP_FAULT_NONE || table->param[row].unit != unit)
        return ST_OK;
    return dev_copy(s->core.stream, tensor_at(p->grads, p->grad_table->param[row].offset).data,
                    &value, sizeof value);
}

enum status step_unit_reduce(struct step *s, int unit)
{
    TRY(store_post_backward(s->core.store, unit));
    for (int i = 0; i < s->features_n; i++)
        if (s->feature[i].hooks->unit_done)
            TRY(s->feature[i].hooks->unit_done(s->feature[i].self, unit));
    return ST_OK;
}

enum status step_unit_bwd(struct step *s, const struct step_micro *m, int unit)
{
    struct step_core *c = &s->core;
    for (int i = 0; i < s->features_n; i++)
        if (s->feature[i].hooks->unit_bwd)
            TRY(s->feature[i].hooks->unit_bwd(s->feature[i].self, m, unit));
    if (m->is_check || !m->is_last || (c->pipe && unit == 0))
        return ST_OK;
    if (c->config.shards == 0)
        TRY(step_mesh_sum_partial(c, m->first, unit));
    return step_unit_reduce(s, unit);
}

/* ---- head and backward ---- */

static enum status run_head(struct step *s, struct pass *p, const struct step_micro *m,
                            struct step_result *r)
{
    const int unit = s->core.table.units_n - 1;
    step_pass_scale(s, p);
    TRY(step_unshard_head(&s->core));
    TRY(store_prepare_grad(s->core.store, unit));
    p->embedding_grad_ready = m->is_last ? store_embedding_grad_ready : NULL;
    p->embedding_grad_ready_arg = s->core.store;
    step_lap(s, &r->forward_ms);
    TRY(s->core.model->head(p));
    step_lap(s, &r->head_ms);
    TRY(step_unit_bwd(s, m, unit));
    step_lap(s, &r->norm_ms);
    return ST_OK;
}

/* end_unit — Ends the backward pass of a unit. p: the pass of that unit. */
static enum status end_unit(struct step *s, const struct pass *p, const struct step_micro *m,
                            int unit, struct step_result *r)
{
    if (m->is_last)
        TRY(step_write_fault(s, p, unit, m->fault));
    step_lap(s, &r->backward_ms);
    TRY(step_unit_bwd(s, m, unit));
    step_lap(s, &r->norm_ms);
    return ST_OK;
}

enum status step_micro_bwd(struct step *s, struct pass *p, const struct step_micro *m,
                           struct step_result *r)
{
    struct store *store = s->core.store;
    TRY(run_head(s, p, m, r));
    for (int unit = (int)p->dims->layers; unit >= 1; unit--) {
        TRY(store_unshard(store, unit, -1));
        TRY(store_prepare_grad(store, unit));
        TRY(s->core.model->block_bwd(p, unit - 1));
        TRY(end_unit(s, p, m, unit, r));
        step_heartbeat(&s->core);
    }
    struct pass embed = *p;
    if (m->is_last)
        TRY(store_sparse_embed_pass(store, p, &embed));
    TRY(s->core.model->embed_bwd(&embed));
    return end_unit(s, &embed, m, 0, r);
}
