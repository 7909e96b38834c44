/* step_shard_check — a virtual shard of the batch computed twice, and compared by bits
 * (SENTINEL_EVERY with EXACT=layout; step.h has what the trainer calls, decision 064 the reasons).
 *
 * A group is all ranks of one place along the data axis: one rank, or with TP, CP and PP those that
 * compute a shard together. In a step that compares, each group first computes one shard of the
 * next group. These passes write into the slot that a rank's own first shard overwrites, and
 * nothing of them is reduced or counted. Of both computations each rank keeps a trace,
 * and makes a checksum of it. Checksums are exchanged once loss and norm are
 * known. Where two differ no update is made: all groups compute that shard again, the majority of
 * all answers decides which group was wrong, and the traces which of its ranks
 * (step_shard_differ.c).
 *
 * It must not know how gradients are added up or reduced. */
#ifndef CONVOY_TRAIN_STEP_SHARD_CHECK_H
#define CONVOY_TRAIN_STEP_SHARD_CHECK_H

#include "model/model.h"
#include "train/feature/sentinel.h"
#include "train/step/step.h"

struct step_micro;

/* A trace (step_shard_trace.c): what one rank gives away in the passes of one virtual shard:
 * a checksum of its part in each call of a tensor or context axis, of each message to another
 * stage, of each unit's gradient, and of the losses.
 *
 * Entries have the order of data flow: forward through all stages, then backward, and within a
 * stage in the order of calls, which all its ranks share. Micro-batches give each other nothing.
 * Two groups of ranks that compute one shard have equal entries on ranks at the same place. Where
 * they do not, the rank of the first entry that differs was wrong: until then all others had given
 * it the same. Zero-initialised is empty. */
struct step_shard_trace {
    struct sentinel_entry *entry;
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

enum { STEP_SHARD_TRACE_OWN, STEP_SHARD_TRACE_CHECK, STEP_SHARD_TRACE_AGAIN, STEP_SHARD_TRACES };

struct step_shard_check {
    struct batch batch;      /* of one shard */
    struct batch own;        /* with a context axis: own positions of it */
    const struct feed *feed; /* of the step under way; NULL: its caller holds the samples */
    int64_t sample_first;    /* of the step under way, in the feed */
    int64_t step_i;
    int64_t turn;              /* of this step's comparison; 0: it has none */
    enum step_shard_pass pass; /* under way, of those that are none of the rank's own */
    struct step_shard_trace trace[STEP_SHARD_TRACES];
    struct step_shard_axis tensor, context; /* record */
    struct step_shard_trace *now; /* what the pass under way adds to; NULL: it is not compared */
    enum step_shard_pass now_pass;
    uint64_t now_order;
    uint64_t other;              /* of the next group's shard, as this rank has computed it */
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
 * _begin: before this rank's own passes: computes the next group's shard. The scale of the loss is
 *   known.
 * _has: a micro-batch is one of a shard that is compared.
 * _unit: after a unit's backward pass, before anything is added to its gradient.
 * _end: loss and norm are known, and nothing of the state has changed: compares, and fails on all
 *   ranks where two computations differ. */
void step_shard_check_set_feed(struct step *s, const struct feed *feed, int64_t sample_first);
void step_shard_check_clear(struct step *s);
bool step_shard_check_is_due(const struct step *s);
bool step_shard_check_has(const struct step *s, const struct step_micro *m);
enum status step_shard_check_begin(struct step *s, int64_t step_i, struct step_result *r);
enum status step_shard_check_unit(struct step *s, const struct step_micro *m, int unit);
enum status step_shard_check_end(struct step *s, struct step_result *r);

/* For step_shard_trace.c and step_shard_differ.c:
 * _trace: of passes of a kind.
 * _chosen: the shard of a group's run that this step compares.
 * _again: computes a shard; the checksum of its trace. Collective. */
struct step_shard_trace *step_shard_check_trace(struct step *s, enum step_shard_pass pass);
int step_shard_check_chosen(const struct step *s, int group);
enum status step_shard_check_again(struct step *s, int shard, uint64_t *sum_out);

/* step_shard_differ — of each rank two checksums: of its own shard, and of the next group's. Fails
 * on all ranks where two groups differ: ST_FAULT on the rank that was wrong, else ST_PEER.
 * Collective. */
enum status step_shard_differ(struct step *s, const uint64_t *sum);

#endif
