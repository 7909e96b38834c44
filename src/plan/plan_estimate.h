/* plan_estimate — the cost of a job on a cluster: memory, the time of a step and the figures that
 * follow from it. Must not know settings. */
#ifndef CONVOY_PLAN_PLAN_ESTIMATE_H
#define CONVOY_PLAN_PLAN_ESTIMATE_H

#include "plan/plan_job.h"
#include "plan/plan_time.h"

/* Two assumptions: no GPU has been measured. The report of a plan names them if it uses them.
 * Bytes per second of a copy of the state out of a device; a CPU's copy of 1.5 GB needs about 70 ms
 * (checkpoint_async.h). */
#define PLAN_COPY_BYTES_PER_SECOND 2e10
/* Milliseconds for which a GPU waits at the head of a step with SENTINEL_EVERY: the host copies the
 * sums of the last update before it submits work, so a small copy, a wait and a launch. The
 * checksums themselves are operations of the step. */
#define PLAN_SENTINEL_WAIT_MS 0.05

/* The protection from lost nodes and wrong memory, as configured (PEER_COPIES, SENTINEL_EVERY). */
struct plan_protection {
    /* steps from one copy in peers' memory to the next; 0: no copies */
    int64_t copy_every;
    double copy_ms;     /* delay of a step by its copy */
    double sentinel_ms; /* wait of the host for the update of the step before */
};

struct plan_estimate {
    struct plan_protection protection; /* in time: copy_ms / copy_every + sentinel_ms */
    struct plan_time time;
    double tokens, model_flops; /* tokens and FLOPs of a step, on all ranks */
    double tokens_per_second;   /* rate of all ranks */
    double mfu;                 /* share of the peak of all ranks in the job's precision */
    int64_t passes;             /* micro-batches of a step */
};

/* plan_estimate_make — makes the estimate. Fails like plan_ops_make. An infinite time, for a peak
 * or a link that the cluster lacks, is ST_BAD_SETTING. */
enum status plan_estimate_make(const struct plan_job *job, struct plan_estimate *out);

#endif
