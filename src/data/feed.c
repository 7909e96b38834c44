/* feed — see feed.h.
 *
 * A mixture is several items; usually there is one. Synthetic data is not stored: value i of a
 * sample is drawn from a counter, so every node has the same batch in every step without memory
 * for it. It must not know how a corpus is stored. */
#include "data/feed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/rand.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/mix.h"
#include "data/pack.h"
#include "data/qa/squad.h"
#include "data/qa/squad_window.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/gpt2.h"

/* Random streams of synthetic data. */
enum { FEED_DRAW_TOKENS, FEED_DRAW_MASK, FEED_DRAW_STARTS, FEED_DRAW_ENDS };

/* One data set: a corpus for LM, questions and their windows for QA. */
struct feed_item {
    struct corpus *corpus;
    struct pack *pack; /* NULL: windows follow each other */
    struct squad *squad;
    struct squad_window_set *windows;
    int64_t samples; /* in its own epoch */
    int64_t tokens;
    uint64_t seed; /* seed of its order */
    uint64_t fingerprint;
    double weight;
};

struct feed {
    enum feed_task task;
    int64_t seq_tokens;
    int64_t samples; /* samples of an epoch */
    int64_t tokens;
    int64_t vocab;
    int64_t separator[2]; /* ids between documents; -1: none */
    bool knows_documents;
    uint64_t seed;
    bool is_shuffled;
    struct feed_item item[MIX_ITEMS_MAX];
    int items_n;             /* 0: synthetic */
    struct mix_order *order; /* NULL: not more than one item */
    char name[512];
    uint64_t fingerprint;
};

/* feed_set_separators — sets both separators, because a file of ids may have been made with
 * either: llm.c's files have the end of text before each document, and files for Llama 3 the
 * beginning. */
static enum status feed_set_separators(struct feed *feed, const struct feed_config *config)
{
    const struct tokenizer *tokenizer = config->tokenizer;
    const uint32_t ids[2] = {tokenizer != NULL ? tokenizer_end(tokenizer) : TOKENIZER_GPT2_END,
                             tokenizer != NULL ? tokenizer_begin(tokenizer) : TOKENIZER_NONE};
    bool is_known = tokenizer != NULL || config->model == NULL,
         is_needed = (config->knows_documents || config->packs_documents) && config->chat == NULL;
    for (int i = 0; i < 2; i++) {
        bool is_there = ids[i] != TOKENIZER_NONE && ids[i] < config->vocab;
        feed->separator[i] = is_needed && is_known && is_there ? (int64_t)ids[i] : -1;
    }
    if (!is_needed || feed->separator[0] >= 0 || feed->separator[1] >= 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "documents cannot be separated: %s has no end-of-text token below VOCAB=%lld; set "
                "TOKENIZER to the tokenizer with which DATA was made, or set %s",
                tokenizer != NULL ? tokenizer_name(tokenizer)
                : is_known        ? TOKENIZER_GPT2_NAME
                                  : config->model,
                (long long)config->vocab,
                config->knows_documents ? "ATTENTION_MASK=causal" : "PACK_DOCUMENTS=0");
}

