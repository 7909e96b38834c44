/* plan_compare — see plan_compare.h. */
#include "plan/plan_compare.h"

#include <math.h>
#include <stdlib.h>

static const char *const texts[PLAN_COMPARE_N] = {
#define PLAN_COMPARE_TEXT(name, text) [PLAN_COMPARE_##name] = text,
    PLAN_COMPARE_LIST(PLAN_COMPARE_TEXT)
#undef PLAN_COMPARE_TEXT
};

void plan_compare_terms(double step_ms, const struct step_result *r, struct plan_compare_step *out)
{
    double wait = fmax(0, fmin(r->wait_ms, step_ms)), stages = fmin(r->pipe_wait_ms, wait),
           update = fmin(fmax(0, r->update_ms - r->update_wait_ms), step_ms - wait);
    *out = (struct plan_compare_step){.step_ms = step_ms};
    out->ms[PLAN_COMPARE_BUBBLE] = stages;
    out->ms[PLAN_COMPARE_COMMUNICATION] = wait - stages;
    out->ms[PLAN_COMPARE_OPTIMIZER] = update;
    out->ms[PLAN_COMPARE_COMPUTATION] = step_ms - wait - update;
}

bool plan_compare_add(struct plan_compare *compare, const struct plan_compare_step *step)
{
    int at = compare->seen_n++ - PLAN_COMPARE_SKIPPED;
    if (at >= 0 && at < PLAN_COMPARE_STEPS)
        compare->step[at] = *step;
    return at == PLAN_COMPARE_STEPS - 1;
}

static int compare_steps(const void *a, const void *b)
{
    double left = ((const struct plan_compare_step *)a)->step_ms,
           right = ((const struct plan_compare_step *)b)->step_ms;
    return (left > right) - (left < right);
}

/* Returns the terms of a plan, without checkpoints, which are not measured. Computation that is
 * slower because of concurrent calls is computation in both. */
static struct plan_compare_step planned_terms(const struct plan_time *t)
{
    struct plan_compare_step step = {.step_ms = t->step_ms - t->ms[PLAN_TIME_CHECKPOINT]};
    step.ms[PLAN_COMPARE_COMMUNICATION] = t->ms[PLAN_TIME_COMM_EXPOSED];
    step.ms[PLAN_COMPARE_OPTIMIZER] = t->ms[PLAN_TIME_OPTIMIZER];
    step.ms[PLAN_COMPARE_BUBBLE] = t->ms[PLAN_TIME_BUBBLE];
    step.ms[PLAN_COMPARE_COMPUTATION] = step.step_ms - step.ms[PLAN_COMPARE_COMMUNICATION] -
                                        step.ms[PLAN_COMPARE_OPTIMIZER] -
                                        step.ms[PLAN_COMPARE_BUBBLE];
    return step;
}

static void add_term(int term, const struct plan_compare_step *planned,
                     const struct plan_compare_step *real, struct text *out)
{
    char a[32], b[32];
    text_add(out, "%s %s, %s planned", texts[term], text_format_ms(a, sizeof a, real->ms[term]),
             text_format_ms(b, sizeof b, planned->ms[term]));
}

void plan_compare_text(const struct plan_compare *compare, const struct plan_time *planned,
                       bool has_terms, struct text *out)
{
    char a[32], b[32];
    struct plan_compare sorted = *compare;
    qsort(sorted.step, PLAN_COMPARE_STEPS, sizeof sorted.step[0], compare_steps);
    struct plan_compare_step plan = planned_terms(planned),
                             real = sorted.step[PLAN_COMPARE_STEPS / 2];
    double far = real.step_ms / plan.step_ms - 1;
    text_add(out, "a step takes %s, %s planned: %.0f %% %s",
             text_format_ms(a, sizeof a, real.step_ms), text_format_ms(b, sizeof b, plan.step_ms),
             100 * fabs(far), far < 0 ? "less" : "more");
    if (fabs(far) <= PLAN_COMPARE_FAR)
        return;
    if (has_terms) {
        int most = 0; /* the term that differs most */
        for (int i = 1; i < PLAN_COMPARE_N; i++)
            if (fabs(real.ms[i] - plan.ms[i]) > fabs(real.ms[most] - plan.ms[most]))
                most = i;
        text_add(out, "; most of it is ");
        add_term(most, &plan, &real, out);
        text_add(out, "; the rest: ");
        for (int i = 0, n = 0; i < PLAN_COMPARE_N; i++) {
            if (i == most || (plan.ms[i] < 0.005 && real.ms[i] < 0.005))
                continue;
            text_add(out, "%s", n++ > 0 ? "; " : "");
            add_term(i, &plan, &real, out);
        }
    } else
        text_add(out, "; CUDA_TIMES=1 shows the time of each operation");
}
