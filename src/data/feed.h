/* feed — the samples of the data as a pure function of the seed and their numbers in the run. There
 * is no hidden state, so resuming needs only a number. A step computes the numbers of each rank's
 * samples (step_mesh_sample_first in train/step/core.h).
 *
 *   - LM: window w has the tokens [w·T, w·T+T); targets are the same, shifted by one. The last
 *     token is only a target.
 *   - LM with packs_documents or conversations: windows are the samples of pack.h instead.
 *   - Documents of LM: records of JSON lines and Megatron files; in other data one begins at each
 *     separator, an end or a beginning of text (corpus_next_document). The end of text is the first
 *     token of a document, and the last target of the previous document.
 *   - QA: samples are windows of questions (squad_window.h).
 *   - Order: sample j since the start is position j mod S of epoch j / S; the order of an epoch
 *     is a permutation drawn from (SEED, epoch).
 *   - Mixture (mix.h): each item has its own order and epochs; an epoch of the whole has the
 *     samples of all items together.
 *   - Synthetic data: ids, mask bits and labels are uniform and drawn once, so each step has the
 *     same batch; an epoch is one step.
 *
 * It must not know devices, models or ranks. */
#ifndef CONVOY_DATA_FEED_H
#define CONVOY_DATA_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define FEED_SYNTHETIC "synthetic" /* a file of this name is written ./synthetic */

enum feed_task { FEED_TASK_LM, FEED_TASK_QA };

struct tokenizer; /* data/tokenizer/tokenizer.h */
struct feed_config {
    enum feed_task task;
    /* DATA: in the syntax of data_file.h and mix.h, or FEED_SYNTHETIC; never empty */
    const char *data;
    const char *cache_dir;  /* token shards made from text, downloads */
    bool allows_local_urls; /* as in data_file.h */
    int64_t stride_tokens;  /* QA: DOC_STRIDE */
    int64_t seq_tokens;     /* T */
    int64_t global_samples; /* G, samples a step; synthetic data has exactly G samples an epoch */
    int64_t vocab;          /* every token id must be below it */
    const struct tokenizer
        *tokenizer;       /* tokenizer of texts; borrowed until feed_open returns; NULL: GPT-2's */
    const char *model;    /* a model without its own tokenizer (tokenizer_gpt2_check); NULL: none */
    bool knows_documents; /* LM: fills feed_batch.first_key; needs a tokenizer with a separator */
    bool packs_documents; /* LM: samples of whole documents (pack.h); needs one, too */
    /* LM: DATA are conversations; borrowed until feed_open returns; NULL: they are not */
    const struct chat *chat;
    bool trains_all; /* chat: all tokens may count in the loss */
    bool allows_cut; /* chat: most conversations may have no answer within a sample */
    uint64_t seed;
    bool is_shuffled;
    /* progress while downloading and tokenising; NULL allowed. Returns false to stop (then
     * feed_open fails with ST_RETRY). */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* Host buffers of the caller, for `samples` samples of T tokens. Fields that a task does not use
 * may be NULL. */
struct feed_batch {
    int32_t *tokens;  /* (samples, T) */
    int32_t *targets; /* (samples, T)  LM: next token; -1: ignored */
    /* (samples, T)  LM: first position, in the sample, of the document of a token; a document that
     * began before the sample: 0, as all do without knows_documents */
    int32_t *first_key;
    uint8_t *mask;   /* (samples, T)  QA: 1 seen, 0 hidden key */
    int32_t *starts; /* (samples)     QA */
    int32_t *ends;   /* (samples)     QA */
};

struct feed;

/* feed_open — opens token files, or makes them from text first. Blocks while it downloads and
 * tokenises. Fails ST_NO_INPUT: missing; ST_BAD_DATA: damaged, ids ≥ vocab (of large data only if
 * the fingerprint reads one), or less than one sample; ST_BAD_SETTING: a combination (TASK=qa and
 * files that are not SQuAD's), or documents that no token separates. */
enum status feed_open(const struct feed_config *config, struct feed **out);
void feed_close(struct feed *feed);             /* accepts NULL */
int64_t feed_samples(const struct feed *feed);  /* S, samples an epoch; ≥ 1 */
const char *feed_name(const struct feed *feed); /* "synthetic", "/data (3 files, 1.2M tokens)" */
/* Returns a fingerprint of the data; equal data have equal fingerprints. Of more than 262,144 ids
 * it covers 262,144. */
uint64_t feed_fingerprint(const struct feed *feed);
/* Returns the samples of a pass over the data that has each sample once; 0: a mixture, whose items
 * have passes of their own, or synthetic data. */
int64_t feed_pass_samples(const struct feed *feed);
/* Returns a fingerprint of the order of samples: equal data in equal order have the same number. */
uint64_t feed_order(const struct feed *feed);
/* A file that the feed reads: a token file, from DATA or made from it, or a file of questions. The
 * same files in this order, with the same items and weights, are the same data. */
struct feed_file {
    int item;                  /* item of the mixture, from 0 */
    double weight;             /* weight of the item; 0: none */
    const char *path, *suffix; /* the suffix that a copy's name must have */
    int64_t bytes, skip;
    uint64_t sum;   /* XXH3-64 of the bytes after the first `skip` bytes */
    bool sums_ends; /* the sum is file_sum_ends of them */
    bool is_pair;   /* a copy has the name of the previous file, but for the suffix */
};
/* feed_file — finds file file_i; false: there are no more files. */
bool feed_file(const struct feed *feed, int64_t file_i, struct feed_file *out);
/* feed_is_here — returns true if all files of `data` are on this machine. */
bool feed_is_here(const char *data);

/* feed_tokens — returns the tokens of the data, for tests; synthetic: S·T. */
int64_t feed_tokens(const struct feed *feed);

/* Copies samples [first, first + samples) of the run, counted from 0 over epochs. Fails
 * ST_BAD_DATA: an id ≥ vocab, or a damaged index or token file. */
enum status feed_get(const struct feed *feed, int64_t first, int64_t samples,
                     const struct feed_batch *out);
int64_t feed_epoch(const struct feed *feed, int64_t first); /* epoch of sample `first` */

#endif
