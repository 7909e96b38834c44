/* plan_report — a plan as text for people; as JSON: plan_json.h. Pure functions. */
#ifndef CONVOY_PLAN_PLAN_REPORT_H
#define CONVOY_PLAN_PLAN_REPORT_H

#include "plan/plan_advice.h"

/* What is reported. estimate, advice, search NULL: not known, or not asked for. */
struct plan_report {
    const struct plan_job *job;
    const struct plan_memory *memory;
    const struct plan_estimate *estimate;
    const struct plan_advice *advice;
    const struct plan_search *search; /* MESH=auto: job is the first of it */
    double tokens;                    /* to train on; 0: unknown */
};

/* plan_report_text — appends to out.
 * plan_report_shard — "none", "full" … */
void plan_report_text(const struct plan_report *report, struct text *out);
const char *plan_report_shard(enum layout_shard shard);

#endif
