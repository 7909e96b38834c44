/* plan_compare — compares the first measured steps of a run with its plan, in words. Pure. */
#ifndef CONVOY_PLAN_PLAN_COMPARE_H
#define CONVOY_PLAN_PLAN_COMPARE_H

#include "base/text.h"
#include "plan/plan_time.h"
#include "train/step/step.h"

/* steps at the beginning, which are not compared because they touch new memory */
#define PLAN_COMPARE_SKIPPED 2
#define PLAN_COMPARE_STEPS 8
#define PLAN_COMPARE_FAR 0.15 /* from this relative difference on, the terms are compared */

/* Terms of a step's time that both the plan and the measurement have. */
#define PLAN_COMPARE_LIST(X)          \
    X(COMPUTATION, "computation")     \
    X(COMMUNICATION, "communication") \
    X(OPTIMIZER, "optimiser")         \
    X(BUBBLE, "waiting for stages")
enum plan_compare_term {
#define PLAN_COMPARE_ENUM(name, text) PLAN_COMPARE_##name,
    PLAN_COMPARE_LIST(PLAN_COMPARE_ENUM)
#undef PLAN_COMPARE_ENUM
        PLAN_COMPARE_N
};

/* Milliseconds of a step. */
struct plan_compare_step {
    double step_ms, ms[PLAN_COMPARE_N];
};
struct plan_compare {
    int seen_n; /* steps so far */
    struct plan_compare_step step[PLAN_COMPARE_STEPS];
};

/* plan_compare_terms — divides a measured step into terms that add up to it, none below 0. wait_ms
 * has every wait of the step, so waits that belong to another term are subtracted from it. */
void plan_compare_terms(double step_ms, const struct step_result *measured,
                        struct plan_compare_step *out);
/* plan_compare_add — adds one step. Returns true if no further step is needed. */
bool plan_compare_add(struct plan_compare *compare, const struct plan_compare_step *step);
/* plan_compare_text — appends "a step takes 190 ms, 182 ms planned: 4 % more" and, if the
 * difference is large, both values of each term. The measured step is the step with the median
 * time. has_terms: ms was measured. */
void plan_compare_text(const struct plan_compare *compare, const struct plan_time *planned,
                       bool has_terms, struct text *out);

#endif
