/* tally — see tally.h. */
#include "meet/tally.h"

bool tally_restart(struct wire_counts *counts, int64_t step, int max_restarts, const char *why,
                   char *out, size_t cap)
{
    counts->barren++;
    if (step > counts->step_best) {
        counts->step_best = step;
        counts->barren = 0;
    }
    if (counts->restarts >= max_restarts) {
        text_format(out, cap, "%.800s; no restart left (MAX_RESTARTS=%d)", why, max_restarts);
        return false;
    }
    if (counts->barren >= TALLY_BARREN_MAX) {
        text_format(out, cap,
                    "%.800s; %d recoveries in a row made no new step, so more would not help", why,
                    TALLY_BARREN_MAX);
        return false;
    }
    counts->restarts++;
    return true;
}
