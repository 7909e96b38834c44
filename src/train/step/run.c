/* step_run — one update (step.h).
 *
 * - The samples are read first: the divisor of the loss counts the targets of the whole global
 *   batch (batch.c). Ranks add up their counts during the first forward pass.
 * - Each micro-batch runs forward through the units, through the head (which does both directions),
 *   and back. The first one writes gradients, the others add to them. Only gradients that no matrix
 *   product writes (param.h: grad_is_added) are zeroed.
 * - In the last micro-batch each unit's gradient goes to the store right after its backward. The
 *   store reduces it over the ranks while the next unit computes, and adds up the squares for the
 *   norm.
 * - Losses are copied to the host one by one and summed there in the order of samples, so the sum
 *   does not depend on how the batch is cut.
 * - The host reads loss and norm before it starts the optimiser, and decides on spikes. Only then
 *   does it wait for the device (compression also waits before each bucket). With one GPU, and with
 *   several over NCCL, it does not wait even there (step/async.c), unless SPIKE is set.
 * - One factor (grad_scale) clips gradients and divides them by the loss scale. */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/assert.h"
#include "base/rand.h"
#include "base/text.h"
#include "kernels/grad_scale.h" /* grad_scale_of */
#include "train/step/inside.h"
#include "train/step/pipe.h"
#include "train/feature/step_update_sums.h"

#define FAULT_NORM 1e6

/* lap — adds the time since the last lap to *ms. On a GPU this is only the time of launching. */
static void lap(struct step *s, double *ms)
{
    int64_t now = clock_ns();
    *ms += (double)(now - s->lap_ns) * 1e-6;
    s->lap_ns = now;
}

void step_run_lap(struct step *s, double *ms) { lap(s, ms); }

static enum status zero_added(struct step *s, const struct pass *p)
{
    for (int i = 0; i < s->table.params_n; i++) {
        const struct param *row = &s->table.param[i];
        if (row->grad_is_added && !step_pipe_ends_lacks(s, i))
            TRY(dev_fill(s->stream, tensor_at(p->grads, p->grad_table->param[i].offset).data, 0,
                         (size_t)row->elems * sizeof(float)));
    }
    return ST_OK;
}

/* write_fault — after the backward pass of a unit: writes that to one gradient that no rank has
 * begun to send. That is the last tensor of unit 0, whose gradient comes last; where unit 0 has one
 * tensor, which the head began to send, the first of unit 1. p: the pass of that unit. */
static enum status write_fault(struct step *s, const struct pass *p, int unit,
                               enum step_fault fault)
{
    /* FAULT=nan, and FAULT=spike: with the loss scale it makes a norm of a million. */
    double factor = s->loss_scale.factor > 0 ? s->loss_scale.factor : 1;
    const float value = fault == STEP_FAULT_NAN ? NAN : (float)(FAULT_NORM * factor);
    int row = 1;
    while (row + 1 < s->table.params_n && s->table.param[row + 1].unit == 0)
        row++;
    if (s->table.param[row].unit != unit)
        return ST_OK;
    return dev_copy(s->stream, tensor_at(p->grads, p->grad_table->param[row].offset).data, &value,
                    sizeof value);
}

enum status step_run_zero_added(struct step *s, const struct pass *p) { return zero_added(s, p); }

enum status step_run_write_fault(struct step *s, int unit, enum step_fault fault)
{
    struct pass p = {0};
    store_bind(s->store, &p);
    return write_fault(s, &p, unit, fault);
}

/* ---- counts ---- */

enum { SUM_TARGETS, SUM_STARTS, SUM_ENDS, SUM_REFUSED, SUM_CHANGED };
enum { SUM_N = SUM_CHANGED + STEP_UPDATE_SUMS_TOLD };
_Static_assert(SUM_N == STEP_COUNTS && SUM_N <= STEP_SUMS, "all sums have room");

static enum status counts_begin(struct step *s, const struct batch *batch, enum status checked,
                                struct comm_ticket *ticket)
{
    struct batch_counts counts = {0};
    if (s->counts_targets)
        batch_count(batch, &counts);
    s->sums[SUM_TARGETS] = (double)counts.targets;
    s->sums[SUM_STARTS] = (double)counts.starts;
    s->sums[SUM_ENDS] = (double)counts.ends;
    s->sums[SUM_REFUSED] = checked != ST_OK;
    step_update_sums_tell(s, s->sums + SUM_CHANGED);
    return store_all_reduce_begin(s->store, s->sums, SUM_N, ticket);
}

