/* tally — may the job begin anew? As exit_policy_next counts for the worker of one node. Pure. Must
 * not know who was lost. */
#ifndef CONVOY_CLUSTER_RESTART_BUDGET_H
#define CONVOY_CLUSTER_RESTART_BUDGET_H

#include "cluster/message.h"

#define RESTART_BUDGET_NO_PROGRESS_MAX 3 /* as EXIT_POLICY_NO_PROGRESS_MAX */

/* restart_budget_take — counts one more life that ended for `why`, with `step` the furthest step so
 * far. True: begin anew; else the reason why not is in out. */
bool restart_budget_take(struct message_restarts *counts, int64_t step, int max_restarts,
                         const char *why, char *out, size_t cap);

#endif
