/* pack — see pack.h. A piece is a document, or a part of one that is too long. */
#include "data/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/pack_fit.h"

#define READ_TOKENS 65536 /* between two reports of the progress */

struct pack {
    const struct corpus *corpus;
    int64_t seq_tokens, corpus_tokens;
    int32_t padding; /* the id */
    /* pieces, by their samples once these are known */
    int64_t *first;
    int32_t *tokens;
    int32_t pieces_n, pieces_cap;
    int32_t *begin; /* (samples_n + 1) the first piece of each sample */
    int32_t samples_n;
    int64_t documents, cut;
};

/* ---- pieces ---- */

static enum status fail_memory(const struct pack *pack)
{
    return FAIL(ST_RETRY, "out of memory: %d documents to pack; use PACK_DOCUMENTS=0",
                pack->pieces_n);
}

static enum status grow(struct pack *pack)
{
    if (pack->pieces_n < pack->pieces_cap)
        return ST_OK;
    if (pack->pieces_cap > INT32_MAX / 2)
        return FAIL(ST_BAD_DATA, "DATA has more than %d documents; use PACK_DOCUMENTS=0",
                    pack->pieces_n);
    const int32_t cap = pack->pieces_cap > 0 ? 2 * pack->pieces_cap : 1024;
    int64_t *first = realloc(pack->first, (size_t)cap * sizeof *first);
    if (first != NULL)
        pack->first = first;
    int32_t *tokens = realloc(pack->tokens, (size_t)cap * sizeof *tokens);
    if (tokens != NULL)
        pack->tokens = tokens;
    if (first == NULL || tokens == NULL)
        return fail_memory(pack);
    pack->pieces_cap = cap;
    return ST_OK;
}

/* add_document — tokens [first, end). */
static enum status add_document(struct pack *pack, int64_t first, int64_t end)
{
    pack->documents++;
    pack->cut += end - first > pack->seq_tokens;
    for (int64_t n; first < end; first += n) {
        TRY(grow(pack));
        n = end - first < pack->seq_tokens ? end - first : pack->seq_tokens;
        pack->first[pack->pieces_n] = first;
        pack->tokens[pack->pieces_n++] = (int32_t)n;
    }
    return ST_OK;
}

/* ---- samples ---- */

/* order — the pieces by their samples, in the order of the data within each. */
static enum status order(struct pack *pack, const int32_t *sample)
{
    const int32_t n = pack->pieces_n;
    int64_t *first = malloc((size_t)n * sizeof *first);
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    pack->begin = calloc((size_t)pack->samples_n + 2, sizeof *pack->begin);
    if (first == NULL || tokens == NULL || pack->begin == NULL) {
        free(first);
        free(tokens);
        return fail_memory(pack);
    }
    int32_t *next = pack->begin + 1; /* of sample s while pieces are placed: next[s] */
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

static enum status make(struct pack *pack, const struct pack_config *config)
{
    /* A separator that is the last token of all begins no document: it has no target. */
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
            return FAIL(ST_RETRY, "stopped while the documents of DATA were looked for");
    }
    if (begun < all - 1)
        TRY(add_document(pack, begun, all));
    int32_t *sample = malloc((size_t)pack->pieces_n * sizeof *sample);
    if (sample == NULL)
        return fail_memory(pack);
    enum status st =
        pack_fit(pack->tokens, pack->pieces_n, (int32_t)pack->seq_tokens, sample, &pack->samples_n);
    if (st == ST_OK)
        st = order(pack, sample);
    free(sample);
    return st;
}

enum status pack_open(const struct corpus *corpus, const struct pack_config *config,
                      struct pack **out)
{
    const bool is_first = config->separator[0] >= 0;
    ASSERTF(corpus_tokens(corpus) > 1 && (is_first || config->separator[1] >= 0),
            "%lld tokens, separators %lld %lld", (long long)corpus_tokens(corpus),
            (long long)config->separator[0], (long long)config->separator[1]);
    struct pack *pack = calloc(1, sizeof *pack);
    if (pack == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for packed documents", sizeof *pack);
    pack->corpus = corpus;
    pack->seq_tokens = config->seq_tokens;
    pack->corpus_tokens = corpus_tokens(corpus);
    pack->padding = (int32_t)config->separator[is_first ? 0 : 1];
    enum status st = make(pack, config);
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
    free(pack);
}

int64_t pack_samples(const struct pack *pack) { return pack->samples_n; }

void pack_facts(const struct pack *pack, struct pack_facts *out)
{
    int64_t tokens = 0;
    for (int32_t i = 0; i < pack->pieces_n; i++)
        tokens += pack->tokens[i];
    *out = (struct pack_facts){.documents = pack->documents,
                               .cut = pack->cut,
                               .full = (double)tokens /
                                       ((double)pack->samples_n * (double)pack->seq_tokens)};
}

/* ---- reading ---- */

static void mark(int32_t *first_key, int64_t at, int64_t n)
{
    for (int64_t t = at; first_key != NULL && t < at + n; t++)
        first_key[t] = (int32_t)at;
}

static enum status read_piece(const struct pack *pack, int32_t piece, int32_t *tokens,
                              int32_t *targets)
{
    const int64_t first = pack->first[piece], n = pack->tokens[piece],
                  known = first + n < pack->corpus_tokens ? n : n - 1;
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
        TRY(read_piece(pack, i, tokens + at, targets + at));
        mark(first_key, at, pack->tokens[i]);
        at += pack->tokens[i];
    }
    for (int64_t t = at; t < pack->seq_tokens; t++) {
        tokens[t] = pack->padding;
        targets[t] = -1;
    }
    mark(first_key, at, pack->seq_tokens - at);
    return ST_OK;
}
