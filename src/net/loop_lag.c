/* loop_lag — see loop_lag.h. */
#include "net/loop_lag.h"

void loop_lag_init(struct loop_lag *lag, int64_t now_ms)
{
    *lag = (struct loop_lag){.ticked_ms = now_ms};
}

int64_t loop_lag_worst(const struct loop_lag *lag, int64_t now_ms)
{
    return now_ms - lag->worst_at_ms < LOOP_LAG_KEPT_MS ? lag->worst_ms : 0;
}

int64_t loop_lag_tick(struct loop_lag *lag, int64_t now_ms)
{
    int64_t lag_ms = now_ms - lag->ticked_ms - LOOP_LAG_TICK_MS;
    lag->ticked_ms = now_ms;
    if (lag_ms < LOOP_LAG_FREE_MS)
        return 0;
    if (lag_ms < LOOP_LAG_STOP_MS && lag_ms >= loop_lag_worst(lag, now_ms)) {
        lag->worst_ms = lag_ms;
        lag->worst_at_ms = now_ms;
    }
    return lag_ms;
}
