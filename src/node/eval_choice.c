/* eval_choice — see eval_choice.h. */
#include "node/eval_choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/batch.h"

struct choices {
    const struct eval_choice_config *config;
    struct eval_choice_result *result;
    struct batch batch;
    float *losses; /* (batch_samples, T) */
    double *sum;   /* of each ending of all questions, in their order */
    int64_t sums_n, done_n;
};

/* run — the samples that the batch holds. */
static enum status run(struct choices *c)
{
    int64_t t = c->config->seq_tokens;
    if (c->batch.samples == 0)
        return ST_OK;
    if (!c->config->go_on(c->config->arg, c->done_n, c->sums_n))
        return FAIL(ST_RETRY, "the evaluation was asked to stop after %lld of %lld endings",
                    (long long)c->done_n, (long long)c->sums_n);
    TRY(step_eval_losses(c->config->step, &c->batch, c->losses));
    for (int64_t i = 0; i < c->batch.samples; i++) {
        double sum = batch_loss(FEED_TASK_LM, c->losses + i * t, t, 1, 0);
        if (!isfinite(sum))
            return FAIL(ST_NOT_FINITE, "the loss of an ending is %g: the weights are damaged", sum);
        c->sum[c->done_n++] = sum;
    }
    c->batch.samples = 0;
    return ST_OK;
}

static enum status run_all(struct choices *c)
{
    struct multiple_choice_question q;
    for (int64_t i = 0; i < multiple_choice_count(c->config->questions); i++) {
        multiple_choice_get(c->config->questions, i, &q);
        for (int k = 0; k < q.endings_n; k++) {
            /* One sample: row k of the batch. Targets are those of the ending alone. */
            int64_t t = c->config->seq_tokens, ending_n = q.ending_n[k];
            int64_t room = t + 1 - ending_n, context_n = q.context_n < room ? q.context_n : room;
            int32_t *tokens = c->batch.host.tokens + c->batch.samples * t;
            int32_t *targets = c->batch.host.targets + c->batch.samples * t;
            if (context_n < 1)
                return FAIL(
                    ST_BAD_DATA,
                    "ending %d of question %lld has %lld tokens, more than SEQ_LEN=%lld; set a "
                    "larger SEQ_LEN",
                    k, (long long)i, (long long)ending_n, (long long)t);
            c->result->cut_n += context_n < q.context_n;
            memset(tokens, 0, (size_t)t * sizeof *tokens);
            memset(targets, -1, (size_t)t * sizeof *targets);
            memcpy(tokens, q.context + (q.context_n - context_n),
                   (size_t)context_n * sizeof *tokens);
            memcpy(tokens + context_n, q.ending[k], (size_t)(ending_n - 1) * sizeof *tokens);
            memcpy(targets + context_n - 1, q.ending[k], (size_t)ending_n * sizeof *targets);
            c->batch.samples++;
            if (c->batch.samples == c->config->batch_samples)
                TRY(run(c));
        }
    }
    return run(c);
}

/* ---- scores ---- */

static enum status allocate(struct choices *c)
{
    int64_t samples = c->config->batch_samples, t = c->config->seq_tokens;
    struct multiple_choice_question q;
    for (int64_t i = 0; i < multiple_choice_count(c->config->questions); i++) {
        multiple_choice_get(c->config->questions, i, &q);
        c->sums_n += q.endings_n;
    }
    TRY(batch_init(&c->batch, FEED_TASK_LM, samples, t));
    c->batch.samples = 0;
    c->losses = malloc((size_t)(samples * t) * sizeof *c->losses);
    c->sum = malloc((size_t)c->sums_n * sizeof *c->sum);
    if (!c->losses || !c->sum)
        return FAIL(memory_status(samples * t * (int64_t)sizeof *c->losses),
                    "out of memory: losses of %lld endings", (long long)c->sums_n);
    return ST_OK;
}

enum status eval_choice_measure(const struct eval_choice_config *config,
                                struct eval_choice_result *out)
{
    struct eval_choice_result result = {0};
    struct choices c = {.config = config, .result = &result};
    enum status st = allocate(&c);
    if (st == ST_OK)
        st = run_all(&c);
    if (st == ST_OK) {
        struct multiple_choice_question q;
        const double *sum = c.sum;
        for (int64_t i = 0; i < multiple_choice_count(c.config->questions); i++) {
            multiple_choice_get(c.config->questions, i, &q);
            int best = 0, best_norm = 0;
            for (int k = 1; k < q.endings_n; k++) {
                if (sum[k] < sum[best])
                    best = k;
                if (sum[k] / (double)q.ending_n[k] < sum[best_norm] / (double)q.ending_n[best_norm])
                    best_norm = k;
            }
            c.result->questions_n++;
            c.result->correct_n += best == q.label;
            c.result->correct_norm_n += best_norm == q.label;
            sum += q.endings_n;
        }
        *out = result;
    }
    batch_free(&c.batch);
    free(c.losses);
    free(c.sum);
    return st;
}
