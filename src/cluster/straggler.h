/* stuck — whom do the others wait for? From what the ranks said they are doing. Pure. Must not know
 * collectives. */
#ifndef CONVOY_CLUSTER_STRAGGLER_H
#define CONVOY_CLUSTER_STRAGGLER_H

#include <stddef.h>

#include "cluster/cluster.h"

#define STRAGGLER_ALL_MS 20000

/* straggler_find — among all ranks of the job, those that wait longest in the furthest call, and
 * who has not entered it: "node 1 rank 2 has not entered all_reduce 812 for 4.1 s". When all are in
 * the same call for STRAGGLER_ALL_MS, nobody is named but the call, and what may be between them:
 * "all ranks are in all_reduce 812 for 20.3 s: …". False: nobody waits for as long as limit_ms.
 * Ages count from each rank's report. */
bool straggler_find(const struct cluster_node *nodes, int nodes_n, int64_t limit_ms, char *out,
                    size_t cap);

/* straggler_is_stalled — nobody moves: each rank has been in a call for as long as limit_ms when it
 * last said so, or its node has not been heard for so long; then why, for people. Never while
 * somebody computes, reads or writes. */
bool straggler_is_stalled(const struct cluster_node *nodes, int nodes_n, int64_t limit_ms,
                          char *out, size_t cap);

/* stuck_pace — how long calls take here: the longest that a rank of this node came out of to enter
 * a later one, as seen
 * in reports of it; zeroed at first. */
struct straggler_pace {
    int64_t sequence, age_ms; /* of the call it is in, at the last report; age -1: in none */
    int64_t longest_ms;
};
void straggler_pace_add(struct straggler_pace *pace, const struct cluster_rank *rank);

#endif
