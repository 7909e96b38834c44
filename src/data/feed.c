/* feed.c — which tokens a sample holds, computed from numbers alone.
 *
 * Real data: windows of a corpus in an order that is a pure function of (seed, epoch). Synthetic data is not
 * stored either: value i of a sample is drawn from a counter, so "drawn once, the same batch every step"
 * holds on any node without memory. Must not know devices, ranks or how a corpus is stored. */
#include "data/feed.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/must.h"
#include "base/rand.h"
#include "base/text.h"
#include "data/corpus.h"

/* Streams of synthetic numbers. */
enum { FEED_DRAW_TOKENS, FEED_DRAW_MASK, FEED_DRAW_STARTS, FEED_DRAW_ENDS };

struct feed {
    enum feed_task task;
    int64_t seq_tokens;
    int64_t samples; /* an epoch */
    int64_t tokens;
    int64_t vocab;
    uint64_t seed;
    bool is_shuffled;
    struct corpus *corpus; /* NULL: synthetic */
    uint64_t fingerprint;
};

static enum status feed_check(const struct feed_config *config)
{
    int64_t elems;
    if (config->seq_tokens < 1 || config->global_samples < 1 || config->vocab < 1 ||
        config->vocab > INT32_MAX)
        return FAIL(ST_BAD_SETTING,
                    "SEQ_LEN %lld and GLOBAL_BATCH %lld must be at least 1 and VOCAB %lld in 1 … 2147483647",
                    (long long)config->seq_tokens, (long long)config->global_samples,
                    (long long)config->vocab);
    if (config->seq_tokens >= INT32_MAX ||
        __builtin_mul_overflow(config->global_samples, config->seq_tokens + 1, &elems))
        return FAIL(ST_BAD_SETTING, "GLOBAL_BATCH %lld samples of SEQ_LEN %lld tokens cannot be counted; "
                    "lower one of them",
                    (long long)config->global_samples, (long long)config->seq_tokens);
    return ST_OK;
}

static void feed_open_synthetic(struct feed *feed, const struct feed_config *config)
{
    const uint64_t facts[] = {config->task, (uint64_t)config->seq_tokens, (uint64_t)config->global_samples,
                              (uint64_t)config->vocab, config->seed};
    feed->samples = config->global_samples;
    feed->tokens = config->global_samples * config->seq_tokens;
    feed->fingerprint = XXH3_64bits(facts, sizeof facts);
}

/* fail_short — a text of one token has no window at all, whatever SEQ_LEN. */
static enum status fail_short(const struct feed *feed, const char *data)
{
    char lower[64] = "";
    if (feed->tokens > 1)
        text_format(lower, sizeof lower, " or set SEQ_LEN to at most %lld", (long long)feed->tokens - 1);
    return FAIL(ST_BAD_DATA,
                "%s has %lld token%s, but one sample of SEQ_LEN=%lld needs %lld (the last is only a target); give more "
                "data%s",
                data, (long long)feed->tokens, feed->tokens == 1 ? "" : "s", (long long)feed->seq_tokens,
                (long long)feed->seq_tokens + 1, lower);
}

static enum status feed_open_corpus(struct feed *feed, const struct feed_config *config)
{
    const struct corpus_config from = {.data = config->data,
                                       .cache_dir = config->cache_dir,
                                       .vocab = config->vocab,
                                       .progress = config->progress,
                                       .progress_arg = config->progress_arg};
    if (config->task == FEED_TASK_QA)
        return FAIL(ST_BAD_SETTING, "TASK=qa with DATA=%s: question answering has only synthetic data so "
                    "far; leave DATA empty "
                    "or set TASK=lm", config->data);
    TRY(corpus_open(&from, &feed->corpus));
    feed->tokens = corpus_tokens(feed->corpus);
    feed->samples = (feed->tokens - 1) / feed->seq_tokens;
    feed->fingerprint = corpus_fingerprint(feed->corpus);
    if (feed->tokens < feed->seq_tokens + 1)
        return fail_short(feed, config->data);
    return ST_OK;
}

