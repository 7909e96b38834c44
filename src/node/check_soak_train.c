/* check_soak_train — see check_soak_train.h. */
#include "node/check_soak_train.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define SEED 20261123
#define LEARNING_RATE 1e-3
#define FLIP_BIT 12 /* low in the mantissa: no loss would show it */

static enum status open_feed(struct check_soak_train *t)
{
    const struct check_soak_train_config *c = &t->config;
    const struct feed_config feed = {.task = FEED_TASK_LM,
                                     .data = FEED_SYNTHETIC,
                                     .seq_tokens = c->seq_tokens,
                                     .global_samples = c->batch_samples * t->ranks,
                                     .vocab = c->dims.vocab,
                                     .seed = SEED,
                                     .is_shuffled = true};
    return feed_open(&feed, &t->feed);
}

static enum status take_memory(struct check_soak_train *t)
{
    const struct check_soak_train_config *c = &t->config;
    const struct param_table *table = step_whole_table(t->step);
    const size_t elems = (size_t)table->total_elems;
    size_t host = elems > (size_t)c->dims.vocab ? elems : (size_t)c->dims.vocab;
    t->host = malloc(host * sizeof *t->host);
    t->sample = calloc((size_t)(c->steps * c->batch_samples), sizeof *t->sample);
    for (int i = 0; i < 3 && t->rank == 0; i++)
        t->state[i] = malloc(elems * sizeof(float));
    if (!t->host || !t->sample || (t->rank == 0 && (!t->state[0] || !t->state[1] || !t->state[2])))
        return FAIL(ST_RETRY, "out of memory: a copy of %zu weights and their moments", elems);
    TRY(check_soak_record_init(&t->first, table, c->steps));
    return check_soak_record_init(&t->now, table, c->steps);
}

enum status check_soak_train_get(struct check_soak_train *t, int part, float *values)
{
    if (t->rank > 0)
        return step_state_serve(t->step);
    enum status st = step_read(t->step, part, 0, step_whole_table(t->step)->total_elems, values);
    return t->ranks > 1 ? step_state_end(t->step, st) : st;
}

enum status check_soak_train_put(struct check_soak_train *t, int part, const float *values)
{
    if (t->rank > 0)
        return step_state_serve(t->step);
    enum status st = step_write(t->step, part, 0, step_whole_table(t->step)->total_elems, values);
    return t->ranks > 1 ? step_state_end(t->step, st) : st;
}

enum status check_soak_train_weights(struct check_soak_train *t, uint64_t *sum_out)
{
    const size_t bytes = (size_t)step_own_table(t->step)->total_elems * sizeof(float);
    TRY(step_drain(t->step));
    TRY(dev_copy(step_stream(t->step), t->host, step_tensor(t->step, 0).data, bytes));
    TRY(dev_sync(step_stream(t->step)));
    *sum_out = XXH3_64bits(t->host, bytes);
    return ST_OK;
}

enum status check_soak_train_open(const struct check_soak_train_config *config,
                                  struct check_soak_train *t)
{
    *t = (struct check_soak_train){.config = *config, .ranks = 1, .differs = -1};
    if (config->comm) {
        t->rank = comm_place(config->comm)->rank;
        t->ranks = comm_place(config->comm)->ranks;
    }
    const struct check_soak_train_config *c = &t->config;
    struct step_config step = (struct step_config){
        .dev = c->dev,
        .comm = c->comm,
        .store = {.shard = c->shard, .dtype = c->dtype},
        .dims = c->dims,
        .batch_samples = c->batch_samples,
        .global_samples = c->batch_samples * t->ranks,
        .seq_tokens = c->seq_tokens,
        .optim =
            {.kind = OPTIM_KIND_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .grad_clip = 1},
        .seed = SEED,
    };
    TRY(step_open(&step, &t->step));
    TRY(open_feed(t));
    TRY(take_memory(t));
    t->scale = step_loss_scale(t->step);
    for (int part = 0; part < step_parts(t->step); part++)
        TRY(check_soak_train_get(t, part, t->state[part]));
    return ST_OK;
}

void check_soak_train_close(struct check_soak_train *t)
{
    step_close(t->step);
    feed_close(t->feed);
    check_soak_record_free(&t->first);
    check_soak_record_free(&t->now);
    free(t->sample);
    free(t->host);
    for (int i = 0; i < 3; i++)
        free(t->state[i]);
    *t = (struct check_soak_train){0};
}

/* ---- a round ---- */

static enum status run_step(struct check_soak_train *t, int step_i, bool flips)
{
    struct step_result result;
    struct store_flip flip;
    struct dev_info info;
    dev_info(t->config.dev, &info);
    if (flips)
        TRY(step_flip(t->step, FLIP_BIT, &flip));
    const struct measure_timer timer = {.threads_n =
                                            dev_is_discrete(t->config.dev) ? 0 : info.threads_n};
    const struct measure_instant begin = measure_time_begin();
    const int64_t others = t->config.takes_first && t->rounds == 0 ? t->rank : 0;
    TRY(step_run(t->step, t->feed, step_i, (step_i * t->ranks - others) * t->config.batch_samples,
                 LEARNING_RATE, false, &result));
    TRY(step_drain(t->step));
    TRY(dev_sync(step_stream(t->step)));
    if (t->rounds > 0) /* the first round may load kernels */
        measure_time_end(&timer, begin, &t->step_time);
    const struct batch *batch = step_batch(t->step);
    const int64_t n = t->config.batch_samples, tokens = t->config.seq_tokens;
    for (int64_t i = 0; i < n; i++)
        t->sample[step_i * n + i] =
            XXH3_64bits(batch->host.tokens + i * tokens, (size_t)tokens * sizeof(int32_t));
    if (t->config.shard != LAYOUT_SHARD_NONE)
        return ST_OK;
    return check_soak_record_step(&t->now, t->step, step_i, result.loss, t->host);
}

enum status check_soak_train_round(struct check_soak_train *t, int flip_step)
{
    if (t->rounds > 0) {
        for (int part = 0; part < step_parts(t->step); part++)
            TRY(check_soak_train_put(t, part, t->state[part]));
        step_set_loss_scale(t->step, t->scale);
    }
    if (t->config.shard == LAYOUT_SHARD_NONE)
        TRY(check_soak_record_logits(&t->now, t->step, t->config.dims.vocab, t->host));
    for (int i = 0; i < t->config.steps; i++)
        TRY(run_step(t, i, i == flip_step));
    for (int i = 0; i < CHECK_SOAK_RECORD_PARTS; i++)
        t->digest[i] =
            t->digest[i] * 31 + check_soak_record_digest(&t->now, (enum check_soak_record_part)i);
    if (t->rounds++ == 0)
        memcpy(t->first.sum, t->now.sum, (size_t)t->now.n * sizeof *t->now.sum);
    else if (t->differs < 0)
        t->differs = check_soak_record_differs(&t->first, &t->now);
    return ST_OK;
}
