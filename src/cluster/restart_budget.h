/* restart_budget — may the job start again after a loss? One budget counts for the whole job: at
 * node 0 if there are several ranks, in the supervisor if there is only one worker.
 *
 *   loss       a worker or a node was lost
 *   incident   begins with a loss and ends when a generation that began after it finishes a step.
 *              It takes one restart, however many losses it has.
 *   repeat     a worker is lost again after the same step, and the job has not passed that step.
 *              Only repeats are a sign that more restarts would not help.
 *
 * A failure that is a function of the state (a number that is not finite, a spike, an assertion or
 * a crash) comes again from the same state. Its first repeat ends the job, on whichever worker.
 * RESTART_BUDGET_REFILL_MS of training, or RESTART_BUDGET_REFILL_CHECKPOINTS, without a loss give
 * one restart back.
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
    int worker;         /* its number among all of the job; of a lost node the first one */
    int64_t step;       /* the last that it reported; -1: none */
    int64_t generation; /* in which it was lost; the losses of one generation are no repeats */
};

/* The last loss, and how often one came after that step. */
struct restart_repeat {
    int64_t step, n; /* n 0: none */
    enum status st;
};

/* Every node keeps a copy, for a new process of node 0. */
struct restart_counts {
    int64_t restarts;            /* of the job so far */
    int64_t refilled;            /* of them, given back */
    int64_t losses;              /* of the incident; 0: a step was finished since the last loss */
    struct restart_repeat first; /* of worker 0: node 0 may be the node that is lost again */
};

struct restart_budget {
    int64_t restarts_max; /* MAX_RESTARTS; -1: the job has no restarts */
    int workers_n;
    struct restart_repeat *others; /* of worker 1 and the next ones: workers_n - 1; borrowed */
    struct restart_counts counts;
    struct restart_repeat state; /* of the last failure that is a function of the state */
    int64_t state_generation;
    /* Training goes on without a loss since this time and this number of checkpoints. */
    bool is_calm;
    int64_t calm_ms, calm_checkpoints;
};

/* restart_budget_take — counts one more loss; why: the loss, as text. true: start again; a restart
 * is taken if counts.losses is 1 now. false: more restarts would not help, or none is left, and out
 * has `why` and the reason for that. */
bool restart_budget_take(struct restart_budget *budget, const struct restart_loss *loss,
                         const char *why, char *out, size_t cap);
/* restart_budget_used — how many of MAX_RESTARTS are used up now. */
int64_t restart_budget_used(const struct restart_budget *budget);
/* restart_budget_stepped — a generation has finished its first step, which ends the incident.
 * checkpoints: a count that only grows. */
void restart_budget_stepped(struct restart_budget *budget, int64_t checkpoints, int64_t now_ms);
/* restart_budget_passed — a generation that finished a step has reached this one: forgets the
 * losses after earlier steps. Workers may be one step apart. */
void restart_budget_passed(struct restart_budget *budget, int64_t step);
/* restart_budget_refill — gives restarts back that are due. Returns whether there were any. */
bool restart_budget_refill(struct restart_budget *budget, int64_t checkpoints, int64_t now_ms);
/* restart_budget_delay_ms — the wait after this many losses in a row without a finished step: none
 * after the first, then from 250 ms doubling to 10 s. */
int64_t restart_budget_delay_ms(int64_t losses);

#endif
