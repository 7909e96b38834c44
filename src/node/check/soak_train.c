/* check_soak_train — see check/soak_train.h. */
#include "node/check/soak_train.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/memory.h"
#include "measure/measure_pattern.h"
#include "measure/measure_ranks.h"

#define SEED 20261123
#define LEARNING_RATE 1e-3
#define FLIP_BIT 12 /* low in the mantissa: no loss would show it */

static enum status take_memory(struct check_soak_train *t)
{
    const struct check_soak_train_config *c = &t->config;
    const struct param_table *table = step_whole_table(t->step);
    const size_t elems = (size_t)table->total_elems;
    size_t host = elems > (size_t)c->dims.vocab ? elems : (size_t)c->dims.vocab;
    t->host = malloc(host * sizeof *t->host);
    t->sample = memory_new((size_t)(c->steps * c->batch_samples), sizeof *t->sample);
    for (int i = 0; i < 3 && t->rank == 0; i++)
        t->state[i] = malloc(elems * sizeof(float));
    if (!t->host || (t->rank == 0 && (!t->state[0] || !t->state[1] || !t->state[2])))
        return FAIL(ST_RETRY, "out of memory: a copy of %zu weights and their moments", elems);
    check_soak_record_init(&t->first, table, c->steps);
    check_soak_record_init(&t->now, table, c->steps);
    return ST_OK;
}

/* Reads the weights of all ranks' shards on rank 0; the other ranks send theirs. */
static enum status get_state(struct check_soak_train *t, int part, float *values)
{
    if (t->rank > 0)
        return state_serve(step_state(t->step));
    enum status st =
        state_read(step_state(t->step), part, 0, step_whole_table(t->step)->total_elems, values);
    return t->ranks > 1 ? state_end(step_state(t->step), st) : st;
}

/* Gives all ranks the `values` of rank 0 as weights. */
static enum status put_state(struct check_soak_train *t, int part, const float *values)
{
    if (t->rank > 0)
        return state_serve(step_state(t->step));
    enum status st =
        state_write(step_state(t->step), part, 0, step_whole_table(t->step)->total_elems, values);
    return t->ranks > 1 ? state_end(step_state(t->step), st) : st;
}

/* Computes the checksum of this rank's weights, which it has whole (SHARD=none). */
static enum status sum_weights(struct check_soak_train *t, uint64_t *sum_out)
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
    const struct feed_config feed = {.task = FEED_TASK_LM,
                                     .data = FEED_SYNTHETIC,
                                     .seq_tokens = c->seq_tokens,
                                     .global_samples = c->batch_samples * t->ranks,
                                     .vocab = c->dims.vocab,
                                     .seed = SEED,
                                     .is_shuffled = true};
    TRY(step_open(&step, &t->step));
    TRY(feed_open(&feed, &t->feed));
    TRY(take_memory(t));
    t->scale = step_loss_scale(t->step);
    for (int part = 0; part < step_parts(t->step); part++)
        TRY(get_state(t, part, t->state[part]));
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
            TRY(put_state(t, part, t->state[part]));
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

/* ---- the samples of each rank ---- */

struct sample_sum {
    uint64_t sum, at;
};

static int by_sum(const void *a, const void *b)
{
    const struct sample_sum *x = a, *y = b;
    return x->sum != y->sum ? (x->sum > y->sum) - (x->sum < y->sum)
                            : (x->at > y->at) - (x->at < y->at);
}

/* Returns the checksums in ascending order, with their places; the caller frees them. */
static struct sample_sum *sort_sums(const uint64_t *sums, int n)
{
    struct sample_sum *out = memory_new((size_t)n, sizeof *out);
    for (int i = 0; i < n; i++)
        out[i] = (struct sample_sum){sums[i], (uint64_t)i};
    qsort(out, (size_t)n, sizeof *out, by_sum);
    return out;
}

