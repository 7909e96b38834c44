/* plan_search — the fastest ways to train a model on a number of devices of a cluster: TP, PP, CP,
 * SHARD, RECOMPUTE and the micro-batch. Ways that cannot be faster than the results so far are not
 * tried. A pure function. */
#ifndef CONVOY_PLAN_PLAN_SEARCH_H
#define CONVOY_PLAN_PLAN_SEARCH_H

#include "plan/plan_estimate.h"

#define PLAN_SEARCH_TOP 5
/* relative distance to the fastest way below which the simplest way comes first */
#define PLAN_SEARCH_NEAR 0.03

/* The settings that keep the job's values. RECOMPUTE and SHARD may be auto if they are not
 * fixed. */
struct plan_search_fixed {
    bool axis[MESH_AXES]; /* DATA is not read */
    bool chunks, shard, recompute, batch;
};

struct plan_search {
    struct plan_job job[PLAN_SEARCH_TOP]; /* one for each mesh: see plan_search_make */
    struct plan_estimate estimate[PLAN_SEARCH_TOP];
    int found_n, meshes_n, tried_n;   /* all meshes, ways whose time was planned */
    double fastest_tokens_per_second; /* rate of the fastest way that fits; 0: there is none */
    enum status failure;              /* found_n 0: the reason if it is not memory; ST_OK: memory */
    struct status_saved why;          /* its message */
};

/* plan_search_make — finds the ways. Ways within PLAN_SEARCH_NEAR of the fastest come first, the
 * simplest before others: fewer axes, then fewer chunks, less SHARD, less RECOMPUTE, smaller
 * micro-batches. Then the others by their time. found_n 0: nothing fits. global_samples of the job
 * stays the same. A way that fails is only left out. */
void plan_search_make(const struct plan_job *job, const struct plan_search_fixed *fixed,
                      struct plan_search *out);

/* ---- better jobs and their gain: other settings on the same devices, one node less, one node more
 * ---- */

/* most nodes: of more nodes, one is a small part, and a search needs long */
#define PLAN_SEARCH_NODES_MAX 16

/* A node that adds a share s of devices is worth its price if training gets faster by at least
 * PLAN_SEARCH_WORTH · s. */
#define PLAN_SEARCH_WORTH (1.0 / 3)

/* Another number of nodes: with the same settings or, if these do not suit it, the fastest way
 * there compared with the fastest way on the job's own nodes. */
struct plan_advice_nodes {
    bool is_known;
    int nodes;
    double tokens_per_second;
    double speed_ratio; /* ratio of the larger number of nodes to the smaller */
};

struct plan_advice {
    struct plan_search search; /* the same devices */
    struct plan_advice_nodes less, more;
};

/* plan_search_advice — compares a job that fits with other settings and other numbers of nodes.
 * found: the results of MESH=auto, the job first; the fastest of them are compared. NULL: this
 * function searches them. */
void plan_search_advice(const struct plan_job *job, const struct plan_search_fixed *fixed,
                        const struct plan_search *found, struct plan_advice *out);
/* plan_search_is_worth — returns true if the last of `nodes` nodes is worth its price: it makes
 * training faster by at least a third of the share of devices that it adds. */
bool plan_search_is_worth(double speed_ratio, int nodes);

#endif
