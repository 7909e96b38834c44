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

/* How often the job has started again. Every node keeps a copy, for a node 0 that lost its
 * memory. */
struct restart_budget {
    int64_t restarts;
    int64_t no_progress; /* failures in a row before a step that the job had not reached yet */
    int64_t best_step;   /* the furthest step when that was last counted; -1: none */
};

/* restart_budget_take — count one more failure; `step` is the furthest step done so far, `why` the
 * failure in words. True: start again. False: out holds the sentence, `why` and why there is no
 * restart. */
bool restart_budget_take(struct restart_budget *budget, int64_t step, int64_t restarts_max,
                         const char *why, char *out, size_t cap);
/* restart_budget_delay_ms — the wait before restart number `restarts`: none before the first, then
 * from 250 ms doubling to 10 s. */
int64_t restart_budget_delay_ms(int64_t restarts);

#endif