static enum status feed_open_corpus(const struct feed *feed, struct feed_item *item,
                                    const struct feed_config *config, const char *data)
{
    const struct corpus_config from = {.data = data,
                                       .cache_dir = config->cache_dir,
                                       .allows_local_urls = config->allows_local_urls,
                                       .vocab = config->vocab,
                                       .tokenizer = config->tokenizer,
                                       .model = config->model,
                                       .chat = config->chat,
                                       .progress = config->progress,
                                       .progress_arg = config->progress_arg};
    TRY(corpus_open(&from, &item->corpus));
    item->tokens = corpus_tokens(item->corpus);
    item->samples = (item->tokens - 1) / config->seq_tokens;
    item->fingerprint = corpus_fingerprint(item->corpus);
    const int64_t records = corpus_records(item->corpus);
    if (records > 0 && (config->knows_documents || config->packs_documents || config->chat != NULL))
        item->fingerprint = XXH3_64bits_withSeed(&records, sizeof records, item->fingerprint);
    if (config->chat == NULL && item->tokens < config->seq_tokens + 1) {
        /* A text of one token has no window with any SEQ_LEN. */
        const int64_t tokens = item->tokens, seq_tokens = config->seq_tokens;
        char lower[64] = "";
        if (tokens > 1)
            text_format(lower, sizeof lower, " or set SEQ_LEN to at most %lld",
                        (long long)tokens - 1);
        return FAIL(ST_BAD_DATA,
                    "%s has %lld token%s, but one sample of SEQ_LEN=%lld needs %lld (the last is "
                    "only a target); use more data%s",
                    data, (long long)tokens, tokens == 1 ? "" : "s", (long long)seq_tokens,
                    (long long)seq_tokens + 1, lower);
    }
    if (!config->packs_documents && config->chat == NULL)
        return ST_OK;
    const struct pack_config pack = {.seq_tokens = config->seq_tokens,
                                     .separator = {feed->separator[0], feed->separator[1]},
                                     .is_chat = config->chat != NULL,
                                     .is_single = !config->packs_documents,
                                     .trains_all = config->trains_all,
                                     .allows_cut = config->allows_cut,
                                     .progress = config->progress,
                                     .progress_arg = config->progress_arg};
    TRY(pack_open(item->corpus, &pack, &item->pack));
    item->samples = pack_samples(item->pack);
    return ST_OK;
}

static enum status feed_open_squad(struct feed_item *item, const struct feed_config *config,
                                   const char *data)
{
    const struct data_file_config from = {.data = data,
                                          .cache_dir = config->cache_dir,
                                          .allows_local_urls = config->allows_local_urls,
                                          .progress = config->progress,
                                          .progress_arg = config->progress_arg};
    const struct squad_window_config cut = {.seq_tokens = config->seq_tokens,
                                            .stride_tokens = config->stride_tokens,
                                            .vocab = config->vocab,
                                            .is_training = true,
                                            .progress = config->progress,
                                            .progress_arg = config->progress_arg};
    TRY(squad_open(&from, &item->squad));
    TRY(squad_window_open(item->squad, &cut, &item->windows));
    item->samples = squad_window_count(item->windows);
    item->tokens = item->samples * config->seq_tokens;
    item->fingerprint = squad_window_fingerprint(item->windows);
    return ST_OK;
}

/* feed_open_item — opens DATA, or one item of a mixture. */
static enum status feed_open_item(struct feed *feed, const struct feed_config *config,
                                  const char *data)
{
    struct feed_item *item = feed->item + feed->items_n;
    /* Each item of a mixture has its own seed; a single item has the run's. */
    item->seed = feed->order == NULL ? config->seed
                                     : rand_u64(config->seed, RAND_STREAM(MIX, UINT32_MAX),
                                                (uint64_t)feed->items_n);
    feed->items_n++;
    TRY(config->task == FEED_TASK_QA ? feed_open_squad(item, config, data)
                                     : feed_open_corpus(feed, item, config, data));
    if (__builtin_add_overflow(feed->samples, item->samples, &feed->samples) ||
        __builtin_add_overflow(feed->tokens, item->tokens, &feed->tokens))
        return FAIL(ST_BAD_DATA, "the parts of DATA have more samples than can be counted");
    return ST_OK;
}

static enum status feed_open_mix(struct feed *feed, const struct feed_config *config,
                                 const struct mix *mix)
{
    feed->order = mix_order_open(mix, config->seed, config->is_shuffled);
    for (int i = 0; i < mix->n; i++) {
        TRY(feed_open_item(feed, config, mix->item[i].data));
        feed->item[i].weight = mix->item[i].weight;
        const uint64_t facts[] = {feed->fingerprint, feed->item[i].fingerprint,
                                  (uint64_t)mix_order_share(feed->order, i)};
        feed->fingerprint = XXH3_64bits(facts, sizeof facts);
    }
    text_format(feed->name, sizeof feed->name, "%.400s (mixture of %d)", config->data, mix->n);
    return ST_OK;
}

