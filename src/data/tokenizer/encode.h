/* encode — turns texts into token ids, on all cores, streaming, in bounded memory.
 *
 * A plain text is one document. JSON lines have one document a line, the record, followed by the
 * end of text. Between two files is one end of text. Conversations are records, too, but only their
 * template separates them. It must not know caches. */
#ifndef CONVOY_DATA_ENCODE_H
#define CONVOY_DATA_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/chat/chat.h"
#include "data/data_file.h"
#include "data/shard.h"
#include "data/tokenizer/tokenizer.h"

/* bytes of one line of JSON lines, and of one word of text */
#define ENCODE_LINE_MAX ((int64_t)64 << 20)

/* Change it if the same files would get other ids or records: the files of an older program are
 * then made again. */
#define ENCODE_VERSION "convoy gpt2 bpe 4"

struct encode_config {
    const struct tokenizer *tokenizer; /* borrowed; NULL: GPT-2's */
    const struct chat *chat; /* lines are conversations, and ids have its marks; NULL: texts */
    int id_bytes;            /* bytes of the ids that are kept: 2 or 4; with chat 4 */
    int64_t bytes_total;     /* bytes of all files, for progress */
    /* NULL allowed; returns false to stop: then ST_RETRY. Called from the threads that encode, one
     * at a time, while encode_files runs. */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* The destination of ids. Set append, arg and end, also begin if documents matter; zero the
 * rest. */
struct encode_sink {
    enum status (*append)(void *arg, const uint32_t *ids, int64_t n);
    /* NULL allowed. A record begins at this position, which may lie ahead of the ids appended so
     * far; or, if not is_record, a file whose documents are separated only by ends of text. */
    enum status (*begin)(void *arg, int64_t token_i, bool is_record);
    void *arg;
    uint32_t end; /* end of text; TOKENIZER_NONE: there is none */
    int64_t tokens;
    uint32_t last;    /* last id so far */
    bool begins_file; /* a file begins at the next id */
};
/* Separates the next ids from the previous ids by an end of text, unless there is one. */
void encode_begin_file(struct encode_sink *sink);
/* Notes a record that begins `ahead` ids after the ids so far; ids[0, n) come next. */
enum status encode_begin_record(struct encode_sink *sink, const uint32_t *ids, int64_t n,
                                int64_t ahead);
/* Appends ids. Fails ST_BAD_DATA: files must be separated, but there is no end of text. */
enum status encode_put(struct encode_sink *sink, const uint32_t *ids, int64_t n);

struct encode;
/* encode_open — starts the tokenizer's threads. */
enum status encode_open(const struct encode_config *config, struct encode **out);
void encode_close(struct encode *encode); /* accepts NULL */
/* encode_files — appends the ids of n texts. key_out: the result of encode_key for the bytes read.
 * Fails ST_BAD_DATA: a line that is not a document (its number is in the message), a file that
 * changed meanwhile. */
enum status encode_files(struct encode *encode, const struct data_file *files, int64_t n,
                         struct encode_sink *sink, struct shard_key *key_out);
/* encode_key — identifies the ids of these files: XXH3-128 of the tokenizer, the width of ids, and
 * each file's kind, size and content. Reads the files, does not tokenise. */
enum status encode_key(const struct encode_config *config, const struct data_file *files, int64_t n,
                       struct shard_key *key_out);

#endif
