/* pack — see pack.h. A chunk is a document, or a range of one that is too long. */
#include "data/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "data/chat/chat.h"

#define LEVELS 4 /* levels with 64 bits for each bit of the next level: 2^24 rooms */
#define NONE (-1)

struct fit {
    int32_t seq_tokens;
    uint64_t *bits[LEVELS]; /* bit r of level 0: a sample has room for r tokens */
    int32_t *newest;        /* (seq_tokens + 1) newest sample with that room */
    int32_t *before;        /* (n) for a sample: the previous sample with the same room */
    int32_t *order;         /* (n) chunks, the longest first */
    int32_t *number;        /* (n) number of a sample, by its first chunk */
    int32_t samples_n;
};

/* ---- memory ---- */

static bool allocate_array(int32_t **out, int64_t n)
{
    *out = malloc((size_t)n * sizeof **out);
    return *out != NULL;
}

static enum status fit_init(struct fit *fit, int32_t n, int32_t seq_tokens)
{
    *fit = (struct fit){.seq_tokens = seq_tokens};
    bool is_there = allocate_array(&fit->newest, (int64_t)seq_tokens + 1) &&
                    allocate_array(&fit->before, n) && allocate_array(&fit->order, n) &&
                    allocate_array(&fit->number, n);
    for (int level = 0; level < LEVELS; level++) {
        fit->bits[level] = calloc((size_t)(seq_tokens >> 6 * (level + 1)) + 1, sizeof(uint64_t));
        is_there = is_there && fit->bits[level] != NULL;
    }
    if (!is_there)
        return FAIL(ST_RETRY, "out of memory: samples of %d documents", n);
    for (int32_t room = 0; room <= seq_tokens; room++)
        fit->newest[room] = NONE;
    return ST_OK;
}

/* ---- rooms ---- */

static void set_bit(struct fit *fit, int32_t room, bool is_there)
{
    for (int level = 0; level < LEVELS; level++, room >>= 6) {
        uint64_t *word = &fit->bits[level][room >> 6], bit = UINT64_C(1) << (room & 63);
        *word = is_there ? *word | bit : *word & ~bit;
        if (!is_there && *word != 0)
            return;
    }
}

/* least_room — returns the smallest room that is at least `room`; NONE: there is none. */
static int32_t least_room(const struct fit *fit, int32_t room)
{
    int32_t at = room;
    for (int level = 0; level < LEVELS; level++) {
        const int32_t words = (fit->seq_tokens >> 6 * (level + 1)) + 1;
        uint64_t word = at >> 6 < words ? fit->bits[level][at >> 6] >> (at & 63) : 0;
        if (word == 0) {
            at = (at >> 6) + 1;
            continue;
        }
        at += __builtin_ctzll(word);
        for (; level > 0; level--)
            at = at << 6 | __builtin_ctzll(fit->bits[level - 1][at]);
        return at;
    }
    return NONE;
}

static void add_sample(struct fit *fit, int32_t sample, int32_t room)
{
    fit->before[sample] = fit->newest[room];
    fit->newest[room] = sample;
    set_bit(fit, room, true);
}

static int32_t take_newest(struct fit *fit, int32_t room)
{
    const int32_t sample = fit->newest[room];
    fit->newest[room] = fit->before[sample];
    if (fit->newest[room] == NONE)
        set_bit(fit, room, false);
    return sample;
}

/* ---- chunks ---- */

static void number_samples(struct fit *fit, int32_t n, int32_t *sample)
{
    int32_t next = 0;
    for (int32_t i = 0; i < fit->samples_n; i++)
        fit->number[i] = NONE;
    for (int32_t i = 0; i < n; i++) {
        int32_t *to = &fit->number[sample[i]];
        if (*to == NONE)
            *to = next++;
        sample[i] = *to;
    }
}

