/* restart_budget — decides whether the job may start again after a loss. One budget counts for the
 * whole job: at node 0 if there are several ranks, in the supervisor if there is only one worker.
 *
 *   loss       a worker or a node was lost
 *   incident   begins with a loss and ends when a generation that began after it finishes a step.
 *              It uses one restart, however many losses it has.
 *   repeat     a worker is lost again after the same step, and the job has not passed that step.
 *              Only repeats are a sign that more restarts would not help.
 *
 * A failure that is a function of the state (a number that is not finite, a spike, an assertion or
 * a crash) comes again from the same state. Its first repeat ends the job, on whichever worker.
 * RESTART_BUDGET_REFILL_MS of training, or RESTART_BUDGET_REFILL_CHECKPOINTS, without a loss
 * restore one restart.
 *
 * Pure: time comes from the caller. Must not know how a worker is started again. */
#ifndef CONVOY_CLUSTER_RESTART_BUDGET_H
#define CONVOY_CLUSTER_RESTART_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* This many losses of one worker after the same step end the job. */
#define RESTART_BUDGET_REPEATS 3
#define RESTART_BUDGET_REFILL_MS INT64_C(3600000)
#define RESTART_BUDGET_REFILL_CHECKPOINTS 100

struct restart_loss {
    enum status st;
    /* its number among all workers of the job; for a lost node its first worker */
    int worker;
    int64_t step; /* the last step that it reported; -1: none */
    /* generation in which it was lost; the losses of one generation are no repeats */
    int64_t generation;
};

/* The last loss, and the number of losses after that step. */
struct restart_repeat {
    int64_t step, n; /* n 0: none */
    enum status st;
};

/* Every node keeps a copy, for a new process of node 0. */
struct restart_counts {
    int64_t restarts; /* restarts of the job so far */
    int64_t refilled; /* restarts that were restored */
    /* losses of the incident; 0: a step was finished since the last loss */
    int64_t losses;
    /* repeats of worker 0: node 0 may be the node that is lost again */
    struct restart_repeat first;
};

struct restart_budget {
    int64_t restarts_max; /* MAX_RESTARTS; -1: the job has no restarts */
    int workers_n;
    /* workers_n - 1: repeats of worker 1 and the next ones; borrowed */
    struct restart_repeat *others;
    struct restart_counts counts;
    struct restart_repeat state; /* the last failure that is a function of the state */
    int64_t state_generation;
    /* Training continues without a loss since this time and this number of checkpoints. */
    bool is_calm;
    int64_t calm_ms, calm_checkpoints;
};

/* restart_budget_spend — counts one more loss; why: the loss, as text. true: start again; a restart
 * is used if counts.losses is 1 now. false: more restarts would not help, or none is left, and out
 * has `why` and the reason. */
bool restart_budget_spend(struct restart_budget *budget, const struct restart_loss *loss,
                          const char *why, char *out, size_t cap);
/* restart_budget_used — returns the number of MAX_RESTARTS that are used up now. */
int64_t restart_budget_used(const struct restart_budget *budget);
/* restart_budget_stepped — ends the incident: a generation has finished its first step.
 * checkpoints: a count that only grows. */
void restart_budget_stepped(struct restart_budget *budget, int64_t checkpoints, int64_t now_ms);
/* restart_budget_passed — forgets the losses after earlier steps: a generation that finished a step
 * has reached this one. Workers may be one step apart. */
void restart_budget_passed(struct restart_budget *budget, int64_t step);
/* restart_budget_refill — restores the restarts that are due. Returns true if there were any. */
bool restart_budget_refill(struct restart_budget *budget, int64_t checkpoints, int64_t now_ms);
/* restart_budget_delay_ms — returns the wait after this many losses in a row without a finished
 * step: none after the first, then from 250 ms doubling to 10 s. */
int64_t restart_budget_delay_ms(int64_t losses);

#endif
