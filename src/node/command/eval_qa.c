/* eval_qa — see eval_qa.h. */
#include "node/command/eval_qa.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "data/qa/squad.h"
#include "train/step/batch.h"

struct questions {
    const struct eval_qa_config *config;
    struct eval_qa_result *result;
    struct batch batch;
    float *logits;               /* (batch_samples, T, 2) */
    int64_t example_i;           /* the question whose windows are being computed */
    struct squad_span_best best; /* best spans of that question */
    struct squad_score_text *gold;
    int64_t gold_cap;
};

/* rules_of — returns V2 if a question has no answer, else V1. */
static enum squad_score_rules rules_of(const struct squad *squad)
{
    for (int64_t i = 0; i < squad_examples(squad); i++)
        if (squad_example(squad, i)->is_impossible)
            return SQUAD_SCORE_RULES_V2;
    return SQUAD_SCORE_RULES_V1;
}

/* ---- one question ---- */

/* answer_of — returns the best span as bytes of the context; empty: no answer. */
static struct squad_score_text answer_of(const struct questions *q)
{
    const struct squad_span *span = &q->best.span[0];
    int64_t first, end;
    if (squad_span_is_null(&q->best, 0))
        return (struct squad_score_text){"", 0};
    squad_window_cut(q->config->windows, span->window, (int32_t)span->start, (int32_t)span->end,
                     &first, &end);
    const char *context = squad_example(q->config->squad, q->example_i)->context;
    return (struct squad_score_text){context + first, (size_t)(end - first)};
}

static void add_score(struct eval_qa_sums *sums, const struct squad_score *score)
{
    sums->n++;
    sums->exact += score->exact;
    sums->f1 += score->f1;
}

/* score_question — scores a question after all its windows were computed. */
static enum status score_question(struct questions *q)
{
    const struct squad_example *example = squad_example(q->config->squad, q->example_i);
    struct squad_score_text answer = answer_of(q);
    struct squad_score score;
    if (example->answers_n > q->gold_cap) {
        struct squad_score_text *more = realloc(q->gold, (size_t)example->answers_n * sizeof *more);
        if (!more)
            return FAIL(ST_RETRY, "out of memory: %lld answers of question %s",
                        (long long)example->answers_n, example->id);
        q->gold = more;
        q->gold_cap = example->answers_n;
    }
    for (int64_t i = 0; i < example->answers_n; i++)
        q->gold[i] =
            (struct squad_score_text){example->answer[i].text, strlen(example->answer[i].text)};
    TRY(squad_score_answer(q->result->rules, answer, q->gold, (size_t)example->answers_n, &score));
    add_score(&q->result->all, &score);
    add_score(example->is_impossible ? &q->result->no_answer : &q->result->has_answer, &score);
    if (!q->config->answers)
        return ST_OK;
    char *text = strndup(answer.bytes, answer.n);
    cJSON *item = text ? cJSON_AddStringToObject(q->config->answers, example->id, text) : NULL;
    free(text);
    return item ? ST_OK : FAIL(ST_RETRY, "out of memory: the answer to question %s", example->id);
}

/* ---- windows ---- */

/* run_batch — computes the windows of one batch, from window `first` on. The labels are ignored. */
static enum status run_batch(struct questions *q, int64_t first)
{
    const struct eval_qa_config *c = q->config;
    int64_t t = c->seq_tokens, left = squad_window_count(c->windows) - first;
    q->batch.samples = left < c->batch_samples ? left : c->batch_samples;
    for (int64_t i = 0; i < q->batch.samples; i++) {
        squad_window_fill(c->windows, first + i, q->batch.host.tokens + i * t,
                          q->batch.host.mask + i * t);
        q->batch.host.starts[i] = q->batch.host.ends[i] = (int32_t)t;
    }
    TRY(step_spans(c->step, &q->batch, q->logits));
    for (int64_t i = 0; i < q->batch.samples; i++) {
        const struct squad_window *w = squad_window_get(c->windows, first + i);
        int64_t null_i = q->result->rules == SQUAD_SCORE_RULES_V2 ? 0 : -1;
        for (; q->example_i < w->example_i; q->example_i++) {
            TRY(score_question(q));
            squad_span_begin(&q->best);
        }
        squad_span_window(&q->best, first + i, q->logits + i * t * 2, w->context_at,
                          w->context_at + w->context_n - 1, null_i);
    }
    return ST_OK;
}

static enum status run_all(struct questions *q)
{
    const struct eval_qa_config *c = q->config;
    int64_t windows_n = squad_window_count(c->windows);
    TRY(batch_init(&q->batch, FEED_TASK_QA, c->batch_samples, c->seq_tokens));
    q->logits = malloc((size_t)(2 * c->batch_samples * c->seq_tokens) * sizeof *q->logits);
    if (!q->logits)
        return FAIL(
            memory_status(2 * c->batch_samples * c->seq_tokens * (int64_t)sizeof *q->logits),
            "out of memory: logits of %lld samples", (long long)c->batch_samples);
    squad_span_begin(&q->best);
    for (int64_t first = 0; first < windows_n; first += c->batch_samples) {
        if (!c->go_on(c->arg, first, windows_n))
            return FAIL(ST_RETRY, "the evaluation was stopped after %lld of %lld windows",
                        (long long)first, (long long)windows_n);
        TRY(run_batch(q, first));
    }
    for (; q->example_i < squad_examples(c->squad); q->example_i++) {
        TRY(score_question(q));
        squad_span_begin(&q->best);
    }
    return ST_OK;
}

enum status eval_qa_measure(const struct eval_qa_config *config, struct eval_qa_result *out)
{
    struct eval_qa_result result = {.rules = rules_of(config->squad)};
    struct questions q = {.config = config, .result = &result};
    enum status st = run_all(&q);
    batch_free(&q.batch);
    free(q.logits);
    free(q.gold);
    if (st == ST_OK)
        *out = result;
    return st;
}
