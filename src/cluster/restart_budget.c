/* restart_budget — see restart_budget.h. */
#include "cluster/restart_budget.h"

bool restart_budget_take(struct message_restarts *counts, int64_t step, int max_restarts,
                         const char *why, char *out, size_t cap)
{
    counts->no_progress++;
    if (step > counts->best_step) {
        counts->best_step = step;
        counts->no_progress = 0;
    }
    if (counts->restarts >= max_restarts) {
        text_format(out, cap, "%.800s; no restart left (MAX_RESTARTS=%d)", why, max_restarts);
        return false;
    }
    if (counts->no_progress >= RESTART_BUDGET_NO_PROGRESS_MAX) {
        text_format(out, cap,
                    "%.800s; %d recoveries in a row made no new step, so more would not help", why,
                    RESTART_BUDGET_NO_PROGRESS_MAX);
        return false;
    }
    counts->restarts++;
    return true;
}