static enum status counts_end(struct step *s, struct comm_ticket ticket)
{
    TRY(store_wait(s->store, ticket));
    TRY(step_update_sums_heed(s, s->sums + SUM_CHANGED));
    if (s->sums[SUM_REFUSED] > 0)
        return FAIL(ST_PEER, "another rank refused its samples; see its log");
    struct batch_counts counts = {.targets = (int64_t)s->sums[SUM_TARGETS],
                                  .starts = (int64_t)s->sums[SUM_STARTS],
                                  .ends = (int64_t)s->sums[SUM_ENDS]};
    batch_scales(step_task(s), &counts, &s->scale, &s->scale_end);
    return ST_OK;
}

/* ---- inputs to the device, losses to host memory ---- */

static enum status copy_in(struct step *s, struct tensor to, const void *from, int64_t first,
                           int64_t elems)
{
    size_t each = dtype_bytes(to.dtype);
    return dev_copy(s->stream, to.data, (const char *)from + (size_t)first * each,
                    (size_t)elems * each);
}

enum status step_run_copy_inputs(struct step *s, const struct batch *batch, int64_t first,
                                 struct pass *p)
{
    int64_t t = p->t, n = p->b * t, whole = s->config.seq_tokens;
    const int32_t *first_key = batch->host.first_key;
    ASSERTF(!first_key || s->first_key.data, "a batch of %lld samples has first keys",
            (long long)batch->samples);
    TRY(copy_in(s, s->tokens, batch->host.tokens, first * t, n));
    if (first_key)
        TRY(copy_in(s, s->first_key, first_key, first * whole, p->b * whole));
    else
        p->first_key = (struct tensor){0};
    if (batch->task == FEED_TASK_LM)
        return copy_in(s, s->targets, batch->host.targets, first * t, n);
    if (batch->host.mask)
        TRY(copy_in(s, s->mask, batch->host.mask, first * whole, p->b * whole));
    else
        p->mask = (struct tensor){0};
    TRY(copy_in(s, s->starts, batch->host.starts, first, p->b));
    return copy_in(s, s->ends, batch->host.ends, first, p->b);
}

enum status step_run_copy_losses(struct step *s, const struct pass *p, int64_t first)
{
    int64_t each = step_sample_losses(s);
    return dev_copy(s->stream, s->losses_host + first * each, s->losses.data,
                    (size_t)(p->b * each) * sizeof(float));
}

/* ---- gradients ---- */

enum status step_run_unit_done(const struct step *s, int unit)
{
    return s->config.unit_done ? s->config.unit_done(s->config.unit_done_arg, unit) : ST_OK;
}

/* end_unit — a micro-batch's gradients of a unit are complete; after the last one, this rank's. */
static enum status end_unit(struct step *s, const struct step_micro *m, int unit)
{
    TRY(step_shard_check_unit(s, m, unit));
    if (m->is_check)
        return ST_OK;
    TRY(step_shards_add(s, m->first, unit));
    if (!m->is_last)
        return ST_OK;
    if (s->config.shards == 0)
        TRY(step_mesh_sum_partial(s, m->first, unit));
    TRY(store_post_backward(s->store, unit));
    return step_run_unit_done(s, unit);
}

static enum status backward(struct step *s, const struct pass *p, const struct step_micro *m,
                            struct step_result *r)
{
    for (int unit = (int)p->dims->layers; unit >= 1; unit--) {
        TRY(store_unshard(s->store, unit, -1));
        TRY(store_prepare_grad(s->store, unit));
        TRY(s->model->block_bwd(p, unit - 1));
        if (m->is_last && m->fault != STEP_FAULT_NONE)
            TRY(write_fault(s, p, unit, m->fault));
        lap(s, &r->backward_ms);
        TRY(end_unit(s, m, unit));
        lap(s, &r->norm_ms);
        step_heartbeat(s);
    }
    struct pass embed = *p;
    if (m->is_last)
        TRY(store_sparse_embed_pass(s->store, p, &embed));
    TRY(s->model->embed_bwd(&embed));
    if (m->is_last && m->fault != STEP_FAULT_NONE)
        TRY(write_fault(s, &embed, 0, m->fault));
    lap(s, &r->backward_ms);
    TRY(end_unit(s, m, 0));
    lap(s, &r->norm_ms);
    return ST_OK;
}

