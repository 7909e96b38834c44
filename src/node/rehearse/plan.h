/* rehearse_plan — which faults `convoy rehearse` makes and when, as a function of a seed, and the
 * statistics of what followed. Pure. Must not know processes or signals. */
#ifndef CONVOY_NODE_REHEARSE_PLAN_H
#define CONVOY_NODE_REHEARSE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(NAME, word in FAULT_MIX, what it is) */
#define REHEARSE_KIND_LIST(X)                                                  \
    X(KILL, "kill", "a worker is killed")                                      \
    X(NODE, "node", "all processes of a node are killed, and it starts again") \
    X(HANG, "hang", "a node stands still until the others have given it up")   \
    X(SLOW, "slow", "a node gets half of its time for 5 s")                    \
    X(FLIP, "flip", "a bit of a weight in one worker changes")                 \
    X(DISK, "disk", "no file can grow until a checkpoint has failed")          \
    X(CUT, "cut", "a node reaches no other one until the others have given it up")
enum rehearse_kind {
#define REHEARSE_KIND_ENUM(name, word, what) REHEARSE_KIND_##name,
    REHEARSE_KIND_LIST(REHEARSE_KIND_ENUM)
#undef REHEARSE_KIND_ENUM
        REHEARSE_KINDS_N
};
const char *rehearse_plan_word(enum rehearse_kind kind);
const char *rehearse_plan_text(enum rehearse_kind kind);

#define REHEARSE_WEIGHT_MAX 100

/* How often each kind comes, relative to the others. */
struct rehearse_mix {
    int weight[REHEARSE_KINDS_N], total;
};
/* rehearse_plan_mix — "kill:3,hang:1". ST_BAD_SETTING: an unknown kind, one named twice, a weight
 * beyond 0 to REHEARSE_WEIGHT_MAX, or none above 0; the sentence does not name the setting. */
enum status rehearse_plan_mix(const char *text, struct rehearse_mix *out);
/* rehearse_plan_drop — leaves out the faults of this kind. */
void rehearse_plan_drop(struct rehearse_mix *mix, enum rehearse_kind kind);

/* The number of a fault decides the rest: */
struct rehearse_fault {
    enum rehearse_kind kind;
    int node;
    int64_t at_ms;   /* after the first step */
    uint64_t choice; /* which worker of the node, modulo their number; which bit */
};
/* rehearse_plan_fault — fault i of a run with this seed: one in each every_ms, at a random instant
 * of it. As many faults as the mix has weights have exactly its proportions. */
struct rehearse_fault rehearse_plan_fault(uint64_t seed, const struct rehearse_mix *mix, int nodes,
                                          int64_t every_ms, int64_t i);

/* Of times in milliseconds; all -1 where there are none. p95: the nearest rank. */
struct rehearse_times {
    int n;
    int64_t median, p95, worst;
};
/* Sorts ms and returns the quantiles of the n times. */
struct rehearse_times rehearse_plan_times(double *ms, int n);

#endif
