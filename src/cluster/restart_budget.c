/* restart_budget — see restart_budget.h. */
#include "cluster/restart_budget.h"

#include "base/text.h"

#define DELAY_FIRST_MS 250
#define DELAY_MAX_MS 10000
#define CAUSE_MAX 896 /* leaves room for the reason in a message of cluster/message.h */

/* Counts a repeat. Returns true if it is of the same kind and after the same step as the one
 * before. */
static bool count_repeat(struct restart_repeat *repeat, const struct restart_loss *loss)
{
    const bool is_same_step = repeat->n > 0 && repeat->step == loss->step,
               is_same = is_same_step && repeat->st == loss->st;
    *repeat = (struct restart_repeat){loss->step, is_same_step ? repeat->n + 1 : 1, loss->st};
    return is_same;
}

/* Counts the loss for its worker and, if it follows from the state, for the job. All workers of a
 * generation may fail by one cause. Returns the reason for which more restarts would not help, or
 * NULL. */
static const char *find_repeat(struct restart_budget *budget, const struct restart_loss *loss)
{
    struct restart_repeat *own =
        loss->worker == 0 ? &budget->counts.first : &budget->others[loss->worker - 1];
    bool is_again = count_repeat(own, loss);
    if (loss->st == ST_NOT_FINITE || loss->st == ST_SPIKE || loss->st == ST_BUG) {
        const bool is_other_generation = budget->state_generation != loss->generation;
        budget->state_generation = loss->generation;
        if ((count_repeat(&budget->state, loss) && is_other_generation) || is_again)
            return "the same failure came again at the same step after a restart; it follows from "
                   "the weights, the data and the settings, so more restarts would not help";
    }
    return own->n >= RESTART_BUDGET_REPEATS
               ? "the same rank was lost three times after the same step, so more restarts would "
                 "not help"
               : NULL;
}

bool restart_budget_spend(struct restart_budget *budget, const struct restart_loss *loss,
                          const char *why, char *out, size_t cap)
{
    struct restart_counts *counts = &budget->counts;
    const char *end = find_repeat(budget, loss);
    char cause[CAUSE_MAX];
    text_copy(cause, sizeof cause, why);
    budget->is_calm = false;
    if (budget->restarts_max < 0) {
        text_copy(out, cap, why);
        return false;
    }
    if (end) {
        text_format(out, cap, "%s; %s", cause, end);
        return false;
    }
    if (counts->losses == 0 && restart_budget_used(budget) >= budget->restarts_max) {
        text_format(out, cap, "%s; no restart left (MAX_RESTARTS=%lld)", cause,
                    (long long)budget->restarts_max);
        return false;
    }
    counts->restarts += counts->losses == 0;
    counts->losses++;
    return true;
}

int64_t restart_budget_used(const struct restart_budget *budget)
{
    return budget->counts.restarts - budget->counts.refilled;
}

void restart_budget_stepped(struct restart_budget *budget, int64_t checkpoints, int64_t now_ms)
{
    budget->counts.losses = 0;
    if (budget->is_calm)
        return;
    budget->is_calm = true;
    budget->calm_ms = now_ms;
    budget->calm_checkpoints = checkpoints;
}

static void forget_repeat(struct restart_repeat *repeat, int64_t step)
{
    if (repeat->step + 1 < step)
        repeat->n = 0;
}

void restart_budget_passed(struct restart_budget *budget, int64_t step)
{
    forget_repeat(&budget->counts.first, step);
    forget_repeat(&budget->state, step);
    for (int i = 0; i < budget->workers_n - 1; i++)
        forget_repeat(&budget->others[i], step);
}

bool restart_budget_refill(struct restart_budget *budget, int64_t checkpoints, int64_t now_ms)
{
    if (!budget->is_calm ||
        (now_ms - budget->calm_ms < RESTART_BUDGET_REFILL_MS &&
         checkpoints - budget->calm_checkpoints < RESTART_BUDGET_REFILL_CHECKPOINTS))
        return false;
    budget->calm_ms = now_ms;
    budget->calm_checkpoints = checkpoints;
    if (restart_budget_used(budget) == 0)
        return false;
    budget->counts.refilled++;
    return true;
}

int64_t restart_budget_delay_ms(int64_t losses)
{
    int64_t delay_ms = 0;
    for (int64_t i = 1; i < losses && delay_ms < DELAY_MAX_MS; i++)
        delay_ms = delay_ms ? 2 * delay_ms : DELAY_FIRST_MS;
    return delay_ms < DELAY_MAX_MS ? delay_ms : DELAY_MAX_MS;
}
