/* step_run — the sequence of a step (step.h). Read run_phases() first.
 *
 * - The samples are read first: the divisor of the loss counts the targets of the whole global
 *   batch (batch.c). Ranks add up their counts during the first forward pass.
 * - A micro-batch goes forward and back (step/pass.c); a pipeline has several in flight
 *   (step/pipe_run.c). Gradients are reduced during the passes.
 * - Loss and norm of all ranks (step/end.c) decide on the update. The host waits for them first.
 *   With one GPU, and with several over NCCL, the device decides by itself, unless SPIKE is set.
 * - One factor (grad_scale) clips gradients and divides them by the loss scale. It is computed in
 *   step/end.c, and the optimiser multiplies by it (step/update.c).
 * - Optional features have hooks in these phases (step/feature.h). */
#include <math.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/text.h"
#include "train/step/inside.h"
#include "train/step/pipe.h"
#include "train/step/lr_schedule.h"

static enum status call_hooks(struct step *s, enum step_phase phase, struct step_now *now)
{
    for (int i = 0; i < s->features_n && now->decision != STEP_DECISION_REPEAT; i++)
        if (s->feature[i].hooks->phase[phase])
            TRY(s->feature[i].hooks->phase[phase](s->feature[i].self, now));
    return ST_OK;
}

/* ---- begin ---- */

enum { SUM_TARGETS, SUM_STARTS, SUM_ENDS, SUM_REFUSED, SUM_CHANGED };
_Static_assert(SUM_CHANGED + STEP_CHANGED == STEP_COUNTS && STEP_COUNTS <= STEP_SUMS,
               "all sums have room");

static enum status counts_begin(struct step *s, const struct batch *batch, enum status checked,
                                struct step_now *now)
{
    struct batch_counts counts = {0};
    if (s->core.counts_targets)
        batch_count(batch, &counts);
    for (int i = 0; i < STEP_CHANGED; i++)
        s->sums[SUM_CHANGED + i] = 0;
    s->sums[SUM_TARGETS] = (double)counts.targets;
    s->sums[SUM_STARTS] = (double)counts.starts;
    s->sums[SUM_ENDS] = (double)counts.ends;
    s->sums[SUM_REFUSED] = checked != ST_OK;
    now->changed = s->sums + SUM_CHANGED;
    TRY(call_hooks(s, STEP_PHASE_BEGIN, now));
    return store_all_reduce_begin(s->core.store, s->sums, STEP_COUNTS, &now->counts);
}

static enum status counts_end(struct step *s, struct step_now *now)
{
    TRY(store_wait(s->core.store, now->counts));
    TRY(call_hooks(s, STEP_PHASE_COUNTED, now));
    if (s->sums[SUM_REFUSED] > 0)
        return FAIL(ST_PEER, "another rank refused its samples; see its log");
    struct batch_counts counts = {.targets = (int64_t)s->sums[SUM_TARGETS],
                                  .starts = (int64_t)s->sums[SUM_STARTS],
                                  .ends = (int64_t)s->sums[SUM_ENDS]};
    batch_scales(step_task(&s->core), &counts, &s->scale, &s->scale_end);
    now->r->targets = counts.targets;
    now->is_counted = true;
    return ST_OK;
}

static enum status begin_step(struct step *s, const struct batch *batch, struct step_now *now)
{
    enum status checked = batch_check(batch, s->core.config.dims.vocab);
    if (checked != ST_OK) {
        struct status_saved saved;
        status_save(&saved);
        /* The other ranks need not wait for their deadline. */
        if (counts_begin(s, batch, checked, now) == ST_OK)
            (void)store_wait(s->core.store, now->counts);
        status_restore(&saved);
        return checked;
    }
    if (s->async.is_on)
        TRY(step_async_begin(s, now->samples));
    TRY(counts_begin(s, batch, checked, now));
    now->batch = step_context_batch(&s->core, batch, &s->own);
    return ST_OK;
}

/* ---- forward and backward ---- */

/* begin_passes — Begins the passes. A rank may refuse its samples, so counts come before stages
 * wait for each other. */
static enum status begin_passes(struct step *s, struct step_now *now)
{
    now->decision = STEP_DECISION_UPDATE;
    if ((s->core.pipe || now->needs_counts) && !now->is_counted)
        TRY(counts_end(s, now));
    TRY(step_mesh_idle_passes(&s->core, now->samples));
    return call_hooks(s, STEP_PHASE_FORWARD, now);
}

static enum status run_forward(struct step *s, struct step_now *now, const struct step_micro *m,
                               struct pass *p)
{
    const int64_t sample = step_mesh_sample_first(&s->core, now->samples) + m->first;
    *p = step_pass_train(s, sample, now->step_i);
    p->accumulate = m->first > 0;
    if (m->is_last)
        TRY(store_grad_sync_begin(s->core.store, now->batch.host.tokens + m->first * p->t,
                                  p->b * p->t, !p->accumulate));
    TRY(step_copy_inputs(s, &now->batch, m->first, p));
    return step_micro_fwd(s, p, m);
}

static enum status run_backward(struct step *s, struct step_now *now, const struct step_micro *m,
                                struct pass *p)
{
    if (!now->is_counted)
        TRY(counts_end(s, now));
    TRY(step_micro_bwd(s, p, m, now->r));
    return s->async.is_on ? step_async_losses(s, p, m) : step_copy_losses(s, p, m->first);
}

/* ---- reduce, decide, update, report ---- */

static enum status reduce_grads(struct step *s, struct step_now *now)
{
    TRY(step_end(s, now));
    return call_hooks(s, STEP_PHASE_REDUCE, now);
}

