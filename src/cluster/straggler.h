/* straggler — finds the ranks that the others wait for, from the reports of the ranks. Pure. Must
 * not know the effect of a collective. */
#ifndef CONVOY_CLUSTER_STRAGGLER_H
#define CONVOY_CLUSTER_STRAGGLER_H

#include <stddef.h>

#include "cluster/cluster.h"

#define STRAGGLER_ALL_MS 20000

/* straggler_find — finds the ranks that have not entered the latest collective call, if a rank has
 * waited in it for limit_ms. Returns false if none has. The text in out:
 *   - some ranks are late: "node 1 rank 2 has not entered all_reduce 812 for 4.1 s"
 *   - all are in the same call for STRAGGLER_ALL_MS: "all ranks are in all_reduce 812 for 20.3 s:
 *     …", with possible causes between the nodes
 *   - places->calls_differ: the ranks that are in no call, as "node 1 rank 2 (stage 1, tensor 0) is
 *     in no call, while rank 0 (stage 0, tensor 0) waits in recv 40 for 4.1 s"
 * places (cluster.h) may be NULL. The age of a report is added to the ages in it. */
bool straggler_find(const struct cluster_node *nodes, int nodes_n, int64_t limit_ms,
                    const struct cluster_places *places, char *out, size_t cap);

/* straggler_is_stalled — returns true if nothing moves; out: the reason. Each rank was in a call
 * for limit_ms when it was last reported, or its node has been silent for that time. A rank that
 * computes, reads or writes makes it false. */
bool straggler_is_stalled(const struct cluster_node *nodes, int nodes_n, int64_t limit_ms,
                          char *out, size_t cap);

/* The longest call of a rank that was followed by a later call, by its reports. It separates a slow
 * network from a stall. Zero-initialised is valid. */
struct straggler_pace {
    /* sequence and age of its call in the last report; age_ms -1: in none */
    int64_t sequence, age_ms;
    int64_t longest_ms;
};
/* straggler_pace_add — adds the next report of the rank: the age of its last call counts if the
 * rank has gone on to a later call. */
void straggler_pace_add(struct straggler_pace *pace, const struct cluster_rank *rank);

#endif
