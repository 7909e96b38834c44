/* batch — the samples of one update on the host, and the one place that divides a loss.
 *
 * Losses and gradients are sums; what they are divided by is counted over the whole global batch,
 * before the first micro-batch runs, so results do not depend on how the batch is cut. Pure. Must
 * not know devices or models. */
#ifndef CONVOY_TRAIN_BATCH_H
#define CONVOY_TRAIN_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/feed.h"

struct batch {
    enum feed_task task;
    int64_t samples, seq_tokens;
    struct feed_batch host; /* tokens; LM: targets; QA: mask (or NULL: all seen), starts, ends */
};

/* Labels that count: LM targets that are not negative; QA starts and ends below seq_tokens after
 * clamping to [0, seq_tokens]. */
struct batch_counts {
    int64_t targets, starts, ends;
};

/* batch_init — buffers for up to `samples` samples. Memory refused is ST_RETRY. Free with
 * batch_free, also twice. */
enum status batch_init(struct batch *out, enum feed_task task, int64_t samples, int64_t seq_tokens);
/* that these buffers take */
int64_t batch_bytes(enum feed_task task, int64_t samples, int64_t seq_tokens);
void batch_free(struct batch *batch);
/* batch_check — every token in [0, vocab), every target below vocab: ST_BAD_DATA with place and
 * value. */
enum status batch_check(const struct batch *batch, int64_t vocab);
void batch_count(const struct batch *batch, struct batch_counts *counts); /* adds to *counts */
/* batch_scales — what each loss is multiplied by: LM 1/targets; QA ½/starts and ½/ends. 0 where
 * nothing counts. */
void batch_scales(enum feed_task task, const struct batch_counts *counts, double *scale_out,
                  double *scale_end_out);
/* batch_loss — of n losses as a pass writes them (LM one a token; QA start, end a sample), summed
 * in double in their order. */
double batch_loss(enum feed_task task, const float *losses, int64_t n, double scale,
                  double scale_end);

#endif
