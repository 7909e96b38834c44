/* step_eval — evaluation without training (step.h): mean loss and accuracy over many samples, and
 * logits.
 *
 * Batches go to the data axis in turn, one round at a time, and every sum is added up over all
 * ranks. A rank without a batch in the last round still walks the units, because other ranks may
 * wait for its shards. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "train/step/inside.h"
#include "train/step/lr_schedule.h"
#include "train/step/pipe.h"

/* Sums over all batches, before any scale is applied: they are divided once, at the end. */
enum { SUM_LOSS, SUM_LOSS_END, SUM_TARGETS, SUM_STARTS, SUM_ENDS, SUM_HITS, SUM_N };

/* losses_of — Computes the losses of a batch in losses_host; if wanted, also its hits. */
static enum status losses_of(struct step *s, const struct batch *batch, bool wants_hits)
{
    struct pass p = step_pass(s, batch->samples);
    if (wants_hits)
        p.hits = s->in.hits;
    TRY(step_copy_inputs(s, batch, 0, &p));
    TRY(step_forward(&s->core, &p));
    if (s->core.dims.shard.lacks_head) /* the last stage has the losses */
        return dev_sync(s->core.stream);
    TRY(step_unshard_head(&s->core));
    TRY(s->core.model->head(&p));
    TRY(step_copy_losses(s, &p, 0));
    return dev_sync(s->core.stream);
}

enum status step_eval_losses(struct step *s, const struct batch *batch, float *out)
{
    ASSERTF(s->core.config.is_eval && batch->task == FEED_TASK_LM && batch->samples > 0 &&
                batch->samples <= s->core.config.batch_samples &&
                batch->seq_tokens == s->core.config.seq_tokens,
            "samples %lld seq_tokens %lld", (long long)batch->samples,
            (long long)batch->seq_tokens);
    TRY(batch_check(batch, s->core.config.dims.vocab));
    TRY(losses_of(s, batch, false));
    memcpy(out, s->losses_host, (size_t)(batch->samples * batch->seq_tokens) * sizeof *out);
    return comm_check(s->core.config.comm);
}

static enum status sum_up(struct step *s, int n)
{
    struct comm_ticket ticket;
    ASSERTF(n <= STEP_SUMS, "%d sums", n);
    if (s->core.local.world)
        return step_local_sum(&s->core, s->sums, n);
    TRY(store_all_reduce_begin(s->core.store, s->sums, n, &ticket));
    return store_wait(s->core.store, ticket);
}

/* one_round — Evaluates this rank's batch of a round that begins at sample round_first of all_n. */
static enum status one_round(struct step *s, const struct feed *feed, int64_t all_n,
                             int64_t round_first, double sums[SUM_N])
{
    const int64_t per_batch = s->core.config.batch_samples,
                  first = round_first + step_local_feed_rank(&s->core) * per_batch;
    if (first >= all_n) {
        /* Makes the all-gathers of a forward pass without the pass. */
        for (int unit = s->core.dims.shard.lacks_embed ? 1 : 0; unit < s->core.table.units_n - 1;
             unit++)
            TRY(store_unshard(s->core.store, unit, 1));
        return s->core.dims.shard.lacks_head ? ST_OK : step_unshard_head(&s->core);
    }
    const int64_t samples = all_n - first < per_batch ? all_n - first : per_batch,
                  losses_n = samples * step_sample_losses(&s->core);
    struct batch_counts counts = {0};
    s->batch.samples = samples;
    enum status st = feed_get(feed, first, samples, &s->batch.host);
    if (st == ST_OK)
        st = batch_check(&s->batch, s->core.config.dims.vocab);
    batch_count(&s->batch, &counts);
    step_set_reach(&s->core.config, &s->batch, INT64_MAX);
    if (st == ST_OK) {
        const struct batch own = step_context_batch(&s->core, &s->batch, &s->own);
        st = losses_of(s, &own, true);
    }
    s->batch.samples = s->core.samples;
    TRY(st);
    if (s->core.counts_losses) {
        sums[SUM_LOSS] += batch_loss(s->batch.task, s->losses_host, losses_n, 1, 0);
        sums[SUM_LOSS_END] += batch_loss(s->batch.task, s->losses_host, losses_n, 0, 1);
    }
    if (s->core.counts_targets) {
        sums[SUM_TARGETS] += (double)counts.targets;
        sums[SUM_STARTS] += (double)counts.starts;
        sums[SUM_ENDS] += (double)counts.ends;
    }
    if (s->core.dims.shard.lacks_head || s->batch.task != FEED_TASK_LM)
        return ST_OK;
    /* Each rank of the last stage has the hits of its own positions and its own part of the
     * vocabulary. */
    TRY(dev_copy(s->core.stream, s->losses_host, s->in.hits.data,
                 (size_t)losses_n * sizeof(float)));
    TRY(dev_sync(s->core.stream));
    sums[SUM_HITS] += batch_loss(FEED_TASK_LM, s->losses_host, losses_n, 1, 0);
    return ST_OK;
}

