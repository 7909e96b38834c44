/* plan_search — the fastest ways to train a model on so many devices of a cluster: TP, PP, CP,
 * SHARD, RECOMPUTE and the micro-batch. What cannot be faster than those found is not tried. A pure
 * function. */
#ifndef CONVOY_PLAN_PLAN_SEARCH_H
#define CONVOY_PLAN_PLAN_SEARCH_H

#include "plan/plan_estimate.h"

#define PLAN_SEARCH_TOP 5
#define PLAN_SEARCH_NEAR 0.03 /* of ways that are so near the fastest, the simplest is first */

/* What stays as the job has it. RECOMPUTE and SHARD may be auto where they do not. */
struct plan_search_fixed {
    bool axis[MESH_AXES]; /* DATA is not read */
    bool chunks, shard, recompute, batch;
};

struct plan_search {
    struct plan_job job[PLAN_SEARCH_TOP]; /* one of each mesh: see plan_search_make */
    struct plan_estimate estimate[PLAN_SEARCH_TOP];
    int found_n, meshes_n, tried_n;   /* meshes in all, ways whose time was planned */
    double fastest_tokens_per_second; /* of all ways that fit; 0: there is none */
    enum status failure;              /* found_n 0: not memory, but this; ST_OK: memory */
    struct status_saved why;          /* its message */
};

/* plan_search_make — ways within PLAN_SEARCH_NEAR of the fastest come first, the simplest before
 * others: fewer axes, then fewer chunks, less SHARD, less RECOMPUTE, smaller micro-batches. Then
 * others by their time. found_n 0: nothing fits. global_samples of the job stays the same.
 * ST_RETRY: out of memory. Other failures of a way only leave it out. */
enum status plan_search_make(const struct plan_job *job, const struct plan_search_fixed *fixed,
                             struct plan_search *out);

#endif
