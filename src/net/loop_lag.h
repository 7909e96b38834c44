/* loop_lag — by how much this process's event loop runs late, measured by its own ticks. On an
 * overloaded host that can be seconds, in which it neither receives nor sends. Pure functions; it
 * must not know the reason. */
#ifndef CONVOY_NET_LOOP_LAG_H
#define CONVOY_NET_LOOP_LAG_H

#include <stdint.h>

#define LOOP_LAG_TICK_MS 100 /* between two ticks that are on time */
#define LOOP_LAG_FREE_MS 200 /* lag below this counts as none */
/* Lag from this on means a stopped process (SIGSTOP, a debugger), not a busy host. */
#define LOOP_LAG_STOP_MS 3000
#define LOOP_LAG_KEPT_MS 15000 /* for which loop_lag_worst remembers */

struct loop_lag {
    int64_t ticked_ms, worst_ms, worst_at_ms;
};

static inline void loop_lag_init(struct loop_lag *lag, int64_t now_ms)
{
    *lag = (struct loop_lag){.ticked_ms = now_ms};
}

/* loop_lag_worst — the largest lag of the last LOOP_LAG_KEPT_MS, stops excluded. */
static inline int64_t loop_lag_worst(const struct loop_lag *lag, int64_t now_ms)
{
    return now_ms - lag->worst_at_ms < LOOP_LAG_KEPT_MS ? lag->worst_ms : 0;
}

/* loop_lag_tick — call it every LOOP_LAG_TICK_MS. Returns by how much this tick is late, in ms;
 * 0: on time. */
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
