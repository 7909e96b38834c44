/* step_shard_check — a virtual shard of the batch is computed twice, and both results are compared
 * by bits (SENTINEL_EVERY with EXACT=layout; decision 064 has the reasons).
 *
 * A group is all ranks of one place along the data axis: one rank, or with TP, CP and PP the ranks
 * that compute a shard together. In a step that compares, each group first computes one shard of
 * the next group. These passes write into the slot that a rank's own first shard overwrites, and
 * nothing of them is reduced or counted. Each rank keeps a trace of both computations, and makes a
 * checksum of each trace. Checksums are exchanged after loss and norm. If two of them differ, no
 * update is made: all groups compute that shard again. The majority of all answers decides which
 * group was wrong, and the traces decide which of its ranks (step_shard_differ.c).
 *
 * It must not know how gradients are added up or reduced. */
#ifndef CONVOY_TRAIN_STEP_SHARD_CHECK_H
#define CONVOY_TRAIN_STEP_SHARD_CHECK_H

#include "train/feature/sentinel.h"
#include "train/step/feature.h"

/* The functions below need config.checks_shards. All are local. */
enum step_shard_pass {
    STEP_SHARD_PASS_OWN = 1,   /* this rank's shard that is compared */
    STEP_SHARD_PASS_CHECK = 2, /* the next group's shard */
    STEP_SHARD_PASS_AGAIN = 4  /* the shard for which two computations differ */
};
enum step_shard_found {
    STEP_SHARD_FOUND_NONE,    /* no difference: the step failed for another reason, or not at all */
    STEP_SHARD_FOUND_ONCE,    /* the repeated computation was right: so is the state */
    STEP_SHARD_FOUND_LASTING, /* it was wrong again, or no rank was found: the state may be wrong */
    STEP_SHARD_FOUND_UNKNOWN  /* all ranks fail with ST_PEER: no majority shows the wrong group */
};
struct step_shard_flip {
    unsigned passes; /* bits of enum step_shard_pass; 0: none */
    int give;        /* message to other ranks to corrupt, from 1; 0: corrupt a unit's gradient */
    int unit;
    /* element of the unit, without padding; or of the message, in words of 32 bits, modulo its
     * size */
    int64_t elem;
    int bit; /* 0 … 31 */
};
/* step_shard_check_ask — requests that the next step_run compares one shard of each group along the
 * data axis, if there are several groups. Call it on all ranks. turn > 0 selects the shard; it
 * should count comparisons. If two computations differ, the step makes no update and fails: with
 * ST_FAULT on the faulty rank, with ST_PEER on the others, and with ST_PEER on all if no rank can
 * be found. */
void step_shard_check_ask(struct step *step, int64_t turn);
/* step_shard_check_found — returns the result of a comparison, after a step_run that failed. */
enum step_shard_found step_shard_check_found(const struct step *step);
/* step_shard_check_flip — makes the next step_run invert a bit in a gradient of this rank, or in a
 * message to other ranks, in passes of these kinds (FAULT=gradient). In a step without a comparison
 * the own passes are the last micro-batch, and only gradients have such bits. */
void step_shard_check_flip(struct step *step, const struct step_shard_flip *flip);

/* A trace (step_shard_trace.c) of the data that one rank sends to others in the passes of a virtual
 * shard: a checksum of its part in each call of a tensor or context axis, of each message to
 * another stage, of each unit's gradient, and of the losses.
 *
 * Entries have the order of data flow: forward through all stages, then backward, and within a
 * stage in the order of calls, which all its ranks share. Micro-batches are independent. Two groups
 * of ranks that compute one shard have equal entries on ranks at the same place. If they do not,
 * the rank of the first entry that differs was wrong: all its inputs before were the same.
 * Zero-initialised is empty. */
struct step_shard_trace {
    struct sentinel_entry *entry;
    int n, room;
    int gives_n; /* number of entries that were sent to other ranks */
};

/* An axis of a pass that records the same calls. */
struct step_shard_check;
struct step_shard_axis {
    struct model_axis model;
    const struct model_axis *calls;
    struct step_shard_check *check;
};

