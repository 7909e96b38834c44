/* config_map_batch — see config_map_batch.h. */
#include "node/config_map_batch.h"

#include "base/status.h"

static enum status check_lm(const struct conf *conf, const struct step_config *c, enum conf_key key,
                            const char *name, const char *remedy)
{
    if (c->dims.task == MODEL_TASK_LM)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "%s=%s (%s) is for TASK=lm: a sample of TASK=qa is one question; use %s=%s", name,
                conf_text(conf, key), conf_source(conf, key), name, remedy);
}

static enum status map_mask(const struct conf *conf, struct step_config *out)
{
    const int64_t from = conf_i64(conf, CONF_WINDOW_START);
    out->masks_documents = conf_i64(conf, CONF_ATTENTION_MASK) == CONF_ATTENTION_MASK_DOCUMENT;
    out->window_warmup = (struct warmup){.from = from < out->seq_tokens ? from : out->seq_tokens,
                                         .steps = conf_i64(conf, CONF_WINDOW_WARMUP)};
    if (out->masks_documents)
        TRY(check_lm(conf, out, CONF_ATTENTION_MASK, "ATTENTION_MASK", "causal"));
    if (conf_i64(conf, CONF_PACK_DOCUMENTS))
        TRY(check_lm(conf, out, CONF_PACK_DOCUMENTS, "PACK_DOCUMENTS", "0"));
    return out->window_warmup.steps > 0
               ? check_lm(conf, out, CONF_WINDOW_WARMUP, "WINDOW_WARMUP", "0")
               : ST_OK;
}

/* check_warmup — steps are whole numbers of micro-batches, and grow by whole numbers of the first
 * one. */
static enum status check_warmup(const struct conf *conf, const struct step_config *c, int64_t pass)
{
    const long long from = c->batch_warmup.from, to = c->global_samples;
    if (from == to)
        return FAIL(ST_BAD_SETTING,
                    "BATCH_WARMUP=%s (%s) has nothing to raise: the first step and "
                    "GLOBAL_BATCH have %lld samples each; raise GLOBAL_BATCH",
                    conf_text(conf, CONF_BATCH_WARMUP), conf_source(conf, CONF_BATCH_WARMUP), to);
    if (from < to && to % from == 0 && from % pass == 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "BATCH_START=%lld (%s) must divide GLOBAL_BATCH=%lld and be a multiple of "
                "%lld, BATCH_SIZE times workers; 0 takes that number",
                from, conf_source(conf, CONF_BATCH_START), to, (long long)pass);
}

#define SHARD_SAMPLES 8  /* of a default shard at most: the default of BATCH_SIZE */
#define SHARDS_WANTED 64 /* from there on a default shard has more than one sample */
#define SHARDS_MAX 4096  /* as VIRTUAL_SHARDS */

/* shard_samples — the samples of a default virtual shard, by GLOBAL_BATCH alone: one, and of large
 * batches the largest divisor up to SHARD_SAMPLES that leaves SHARDS_WANTED shards. */
static int64_t shard_samples(int64_t all)
{
    int64_t n = all / SHARDS_WANTED < SHARD_SAMPLES ? all / SHARDS_WANTED : SHARD_SAMPLES;
    while (n > 1 && all % n != 0)
        n--;
    n = n > 1 ? n : 1;
    while (all / n > SHARDS_MAX || all % n != 0)
        n++;
    return n;
}

/* map_shards — EXACT=layout: the virtual shards of a step. A pass has the samples of a shard at
 * most, so that a larger BATCH_SIZE changes no bit. */
static enum status map_shards(const struct conf *conf, struct step_config *out)
{
    const int64_t set = conf_i64(conf, CONF_VIRTUAL_SHARDS), all = out->global_samples,
                  by_batch = shard_samples(all), batch = out->batch_samples;
    if (conf_i64(conf, CONF_EXACT) != CONF_EXACT_LAYOUT)
        return ST_OK;
    out->balances = conf_i64(conf, CONF_BALANCE) == CONF_BALANCE_AUTO;
    out->checks_shards = conf_i64(conf, CONF_SENTINEL_EVERY) > 0;
    out->shards = (int)(set > 0 ? set : all / by_batch);
    if (set == 0 && batch < by_batch)
        return FAIL(
            ST_BAD_SETTING,
            "EXACT=layout: GLOBAL_BATCH=%lld has %d virtual shards of %lld samples, each one "
            "pass, and BATCH_SIZE=%lld (%s) allows %lld; set BATCH_SIZE=%lld, or "
            "VIRTUAL_SHARDS=%lld, which changes the bits",
            (long long)all, out->shards, (long long)by_batch, (long long)batch,
            conf_source(conf, CONF_BATCH_SIZE), (long long)batch, (long long)by_batch,
            (long long)(all % batch == 0 ? all / batch : all));
    if (all % out->shards == 0 && batch > all / out->shards)
        out->batch_samples = all / out->shards;
    return ST_OK;
}

enum status config_map_batch(const struct conf *conf, struct step_config *out)
{
    const int64_t all = conf_i64(conf, CONF_GLOBAL_BATCH), from = conf_i64(conf, CONF_BATCH_START),
                  pass = conf_i64(conf, CONF_BATCH_SIZE) * conf_data_ranks(conf);
    TRY(map_mask(conf, out));
    out->batch_samples = conf_i64(conf, CONF_BATCH_SIZE);
    out->global_samples = all > 0 ? all : pass;
    out->batch_warmup =
        (struct warmup){.from = from > 0 ? from : pass, .steps = conf_i64(conf, CONF_BATCH_WARMUP)};
    TRY(map_shards(conf, out));
    return out->batch_warmup.steps > 0 ? check_warmup(conf, out, pass) : ST_OK;
}
