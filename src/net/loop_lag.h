/* late — how long a process that should run often did not, by its own ticks: on a host with too
 * much to do that can be seconds, in which it neither hears nor speaks. Pure. Must not know why. */
#ifndef CONVOY_NET_LOOP_LAG_H
#define CONVOY_NET_LOOP_LAG_H

#include <stdint.h>

#define LOOP_LAG_TICK_MS 100 /* ticks should be so far apart */
#define LOOP_LAG_FREE_MS 200 /* that much more is usual */
/* so much and more is a process that was stopped, not a host with too much to do */
#define LOOP_LAG_STOP_MS 3000
#define LOOP_LAG_KEPT_MS 15000 /* how long the worst is remembered */

struct loop_lag {
    int64_t ticked_ms, worst_ms, worst_at_ms;
};

void loop_lag_init(struct loop_lag *lag, int64_t now_ms);
/* loop_lag_tick — by how much this tick is late; 0: it is not. */
int64_t loop_lag_tick(struct loop_lag *lag, int64_t now_ms);
/* loop_lag_worst — the longest of the last LOOP_LAG_KEPT_MS, stops left out. */
int64_t loop_lag_worst(const struct loop_lag *lag, int64_t now_ms);

#endif
