/* corpus — the tokens of DATA as one sequence, and where its documents begin: token files, given or
 * made once from text or JSON lines and then cached, and Megatron files; all mapped.
 *
 * To open it costs time by the number of files, not by their size: ids are checked against the
 * vocabulary when they are read. It must not know samples or batches. */
#ifndef CONVOY_DATA_CORPUS_H
#define CONVOY_DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

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
/* Copies n ids from position first; both lie within the corpus. Fails ST_BAD_DATA: an id is not in
 * the vocabulary, or a token file is damaged. */
enum status corpus_read(const struct corpus *corpus, int64_t first, int64_t n, int32_t *out);
/* Finds the first document that begins in [at, end); *out is `end` if none does.
 *
 *   - A record, which is a line of JSON lines or a document of a Megatron index, is one document
 *     whatever ids it has. Elsewhere a document begins at each separator (ids; -1: none), and that
 *     id is its first.
 *   - A record or a file after an end of text begins with that id.
 *
 * Fails ST_BAD_DATA: a Megatron index is damaged there. */
enum status corpus_next_document(const struct corpus *corpus, int64_t at, int64_t end,
                                 const int64_t separator[2], int64_t *out);
const char *corpus_name(const struct corpus *corpus);
/* Returns a checksum of 262,144 ids that lie evenly in the sequence, and of their number; of all
 * ids if there are not more. It does not depend on the division into files. */
uint64_t corpus_fingerprint(const struct corpus *corpus);
int64_t corpus_records(const struct corpus *corpus); /* how many it has; 0: only separators */
/* A file of the sequence, given or made: a token file, or one of Megatron's two. */
struct corpus_file {
    const char *path, *suffix;
    int64_t bytes, skip;
    uint64_t sum;   /* XXH3-64 of what follows the first `skip` bytes */
    bool sums_ends; /* it is file_sum_ends of them */
    bool is_pair;   /* belongs to the file before, and has its name but for the suffix */
};
/* Sets *out to file file_i of the sequence. Returns false: there are no more files. */
bool corpus_file(const struct corpus *corpus, int64_t file_i, struct corpus_file *out);
/* corpus_visit — gives all ids to `take` in their order, in parts of any length. It keeps none:
 * the tokens of texts are not cached. A part of a text ends where a pre-token ends. */
typedef enum status corpus_visit_fn(void *arg, const uint32_t *ids, int64_t n);
enum status corpus_visit(const struct corpus_config *config, corpus_visit_fn *take, void *arg,
                         int64_t *tokens_out);
/* corpus_write — `convoy tokenize`: writes DATA as one llm.c token file, complete or not at all, in
 * which only ends of text separate documents. When out_path ends in .idx, writes Megatron's pair of
 * files (megatron.h), in which each record is a document. Ids have 16 bits where the vocabulary
 * allows that. */
enum status corpus_write(const struct corpus_config *config, const char *out_path,
                         int64_t *tokens_out);

#endif
