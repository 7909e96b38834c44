/* step_shard_trace — what one rank gives away in the passes of one virtual shard: a checksum of its
 * part in each call of a tensor or context axis, of each message to another stage, of each unit's
 * gradient, and of the losses (step_shard_check.h; decision 064).
 *
 * Entries have the order of data flow: forward through all stages, then backward, and within a
 * stage in the order of calls, which all its ranks share. Micro-batches give each other nothing.
 * Two groups of ranks that compute one shard have equal entries on ranks at the same place. Where
 * they do not, the rank of the first entry that differs was wrong: until then all others had given
 * it the same.
 *
 * It must not know which groups are compared, nor vote. */
#ifndef CONVOY_TRAIN_STEP_SHARD_TRACE_H
#define CONVOY_TRAIN_STEP_SHARD_TRACE_H

#include "model/model.h"
#include "train/step.h"

struct step_micro;

/* order: of data flow; equal on all ranks of a stage at the same entry. */
struct step_shard_entry {
    uint64_t order, sum;
};

/* Zero-initialised is empty. */
struct step_shard_trace {
    struct step_shard_entry *entry;
    int n, room;
    int gives_n; /* of them, those that other ranks have got */
};

/* What a pass has in place of an axis: the same calls, recorded. */
struct step_shard_axis {
    struct model_axis model;
    const struct model_axis *calls;
    struct step *step;
};

/* Of one step:
 * _pass: a pass begins, through the stage's run of layers number `at` of all runs in the order of
 *   this pass's data flow; 0 without stages. Where its shard is compared, *p records from now on,
 *   until the next pass begins; else nothing does.
 * _give: what this rank is about to send: n bytes in host memory, written by the stream.
 * _unit: a unit's gradient is complete, at *p.
 * _losses: of the shard whose first sample on this rank is `first`; in host memory.
 * _give and _unit fail as dev_sync. */
void step_shard_trace_pass(struct step *s, const struct step_micro *m, int at, struct pass *p);
enum status step_shard_trace_give(struct step *s, struct tensor x, int64_t elems);
enum status step_shard_trace_unit(struct step *s, const struct pass *p, int unit);
void step_shard_trace_losses(const struct step *s, struct step_shard_trace *t, int64_t first);
/* _flip: the bit of step_shard_flip that is in a gradient of *p. */
enum status step_shard_trace_flip(struct step *s, const struct pass *p);

/* Of one trace:
 * _clear: empty, with its memory. _free may be called twice.
 * _sum: sorts it; the checksum of all entries. */
void step_shard_trace_clear(struct step_shard_trace *t);
void step_shard_trace_free(struct step_shard_trace *t);
uint64_t step_shard_trace_sum(struct step_shard_trace *t);

/* step_shard_trace_first — of `places` pairs of sorted traces of n entries, the shorter ones filled
 * up with zeros: one[place · n + i] and other[place · n + i]. The place of the first entry that
 * differs; -1: there is none, or first entries of several places differ. Pure. */
int step_shard_trace_first(const struct step_shard_entry *one, const struct step_shard_entry *other,
                           int places, int n);

#endif