enum status feed_open(const struct feed_config *config, struct feed **out)
{
    TRY(feed_check(config));
    enum status st = ST_OK;
    struct feed *feed = calloc(1, sizeof *feed);
    if (feed == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for the feed", sizeof *feed);
    feed->task = config->task;
    feed->seq_tokens = config->seq_tokens;
    feed->vocab = config->vocab;
    feed->seed = config->seed;
    feed->is_shuffled = config->is_shuffled;
    if (config->data == NULL || config->data[0] == '\0')
        feed_open_synthetic(feed, config);
    else
        TRY_OR(feed_open_corpus(feed, config), out_close);
    *out = feed;
    return ST_OK;
out_close:
    feed_close(feed);
    return st;
}

void feed_close(struct feed *feed)
{
    if (feed == NULL)
        return;
    corpus_close(feed->corpus);
    free(feed);
}

int64_t feed_samples(const struct feed *feed) { return feed->samples; }
int64_t feed_tokens(const struct feed *feed) { return feed->tokens; }
const char *feed_name(const struct feed *feed)
{
    return feed->corpus ? corpus_name(feed->corpus) : "synthetic";
}
uint64_t feed_fingerprint(const struct feed *feed) { return feed->fingerprint; }
int64_t feed_epoch(const struct feed *feed, int64_t first) { return first / feed->samples; }

static int32_t feed_draw(const struct feed *feed, int use, uint64_t index, uint64_t n)
{
    return (int32_t)rand_below(feed->seed, RAND_STREAM(SYNTHETIC, use), index, n);
}

/* Sample `pos` of the batch has T+1 drawn tokens, so that LM targets are the same tokens shifted by one, as
 * in real text. */
static void feed_get_synthetic(const struct feed *feed, int64_t pos, int64_t row,
                               const struct feed_batch *out)
{
    const int64_t seq = feed->seq_tokens;
    const uint64_t at = (uint64_t)pos * (uint64_t)(seq + 1);
    int32_t *tokens = out->tokens + row * seq;
    for (int64_t t = 0; t < seq; t++)
        tokens[t] = feed_draw(feed, FEED_DRAW_TOKENS, at + (uint64_t)t, (uint64_t)feed->vocab);
    if (feed->task == FEED_TASK_LM) {
        int32_t *targets = out->targets + row * seq;
        memcpy(targets, tokens + 1, (size_t)(seq - 1) * sizeof *targets);
        targets[seq - 1] = feed_draw(feed, FEED_DRAW_TOKENS, at + (uint64_t)seq, (uint64_t)feed->vocab);
        return;
    }
    for (int64_t t = 0; t < seq; t++)
        out->mask[row * seq + t] =
            rand_u32(feed->seed, RAND_STREAM(SYNTHETIC, FEED_DRAW_MASK), at + (uint64_t)t) & 1;
    out->starts[row] = feed_draw(feed, FEED_DRAW_STARTS, (uint64_t)pos, (uint64_t)seq);
    out->ends[row] = feed_draw(feed, FEED_DRAW_ENDS, (uint64_t)pos, (uint64_t)seq);
}

static void feed_get_window(const struct feed *feed, int64_t j, int64_t row, const struct feed_batch *out)
{
    const int64_t seq = feed->seq_tokens;
    int64_t window = j % feed->samples;
    if (feed->is_shuffled)
        window = (int64_t)rand_permute(feed->seed, RAND_STREAM(ORDER, j / feed->samples), (uint64_t)window,
                                       (uint64_t)feed->samples);
    corpus_read(feed->corpus, window * seq, seq, out->tokens + row * seq);
    corpus_read(feed->corpus, window * seq + 1, seq, out->targets + row * seq);
}

void feed_get(const struct feed *feed, int64_t first, int64_t samples, const struct feed_batch *out)
{
    ASSERTF(first >= 0 && samples >= 0, "first %lld samples %lld", (long long)first, (long long)samples);
    for (int64_t row = 0; row < samples; row++) {
        if (feed->corpus == NULL)
            feed_get_synthetic(feed, (first + row) % feed->samples, row, out);
        else
            feed_get_window(feed, first + row, row, out);
    }
}