int check_soak_train_lost(const uint64_t *trained, const uint64_t *wanted, int n)
{
    struct sample_sum *have = sort_sums(trained, n), *want = sort_sums(wanted, n);
    int lost = -1;
    for (int i = 0, k = 0; i < n && lost < 0; i++) {
        while (k < n && have[k].sum < want[i].sum)
            k++;
        if (k == n || have[k].sum != want[i].sum)
            lost = (int)want[i].at;
        else
            k++;
    }
    free(have);
    free(want);
    return lost;
}

/* Writes the checksums of all samples of a step, read from the feed as by one rank. */
static enum status want_samples(const struct check_soak_train *t, int step_i, uint64_t *out)
{
    const int64_t n = t->config.batch_samples * t->ranks, tokens = t->config.seq_tokens;
    struct batch batch;
    TRY(batch_init(&batch, FEED_TASK_LM, n, tokens));
    const enum status st = feed_get(t->feed, step_i * n, n, &batch.host);
    for (int64_t i = 0; st == ST_OK && i < n; i++)
        out[i] = XXH3_64bits(batch.host.tokens + i * tokens, (size_t)tokens * sizeof(int32_t));
    batch_free(&batch);
    return st;
}

enum status check_soak_train_samples(const struct check_soak_train *t, int *step_out, int *lost_out)
{
    const int64_t each = t->config.batch_samples, n = each * t->ranks;
    uint64_t *trained = memory_new(2 * (size_t)n, sizeof *trained), *wanted = trained + n;
    enum status st = ST_OK;
    *lost_out = -1;
    for (int i = 0; st == ST_OK && *lost_out < 0 && i < t->config.steps; i++) {
        *step_out = i;
        st = measure_ranks_gather(t->config.comm, t->sample + i * each,
                                  each * (int64_t)sizeof *trained, trained);
        if (st == ST_OK)
            st = want_samples(t, i, wanted);
        if (st == ST_OK)
            *lost_out = check_soak_train_lost(trained, wanted, (int)n);
    }
    free(trained);
    return st;
}

/* ---- model distribution ---- */

/* Padding is zero, whatever is put there. */
static uint64_t pattern_sum(const struct param_table *table, const float *values)
{
    uint64_t sum = 0;
    for (int i = 0; i < table->params_n; i++)
        sum = XXH3_64bits_withSeed(values + table->param[i].offset,
                                   (size_t)table->param[i].elems * sizeof *values, sum);
    return sum;
}

/* put_get — rank 0 puts a pattern into the model of all ranks, and reads it back from them.
 * *is_right_out: false: what this rank now has, or rank 0 reads, is another. */
static enum status put_get(struct check_soak_train *t, bool *is_right_out)
{
    const struct param_table *table = step_whole_table(t->step);
    float *pattern = malloc((size_t)table->total_elems * sizeof *pattern);
    if (!pattern)
        return FAIL(ST_RETRY, "out of memory: %lld weights", (long long)table->total_elems);
    measure_pattern_random(pattern, DTYPE_F32, table->total_elems, 7);
    const uint64_t sum = pattern_sum(table, pattern);
    enum status st = put_state(t, 0, pattern);
    if (st == ST_OK)
        st = get_state(t, 0, t->rank == 0 ? t->host : NULL);
    if (st == ST_OK && t->config.shard == LAYOUT_SHARD_NONE) {
        uint64_t whole;
        st = sum_weights(t, &whole);
    }
    free(pattern);
    if (st == ST_OK && (t->rank == 0 || t->config.shard == LAYOUT_SHARD_NONE))
        *is_right_out = pattern_sum(table, t->host) == sum;
    return st;
}

enum status check_soak_train_distribution(const struct check_soak_train_config *config,
                                          bool *is_right_out)
{
    struct check_soak_train t;
    *is_right_out = true;
    enum status st = check_soak_train_open(config, &t);
    if (st == ST_OK)
        st = put_get(&t, is_right_out);
    check_soak_train_close(&t);
    return st;
}
