/* restart_budget — see restart_budget.h. */
#include "cluster/restart_budget.h"

#include "base/text.h"

#define DELAY_FIRST_MS 250
#define DELAY_MAX_MS 10000
#define CAUSE_MAX 896 /* leaves room for the reason in a message of cluster/message.h */

bool restart_budget_take(struct restart_budget *budget, int64_t step, int64_t restarts_max,
                         const char *why, char *out, size_t cap)
{
    budget->no_progress++;
    if (step > budget->best_step) {
        budget->best_step = step;
        budget->no_progress = 0;
    }
    char cause[CAUSE_MAX];
    text_copy(cause, sizeof cause, why);
    if (restarts_max < 0) {
        text_copy(out, cap, why);
        return false;
    }
    if (budget->restarts >= restarts_max) {
        text_format(out, cap, "%s; no restart left (MAX_RESTARTS=%lld)", cause,
                    (long long)restarts_max);
        return false;
    }
    if (budget->no_progress >= RESTART_BUDGET_NO_PROGRESS_MAX) {
        text_format(out, cap, "%s; %d recoveries in a row made no new step, so more would not help",
                    cause, RESTART_BUDGET_NO_PROGRESS_MAX);
        return false;
    }
    budget->restarts++;
    return true;
}

int64_t restart_budget_delay_ms(int64_t restarts)
{
    int64_t delay_ms = 0;
    for (int64_t i = 1; i < restarts && delay_ms < DELAY_MAX_MS; i++)
        delay_ms = delay_ms ? 2 * delay_ms : DELAY_FIRST_MS;
    return delay_ms < DELAY_MAX_MS ? delay_ms : DELAY_MAX_MS;
}
