/* batch — see batch.h. */
#include "train/step/batch.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/assert.h"

static enum status allocate_array(size_t n, size_t elem_bytes, void **out)
{
    *out = calloc(n ? n : 1, elem_bytes);
    return *out ? ST_OK
                : FAIL(memory_status((int64_t)(n * elem_bytes)),
                       "out of memory: a batch of %zu x %zu bytes; use a smaller GLOBAL_BATCH", n,
                       elem_bytes);
}

static enum status allocate_all(struct batch *b)
{
    size_t n = (size_t)b->samples, tokens = n * (size_t)b->seq_tokens;
    void *array;
    TRY(allocate_array(tokens, sizeof *b->host.tokens, &array));
    b->host.tokens = array;
    if (b->task == FEED_TASK_LM) {
        TRY(allocate_array(tokens, sizeof *b->host.targets, &array));
        b->host.targets = array;
        return ST_OK;
    }
    TRY(allocate_array(tokens, sizeof *b->host.mask, &array));
    b->host.mask = array;
    TRY(allocate_array(n, sizeof *b->host.starts, &array));
    b->host.starts = array;
    TRY(allocate_array(n, sizeof *b->host.ends, &array));
    b->host.ends = array;
    return ST_OK;
}

static enum status add_array(const struct batch *batch, int32_t **out)
{
    void *array;
    ASSERTF(batch->task == FEED_TASK_LM, "task %d", batch->task);
    TRY(allocate_array((size_t)batch->samples * (size_t)batch->seq_tokens, sizeof **out, &array));
    *out = array;
    return ST_OK;
}

enum status batch_add_documents(struct batch *batch)
{
    return add_array(batch, &batch->host.first_key);
}

enum status batch_add_positions(struct batch *batch) { return add_array(batch, &batch->positions); }

void batch_set_positions(struct batch *batch)
{
    for (int64_t i = 0; batch->positions && i < batch->samples * batch->seq_tokens; i++)
        batch->positions[i] = (int32_t)(i % batch->seq_tokens) - batch->host.first_key[i];
}

void batch_set_window(struct batch *batch, int64_t window)
{
    ASSERTF(batch->host.first_key && window > 0, "window %lld", (long long)window);
    for (int64_t i = 0; i < batch->samples; i++) {
        int32_t *first_key = batch->host.first_key + i * batch->seq_tokens;
        for (int64_t t = window; t < batch->seq_tokens; t++)
            if (first_key[t] < t - window + 1)
                first_key[t] = (int32_t)(t - window + 1);
    }
}

int64_t batch_documents_bytes(int64_t samples, int64_t seq_tokens)
{
    return samples * seq_tokens * (int64_t)sizeof(int32_t);
}

int64_t batch_bytes(enum feed_task task, int64_t samples, int64_t seq_tokens)
{
    int64_t each = (int64_t)sizeof(int32_t), tokens = samples * seq_tokens;
    return task == FEED_TASK_LM ? 2 * each * tokens : (each + 1) * tokens + 2 * each * samples;
}

enum status batch_init(struct batch *out, enum feed_task task, int64_t samples, int64_t seq_tokens)
{
    ASSERTF(samples > 0 && seq_tokens > 0, "samples %lld seq_tokens %lld", (long long)samples,
            (long long)seq_tokens);
    int64_t bytes;
    if (__builtin_mul_overflow(samples, seq_tokens, &bytes) ||
        __builtin_mul_overflow(bytes, (int64_t)sizeof(int32_t), &bytes))
        return FAIL(
            ST_BAD_SETTING,
            "a batch of %lld samples of %lld tokens is too large; use a smaller GLOBAL_BATCH",
            (long long)samples, (long long)seq_tokens);
    struct batch b = {.task = task, .samples = samples, .seq_tokens = seq_tokens};
    enum status st = allocate_all(&b);
    if (st == ST_OK)
        *out = b;
    else
        batch_free(&b);
    return st;
}

void batch_free(struct batch *batch)
{
    free(batch->host.tokens);
    free(batch->host.targets);
    free(batch->host.first_key);
    free(batch->host.mask);
    free(batch->host.starts);
    free(batch->host.ends);
    free(batch->positions);
    *batch = (struct batch){0};
}

enum status batch_check(const struct batch *batch, int64_t vocab)
{
    int64_t n = batch->samples * batch->seq_tokens, t = batch->seq_tokens;
    for (int64_t i = 0; i < n; i++) {
        int64_t token = batch->host.tokens[i];
        int64_t target = batch->task == FEED_TASK_LM ? batch->host.targets[i] : -1;
        if (token < 0 || token >= vocab || target >= vocab)
            return FAIL(ST_BAD_DATA,
                        "sample %lld of the batch, position %lld: token %lld, target %lld, "
                        "expected below VOCAB=%lld; check that DATA was made for this model",
                        (long long)(i / t), (long long)(i % t), (long long)token, (long long)target,
                        (long long)vocab);
    }
    return ST_OK;
}

void batch_count(const struct batch *batch, struct batch_counts *counts)
{
    if (batch->task == FEED_TASK_LM) {
        for (int64_t i = 0; i < batch->samples * batch->seq_tokens; i++)
            counts->targets += batch->host.targets[i] >= 0;
        return;
    }
    for (int64_t i = 0; i < batch->samples; i++) {
        counts->starts += batch->host.starts[i] <
                          batch->seq_tokens; /* a negative label is clamped to 0 and counts */
        counts->ends += batch->host.ends[i] < batch->seq_tokens;
    }
}

void batch_scales(enum feed_task task, const struct batch_counts *counts, double *scale_out,
                  double *scale_end_out)
{
    bool is_lm = task == FEED_TASK_LM;
    int64_t n = is_lm ? counts->targets : counts->starts;
    *scale_out = n ? (is_lm ? 1.0 : 0.5) / (double)n : 0;
    *scale_end_out = !is_lm && counts->ends ? 0.5 / (double)counts->ends : 0;
}

double batch_loss(enum feed_task task, const float *losses, int64_t n, double scale,
                  double scale_end)
{
    double sum = 0, sum_end = 0;
    for (int64_t i = 0; i < n; i++) {
        if (task == FEED_TASK_QA && i % 2 == 1)
            sum_end += losses[i];
        else
            sum += losses[i];
    }
    return sum * scale + (task == FEED_TASK_QA ? sum_end * scale_end : 0);
}
