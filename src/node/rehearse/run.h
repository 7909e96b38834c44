/* rehearse_run — one run of a job under `convoy rehearse`: starts its nodes, follows them by their
 * log lines, makes the faults, ends it after a time. Must not know reports or ledgers. */
#ifndef CONVOY_NODE_REHEARSE_RUN_H
#define CONVOY_NODE_REHEARSE_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "node/rehearse/nodes.h"
#include "node/rehearse/plan.h"

#define REHEARSE_FAULTS_MAX 10000

struct rehearse_run_config {
    struct rehearse_nodes_config nodes; /* without functions */
    uint64_t seed;
    struct rehearse_mix mix; /* total 0: a calm run */
    int64_t every_ms;        /* between faults */
    int64_t duration_ms;     /* from the first step */
    int64_t checkpoint_every;
    int64_t last_step;                      /* at which the job ends by itself; 0: not known */
    bool wants_flip;                        /* the user does: fails where it cannot be */
    int64_t goal;                           /* ends once this step's checkpoint is made; 0: none */
    int64_t heal_ms;                        /* the longest that a fault may take to heal */
    const volatile sig_atomic_t *signalled; /* a signal that ends it; 0: none */
};

/* Whether the worker in which a bit changed was the one that was named. */
enum rehearse_named { REHEARSE_NAMED_NONE, REHEARSE_NAMED_RIGHT, REHEARSE_NAMED_WRONG };

/* What became of a fault. Times after it was made; -1: did not happen. */
struct rehearse_outcome {
    enum rehearse_kind kind;
    int node;
    /* detect: another node (kill, flip: any) has ended the generation; disk: a checkpoint has
     * failed. recover: the next step is done; disk: a checkpoint is written. */
    int64_t detect_ms, recover_ms;
    bool is_healed;
    enum rehearse_named named; /* of flip */
};

struct rehearse_result {
    int64_t steps, redone;     /* distinct ones; and those that were done again */
    int64_t first_ms, last_ms; /* clock_ms of the first and the last step's line */
    int64_t first_step;
    int64_t unexpected; /* generations that ended without a fault */
    int outcomes_n;
    struct rehearse_outcome outcome[REHEARSE_FAULTS_MAX];
    char no_flip
        [200]; /* why no bit can be inverted; "": one can, or the run has no SENTINEL_EVERY */
    bool is_complete;   /* the job came to its own end */
    enum status job;    /* how a node ended that was not asked to */
    char problem[1024]; /* the job ended or did not heal; "": it did */
};

/* rehearse_run — blocks for the duration and for what faults take to heal. A job that fails is in
 * result->problem. Fails where no node can be started (ST_RETRY), and by a signal
 * (ST_INTERRUPTED, ST_TERMINATED). No process is left in any case. */
enum status rehearse_run(const struct rehearse_run_config *config, struct rehearse_result *result);

#endif