enum status step_eval(struct step *s, const struct feed *feed, int64_t samples,
                      bool (*stop)(void *arg), void *arg, struct step_evaluation *out)
{
    double scale, scale_end, sums[SUM_N] = {0};
    int64_t per_round = s->core.config.batch_samples * step_local_feed_ranks(&s->core);
    ASSERTF(samples > 0, "samples %lld", (long long)samples);
    for (int64_t first = 0; first < samples; first += per_round) {
        s->sums[0] = stop && stop(arg);
        TRY(sum_up(s, 1));
        if (s->sums[0] > 0) /* on any rank */
            return FAIL(ST_RETRY, "the evaluation was stopped after %lld of %lld samples",
                        (long long)first, (long long)samples);
        TRY(one_round(s, feed, samples, first, sums));
    }
    for (int i = 0; i < SUM_N; i++)
        s->sums[i] = sums[i];
    TRY(sum_up(s, SUM_N));
    struct batch_counts counts = {.targets = (int64_t)s->sums[SUM_TARGETS],
                                  .starts = (int64_t)s->sums[SUM_STARTS],
                                  .ends = (int64_t)s->sums[SUM_ENDS]};
    batch_scales(step_task(&s->core), &counts, &scale, &scale_end);
    *out = (struct step_evaluation){
        .loss = s->sums[SUM_LOSS] * scale + s->sums[SUM_LOSS_END] * scale_end,
        .accuracy = counts.targets > 0 ? s->sums[SUM_HITS] / s->sums[SUM_TARGETS] : NAN,
        .targets = counts.targets};
    return ST_OK;
}

/* ---- logits ---- */

/* head_logits — Computes `elems` logits in s->logits, on all stages. */
static enum status head_logits(struct step *s, const struct pass *p, int64_t row, int64_t elems)
{
    if (!s->core.dims.shard.lacks_head) {
        TRY(step_unshard_head(&s->core));
        TRY(s->core.model->logits(p, row, s->logits));
    }
    return s->core.pipe ? step_pipe_run_share(&s->core, s->logits, elems) : ST_OK;
}

/* copy_tokens — Copies the tokens of one sample. Attention is causal, so tokens after the n do not
 * matter. */
static enum status copy_tokens(struct step *s, const struct pass *p, const int32_t *tokens,
                               int64_t n)
{
    if (p->context->ranks > 1) {
        step_context_tokens(&s->core, tokens, n, &s->own);
        tokens = s->own.host.tokens;
        n = p->t;
    }
    TRY(dev_copy(s->core.stream, s->in.tokens.data, tokens, (size_t)n * sizeof *tokens));
    if (p->t == n)
        return ST_OK;
    return dev_fill(s->core.stream, tensor_at(s->in.tokens, n).data, 0,
                    (size_t)(p->t - n) * dtype_bytes(s->in.tokens.dtype));
}

enum status step_logits(struct step *s, const int32_t *tokens, int64_t n, float *out)
{
    struct pass p = step_pass(s, 1);
    ASSERTF(p.dims->task == MODEL_TASK_LM && n > 0 && n <= s->core.config.seq_tokens,
            "n %lld of %lld", (long long)n, (long long)s->core.config.seq_tokens);
    p.first_key = p.positions = (struct tensor){0}; /* a prompt is one document */
    if (p.tensor->ranks * p.context->ranks == 1)    /* whole samples have rows for all of a group */
        p.t = n;
    TRY(copy_tokens(s, &p, tokens, n));
    TRY(step_forward(&s->core, &p));
    TRY(head_logits(s, &p, n - 1, p.dims->vocab));
    TRY(dev_copy(s->core.stream, out, s->logits.data, (size_t)p.dims->vocab * sizeof *out));
    TRY(dev_sync(s->core.stream));
    return comm_check(s->core.config.comm);
}

enum status step_spans(struct step *s, const struct batch *batch, float *out)
{
    struct pass p = step_pass(s, batch->samples);
    int64_t elems = 2 * p.b * batch->seq_tokens;
    ASSERTF(p.dims->task == MODEL_TASK_QA && p.b > 0 && p.b <= s->core.config.batch_samples &&
                batch->seq_tokens == s->core.config.seq_tokens,
            "samples %lld seq_tokens %lld", (long long)p.b, (long long)batch->seq_tokens);
    TRY(batch_check(batch, p.dims->vocab));
    const struct batch own = step_context_batch(&s->core, batch, &s->own);
    TRY(step_copy_inputs(s, &own, 0, &p));
    TRY(step_forward(&s->core, &p));
    TRY(head_logits(s, &p, 0, elems));
    TRY(dev_copy(s->core.stream, out, s->logits.data, (size_t)elems * sizeof *out));
    TRY(dev_sync(s->core.stream));
    return comm_check(s->core.config.comm);
}
