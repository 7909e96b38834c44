/* plan_advice — what would be better than a job, and by how much: other settings on the same
 * devices, one node less, one node more. A pure function. */
#ifndef CONVOY_PLAN_PLAN_ADVICE_H
#define CONVOY_PLAN_PLAN_ADVICE_H

#include "plan/plan_search.h"

#define PLAN_ADVICE_SEARCHED_MAX 16 /* nodes: of more, one is a small part; a search takes long */

/* The share of the devices that a node adds by which training must get faster, for the node to be
 * worth its price. */
#define PLAN_ADVICE_WORTH (1.0 / 3)

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

/* plan_advice_make — of a job that fits. found: the ways that MESH=auto found, of which the job is
 * the first: then the fastest ways are compared. NULL: they are searched. ST_RETRY: out of
 * memory.
 * plan_advice_is_worth — whether the last of so many nodes is worth its price: it makes training
 * faster by at least a third of what it adds in devices. */
enum status plan_advice_make(const struct plan_job *job, const struct plan_search_fixed *fixed,
                             const struct plan_search *found, struct plan_advice *out);
bool plan_advice_is_worth(double speed_ratio, int nodes);

#endif
