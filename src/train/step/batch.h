/* batch — one batch of samples in host memory, and the only code that divides a loss.
 *
 * Losses and gradients are sums. Their divisor is counted over the whole global batch before the
 * first micro-batch runs, so results do not depend on how the batch is cut. Pure. It must not know
 * devices or models. */
#ifndef CONVOY_TRAIN_BATCH_H
#define CONVOY_TRAIN_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/feed.h"

struct batch {
    enum feed_task task;
    int64_t samples, seq_tokens;
    /* tokens; LM: targets, first_key (NULL: all 0); QA: mask (NULL: no token is masked), starts,
     * ends */
    struct feed_batch host;
    /* LM (samples, T): the position of each token in its document; NULL: in its sample */
    int32_t *positions;
};

/* The number of labels that count. LM: targets that are not negative. QA: starts and ends below
 * seq_tokens, after clamping to [0, seq_tokens]. */
struct batch_counts {
    int64_t targets, starts, ends;
};

/* batch_init — allocates buffers for up to `samples` samples. Fails with ST_RETRY if memory is
 * refused. */
enum status batch_init(struct batch *out, enum feed_task task, int64_t samples, int64_t seq_tokens);
/* batch_add_documents — allocates first_key as well; LM only. Fails as batch_init. */
enum status batch_add_documents(struct batch *batch);
/* batch_add_positions — allocates positions, of batch_documents_bytes as well; LM only. Fails as
 * batch_init. */
enum status batch_add_positions(struct batch *batch);
/* batch_set_positions — computes the positions from first_key, before a window changes it. Without
 * positions it has no effect. */
void batch_set_positions(struct batch *batch);
/* batch_set_window — raises first_key so that no token attends to more than the latest `window`
 * tokens, itself included; window ≥ 1. */
void batch_set_window(struct batch *batch, int64_t window);
/* batch_bytes — returns the size of batch_init's buffers. */
int64_t batch_bytes(enum feed_task task, int64_t samples, int64_t seq_tokens);
/* batch_documents_bytes — returns the size of batch_add_documents' buffer. */
int64_t batch_documents_bytes(int64_t samples, int64_t seq_tokens);
/* batch_free — frees the buffers; may be called twice. */
void batch_free(struct batch *batch);
/* batch_check — fails with ST_BAD_DATA, position and value unless every token is in [0, vocab) and
 * every target below vocab. */
enum status batch_check(const struct batch *batch, int64_t vocab);
void batch_count(const struct batch *batch, struct batch_counts *counts); /* adds to *counts */
/* batch_scales — returns the factors of the losses. LM: 1/targets. QA: ½/starts and ½/ends. 0 if
 * nothing counts. */
void batch_scales(enum feed_task task, const struct batch_counts *counts, double *scale_out,
                  double *scale_end_out);
/* batch_loss — sums n losses in double, in their order, times the scales. LM: one loss per token.
 * QA: start and end of each sample in turn. */
double batch_loss(enum feed_task task, const float *losses, int64_t n, double scale,
                  double scale_end);

#endif