/* Appends the counts of packed documents, or of conversations, of all items to the name. */
static void add_facts(struct feed *feed, bool is_chat)
{
    struct pack_facts all = {0};
    const size_t at = strlen(feed->name);
    for (int i = 0; i < feed->items_n; i++) {
        struct pack_facts facts;
        pack_facts(feed->item[i].pack, &facts);
        all.documents += facts.documents;
        all.cut += facts.cut;
        all.left_out += facts.left_out;
        all.targets += facts.targets;
        all.positions += facts.positions;
    }
    const double full =
        100 * (double)all.positions / ((double)feed->samples * (double)feed->seq_tokens);
    if (is_chat)
        text_format(feed->name + at, sizeof feed->name - at,
                    ": %lld conversations, %lld cut, %lld without an answer left out, %.1f %% of "
                    "their tokens trained, %.1f %% of positions filled",
                    (long long)all.documents, (long long)all.cut, (long long)all.left_out,
                    100 * (double)all.targets / (double)all.positions, full);
    else
        text_format(feed->name + at, sizeof feed->name - at,
                    ", packed: %lld documents, %lld of them cut, %.1f %% full",
                    (long long)all.documents, (long long)all.cut, full);
}

/* feed_open_data — opens DATA. An existing file of exactly this name is that file, even with commas
 * or colons. */
static enum status feed_open_data(struct feed *feed, const struct feed_config *config)
{
    struct mix mix = {0};
    struct stat info;
    if (stat(config->data, &info) != 0)
        TRY(mix_parse(config->data, &mix));
    enum status st = mix.is_weighted ? feed_open_mix(feed, config, &mix)
                                     : feed_open_item(feed, config, config->data);
    if (st == ST_OK && !mix.is_weighted) {
        feed->fingerprint = feed->item[0].fingerprint;
        const char *data = config->data;
        if (config->task == FEED_TASK_LM)
            text_copy(feed->name, sizeof feed->name, corpus_name(feed->item[0].corpus));
        else
            text_format(feed->name, sizeof feed->name, "%.400s (%lld questions)", data,
                        (long long)squad_examples(feed->item[0].squad));
    }
    if (st == ST_OK && feed->item[0].pack != NULL)
        add_facts(feed, config->chat != NULL);
    mix_free(&mix);
    return st;
}

enum status feed_open(const struct feed_config *config, struct feed **out)
{
    int64_t elems;
    if (config->seq_tokens < 1 || config->global_samples < 1 || config->vocab < 1 ||
        config->vocab > INT32_MAX)
        return FAIL(ST_BAD_SETTING,
                    "SEQ_LEN %lld and GLOBAL_BATCH %lld must be at least 1 and VOCAB %lld in 1 … "
                    "2147483647",
                    (long long)config->seq_tokens, (long long)config->global_samples,
                    (long long)config->vocab);
    if (config->data == NULL || config->data[0] == '\0')
        return FAIL(ST_BAD_SETTING,
                    "DATA is empty; set it to your data, or to synthetic for random tokens");
    if (config->seq_tokens >= INT32_MAX ||
        __builtin_mul_overflow(config->global_samples, config->seq_tokens + 1, &elems))
        return FAIL(
            ST_BAD_SETTING,
            "GLOBAL_BATCH %lld samples of SEQ_LEN %lld tokens cannot be counted; lower one of them",
            (long long)config->global_samples, (long long)config->seq_tokens);
    if (config->chat != NULL && strcmp(config->data, FEED_SYNTHETIC) == 0)
        return FAIL(ST_BAD_SETTING, "synthetic data have no conversations; set DATA to "
                                    "conversations as JSON lines, or TASK=lm");
    enum status st = ST_OK;
    struct feed *feed = memory_new(1, sizeof *feed);
    feed->task = config->task;
    feed->seq_tokens = config->seq_tokens;
    feed->vocab = config->vocab;
    feed->separator[0] = feed->separator[1] = -1;
    feed->seed = config->seed;
    feed->is_shuffled = config->is_shuffled;
    feed->knows_documents = config->knows_documents;
    if (strcmp(config->data, FEED_SYNTHETIC) == 0) {
        const uint64_t facts[] = {config->task, (uint64_t)config->seq_tokens,
                                  (uint64_t)config->global_samples, (uint64_t)config->vocab,
                                  config->seed};
        feed->samples = config->global_samples;
        feed->tokens = config->global_samples * config->seq_tokens;
        feed->fingerprint = XXH3_64bits(facts, sizeof facts);
    } else {
        TRY_OR(feed_set_separators(feed, config), out_close);
        TRY_OR(feed_open_data(feed, config), out_close);
    }
    if (!config->knows_documents)
        feed->separator[0] = feed->separator[1] = -1;
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
    for (int i = 0; i < feed->items_n; i++) {
        pack_close(feed->item[i].pack);
        corpus_close(feed->item[i].corpus);
        squad_window_close(feed->item[i].windows);
        squad_close(feed->item[i].squad);
    }
    mix_order_close(feed->order);
    free(feed);
}

