/* corpus — token files: made from text, JSON lines or Megatron files once, cached by content,
 * mapped afterwards.
 *
 * A token file is llm.c's: 256 int32 header {20240520, 1, token count} and little-endian uint16
 * ids. Must not know samples or batches. */
#ifndef CONVOY_DATA_CORPUS_H
#define CONVOY_DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* one or more token files seen as one sequence, documents joined as contract §3 says */
struct corpus;

struct corpus_config {
    const char *data;       /* as data_file.h reads it */
    const char *cache_dir;  /* where shards and downloads are kept */
    bool allows_local_urls; /* as data_file.h */
    int64_t vocab;
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

enum status corpus_open(const struct corpus_config *config, struct corpus **out);
void corpus_close(struct corpus *corpus);
int64_t corpus_tokens(const struct corpus *corpus);
/* corpus_read — n ids from position first; both within the corpus. */
void corpus_read(const struct corpus *corpus, int64_t first, int64_t n, int32_t *out);
const char *corpus_name(const struct corpus *corpus);
uint64_t corpus_fingerprint(const struct corpus *corpus);
/* corpus_file — token file file_i of those that make the sequence, given or made: where it lies,
 * and what shard_check found. false: there are no more. */
bool corpus_file(const struct corpus *corpus, int64_t file_i, const char **path_out,
                 int64_t *tokens_out, uint64_t *sum_out);
/* corpus_write — `convoy tokenize`: DATA → OUT as one llm.c token file, whole or not at all; or,
 * when OUT ends in .idx, as Megatron's pair of files (megatron.h), in which every <|endoftext|>
 * ends a document. */
enum status corpus_write(const struct corpus_config *config, const char *out_path,
                         int64_t *tokens_out);

#endif