enum status pack_fit(const int32_t *tokens, int32_t n, int32_t seq_tokens, int32_t *sample,
                     int32_t *samples_out)
{
    struct fit fit;
    ASSERTF(n > 0 && seq_tokens > 0 && seq_tokens < 1 << 6 * LEVELS, "%d chunks of at most %d", n,
            seq_tokens);
    enum status st = fit_init(&fit, n, seq_tokens);
    if (st == ST_OK) {
        /* The longest first; of equal ones the earlier first. `newest` is used for counting, then
         * restored. */
        int32_t *count = fit.newest, at = 0;
        for (int32_t i = 0; i < n; i++) {
            ASSERTF(tokens[i] > 0 && tokens[i] <= fit.seq_tokens, "chunk %d has %d tokens", i,
                    tokens[i]);
            count[tokens[i]]++;
        }
        for (int32_t length = fit.seq_tokens; length >= 0; length--) {
            const int32_t chunks = count[length] - NONE;
            count[length] = at;
            at += chunks;
        }
        for (int32_t i = 0; i < n; i++)
            fit.order[count[tokens[i]]++] = i;
        for (int32_t length = 0; length <= fit.seq_tokens; length++)
            count[length] = NONE;
        for (int32_t i = 0; i < n; i++) {
            const int32_t chunk = fit.order[i], length = tokens[chunk];
            int32_t room = least_room(&fit, length);
            sample[chunk] = room == NONE ? fit.samples_n++ : take_newest(&fit, room);
            add_sample(&fit, sample[chunk], (room == NONE ? fit.seq_tokens : room) - length);
        }
        number_samples(&fit, n, sample);
        *samples_out = fit.samples_n;
    }
    for (int level = 0; level < LEVELS; level++)
        free(fit.bits[level]);
    free(fit.newest);
    free(fit.before);
    free(fit.order);
    free(fit.number);
    return st;
}

#define CHECKED_CONVERSATIONS 100
#define READ_TOKENS 65536 /* between two reports of the progress */

struct pack {
    const struct corpus *corpus;
    int64_t seq_tokens, corpus_tokens;
    int32_t padding; /* the id */
    bool is_chat;
    /* chunks, grouped by their samples once the samples are computed */
    int64_t *first;
    int32_t *tokens;
    int32_t chunks_n, chunks_cap;
    int32_t *begin; /* (samples_n + 1) the first chunk of each sample */
    int32_t samples_n;
    int64_t documents, cut, left_out, targets;
    int64_t checked, checked_targets; /* positions and targets of the first conversations */
    int32_t *ids;                     /* (seq_tokens) of a conversation */
};

/* ---- chunks ---- */

static enum status fail_memory(const struct pack *pack)
{
    return FAIL(ST_RETRY, "out of memory: %d documents to pack; use PACK_DOCUMENTS=0",
                pack->chunks_n);
}

static enum status grow_chunks(struct pack *pack)
{
    if (pack->chunks_n < pack->chunks_cap)
        return ST_OK;
    if (pack->chunks_cap > INT32_MAX / 2)
        return FAIL(ST_BAD_DATA, "DATA has more than %d documents; use PACK_DOCUMENTS=0",
                    pack->chunks_n);
    const int32_t cap = pack->chunks_cap > 0 ? 2 * pack->chunks_cap : 1024;
    int64_t *first = realloc(pack->first, (size_t)cap * sizeof *first);
    if (first != NULL)
        pack->first = first;
    int32_t *tokens = realloc(pack->tokens, (size_t)cap * sizeof *tokens);
    if (tokens != NULL)
        pack->tokens = tokens;
    if (first == NULL || tokens == NULL)
        return fail_memory(pack);
    pack->chunks_cap = cap;
    return ST_OK;
}

static enum status add_chunk(struct pack *pack, int64_t first, int64_t n)
{
    TRY(grow_chunks(pack));
    pack->first[pack->chunks_n] = first;
    pack->tokens[pack->chunks_n++] = (int32_t)n;
    return ST_OK;
}

static bool is_target(int32_t id) { return ((uint32_t)id & CHAT_TRAINED) != 0; }

/* Adds the tokens [first, end) of a conversation. The end is lost if it exceeds a sample. */
static enum status add_conversation(struct pack *pack, int64_t first, int64_t end)
{
    const int64_t n = end - first < pack->seq_tokens ? end - first : pack->seq_tokens;
    int64_t targets = 0;
    TRY(corpus_read(pack->corpus, first, n, pack->ids));
    for (int64_t t = 1; t < n; t++)
        targets += is_target(pack->ids[t]);
    pack->targets += targets;
    if (pack->documents <= CHECKED_CONVERSATIONS) {
        pack->checked += n - 1;
        pack->checked_targets += targets;
    }
    pack->left_out += targets == 0;
    return targets > 0 ? add_chunk(pack, first, n) : ST_OK;
}

