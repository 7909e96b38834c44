/* rehearse_plan — decides which faults `convoy rehearse` makes and when, as a function of a seed,
 * and computes the statistics of the results. Pure. Must not know processes or signals. */
#ifndef CONVOY_NODE_REHEARSE_PLAN_H
#define CONVOY_NODE_REHEARSE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(NAME, word in FAULT_MIX, description) */
#define REHEARSE_KIND_LIST(X)                                                      \
    X(KILL, "kill", "a worker is killed")                                          \
    X(NODE, "node", "all processes of a node are killed, and it starts again")     \
    X(HANG, "hang", "a node stands still until the others have given it up")       \
    X(SLOW, "slow", "a node gets half of its time for 5 s")                        \
    X(FLIP, "flip", "a bit of a weight in one worker changes")                     \
    X(DISK, "disk", "no file can grow until a checkpoint has failed")              \
    X(CUT, "cut", "a node reaches no other one until the others have given it up") \
    X(COMM, "comm", "the collectives of a worker fail; on GPUs its NCCL communicators are aborted")
enum rehearse_kind {
#define REHEARSE_KIND_ENUM(name, word, what) REHEARSE_KIND_##name,
    REHEARSE_KIND_LIST(REHEARSE_KIND_ENUM)
#undef REHEARSE_KIND_ENUM
        REHEARSE_KINDS_N
};
/* rehearse_plan_word — returns the kind as it is written in settings and reports: "kill". */
const char *rehearse_plan_word(enum rehearse_kind kind);
/* rehearse_plan_text — returns the kind as a sentence for users. */
const char *rehearse_plan_text(enum rehearse_kind kind);

#define REHEARSE_WEIGHT_MAX 100

/* Frequency of each kind, relative to the others. */
struct rehearse_mix {
    int weight[REHEARSE_KINDS_N], total;
};
/* rehearse_plan_mix — reads "kill:3,hang:1". ST_BAD_SETTING: a kind is unknown or occurs twice, a
 * weight is outside 0 to REHEARSE_WEIGHT_MAX, or none is above 0. The message does not name the
 * setting. */
enum status rehearse_plan_mix(const char *text, struct rehearse_mix *out);
/* rehearse_plan_drop — leaves out the faults of this kind. */
void rehearse_plan_drop(struct rehearse_mix *mix, enum rehearse_kind kind);

/* One fault. Its number and the seed determine all its fields. */
struct rehearse_fault {
    enum rehearse_kind kind;
    int node;
    int64_t at_ms;   /* milliseconds after the first step */
    uint64_t choice; /* random number that selects the worker of the node, and the bit */
};
/* rehearse_plan_fault — returns fault i of a run with this seed. There is one fault in each period
 * of every_ms, at a random time in it. mix->total consecutive faults have exactly the proportions
 * of the mix. */
struct rehearse_fault rehearse_plan_fault(uint64_t seed, const struct rehearse_mix *mix, int nodes,
                                          int64_t every_ms, int64_t i);

/* Quantiles of times in milliseconds; -1 if there are no times. p95: the nearest rank. */
struct rehearse_times {
    int n;
    int64_t median, p95, worst;
};
/* rehearse_plan_times — sorts ms and returns the quantiles of the n times. */
struct rehearse_times rehearse_plan_times(double *ms, int n);

#endif
