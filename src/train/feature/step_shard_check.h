/* step_shard_check — a virtual shard of the batch computed twice, and compared by bits
 * (SENTINEL_EVERY with EXACT=layout; decision 064 has the reasons).
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

#include "train/feature/sentinel.h"
#include "train/step/feature.h"

/* config.checks_shards. All are local.
 * step_shard_check_ask — on all ranks: the next step_run compares one shard of each group along the
 *   data axis, if there are several. turn > 0: which one; it should count comparisons. If two
 *   computations differ the step makes no update and fails: on the rank that is wrong with
 *   ST_FAULT, on the others, and where no rank can be named, with ST_PEER.
 * step_shard_check_found — after a step_run that failed.
 * step_shard_check_flip — FAULT=gradient: the next step_run inverts a bit in a gradient of this
 *   rank, or in a message to other ranks, in passes of these kinds. In a step without a comparison
 *   the own passes are the last micro-batch, and only gradients have such bits. */
enum step_shard_pass {
    STEP_SHARD_PASS_OWN = 1,   /* of this rank's shard that is compared */
    STEP_SHARD_PASS_CHECK = 2, /* of the next group's */
    STEP_SHARD_PASS_AGAIN = 4  /* of the shard of which two computations differ */
};
enum step_shard_found {
    STEP_SHARD_FOUND_NONE,   /* no difference: the step failed otherwise, or did not */
    STEP_SHARD_FOUND_ONCE,   /* computed again it was right: the state is as it should be */
    STEP_SHARD_FOUND_LASTING /* it was wrong again, or none was named: the state may be wrong */
};
struct step_shard_flip {
    unsigned passes; /* of enum step_shard_pass; 0: none */
    int give; /* the pass's message to other ranks to corrupt, from 1; 0: a unit's gradient */
    int unit;
    int64_t elem; /* of the unit, without padding; of a message, in words of 32 bits, modulo */
    int bit;      /* 0 … 31 */
};
void step_shard_check_ask(struct step *step, int64_t turn);
enum step_shard_found step_shard_check_found(const struct step *step);
void step_shard_check_flip(struct step *step, const struct step_shard_flip *flip);

/* A trace (step_shard_trace.c) of what one rank sends to others in the passes of a virtual shard:
 * a checksum of its part in each call of a tensor or context axis, of each message to another
 * stage, of each unit's gradient, and of the losses.
 *
 * Entries have the order of data flow: forward through all stages, then backward, and within a
 * stage in the order of calls, which all its ranks share. Micro-batches are independent.
 * Two groups of ranks that compute one shard have equal entries on ranks at the same place. Where
 * they do not, the rank of the first entry that differs was wrong: all it had received before was
 * the same. Zero-initialised is empty. */
struct step_shard_trace {
    struct sentinel_entry *entry;
    int n, room;
    int gives_n; /* of them, those that were sent to other ranks */
};

/* What a pass has in place of an axis: the same calls, recorded. */
struct step_shard_check;
struct step_shard_axis {
    struct model_axis model;
    const struct model_axis *calls;
    struct step_shard_check *check;
};

/* Hooks of one step (step/feature.h), and:
 * _unit: a unit's gradient is complete, at *p. Fails as dev_sync.
 * _losses: of the shard whose first sample on this rank is `first`; in host memory.
 * _flip: the bit of step_shard_flip that is in a gradient of *p. */
void step_shard_trace_pass(void *self, const struct step_micro *m, int at, struct pass *p);
enum status step_shard_trace_give(void *self, struct tensor x, int64_t elems);
enum status step_shard_trace_unit(struct step_shard_check *k, const struct pass *p, int unit);
void step_shard_trace_losses(const struct step_core *s, struct step_shard_trace *t, int64_t first);
enum status step_shard_trace_flip(struct step_shard_check *k, const struct pass *p);

/* Of one trace:
 * _clear: empty, with its memory. _free may be called twice.
 * _sum: sorts it; the checksum of all entries. */
void step_shard_trace_clear(struct step_shard_trace *t);
void step_shard_trace_free(struct step_shard_trace *t);
uint64_t step_shard_trace_sum(struct step_shard_trace *t);

enum { STEP_SHARD_TRACE_OWN, STEP_SHARD_TRACE_CHECK, STEP_SHARD_TRACE_AGAIN, STEP_SHARD_TRACES };

struct step_shard_check {
    struct step_core *s;
    struct batch batch;         /* of one shard */
    struct batch own;           /* with a context axis: own positions of it */
    const struct step_now *now; /* the step under way; NULL: none, or it does not compare */
    int64_t asked;              /* turn of the comparison requested for the next step */
    int64_t turn;               /* of this step's; 0: it has none */
    enum step_shard_pass pass;  /* under way, of those that are none of the rank's own */
    struct step_shard_trace trace[STEP_SHARD_TRACES];
    struct step_shard_axis tensor, context; /* record */
    struct step_shard_trace *to; /* what the pass under way adds to; NULL: it is not compared */
    enum step_shard_pass to_pass;
    uint64_t to_order;
    uint64_t other; /* of the next group's shard, as this rank has computed it */
    struct step_shard_flip planned, flip; /* of the next step, of this one; passes 0: none */
    enum step_shard_found found;
};

/* For step_shard_trace.c and step_shard_differ.c:
 * _of: a step's; outside step_shard_check.c for tests.
 * _is_due: this step compares.
 * _has: a micro-batch is one of a shard that is compared.
 * _trace: of passes of a kind.
 * _chosen: the shard of a group's run that this step compares.
 * _again: computes a shard; the checksum of its trace. Collective. */
struct step_shard_check *step_shard_check_of(const struct step *step);
bool step_shard_check_is_due(const struct step_shard_check *k);
bool step_shard_check_has(const struct step_shard_check *k, const struct step_micro *m);
struct step_shard_trace *step_shard_check_trace(struct step_shard_check *k,
                                                enum step_shard_pass pass);
int step_shard_check_chosen(const struct step_shard_check *k, int group);
enum status step_shard_check_again(struct step_shard_check *k, int shard, uint64_t *sum_out);

/* step_shard_differ — of each rank two checksums: of its own shard, and of the next group's. Fails
 * on all ranks where two groups differ: ST_FAULT on the rank that was wrong, else ST_PEER.
 * Collective. */
enum status step_shard_differ(struct step_shard_check *k, const uint64_t *sum);

#endif
