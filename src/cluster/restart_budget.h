/* restart_budget — may the job start again after a loss? It may, up to MAX_RESTARTS times, unless
 * several restarts in a row made no new step. node/exit_policy.h decides the same for the worker of
 * one node. Pure. Must not know which node was lost. */
#ifndef CONVOY_CLUSTER_RESTART_BUDGET_H
#define CONVOY_CLUSTER_RESTART_BUDGET_H

#include "cluster/message.h"

#define RESTART_BUDGET_NO_PROGRESS_MAX 3 /* in a row; as EXIT_POLICY_NO_PROGRESS_MAX */

/* restart_budget_take — counts one more generation that ended, for the reason `why`; step: the
 * highest step so far. true: begin another generation. false: the budget is spent, and out has the
 * reason. */
bool restart_budget_take(struct message_restarts *counts, int64_t step, int max_restarts,
                         const char *why, char *out, size_t cap);

#endif