/* add_document — adds tokens [first, end). */
static enum status add_document(struct pack *pack, int64_t first, int64_t end)
{
    pack->documents++;
    pack->cut += end - first > pack->seq_tokens;
    if (pack->is_chat)
        return add_conversation(pack, first, end);
    for (int64_t n; first < end; first += n) {
        n = end - first < pack->seq_tokens ? end - first : pack->seq_tokens;
        TRY(add_chunk(pack, first, n));
    }
    return ST_OK;
}

/* ---- samples ---- */

/* Groups the chunks by their samples, in the order of the data within each. */
static enum status group_chunks(struct pack *pack, const int32_t *sample)
{
    const int32_t n = pack->chunks_n;
    int64_t *first = malloc((size_t)n * sizeof *first);
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    pack->begin = calloc((size_t)pack->samples_n + 2, sizeof *pack->begin);
    if (first == NULL || tokens == NULL || pack->begin == NULL) {
        free(first);
        free(tokens);
        return fail_memory(pack);
    }
    int32_t *next = pack->begin + 1; /* next[s]: next index in sample s while chunks are put in */
    for (int32_t i = 0; i < n; i++)
        next[sample[i] + 1]++;
    for (int32_t s = 0; s < pack->samples_n; s++)
        next[s + 1] += next[s];
    for (int32_t i = 0; i < n; i++) {
        const int32_t to = next[sample[i]]++;
        first[to] = pack->first[i];
        tokens[to] = pack->tokens[i];
    }
    free(pack->first);
    free(pack->tokens);
    pack->first = first;
    pack->tokens = tokens;
    return ST_OK;
}

/* ---- life ---- */

/* Refuses data in which the loss counts nothing, or nothing of most conversations. */
static enum status check_targets(const struct pack *pack, const struct pack_config *config)
{
    const long long all = pack->documents, left_out = pack->left_out;
    if (pack->chunks_n == 0)
        return FAIL(ST_BAD_DATA,
                    "none of %lld conversations has an answer within SEQ_LEN=%lld tokens; raise "
                    "SEQ_LEN, or check the data with: convoy tokenize DATA=… SHOW=3",
                    all, (long long)pack->seq_tokens);
    if (pack->checked > 0 && pack->checked_targets == pack->checked && !config->trains_all)
        return FAIL(ST_BAD_DATA,
                    "every token of the first conversations counts in the loss, questions too; set "
                    "LOSS_ON=all if that is meant, or labels of -100 where no loss counts");
    if (2 * left_out > all && !config->allows_cut)
        return FAIL(ST_BAD_DATA,
                    "%lld of %lld conversations have no answer within SEQ_LEN=%lld tokens, so they "
                    "would be left out; raise SEQ_LEN, or set ALLOW_CUT=1",
                    left_out, all, (long long)pack->seq_tokens);
    return ST_OK;
}

static enum status pack_documents(struct pack *pack, const struct pack_config *config)
{
    /* A separator that is the last token of all begins no document: it has no target. A
     * conversation of one token is one, so that it is counted. */
    const int64_t all = pack->corpus_tokens;
    int64_t begun = 0;
    for (int64_t at = 1, stop, next; at < all; at = stop) {
        stop = all - at < READ_TOKENS ? all : at + READ_TOKENS;
        TRY(corpus_next_document(pack->corpus, at, stop, config->separator, &next));
        while (next < stop) {
            TRY(add_document(pack, begun, next));
            begun = next;
            TRY(corpus_next_document(pack->corpus, begun + 1, stop, config->separator, &next));
        }
        if (config->progress && !config->progress(config->progress_arg, stop, all))
            return FAIL(ST_RETRY, "stopped while DATA was searched for documents");
    }
    if (begun < all - !pack->is_chat)
        TRY(add_document(pack, begun, all));
    if (pack->is_chat)
        TRY(check_targets(pack, config));
    int32_t *sample = malloc((size_t)pack->chunks_n * sizeof *sample);
    if (sample == NULL)
        return fail_memory(pack);
    enum status st = ST_OK;
    if (config->is_single) {
        pack->samples_n = pack->chunks_n;
        for (int32_t i = 0; i < pack->chunks_n; i++)
            sample[i] = i;
    } else {
        st = pack_fit(pack->tokens, pack->chunks_n, (int32_t)pack->seq_tokens, sample,
                      &pack->samples_n);
    }
    if (st == ST_OK)
        st = group_chunks(pack, sample);
    free(sample);
    return st;
}