int64_t feed_samples(const struct feed *feed) { return feed->samples; }
int64_t feed_tokens(const struct feed *feed) { return feed->tokens; }
const char *feed_name(const struct feed *feed)
{
    return feed->items_n > 0 ? feed->name : FEED_SYNTHETIC;
}
uint64_t feed_fingerprint(const struct feed *feed) { return feed->fingerprint; }
int64_t feed_pass_samples(const struct feed *feed)
{
    return feed->items_n == 1 && feed->order == NULL ? feed->samples : 0;
}
uint64_t feed_order(const struct feed *feed)
{
    const bool is_packed = feed->items_n > 0 && feed->item[0].pack != NULL;
    const uint64_t facts[] = {feed->fingerprint,          (uint64_t)feed->samples,
                              (uint64_t)feed->seq_tokens, is_packed,
                              feed->is_shuffled,          feed->is_shuffled ? feed->seed : 0};
    return XXH3_64bits(facts, sizeof facts);
}
int64_t feed_epoch(const struct feed *feed, int64_t first) { return first / feed->samples; }

/* Finds file file_i of one item. */
static bool item_file(const struct feed_item *item, int64_t file_i, struct feed_file *out)
{
    struct corpus_file file;
    out->weight = item->weight;
    if (item->squad != NULL) {
        out->suffix = ".json";
        out->skip = 0;
        out->is_pair = out->sums_ends = false;
        return squad_file(item->squad, file_i, &out->path, &out->bytes, &out->sum);
    }
    if (item->corpus == NULL || !corpus_file(item->corpus, file_i, &file))
        return false;
    out->path = file.path;
    out->suffix = file.suffix;
    out->bytes = file.bytes;
    out->skip = file.skip;
    out->sum = file.sum;
    out->sums_ends = file.sums_ends;
    out->is_pair = file.is_pair;
    return true;
}

bool feed_file(const struct feed *feed, int64_t file_i, struct feed_file *out)
{
    for (int item = 0; item < feed->items_n; item++) {
        int64_t files_n = 0;
        out->item = item;
        while (item_file(feed->item + item, files_n, out)) {
            if (files_n++ == file_i)
                return true;
        }
        file_i -= files_n;
    }
    return false;
}

bool feed_is_here(const char *data)
{
    struct mix mix = {0};
    struct stat info;
    bool is_here = true;
    if (strcmp(data, FEED_SYNTHETIC) == 0 || stat(data, &info) == 0)
        return true;
    if (mix_parse(data, &mix) != ST_OK) {
        status_clear(); /* feed_open reports it */
        return true;
    }
    for (int i = 0; is_here && i < mix.n; i++)
        is_here = data_file_is_here(mix.item[i].data);
    mix_free(&mix);
    return is_here;
}

static int32_t feed_draw(const struct feed *feed, int use, uint64_t index, uint64_t n)
{
    return (int32_t)rand_below(feed->seed, RAND_STREAM(SYNTHETIC, use), index, n);
}