static enum status head(struct step *s, struct pass *p, const struct step_micro *m,
                        const struct comm_ticket *counts, struct step_result *r)
{
    double factor = s->loss_scale.factor > 0 ? s->loss_scale.factor : 1;
    if (m->first == 0 && counts)
        TRY(counts_end(s, *counts));
    p->scale = (float)(s->scale * factor);
    p->scale_end = (float)(s->scale_end * factor);
    TRY(step_unshard_head(s));
    TRY(store_prepare_grad(s->store, s->table.units_n - 1));
    p->embedding_grad_ready = m->is_last ? store_embedding_grad_ready : NULL;
    p->embedding_grad_ready_arg = s->store;
    lap(s, &r->forward_ms);
    TRY(s->model->head(p));
    lap(s, &r->head_ms);
    return ST_OK;
}

static enum status micro(struct step *s, struct pass *p, const struct step_micro *m,
                         const struct comm_ticket *counts, struct step_result *r)
{
    step_shard_trace_pass(s, m, 0, p);
    TRY(step_forward(s, p));
    if (!p->accumulate)
        TRY(zero_added(
            s,
            p)); /* here no update is deferred any more; it would read the last step's gradients */
    TRY(head(s, p, m, counts, r));
    TRY(end_unit(s, m, s->table.units_n - 1));
    lap(s, &r->norm_ms);
    return backward(s, p, m, r);
}

enum status step_run_micro(struct step *s, struct pass *p, const struct step_micro *m,
                           struct step_result *r)
{
    return micro(s, p, m, NULL, r);
}

uint64_t step_run_dropout_seed(const struct step *s, int64_t step_i)
{
    return rand_u64(s->config.seed, RAND_STREAM(DROPOUT, UINT32_MAX), (uint64_t)step_i);
}

struct pass step_run_pass(const struct step *s, int64_t sample, int64_t step_i)
{
    struct pass p = step_pass(s, s->config.batch_samples);
    p.want_grad = true;
    p.dropout = s->config.dropout;
    p.dropout_seed = step_run_dropout_seed(s, step_i);
    p.sample_first = sample;
    return p;
}

/* passes — forward and backward of all micro-batches. */
static enum status passes(struct step *s, const struct batch *batch, int64_t step_i,
                          enum step_fault fault, const struct comm_ticket *counts,
                          struct step_result *r)
{
    const struct step_config *c = &s->config;
    TRY(step_shards_idle(s));
    for (int64_t first = 0; first < batch->samples; first += c->batch_samples) {
        const struct step_micro m = {first, first + c->batch_samples == batch->samples, fault,
                                     false};
        struct pass p = step_run_pass(s, step_shards_first(s, batch->samples) + first, step_i);
        p.accumulate = first > 0;
        step_shards_bind(s, first, &p);
        if (m.is_last)
            TRY(store_grad_sync_begin(s->store, batch->host.tokens + first * p.t, p.b * p.t));
        TRY(step_run_copy_inputs(s, batch, first, &p));
        TRY(micro(s, &p, &m, counts, r));
        TRY(s->is_async ? step_async_losses(s, &p, first, m.is_last)
                        : step_run_copy_losses(s, &p, first));
    }
    return ST_OK;
}

void step_run_set_vote(struct step_result *r, const double *votes)
{
    for (int vote = 0; vote < STEP_VOTES; vote++)
        r->vote = votes[vote] > 0 ? vote : r->vote;
}