/* step_shard_trace_pass — implements the hook `pass` (step/feature.h). */
void step_shard_trace_pass(void *self, const struct step_micro *m, int at, struct pass *p);
/* step_shard_trace_give — implements the hook `rows`; also called for the calls of axes. */
enum status step_shard_trace_give(void *self, struct tensor x, int64_t elems);
/* step_shard_trace_unit — adds a unit's gradient, which is complete at *p. Fails as dev_sync. */
enum status step_shard_trace_unit(struct step_shard_check *k, const struct pass *p, int unit);
/* step_shard_trace_losses — adds the losses, in host memory, of the shard whose first sample on
 * this rank is `first`. */
void step_shard_trace_losses(const struct step_core *s, struct step_shard_trace *t, int64_t first);
/* step_shard_trace_flip — inverts the bit of step_shard_flip in a gradient of *p. */
enum status step_shard_trace_flip(struct step_shard_check *k, const struct pass *p);

/* step_shard_trace_clear — makes a trace empty, but keeps its memory. */
void step_shard_trace_clear(struct step_shard_trace *t);
/* step_shard_trace_free — frees the memory of a trace; may be called twice. */
void step_shard_trace_free(struct step_shard_trace *t);
/* step_shard_trace_sum — sorts a trace, and returns the checksum of all its entries. */
uint64_t step_shard_trace_sum(struct step_shard_trace *t);

enum { STEP_SHARD_TRACE_OWN, STEP_SHARD_TRACE_CHECK, STEP_SHARD_TRACE_AGAIN, STEP_SHARD_TRACES };

#define STEP_SHARD_HOST_BYTES ((size_t)4 << 20)

struct step_shard_check {
    struct step_core *s;
    struct batch batch;         /* samples of one shard */
    struct batch own;           /* with a context axis: own positions of the shard */
    const struct step_now *now; /* step in progress; NULL: none, or it does not compare */
    int64_t asked;              /* turn of the comparison requested for the next step */
    int64_t turn;               /* turn of this step's comparison; 0: it has none */
    enum step_shard_pass pass;  /* pass in progress that is none of the rank's own */
    struct step_shard_trace trace[STEP_SHARD_TRACES];
    struct step_shard_axis tensor, context; /* axes that record */
    struct step_shard_trace *to; /* trace of the pass in progress; NULL: the pass is not compared */
    enum step_shard_pass to_pass;
    uint64_t to_order;
    void *host;     /* discrete device: STEP_SHARD_HOST_BYTES of pinned memory; else NULL */
    uint64_t other; /* checksum of this rank's computation of the next group's shard */
    struct step_shard_flip planned, flip; /* for the next step, for this one; passes 0: none */
    enum step_shard_found found;
};

/* ---- for step_shard_trace.c and step_shard_differ.c ---- */

/* step_shard_check_of — outside step_shard_check.c for tests: returns a step's check. */
struct step_shard_check *step_shard_check_of(const struct step *step);
/* step_shard_check_is_due — returns true if this step compares. */
bool step_shard_check_is_due(const struct step_shard_check *k);
/* step_shard_check_has — returns true if a micro-batch belongs to a shard that is compared. */
bool step_shard_check_has(const struct step_shard_check *k, const struct step_micro *m);
/* step_shard_check_trace — returns the trace of passes of a kind. */
struct step_shard_trace *step_shard_check_trace(struct step_shard_check *k,
                                                enum step_shard_pass pass);
/* step_shard_check_chosen — returns the shard of a group's run that this step compares. */
int step_shard_check_chosen(const struct step_shard_check *k, int group);
/* step_shard_check_again — computes a shard, and returns the checksum of its trace. Collective. */
enum status step_shard_check_again(struct step_shard_check *k, int shard, uint64_t *sum_out);

/* step_shard_differ — compares all checksums: sum has two for each rank, of its own shard and of
 * the next group's. If two groups differ it fails on all ranks: with ST_FAULT on the faulty rank,
 * else with ST_PEER. Collective. */
enum status step_shard_differ(struct step_shard_check *k, const uint64_t *sum);

#endif
