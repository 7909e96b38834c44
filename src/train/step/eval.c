/* step_eval — the mean loss over many samples (step.h). Batches go to the data axis in turn, one
 * round at a time, and every sum is added up over all ranks. A rank without a batch in the last
 * round still walks the units, because other ranks may wait for its shards. */
#include <string.h>

#include "base/assert.h"
#include "train/step/inside.h"

/* Sums over all batches, before any scale is applied: they are divided once, at the end. */
enum { SUM_LOSS, SUM_LOSS_END, SUM_TARGETS, SUM_STARTS, SUM_ENDS, SUM_N };

/* losses_of — the losses of a batch's samples, to losses_host. */
static enum status losses_of(struct step *s, const struct batch *batch)
{
    struct pass p = step_pass(s, batch->samples);
    TRY(step_run_copy_inputs(s, batch, 0, &p));
    TRY(step_forward(s, &p));
    if (s->dims.part.lacks_head) /* the last stage has the losses */
        return dev_sync(s->stream);
    TRY(step_unshard_head(s));
    TRY(s->model->head(&p));
    TRY(step_run_copy_losses(s, &p, 0));
    return dev_sync(s->stream);
}

enum status step_eval_losses(struct step *s, const struct batch *batch, float *out)
{
    ASSERTF(
        s->config.is_eval && batch->task == FEED_TASK_LM && batch->samples > 0 &&
            batch->samples <= s->config.batch_samples && batch->seq_tokens == s->config.seq_tokens,
        "samples %lld seq_tokens %lld", (long long)batch->samples, (long long)batch->seq_tokens);
    TRY(batch_check(batch, s->config.dims.vocab));
    TRY(losses_of(s, batch));
    memcpy(out, s->losses_host, (size_t)(batch->samples * batch->seq_tokens) * sizeof *out);
    return comm_check(s->config.comm);
}

static enum status sum_up(struct step *s, int n)
{
    struct comm_ticket ticket;
    ASSERTF(n <= STEP_SUMS, "%d sums", n);
    if (s->local.world)
        return step_local_sum(s, s->sums, n);
    TRY(store_all_reduce_begin(s->store, s->sums, n, &ticket));
    return store_wait(s->store, ticket);
}

/* one_round — evaluates this rank's batch of a round that begins at sample round_first, of
 * all_n. */
static enum status one_round(struct step *s, const struct feed *feed, int64_t all_n,
                             int64_t round_first, double sums[SUM_N])
{
    const int64_t per_batch = s->config.batch_samples,
                  first = round_first + step_local_feed_rank(s) * per_batch;
    if (first >= all_n) {
        /* The all-gathers of a forward pass without the pass. */
        for (int unit = s->dims.part.lacks_embed ? 1 : 0; unit < s->table.units_n - 1; unit++)
            TRY(store_unshard(s->store, unit, 1));
        return s->dims.part.lacks_head ? ST_OK : step_unshard_head(s);
    }
    const int64_t samples = all_n - first < per_batch ? all_n - first : per_batch,
                  losses_n = samples * step_sample_losses(s);
    struct batch_counts counts = {0};
    s->batch.samples = samples;
    enum status st = feed_get(feed, first, samples, &s->batch.host);
    if (st == ST_OK)
        st = batch_check(&s->batch, s->config.dims.vocab);
    batch_count(&s->batch, &counts);
    if (st == ST_OK)
        st = losses_of(s, step_context_batch(s, &s->batch));
    s->batch.samples = s->samples;
    TRY(st);
    if (s->counts_losses) {
        sums[SUM_LOSS] += batch_loss(s->batch.task, s->losses_host, losses_n, 1, 0);
        sums[SUM_LOSS_END] += batch_loss(s->batch.task, s->losses_host, losses_n, 0, 1);
    }
    if (s->counts_targets) {
        sums[SUM_TARGETS] += (double)counts.targets;
        sums[SUM_STARTS] += (double)counts.starts;
        sums[SUM_ENDS] += (double)counts.ends;
    }
    return ST_OK;
}

enum status step_eval(struct step *s, const struct feed *feed, int64_t samples,
                      bool (*stop)(void *arg), void *arg, double *loss_out)
{
    double scale, scale_end, sums[SUM_N] = {0};
    int64_t per_round = s->config.batch_samples * step_local_feed_ranks(s);
    ASSERTF(samples > 0, "samples %lld", (long long)samples);
    for (int64_t first = 0; first < samples; first += per_round) {
        s->sums[0] = stop && stop(arg);
        TRY(sum_up(s, 1));
        if (s->sums[0] > 0) /* on any rank */
            return FAIL(ST_RETRY, "the evaluation was asked to stop after %lld of %lld samples",
                        (long long)first, (long long)samples);
        TRY(one_round(s, feed, samples, first, sums));
    }
    for (int i = 0; i < SUM_N; i++)
        s->sums[i] = sums[i];
    TRY(sum_up(s, SUM_N));
    struct batch_counts counts = {.targets = (int64_t)s->sums[SUM_TARGETS],
                                  .starts = (int64_t)s->sums[SUM_STARTS],
                                  .ends = (int64_t)s->sums[SUM_ENDS]};
    batch_scales(step_task(s), &counts, &scale, &scale_end);
    *loss_out = s->sums[SUM_LOSS] * scale + s->sums[SUM_LOSS_END] * scale_end;
    return ST_OK;
}