/* gradients — counts NULL: they are known from an earlier run of this step. */
static enum status gradients(struct step *s, const struct batch *batch, int64_t step_i,
                             enum step_fault fault, const struct comm_ticket *counts,
                             struct step_result *r)
{
    double norm_sq;
    /* before stages wait for each other: a rank may refuse its samples. The shard of another rank
     * has the same scale */
    if ((s->pipe || step_shard_check_is_due(s)) && counts) {
        TRY(counts_end(s, *counts));
        counts = NULL;
    }
    TRY(step_shard_check_begin(s, step_i, r));
    TRY(s->pipe ? step_pipe_run(s, batch, step_i, fault, r)
                : passes(s, batch, step_i, fault, counts, r));
    if (s->is_async)
        return step_async(s, batch, r);
    TRY(store_grad_norm_begin(s->store));
    TRY(dev_sync(s->stream));
    /* The square of the norm, the loss and the highest vote of all ranks. */
    if (s->config.shards > 0) {
        TRY(step_shards_loss(s, batch, &norm_sq, r));
    } else {
        double loss = batch_loss(batch->task, s->losses_host,
                                 batch->samples * step_sample_losses(s), s->scale, s->scale_end);
        double extra[1 + STEP_VOTES] = {s->counts_losses ? loss : 0};
        extra[1 + s->vote] = 1;
        TRY(store_grad_norm_end(s->store, &norm_sq, extra, 1 + STEP_VOTES));
        r->loss = extra[0];
        step_run_set_vote(r, extra + 1);
    }
    r->grad_norm = sqrt(norm_sq) / (s->loss_scale.factor > 0 ? s->loss_scale.factor : 1);
    lap(s, &r->norm_ms);
    double scale = grad_scale_of(norm_sq, step_grad_clip(s), s->loss_scale.factor);
    return dev_copy(s->stream, s->grad_scale.data, &scale, sizeof scale);
}

/* scaled_gradients — with a loss scale, an infinite gradient of a finite loss may only be too large
 * for the dtype: halves the scale and runs again. All ranks have the same loss and norm, so all of
 * them do. */
static enum status scaled_gradients(struct step *s, const struct batch *batch, int64_t step_i,
                                    enum step_fault fault, const struct comm_ticket *counts,
                                    struct step_result *r)
{
    TRY(gradients(s, batch, step_i, fault, counts, r));
    while (!isfinite(r->grad_norm) && isfinite(r->loss) && s->loss_scale.factor > 1) {
        s->loss_scale = (struct step_loss_scale){s->loss_scale.factor / 2, 0};
        LOG_INFO("step %lld: gradients overflow; the step runs again with loss scale %g",
                 (long long)step_i + 1, s->loss_scale.factor);
        r->retries++;
        TRY(gradients(s, batch, step_i, fault, NULL, r));
    }
    return ST_OK;
}

/* ---- the update ---- */

/* update_rest — of a bucket what no hidden matrix has, by AdamW. Its second moments lie together,
 * the others beside hidden matrices. */
static enum status update_rest(struct step *s, const struct store_local_shard *a, int64_t spans_n)
{
    int64_t v_at = 0;
    for (int64_t i = 0; i < spans_n; i++) {
        struct optim_span span = s->cut[i];
        struct optim_arrays arrays = {tensor_at(a->p, span.offset),
                                      tensor_at(a->g, span.offset),
                                      tensor_at(a->m, span.offset),
                                      tensor_at(a->v, v_at),
                                      {0},
                                      step_update_sums_of(s)};
        span.offset = 0;
        v_at += span.elems;
        TRY(optim_update(&s->config.optim, dev_op(s->config.dev), s->stream, &arrays, &span, 1,
                         s->grad_scale, s->lr, s->step_i));
    }
    return ST_OK;
}

static enum status update_hidden(struct step *s, int bucket)
{
    const struct optim_config *c = &s->config.optim;
    const struct muon muon = {.op = dev_op(s->config.dev),
                              .stream = s->stream,
                              .table = &s->table,
                              .room = &s->muon,
                              .grad_scale = s->grad_scale,
                              .momentum = c->momentum,
                              .weight_decay = c->weight_decay,
                              .lr = s->lr,
                              .step = s->step_i + 1,
                              .heartbeat = s->config.heartbeat,
                              .heartbeat_arg = s->config.heartbeat_arg};
    return muon_update(&muon, s->store, bucket);
}

