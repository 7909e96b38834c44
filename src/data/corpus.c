/* corpus.c — DATA as one sequence of token ids. See corpus.h. */
#include "data/corpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/must.h"
#include "base/text.h"
#include "data/shard.h"

struct corpus {
    struct shard shard;
    uint64_t fingerprint;
    char name[512];
};

static enum status corpus_check(struct corpus *corpus, const struct corpus_config *config)
{
    struct shard_scan *scan;
    const struct shard *shard = &corpus->shard;
    TRY(shard_scan_begin(config->vocab, &scan));
    shard_scan_add(scan, shard->ids, shard->info.tokens);
    const int64_t bad_i = shard_scan_bad_i(scan);
    corpus->fingerprint = shard_scan_sum(scan);
    shard_scan_end(scan);
    if (shard->info.has_sum && shard->info.sum != corpus->fingerprint)
        return FAIL(ST_BAD_DATA, "token file %s is damaged: its ids have checksum %016llx, expected %016llx; make it again",
                    config->data, (unsigned long long)corpus->fingerprint, (unsigned long long)shard->info.sum);
    if (bad_i >= 0)
        return FAIL(ST_BAD_DATA, "%s: token %lld has id %u, but VOCAB=%lld allows only smaller ones; set VOCAB=50257 or more, or use "
                    "data made for this vocabulary", config->data, (long long)bad_i, shard->ids[bad_i],
                    (long long)config->vocab);
    return ST_OK;
}

enum status corpus_open(const struct corpus_config *config, struct corpus **out)
{
    enum status st;
    struct corpus *corpus = calloc(1, sizeof *corpus);
    if (corpus == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for the corpus", sizeof *corpus);
    TRY_OR(shard_open(config->data, &corpus->shard), out_close);
    TRY_OR(corpus_check(corpus, config), out_close);
    text_copy(corpus->name, sizeof corpus->name, config->data);
    *out = corpus;
    return ST_OK;
out_close:
    corpus_close(corpus);
    return st;
}

void corpus_close(struct corpus *corpus)
{
    if (corpus == NULL)
        return;
    shard_close(&corpus->shard);
    free(corpus);
}

int64_t corpus_tokens(const struct corpus *corpus) { return corpus->shard.info.tokens; }
const char *corpus_name(const struct corpus *corpus) { return corpus->name; }
uint64_t corpus_fingerprint(const struct corpus *corpus) { return corpus->fingerprint; }

void corpus_read(const struct corpus *corpus, int64_t first, int64_t n, int32_t *out)
{
    ASSERTF(first >= 0 && n >= 0 && n <= corpus_tokens(corpus) - first, "first %lld n %lld of %lld", (long long)first,
            (long long)n, (long long)corpus_tokens(corpus));
    for (int64_t i = 0; i < n; i++)
        out[i] = corpus->shard.ids[first + i];
}