/* Draws T+1 tokens for sample `pos` of the batch: LM targets are the tokens shifted by one, as in
 * real text. */
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
        targets[seq - 1] =
            feed_draw(feed, FEED_DRAW_TOKENS, at + (uint64_t)seq, (uint64_t)feed->vocab);
        return;
    }
    for (int64_t t = 0; t < seq; t++)
        out->mask[row * seq + t] =
            rand_u32(feed->seed, RAND_STREAM(SYNTHETIC, FEED_DRAW_MASK), at + (uint64_t)t) & 1;
    out->starts[row] = feed_draw(feed, FEED_DRAW_STARTS, (uint64_t)pos, (uint64_t)seq);
    out->ends[row] = feed_draw(feed, FEED_DRAW_ENDS, (uint64_t)pos, (uint64_t)seq);
}

/* Marks the first position of the document of each token in a window of the corpus. */
static enum status feed_mark_documents(const struct feed *feed, const struct corpus *corpus,
                                       int64_t from, int32_t *first_key)
{
    const int64_t end = from + feed->seq_tokens;
    int64_t next;
    int32_t first = 0;
    TRY(corpus_next_document(corpus, from, end, feed->separator, &next));
    for (int64_t at = from; at < end; at++) {
        if (at == next) {
            first = (int32_t)(at - from);
            TRY(corpus_next_document(corpus, at + 1, end, feed->separator, &next));
        }
        first_key[at - from] = first;
    }
    return ST_OK;
}

/* Reads sample number j of an item, counted over its epochs. */
static enum status feed_get_sample(const struct feed *feed, const struct feed_item *item, int64_t j,
                                   int64_t row, const struct feed_batch *out)
{
    const int64_t seq = feed->seq_tokens;
    int32_t *first_key = out->first_key != NULL ? out->first_key + row * seq : NULL;
    int64_t window = j % item->samples;
    if (feed->is_shuffled)
        window = (int64_t)rand_permute(item->seed, RAND_STREAM(ORDER, j / item->samples),
                                       (uint64_t)window, (uint64_t)item->samples);
    if (feed->task == FEED_TASK_QA) {
        squad_window_fill(item->windows, window, out->tokens + row * seq, out->mask + row * seq);
        out->starts[row] = squad_window_get(item->windows, window)->start;
        out->ends[row] = squad_window_get(item->windows, window)->end;
        return ST_OK;
    }
    if (first_key != NULL && !feed->knows_documents) {
        memset(first_key, 0, (size_t)seq * sizeof *first_key);
        first_key = NULL;
    }
    if (item->pack != NULL)
        return pack_read(item->pack, window, out->tokens + row * seq, out->targets + row * seq,
                         first_key);
    TRY(corpus_read(item->corpus, window * seq, seq, out->tokens + row * seq));
    TRY(corpus_read(item->corpus, window * seq + 1, seq, out->targets + row * seq));
    return first_key != NULL ? feed_mark_documents(feed, item->corpus, window * seq, first_key)
                             : ST_OK;
}

enum status feed_get(const struct feed *feed, int64_t first, int64_t samples,
                     const struct feed_batch *out)
{
    ASSERTF(first >= 0 && samples >= 0, "first %lld samples %lld", (long long)first,
            (long long)samples);
    for (int64_t row = 0; row < samples; row++) {
        int64_t j = first + row;
        int item = 0;
        if (feed->order != NULL)
            item = mix_order_at(feed->order, j, &j);
        if (feed->items_n > 0) {
            TRY(feed_get_sample(feed, feed->item + item, j, row, out));
            continue;
        }
        feed_get_synthetic(feed, j % feed->samples, row, out);
        if (out->first_key != NULL) {
            /* Synthetic tokens have documents, too, so that masks are tested. */
            const int32_t *tokens = out->tokens + row * feed->seq_tokens;
            int32_t *first_key = out->first_key + row * feed->seq_tokens;
            int32_t begin = 0;
            for (int64_t t = 0; t < feed->seq_tokens; t++) {
                if (tokens[t] == feed->separator[0] || tokens[t] == feed->separator[1])
                    begin = (int32_t)t;
                first_key[t] = begin;
            }
        }
    }
    return ST_OK;
}