enum status step_run_update(void *arg, int bucket)
{
    struct step *s = arg;
    const struct step_config *c = &s->config;
    struct store_local_shard a = store_local_shard(s->store, bucket);
    step_update_sums_begin(s);
    struct optim_arrays arrays = {a.p, a.g, a.m, a.v, {0}, step_update_sums_of(s)};
    if (c->optim.kind == OPTIM_KIND_ADAMW)
        arrays.copy = store_params_update_copy(s->store, bucket);
    int64_t spans_n = optim_cut(s->spans, s->spans_n, a.first, a.elems, s->cut);
    if (c->optim.kind == OPTIM_KIND_MUON) {
        TRY(update_rest(s, &a, spans_n));
        step_update_sums_end(s, bucket);
        return update_hidden(s, bucket);
    }
    TRY(optim_update(&c->optim, dev_op(c->dev), s->stream, &arrays, s->cut, spans_n, s->grad_scale,
                     s->lr, s->step_i));
    step_update_sums_end(s, bucket);
    return ST_OK;
}

double step_run_add_waits(struct step *s, struct step_result *r)
{
    struct comm_times times;
    comm_times(s->local.world ? s->local.world : s->config.comm, &times);
    r->comm_ms += times.busy_ms;
    r->wait_ms += times.wait_ms;
    r->sent_bytes += times.bytes_sent;
    return times.wait_ms;
}

static enum status update(struct step *s, double lr, int64_t step_i, struct step_result *r)
{
    s->lr = lr;
    s->step_i = step_i - s->spikes.skipped_n;
    (void)step_run_add_waits(s, r);
    TRY(store_update(s->store));
    r->update_wait_ms = step_run_add_waits(s, r);
    return dev_flush(s->stream); /* the device starts while the host reads the next samples */
}

/* ---- spikes ---- */

/* fail_spike — SPIKE=stop, or more spikes than may be skipped. */
static enum status fail_spike(const struct step *s, int64_t step_i, int64_t sample_first,
                              const struct step_result *r)
{
    const struct spike_config *c = &s->config.spike;
    const struct spike_verdict *v = &r->spike;
    const int64_t samples = step_samples_at(&s->config, step_i) * s->local.replicas;
    char remedy[96] = ", or set SPIKE=skip to leave out such steps";
    if (c->mode == SPIKE_MODE_SKIP)
        text_format(remedy, sizeof remedy, "; SPIKE=skip leaves out %d of %d steps at most",
                    SPIKE_LIMIT, SPIKE_WINDOW);
    return FAIL(
        ST_SPIKE,
        "step %lld: %s %g is %.1f deviations above the %g that the last %d steps let expect "
        "(SPIKE_SIGMA=%g); the parameters keep their values; look at samples %lld to %lld, "
        "lower LR or raise SPIKE_SIGMA%s",
        (long long)step_i + 1, v->cause == SPIKE_CAUSE_LOSS ? "loss" : "gradient norm",
        v->cause == SPIKE_CAUSE_LOSS ? r->loss : r->grad_norm, v->sigmas, v->expected,
        s->spikes.history.n, c->sigma, (long long)sample_first,
        (long long)(sample_first + samples - 1), remedy);
}

/* check_numbers — whether the update may be made. Loss and norm are known, and nothing of the state
 * has changed yet. */
static enum status check_numbers(struct step *s, int64_t step_i, int64_t sample_first,
                                 struct step_result *r)
{
    struct step_spikes *spikes = &s->spikes;
    bool is_finite = isfinite(r->loss) && isfinite(r->grad_norm);
    if (s->config.spike.mode != SPIKE_MODE_OFF)
        r->spike = spike_check(&s->config.spike, &spikes->history, r->loss, r->grad_norm);
    spikes->skipped_n += r->spike.is_skipped;
    if (r->spike.is_skipped)
        return ST_OK;
    if (!is_finite) {
        char before[96] = "";
        if (r->spike.skipped_n > 1)
            text_format(before, sizeof before, ", after %d skipped steps", r->spike.skipped_n - 1);
        return FAIL(ST_NOT_FINITE,
                    "step %lld: loss %g, gradient norm %g%s; the parameters keep their values "
                    "(samples from %lld); lower LR, or check the data",
                    (long long)step_i + 1, r->loss, r->grad_norm, before, (long long)sample_first);
    }
    return r->spike.cause == SPIKE_CAUSE_NONE ? ST_OK : fail_spike(s, step_i, sample_first, r);
}

/* ---- the step ---- */

