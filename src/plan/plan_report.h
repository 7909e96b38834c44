/* plan_report — a plan as text for people and as JSON (docs/plan.md names the members). Pure
 * functions. */
#ifndef CONVOY_PLAN_PLAN_REPORT_H
#define CONVOY_PLAN_PLAN_REPORT_H

#include "base/loss_cost.h"
#include "plan/plan_search.h"

/* The same job without its adapter: all weights train. */
struct plan_whole {
    struct plan_memory memory;
    bool fits;
    double step_ms; /* 0: it does not fit */
};

/* The input of a report. estimate, advice, search NULL: unknown, or not requested. */
struct plan_report {
    const struct plan_job *job;
    const struct plan_memory *memory;
    const struct plan_estimate *estimate;
    const struct plan_advice *advice;
    const struct plan_search *search; /* MESH=auto: job is the first result of it */
    const struct plan_whole *whole;   /* NULL: the job has no adapter */
    double tokens;                    /* tokens to train on; 0: unknown */
};

/* plan_report_text — appends the text. */
void plan_report_text(const struct plan_report *report, struct text *out);
/* plan_report_loss — plans the cost of a lost node. The report has an estimate. */
void plan_report_loss(const struct plan_report *report, struct loss_cost *out);
/* plan_report_shard — returns the word of SHARD: "none", "full" … */
const char *plan_report_shard(enum layout_shard shard);
/* plan_json_write — appends one JSON object and a line end. Errors: ST_RETRY if memory is short. */
enum status plan_json_write(const struct plan_report *report, struct text *out);

/* From this number of nodes on, the control plane needs more than a few MiB, and a plan shows
 * it. */
#define PLAN_REPORT_CONTROL_NODES 64
/* The needs of a job's control plane on node 0 besides its workers: its supervisor answers a
 * heartbeat of each node every second. */
struct plan_control {
    int64_t bytes; /* bytes of memory */
    double cores;  /* processor time, in cores */
};
/* plan_report_control — returns the needs by lines through the measurements of `make bench-control`
 * with 64 to 4,096 nodes (docs/benchmarks.md, "Node 0 as a function of the number of nodes"), on
 * one core of a server. */
struct plan_control plan_report_control(int nodes, int locals);

#endif
