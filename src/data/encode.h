/* encode — files into ids, as they stream past, on all cores, in bounded memory. Must not know
 * caches.
 *
 * Plain text: one document. JSON lines: a document a line, each followed by <|endoftext|>.
 * Megatron: its documents. Between two documents stands one <|endoftext|>, unless one is there
 * already. */
#ifndef CONVOY_DATA_ENCODE_H
#define CONVOY_DATA_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/shard.h"
#include "data/data_file.h"

/* bytes of a line of JSON lines, and of a word of text */
#define ENCODE_LINE_MAX ((int64_t)64 << 20)

struct encode_config {
    int64_t bytes_total; /* for progress: all that will be read */
    /* NULL allowed; false: stop, fails ST_RETRY */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* Where ids go, and what stands between documents there. Set append and arg, zero the rest. */
struct encode_sink {
    enum status (*append)(void *arg, const uint16_t *ids, int64_t n);
    void *arg;
    int64_t tokens;
    uint16_t last;        /* id so far */
    bool needs_separator; /* the next id begins a document */
};
void encode_begin_document(struct encode_sink *sink); /* what comes next is another document */
enum status encode_put(struct encode_sink *sink, const uint16_t *ids, int64_t n);

struct encode;
/* tokenizer, threads */
enum status encode_open(const struct encode_config *config, struct encode **out);
void encode_close(struct encode *encode); /* accepts NULL */
/* encode_files — the ids of n files. key_out: as encode_key of what was read. Fails ST_BAD_DATA: a
 * line that is no document, named by file and number; a file that changed meanwhile. */
enum status encode_files(struct encode *encode, const struct data_file *files, int64_t n,
                         struct encode_sink *sink, struct shard_key *key_out);
/* encode_key — names the ids of these files: XXH3-128 of the tokenizer's version and of each file's
 * kind, size and content. Only reads. */
enum status encode_key(const struct encode_config *config, const struct data_file *files, int64_t n,
                       struct shard_key *key_out);

#endif
