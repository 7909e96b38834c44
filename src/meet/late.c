/* late — see late.h. */
#include "meet/late.h"

void late_init(struct late *late, int64_t now_ms) { *late = (struct late){.ticked_ms = now_ms}; }

int64_t late_worst(const struct late *late, int64_t now_ms)
{
    return now_ms - late->worst_at_ms < LATE_KEPT_MS ? late->worst_ms : 0;
}

int64_t late_tick(struct late *late, int64_t now_ms)
{
    int64_t late_ms = now_ms - late->ticked_ms - LATE_TICK_MS;
    late->ticked_ms = now_ms;
    if (late_ms < LATE_FREE_MS)
        return 0;
    if (late_ms < LATE_STOP_MS && late_ms >= late_worst(late, now_ms)) {
        late->worst_ms = late_ms;
        late->worst_at_ms = now_ms;
    }
    return late_ms;
}