static enum status run(struct step *s, const struct batch *batch, int64_t step_i,
                       int64_t sample_first, double lr, enum step_fault fault,
                       struct step_result *r)
{
    const struct step_loss_scale scale = s->loss_scale;
    struct comm_ticket counts;
    enum status checked = batch_check(batch, s->config.dims.vocab);
    if (checked != ST_OK) {
        struct status_saved saved;
        status_save(&saved);
        /* The other ranks need not wait for their deadline. */
        if (counts_begin(s, batch, checked, &counts) == ST_OK)
            (void)store_wait(s->store, counts);
        status_restore(&saved);
        return checked;
    }
    if (s->is_async)
        TRY(step_async_begin(s, lr, step_i));
    TRY(counts_begin(s, batch, checked, &counts));
    TRY(scaled_gradients(s, step_context_batch(s, batch), step_i, fault, &counts, r));
    TRY(step_shard_check_end(s, r));
    TRY(step_local_exchange(s, r));
    s->lap_ns = clock_ns();
    TRY(check_numbers(s, step_i, sample_first, r));
    if (r->spike.cause != SPIKE_CAUSE_NONE) {
        s->loss_scale = scale;
        return ST_OK;
    }
    if (!s->is_async)
        TRY(update(s, lr, step_i, r));
    /* Many steps without an overflow let the loss scale grow. */
    const double factor = s->loss_scale.factor;
    if (factor != 0 && ++s->loss_scale.steps >= STEP_LOSS_SCALE_GROWTH_STEPS)
        s->loss_scale =
            (struct step_loss_scale){factor < STEP_LOSS_SCALE_MAX ? 2 * factor : factor, 0};
    lap(s, &r->update_ms);
    return ST_OK;
}

enum status step_run_batch(struct step *s, const struct batch *batch, int64_t step_i,
                           int64_t sample_first, double lr, enum step_fault fault,
                           struct step_result *out)
{
    ASSERT(!s->config.is_eval);
    ASSERTF(batch->samples > 0 && batch->samples <= s->samples &&
                batch->samples % s->config.batch_samples == 0 &&
                batch->seq_tokens == s->config.seq_tokens && batch->task == step_task(s),
            "samples %lld seq_tokens %lld", (long long)batch->samples,
            (long long)batch->seq_tokens);
    struct step_result r = {0};
    struct step_result since = {0}; /* the last step; its times are not this step's */
    (void)step_run_add_waits(s, &since);
    r.sent_bytes = since.sent_bytes;
    (void)tensor_axis_blocked_ms(&s->tensor);
    (void)tensor_axis_blocked_ms(&s->context);
    int64_t start = s->lap_ns = clock_ns();
    TRY(run(s, batch, step_i, sample_first, lr, fault, &r));
    (void)step_run_add_waits(s, &r);
    r.compute_ms = (double)(s->lap_ns - start) * 1e-6 - r.wait_ms;
    r.tensor_ms = tensor_axis_blocked_ms(&s->tensor);
    r.context_ms = tensor_axis_blocked_ms(&s->context);
    TRY(dev_times_step(s->stream));
    step_heartbeat(s);
    *out = r;
    return ST_OK;
}

void step_run_forget_sent(struct step *s) { (void)step_run_add_waits(s, &(struct step_result){0}); }

void step_run_set_window(const struct step *s, struct batch *batch, int64_t step_i)
{
    const struct warmup *window = &s->config.window_warmup;
    if (step_i < window->steps)
        batch_set_window(batch, step_warmup_at(window, s->config.seq_tokens, 1, step_i));
}

enum status step_run(struct step *s, const struct feed *feed, int64_t step_i, int64_t sample_first,
                     double lr, enum step_fault fault, struct step_result *out)
{
    struct batch batch = s->batch;
    batch.samples = step_shards_samples(s, step_samples_at(&s->config, step_i));
    TRY(feed_get(feed, sample_first + step_shards_first(s, batch.samples), batch.samples,
                 &batch.host));
    step_run_set_window(s, &batch, step_i);
    step_shard_check_set_feed(s, feed, sample_first);
    enum status st = step_run_batch(s, &batch, step_i, sample_first, lr, fault, out);
    step_shard_check_clear(s);
    return st;
}
