/* step_shard_check — a virtual shard of the batch computed by two ranks, and compared by bits
 * (SENTINEL_EVERY with EXACT=layout; step.h has what the trainer calls, decision 064 the reasons).
 *
 * In a step that compares, each rank first computes one shard of the next rank along the data axis.
 * These passes write into the slot that its own first shard overwrites, and nothing of them is
 * reduced or counted. Of both computations each rank makes a checksum: of the gradient of each
 * unit, right after its backward pass, and of the losses. Checksums are exchanged once loss and
 * norm are known. Where two differ no update is made: all ranks compute that shard again, and the
 * majority of all answers decides.
 *
 * It must not know how gradients are added up or reduced. */
#ifndef CONVOY_TRAIN_STEP_SHARD_CHECK_H
#define CONVOY_TRAIN_STEP_SHARD_CHECK_H

#include "train/step.h"

struct step_micro;

struct step_shard_check {
    struct batch batch;      /* of one shard */
    const struct feed *feed; /* of the step under way; NULL: its caller holds the samples */
    int64_t sample_first;    /* of the step under way, in the feed */
    int64_t step_i;
    int64_t turn;                /* of this step's comparison; 0: it has none */
    enum step_shard_pass pass;   /* under way */
    uint64_t sum;                /* of it so far */
    uint64_t other;              /* of the next rank's shard, as this rank has computed it */
    struct step_shard_flip flip; /* passes 0: none */
    enum step_shard_found found;
};

/* _bytes: of host memory that _open takes. _close may be called twice. */
int64_t step_shard_check_bytes(const struct step *s);
enum status step_shard_check_open(struct step *s);
void step_shard_check_close(struct step *s);
/* Within step_run:
 * _set_feed: where samples of other ranks come from, until _clear.
 * _is_due: this step compares.
 * _begin: before this rank's own passes: computes the next rank's shard. The scale of the loss is
 *   known.
 * _unit: after a unit's backward pass, before anything is added to its gradient.
 * _end: loss and norm are known, and nothing of the state has changed: compares, and fails on all
 *   ranks where two computations differ. */
void step_shard_check_set_feed(struct step *s, const struct feed *feed, int64_t sample_first);
void step_shard_check_clear(struct step *s);
bool step_shard_check_is_due(const struct step *s);
enum status step_shard_check_begin(struct step *s, int64_t step_i, struct step_result *r);
enum status step_shard_check_unit(struct step *s, const struct step_micro *m, int unit);
enum status step_shard_check_end(struct step *s, struct step_result *r);

#endif
