/* encode — text files into ids, as they stream past, on all cores, in bounded memory. Must not know caches. */
#ifndef CONVOY_DATA_ENCODE_H
#define CONVOY_DATA_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/shard.h"
#include "data/source.h"

struct encode_config {
    int64_t bytes_total; /* for progress: all text that will go through */
    /* NULL allowed; false: stop, fails ST_RETRY */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

struct encode;
enum status encode_open(const struct encode_config *config, struct encode **out); /* tokenizer, threads */
void encode_close(struct encode *encode);                                         /* accepts NULL */
/* encode_files — append the ids of n files, with <|endoftext|> between two, to the writer. key_out: as
 * encode_key of what was read. */
enum status encode_files(struct encode *encode, const struct source *text, int64_t n,
                         struct shard_writer *writer, struct shard_key *key_out);
/* encode_key — names the ids of these files: XXH3-128 of the tokenizer's version and of each file's size and
 * content. Only reads. */
enum status encode_key(const struct encode_config *config, const struct source *text, int64_t n,
                       struct shard_key *key_out);

#endif
