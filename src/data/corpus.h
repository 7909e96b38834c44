/* corpus — the tokens of DATA as one sequence, and the positions of its documents: token files,
 * from DATA or made once from text or JSON lines and then cached, and Megatron files; all
 * mapped.
 *
 * The time to open it depends on the number of files, not on their size: ids are checked against
 * the vocabulary when they are read. It must not know samples or batches. */
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
    bool allows_local_urls; /* as in data_file.h */
    int64_t vocab;
    const struct tokenizer *tokenizer; /* tokenizer of texts; borrowed; NULL: GPT-2's */
    const char *model; /* a model without its own tokenizer (tokenizer_gpt2_check); NULL: none */
    const struct chat
        *chat;         /* DATA are conversations, with marked ids (chat.h); NULL: they are not */
    bool is_text_only; /* corpus_visit: files of ids are refused */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* corpus_open — finds the files of DATA, makes missing token files, and maps them all. Blocks while
 * it downloads or encodes; if progress returns false, it ends with ST_RETRY. */
enum status corpus_open(const struct corpus_config *config, struct corpus **out);
/* corpus_close — unmaps the files and frees the corpus. Accepts NULL. */
void corpus_close(struct corpus *corpus);
/* corpus_tokens — returns the number of ids of the sequence. */
int64_t corpus_tokens(const struct corpus *corpus);
/* Copies n ids from position first; both ends lie within the corpus. Fails ST_BAD_DATA: an id is
 * not in the vocabulary, or a token file is damaged. Ids of conversations keep CHAT_TRAINED. */
enum status corpus_read(const struct corpus *corpus, int64_t first, int64_t n, int32_t *out);
/* Finds the first document that begins in [at, end); *out is `end` if none does.
 *
 *   - A record, which is a line of JSON lines or a document of a Megatron index, is one document
 *     with any ids. In other data a document begins at each separator (ids; -1: none), and that
 *     id is its first.
 *   - A record or a file after an end of text begins with that id.
 *
 * Fails ST_BAD_DATA: a Megatron index is damaged there. */
enum status corpus_next_document(const struct corpus *corpus, int64_t at, int64_t end,
                                 const int64_t separator[2], int64_t *out);
/* corpus_name — returns DATA with its numbers of files and tokens, for logs; valid until
 * corpus_close. */
const char *corpus_name(const struct corpus *corpus);
/* Returns a checksum of 262,144 ids that are evenly spread over the sequence, and of their number;
 * of all ids if there are not more. It does not depend on the division into files. */
uint64_t corpus_fingerprint(const struct corpus *corpus);
int64_t corpus_records(const struct corpus *corpus); /* number of records; 0: only separators */
/* A file of the sequence: a token file, from DATA or made, or one of Megatron's two. */
struct corpus_file {
    const char *path, *suffix;
    int64_t bytes, skip;
    uint64_t sum;   /* XXH3-64 of the bytes after the first `skip` bytes */
    bool sums_ends; /* the sum is file_sum_ends of them */
    bool is_pair;   /* belongs to the previous file, and has its name but for the suffix */
};
/* Sets *out to file file_i of the sequence. Returns false: there are no more files. */
bool corpus_file(const struct corpus *corpus, int64_t file_i, struct corpus_file *out);
/* Receives the next n ids; they are valid during the call. A failure ends the visit. */
typedef enum status corpus_visit_fn(void *arg, const uint32_t *ids, int64_t n);
/* corpus_visit — passes all ids of DATA to on_ids in their order, in chunks of any length. It keeps
 * none: the tokens of texts are not cached. A chunk of a text ends where a pre-token ends. */
enum status corpus_visit(const struct corpus_config *config, corpus_visit_fn *on_ids, void *arg,
                         int64_t *tokens_out);
/* corpus_write — writes DATA as one llm.c token file, complete or not at all (`convoy tokenize`);
 * in this file only ends of text separate documents. If out_path ends in .idx, writes Megatron's
 * pair of files (megatron.h), in which each record is a document. Ids have 16 bits if the
 * vocabulary allows that. */
enum status corpus_write(const struct corpus_config *config, const char *out_path,
                         int64_t *tokens_out);

#endif
