/* plan_compare — the first measured steps of a run beside its plan, in words. Pure. */
#ifndef CONVOY_PLAN_PLAN_COMPARE_H
#define CONVOY_PLAN_PLAN_COMPARE_H

#include "base/text.h"
#include "plan/plan_time.h"
#include "train/step/step.h"

#define PLAN_COMPARE_SKIPPED 2 /* steps at the beginning, which touch new memory */
#define PLAN_COMPARE_STEPS 8
#define PLAN_COMPARE_FAR 0.15 /* from this difference on the terms are compared */

/* Terms of a step's time that both have. */
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

/* plan_compare_terms — a measured step in terms that add up to it, none below 0. wait_ms has every
 * wait of the step, so what belongs to another term is taken from it.
 * plan_compare_add — one step. true: it was the last one that is needed.
 * plan_compare_text — appends "a step takes 190 ms, 182 ms planned: 4 % more" and, where that is
 * far, by how much each term differs. The step in the middle, by time, stands for all. has_terms:
 * ms was measured. */
void plan_compare_terms(double step_ms, const struct step_result *measured,
                        struct plan_compare_step *out);
bool plan_compare_add(struct plan_compare *compare, const struct plan_compare_step *step);
void plan_compare_text(const struct plan_compare *compare, const struct plan_time *planned,
                       bool has_terms, struct text *out);

#endif
