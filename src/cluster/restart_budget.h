/* restart_budget — may the job start again after a failure? One budget counts for the whole job: at
 * node 0 where there are several ranks, in the supervisor where there is one worker alone.
 *
 * Pure. Must not know which rank failed or how it is started again. */
#ifndef CONVOY_CLUSTER_RESTART_BUDGET_H
#define CONVOY_CLUSTER_RESTART_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Failures in a row without a new step after which another restart would not help. */
#define RESTART_BUDGET_NO_PROGRESS_MAX 3

/* The restarts of the job so far. Every node keeps a copy, for a new process of node 0. */
struct restart_budget {
    int64_t restarts;
    int64_t no_progress; /* failures in a row without a new highest step */
    int64_t best_step;   /* the highest step when a failure was last counted; -1: none */
};

/* restart_budget_take — counts one more failure. step: the highest so far; why: the failure, as
 * text. restarts_max -1: the job knows no restarts. true: start again. false: the budget is spent,
 * and out has `why` and the reason for that. */
bool restart_budget_take(struct restart_budget *budget, int64_t step, int64_t restarts_max,
                         const char *why, char *out, size_t cap);
/* restart_budget_delay_ms — the wait before restart number `restarts`: none before the first, then
 * from 250 ms doubling to 10 s. */
int64_t restart_budget_delay_ms(int64_t restarts);

#endif
