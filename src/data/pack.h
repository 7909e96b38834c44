/* pack — samples of whole documents (PACK_DOCUMENTS), or of conversations. A document is cut only
 * if it is longer than a sample; the rest of a sample is padding.
 *
 *   - Documents are found by corpus_next_document, and one begins at the first token.
 *   - The last target of a document is the first token of the next. The last token of all has none.
 *   - Padding: the separator, with targets of -1, which losses ignore.
 *   - Within a sample documents have the order of the data; samples are ordered by their first
 *     documents. pack_fit chooses the documents of a sample.
 *   - Conversations: targets are the ids with CHAT_TRAINED, within their own conversation. A
 *     conversation longer than a sample loses its end, and is left out if no target is left. Each
 *     is one sample, unless several are packed.
 *
 * It must not know epochs or batches. */
#ifndef CONVOY_DATA_PACK_H
#define CONVOY_DATA_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/corpus.h"

struct pack_config {
    int64_t seq_tokens;
    int64_t separator[2]; /* ids; -1: none; not both, except for conversations */
    bool is_chat;         /* the documents are conversations */
    bool is_single;       /* each conversation is a sample */
    bool trains_all;      /* all tokens of conversations may be targets; else that is refused */
    bool allows_cut;      /* most conversations may lose all targets; else that is refused */
    /* as in feed_config */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

struct pack_facts {
    int64_t documents, cut; /* cut: documents longer than a sample */
    int64_t left_out;       /* conversations without a target, which are in no sample */
    int64_t targets;        /* counted tokens of conversations */
    int64_t positions;      /* tokens in samples, without padding */
};

struct pack;

/* pack_open — finds all documents: by their records, in a time that depends on their number, or
 * else by reading all tokens once. It keeps 16 bytes of memory for each document. Borrows the
 * corpus until close. Of conversations it reads all tokens. Fails with ST_RETRY: out of memory, or
 * progress stopped it; ST_BAD_DATA: more documents than can be counted, or conversations without
 * targets: most, or all. */
enum status pack_open(const struct corpus *corpus, const struct pack_config *config,
                      struct pack **out);
void pack_close(struct pack *pack); /* accepts NULL */
/* pack_samples — returns the number of samples. */
int64_t pack_samples(const struct pack *pack);
/* pack_facts — counts documents and positions, for logs. */
void pack_facts(const struct pack *pack, struct pack_facts *out);
/* pack_read — reads a sample: seq_tokens ids, and the same number of targets. first_key, if not
 * NULL: first position in the sample of the document of each token; padding is a document. Fails as
 * corpus_read. */
enum status pack_read(const struct pack *pack, int64_t sample, int32_t *tokens, int32_t *targets,
                      int32_t *first_key);

/* pack_fit — distributes chunks over samples of equal length: best-fit decreasing (Ding et al.
 * 2024, "Fewer Truncations Improve Language Modeling"). Pure. It must not know the meaning of a
 * chunk. */

/* pack_fit — puts chunks, from the longest to the shortest, each into the sample with the smallest
 * sufficient room. Samples are numbered in the order of their first chunks. External for tests.
 *   tokens  (n) length of each chunk, 1 … seq_tokens
 *   sample  (n) out: its sample
 *   *samples_out  number of samples
 * Needs 16 bytes for a chunk and 5 for a token of seq_tokens. Fails with ST_RETRY if memory is
 * refused. */
enum status pack_fit(const int32_t *tokens, int32_t n, int32_t seq_tokens, int32_t *sample,
                     int32_t *samples_out);

#endif