enum status pack_open(const struct corpus *corpus, const struct pack_config *config,
                      struct pack **out)
{
    const bool is_first = config->separator[0] >= 0;
    ASSERTF(config->is_chat ||
                (corpus_tokens(corpus) > 1 && (is_first || config->separator[1] >= 0)),
            "%lld tokens, separators %lld %lld", (long long)corpus_tokens(corpus),
            (long long)config->separator[0], (long long)config->separator[1]);
    struct pack *pack = memory_new(1, sizeof *pack);
    pack->corpus = corpus;
    pack->seq_tokens = config->seq_tokens;
    pack->corpus_tokens = corpus_tokens(corpus);
    pack->padding = (int32_t)config->separator[is_first ? 0 : 1];
    if (pack->padding < 0)
        pack->padding = 0; /* any id: no loss counts it, and no other token attends to it */
    pack->is_chat = config->is_chat;
    if (config->is_chat)
        pack->ids = memory_new((size_t)config->seq_tokens, sizeof *pack->ids);
    enum status st = pack_documents(pack, config);
    if (st != ST_OK)
        pack_close(pack);
    else
        *out = pack;
    return st;
}

void pack_close(struct pack *pack)
{
    if (pack == NULL)
        return;
    free(pack->first);
    free(pack->tokens);
    free(pack->begin);
    free(pack->ids);
    free(pack);
}

int64_t pack_samples(const struct pack *pack) { return pack->samples_n; }

void pack_facts(const struct pack *pack, struct pack_facts *out)
{
    int64_t tokens = 0;
    for (int32_t i = 0; i < pack->chunks_n; i++)
        tokens += pack->tokens[i];
    *out = (struct pack_facts){.documents = pack->documents,
                               .cut = pack->cut,
                               .left_out = pack->left_out,
                               .targets = pack->targets,
                               .positions = tokens};
}

/* ---- reading ---- */

static void fill_first_key(int32_t *first_key, int64_t at, int64_t n)
{
    for (int64_t t = at; first_key != NULL && t < at + n; t++)
        first_key[t] = (int32_t)at;
}

/* Reads a conversation's n ids from `first` on, and the targets that are marked. */
static enum status read_conversation(const struct pack *pack, int64_t first, int64_t n,
                                     int32_t *tokens, int32_t *targets)
{
    TRY(corpus_read(pack->corpus, first, n, tokens));
    for (int64_t t = 0; t < n; t++) {
        const bool has_target = t + 1 < n && is_target(tokens[t + 1]);
        targets[t] = has_target ? tokens[t + 1] & ~(int32_t)CHAT_TRAINED : -1;
        tokens[t] &= ~(int32_t)CHAT_TRAINED;
    }
    return ST_OK;
}

static enum status read_document(const struct pack *pack, int64_t first, int64_t n, int32_t *tokens,
                                 int32_t *targets)
{
    const int64_t known = first + n < pack->corpus_tokens ? n : n - 1;
    if (pack->is_chat)
        return read_conversation(pack, first, n, tokens, targets);
    TRY(corpus_read(pack->corpus, first, n, tokens));
    if (known > 0)
        TRY(corpus_read(pack->corpus, first + 1, known, targets));
    if (known < n)
        targets[known] = -1;
    return ST_OK;
}

enum status pack_read(const struct pack *pack, int64_t sample, int32_t *tokens, int32_t *targets,
                      int32_t *first_key)
{
    ASSERTF(sample >= 0 && sample < pack->samples_n, "sample %lld of %d", (long long)sample,
            pack->samples_n);
    int64_t at = 0;
    for (int32_t i = pack->begin[sample]; i < pack->begin[sample + 1]; i++) {
        const int64_t n = pack->tokens[i];
        TRY(read_document(pack, pack->first[i], n, tokens + at, targets + at));
        fill_first_key(first_key, at, n);
        at += n;
    }
    for (int64_t t = at; t < pack->seq_tokens; t++) {
        tokens[t] = pack->padding;
        targets[t] = -1;
    }
    fill_first_key(first_key, at, pack->seq_tokens - at);
    return ST_OK;
}
