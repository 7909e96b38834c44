/* loop_lag — measures the lag of this process's event loop by its own ticks. On an overloaded host
 * that can be seconds, in which it neither receives nor sends. Pure functions; it must not know the
 * reason. */
#ifndef CONVOY_NET_LOOP_LAG_H
#define CONVOY_NET_LOOP_LAG_H

#include <stdint.h>

#define LOOP_LAG_TICK_MS 100 /* ms between two ticks that are on time */
#define LOOP_LAG_FREE_MS 200 /* ms; lag below this counts as none */
/* Lag from this on means a stopped process (SIGSTOP, a debugger), not a busy host. */
#define LOOP_LAG_STOP_MS 3000
#define LOOP_LAG_KEPT_MS 15000 /* time for which loop_lag_worst remembers a lag */

struct loop_lag {
    int64_t ticked_ms, worst_ms, worst_at_ms;
};

static inline void loop_lag_init(struct loop_lag *lag, int64_t now_ms)
{
    *lag = (struct loop_lag){.ticked_ms = now_ms};
}

/* loop_lag_worst — returns the largest lag of the last LOOP_LAG_KEPT_MS in ms, stops excluded. */
static inline int64_t loop_lag_worst(const struct loop_lag *lag, int64_t now_ms)
{
    return now_ms - lag->worst_at_ms < LOOP_LAG_KEPT_MS ? lag->worst_ms : 0;
}

/* loop_lag_tick — measures the lag. Call it every LOOP_LAG_TICK_MS. Returns the lag of this tick in
 * ms; 0: on time. */
static inline int64_t loop_lag_tick(struct loop_lag *lag, int64_t now_ms)
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

#endif
