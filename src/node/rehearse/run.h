/* rehearse_run — performs one run of a job under `convoy rehearse`: starts its nodes, follows them
 * by their boards, makes the faults, and ends the run after a time. Must not know reports or
 * ledgers. */
#ifndef CONVOY_NODE_REHEARSE_RUN_H
#define CONVOY_NODE_REHEARSE_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "node/rehearse/nodes.h"
#include "node/rehearse/plan.h"

#define REHEARSE_FAULTS_MAX 10000

struct rehearse_run_config {
    struct rehearse_nodes_config nodes; /* on_end and arg are not set */
    uint64_t seed;
    struct rehearse_mix mix; /* total 0: a calm run */
    int64_t every_ms;        /* milliseconds between faults */
    int64_t duration_ms;     /* milliseconds from the first step */
    int64_t checkpoint_every;
    int64_t last_step; /* step at which the job ends by itself; 0: unknown */
    bool wants_flip;   /* the user requested flips: the run fails if they cannot be made */
    int64_t goal;      /* the run ends when this step's checkpoint is made; 0: no such step */
    int64_t heal_ms;   /* milliseconds after which a fault must have healed */
    const volatile sig_atomic_t *signalled; /* a signal that ends the run; 0: none */
};

/* Whether the job attributed a changed bit to the right worker. */
enum rehearse_named { REHEARSE_NAMED_NONE, REHEARSE_NAMED_RIGHT, REHEARSE_NAMED_WRONG };

/* Times and finished steps after a fault was made. X(NAME, member of the report)
 *   detected   another node (kill, flip, comm: any node) has ended the generation; disk: a
 *              checkpoint has failed
 *   recovered  the next step is finished; disk: a checkpoint is written */
#define REHEARSE_MEASURE_LIST(X)    \
    X(DETECT_MS, "detect_ms")       \
    X(RECOVER_MS, "recover_ms")     \
    X(DETECT_STEPS, "detect_steps") \
    X(STEPS_REDONE, "steps_redone")
enum rehearse_measure {
#define REHEARSE_MEASURE_ENUM(name, word) REHEARSE_##name,
    REHEARSE_MEASURE_LIST(REHEARSE_MEASURE_ENUM)
#undef REHEARSE_MEASURE_ENUM
        REHEARSE_MEASURES_N
};

/* The result of a fault. */
struct rehearse_outcome {
    enum rehearse_kind kind;
    int node;
    int64_t measure[REHEARSE_MEASURES_N]; /* -1: did not happen */
    bool is_healed;
    bool is_kept; /* the workers that the fault did not hit have kept their processes */
    enum rehearse_named named; /* attribution by node 0: of the node; with flip of the rank */
};

struct rehearse_result {
    int64_t steps, redone;     /* number of distinct steps; number of steps that were repeated */
    int64_t first_ms, last_ms; /* clock_ms of the first and the last step that was seen */
    int64_t first_step;
    int64_t unexpected; /* generations that ended without a fault */
    int outcomes_n;
    struct rehearse_outcome outcome[REHEARSE_FAULTS_MAX];
    char no_flip
        /* reason why no bit can be inverted; "": it can be, or the run has no SENTINEL_EVERY */
        [200];
    char device[64], backend[24]; /* rank 0's device and transport */
    bool is_complete;             /* the job ended by itself */
    enum status job;              /* status of a node that ended without a request */
    char problem[1024];           /* reason if the job ended or did not heal; "": none */
};

/* rehearse_run — runs the job; blocks for the duration and until all faults have healed. If the job
 * fails, result->problem holds the reason. Fails with ST_RETRY if no node can be started, and with
 * ST_INTERRUPTED or ST_TERMINATED on a signal. In no case is a process left. */
enum status rehearse_run(const struct rehearse_run_config *config, struct rehearse_result *result);

#endif
