/* corpus — the tokens of DATA as one sequence: token files, given or made once from text, JSON
 * lines or Megatron files, and then cached and mapped.
 *
 * It must not know samples or batches. */
#ifndef CONVOY_DATA_CORPUS_H
#define CONVOY_DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer.h"

/* Token files seen as one sequence, with the end of text between documents. */
struct corpus;

struct corpus_config {
    const char *data;       /* DATA, as in data_file.h */
    const char *cache_dir;  /* for token files and downloads */
    bool allows_local_urls; /* as data_file.h */
    int64_t vocab;
    const struct tokenizer *tokenizer; /* of texts; borrowed; NULL: GPT-2's */
    const char *model; /* one without a tokenizer of its own (tokenizer_gpt2_check); NULL: none */
    bool takes_text;   /* corpus_visit: files of ids are refused */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

enum status corpus_open(const struct corpus_config *config, struct corpus **out);
void corpus_close(struct corpus *corpus);
int64_t corpus_tokens(const struct corpus *corpus);
/* corpus_read — copies n ids from position first; both lie within the corpus. */
void corpus_read(const struct corpus *corpus, int64_t first, int64_t n, int32_t *out);
const char *corpus_name(const struct corpus *corpus);
uint64_t corpus_fingerprint(const struct corpus *corpus);
/* corpus_file — token file file_i of the sequence, given or made: its path, the bytes of its ids,
 * and their checksum.
 * false: there are no more. */
bool corpus_file(const struct corpus *corpus, int64_t file_i, const char **path_out,
                 int64_t *tokens_bytes_out, uint64_t *sum_out);
/* corpus_visit — gives all ids to `take` in their order, in parts of any length. It keeps none:
 * the tokens of texts are not cached. A part of a text ends where a pre-token ends. */
typedef enum status corpus_visit_fn(void *arg, const uint32_t *ids, int64_t n);
enum status corpus_visit(const struct corpus_config *config, corpus_visit_fn *take, void *arg,
                         int64_t *tokens_out);
/* corpus_write — `convoy tokenize`: writes DATA as one llm.c token file, complete or not at all.
 * When out_path ends in .idx, writes Megatron's pair of files (megatron.h), in which every
 * end of text ends a document. Ids have 16 bits where the vocabulary allows that. */
enum status corpus_write(const struct corpus_config *config, const char *out_path,
                         int64_t *tokens_out);

#endif
