/* check_soak_parts — see check_soak_parts.h. */
#include "node/check_soak_parts.h"

#include <stdlib.h>

#include <xxhash.h>

#include "measure/measure_pattern.h"
#include "measure/measure_ranks.h"

/* ---- samples ---- */

struct sample_sum {
    uint64_t sum, at;
};

static int by_sum(const void *a, const void *b)
{
    const struct sample_sum *x = a, *y = b;
    return x->sum != y->sum ? (x->sum > y->sum) - (x->sum < y->sum)
                            : (x->at > y->at) - (x->at < y->at);
}

/* sorted — checksums in ascending order, with their places; the caller frees. NULL: no memory. */
static struct sample_sum *sorted(const uint64_t *sums, int n)
{
    struct sample_sum *out = calloc((size_t)n, sizeof *out);
    for (int i = 0; i < n && out; i++)
        out[i] = (struct sample_sum){sums[i], (uint64_t)i};
    if (out)
        qsort(out, (size_t)n, sizeof *out, by_sum);
    return out;
}

/* The first of the wanted that is not among the trained, in the order of checksums. */
enum status check_soak_parts_lost(const uint64_t *trained, const uint64_t *wanted, int n,
                                  int *lost_out)
{
    struct sample_sum *have = sorted(trained, n), *want = sorted(wanted, n);
    const bool has_memory = have && want;
    *lost_out = -1;
    for (int i = 0, k = 0; has_memory && i < n && *lost_out < 0; i++) {
        while (k < n && have[k].sum < want[i].sum)
            k++;
        if (k == n || have[k].sum != want[i].sum)
            *lost_out = (int)want[i].at;
        else
            k++;
    }
    free(have);
    free(want);
    return has_memory ? ST_OK : FAIL(ST_RETRY, "out of memory: checksums of %d samples", n);
}

/* wanted — checksums of all samples of a step, from the feed as one rank alone would read it. */
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

/* Compares the samples of one step. sums: room for 2 · n. */
static enum status look(const struct check_soak_train *t, int step_i, uint64_t *sums, int *lost_out)
{
    const int64_t each = t->config.batch_samples, n = each * t->ranks;
    TRY(measure_ranks_gather(t->config.comm, t->sample + step_i * each,
                             each * (int64_t)sizeof *sums, sums));
    TRY(want_samples(t, step_i, sums + n));
    return check_soak_parts_lost(sums, sums + n, (int)n, lost_out);
}

enum status check_soak_parts_samples(const struct check_soak_train *t, int *step_out, int *lost_out)
{
    const size_t n = (size_t)(t->config.batch_samples * t->ranks);
    uint64_t *sums = calloc(2 * n, sizeof *sums);
    enum status st = sums ? ST_OK : FAIL(ST_RETRY, "out of memory: checksums of %zu samples", n);
    *lost_out = -1;
    for (int i = 0; st == ST_OK && *lost_out < 0 && i < t->config.steps; i++) {
        *step_out = i;
        st = look(t, i, sums, lost_out);
    }
    free(sums);
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
    enum status st = check_soak_train_put(t, 0, pattern);
    if (st == ST_OK)
        st = check_soak_train_get(t, 0, t->rank == 0 ? t->host : NULL);
    if (st == ST_OK && t->config.shard == LAYOUT_SHARD_NONE) {
        uint64_t whole;
        st = check_soak_train_weights(t, &whole);
    }
    free(pattern);
    if (st == ST_OK && (t->rank == 0 || t->config.shard == LAYOUT_SHARD_NONE))
        *is_right_out = pattern_sum(table, t->host) == sum;
    return st;
}

enum status check_soak_parts_weights(const struct check_soak_train_config *config,
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
