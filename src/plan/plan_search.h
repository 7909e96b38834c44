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
 * others by their time. found_n 0: nothing fits. global_samples of the job stays the same. A
 * failure of a way only leaves it out. */
void plan_search_make(const struct plan_job *job, const struct plan_search_fixed *fixed,
                      struct plan_search *out);

/* ---- what would be better than a job, and by how much: other settings on the same devices, one
 * node less, one node more ---- */

#define PLAN_SEARCH_NODES_MAX 16 /* nodes: of more, one is a small part; a search takes long */

/* The share of the devices that a node adds by which training must get faster, for the node to be
 * worth its price. */
#define PLAN_SEARCH_WORTH (1.0 / 3)

/* Another number of nodes: with the same settings or, where these do not go with it, the fastest
 * way there beside the fastest way on the job's own nodes. */
struct plan_advice_nodes {
    bool is_known;
    int nodes;
    double tokens_per_second;
    double speed_ratio; /* of the larger number of nodes to the smaller */
};

struct plan_advice {
    struct plan_search search; /* with the same devices */
    struct plan_advice_nodes less, more;
};

/* Compares a job that fits with other settings and other numbers of nodes. found: the ways that
 * MESH=auto found, of which the job is the first: then the fastest ways are compared. NULL: they
 * are searched. */
void plan_search_advice(const struct plan_job *job, const struct plan_search_fixed *fixed,
                        const struct plan_search *found, struct plan_advice *out);
/* Returns true if the last of so many nodes is worth its price: it makes training faster by at
 * least a third of what it adds in devices. */
bool plan_search_is_worth(double speed_ratio, int nodes);

#endif