/* decide_update — Fails if the update must not be made. The state has not changed yet. */
static enum status decide_update(struct step *s, struct step_now *now)
{
    const struct step_result *r = now->r;
    s->lap_ns = clock_ns();
    TRY(call_hooks(s, STEP_PHASE_DECIDE, now));
    if (now->decision == STEP_DECISION_SKIP || (isfinite(r->loss) && isfinite(r->grad_norm)))
        return ST_OK;
    char before[96] = "";
    if (r->spike.skipped_n > 1)
        text_format(before, sizeof before, ", after %d skipped steps", r->spike.skipped_n - 1);
    return FAIL(ST_NOT_FINITE,
                "step %lld: loss %g, gradient norm %g%s; the parameters keep their values "
                "(samples from %lld); lower LR, or check the data",
                (long long)now->step_i + 1, r->loss, r->grad_norm, before,
                (long long)now->sample_first);
}

static enum status apply_update(struct step *s, struct step_now *now)
{
    const bool is_skipped = now->decision == STEP_DECISION_SKIP;
    s->update.skipped_n += is_skipped;
    if (!is_skipped && !s->async.is_on) /* else the device has begun it */
        TRY(step_update(s, now));
    TRY(call_hooks(s, STEP_PHASE_END, now));
    if (!is_skipped)
        step_lap(s, &now->r->update_ms);
    return ST_OK;
}

static enum status report_times(struct step *s, int64_t begun_ns, struct step_result *r)
{
    (void)step_add_waits(&s->core, r);
    r->compute_ms = (double)(s->lap_ns - begun_ns) * 1e-6 - r->wait_ms;
    r->tensor_ms = tensor_axis_blocked_ms(&s->core.tensor);
    r->context_ms = tensor_axis_blocked_ms(&s->core.context);
    TRY(dev_times_step(s->core.stream));
    step_heartbeat(&s->core);
    return ST_OK;
}

/* ---- the step ---- */

double step_add_waits(const struct step_core *s, struct step_result *r)
{
    struct comm_times times;
    comm_times(step_world(s), &times);
    r->comm_ms += times.busy_ms;
    r->wait_ms += times.wait_ms;
    r->sent_bytes += times.bytes_sent;
    return times.wait_ms;
}

void step_run_forget_sent(struct step *s)
{
    (void)step_add_waits(&s->core, &(struct step_result){0});
}

/* forget_waits — Drops the times of work that ran since the last step: they are not this step's.
 * The bytes sent are. */
static void forget_waits(struct step *s, struct step_result *r)
{
    struct step_result since = {0};
    (void)step_add_waits(&s->core, &since);
    *r = (struct step_result){.sent_bytes = since.sent_bytes};
    (void)tensor_axis_blocked_ms(&s->core.tensor);
    (void)tensor_axis_blocked_ms(&s->core.context);
}

static enum status run_phases(struct step *s, const struct batch *batch, struct step_now *now)
{
    const int64_t each = s->core.config.batch_samples;
    forget_waits(s, now->r);
    const int64_t begun_ns = s->lap_ns = clock_ns();
    TRY(begin_step(s, batch, now));
    do {
        TRY(begin_passes(s, now));
        if (s->core.pipe)
            TRY(step_pipe_run(&s->core, now)); /* the same, in the order of its schedule */
        else
            for (int64_t first = 0; first < batch->samples; first += each) {
                const struct step_micro m = {first, first + each == batch->samples, now->fault,
                                             false};
                struct pass p;
                TRY(run_forward(s, now, &m, &p));
                TRY(run_backward(s, now, &m, &p));
            }
        TRY(reduce_grads(s, now));
    } while (now->decision == STEP_DECISION_REPEAT);
    TRY(decide_update(s, now));
    TRY(apply_update(s, now));
    return report_times(s, begun_ns, now->r);
}

/* run_checked — Checks the sizes of the batch, and runs the step. *out is set on success. */
static enum status run_checked(struct step *s, const struct batch *batch, struct step_now *now,
                               struct step_result *out)
{
    struct step_result r;
    ASSERT(!s->core.config.is_eval);
    ASSERTF(
        batch->samples > 0 && batch->samples <= s->core.samples &&
            batch->samples % s->core.config.batch_samples == 0 &&
            batch->seq_tokens == s->core.config.seq_tokens && batch->task == step_task(&s->core),
        "samples %lld seq_tokens %lld", (long long)batch->samples, (long long)batch->seq_tokens);
    now->r = &r;
    TRY(run_phases(s, batch, now));
    r.micro_batches = batch->samples / s->core.config.batch_samples;
    *out = r;
    return ST_OK;
}

enum status step_run_batch(struct step *s, const struct batch *batch, int64_t step_i,
                           int64_t sample_first, double lr, enum step_fault fault,
                           struct step_result *out)
{
    struct step_now now = {.step_i = step_i,
                           .sample_first = sample_first,
                           .samples = step_samples_at(&s->core.config, step_i),
                           .lr = lr,
                           .fault = fault};
    return run_checked(s, batch, &now, out);
}

enum status step_run(struct step *s, const struct feed *feed, int64_t step_i, int64_t sample_first,
                     double lr, enum step_fault fault, struct step_result *out)
{
    const struct step_config *c = &s->core.config;
    struct step_now now = {.feed = feed,
                           .step_i = step_i,
                           .sample_first = sample_first,
                           .samples = step_samples_at(c, step_i),
                           .lr = lr,
                           .fault = fault};
    struct batch batch = s->batch;
    batch.samples = step_mesh_samples(&s->core, step_mesh_data_rank(&s->core), now.samples);
    TRY(feed_get(feed, sample_first + step_mesh_sample_first(&s->core, now.samples), batch.samples,
                 &batch.host));
    step_set_reach(c, &batch, step_i);
    return run_checked(s, &batch, &now, out);
}
