/* late — how long a process that should run often did not, by its own ticks: on a host with too
 * much to do that can be seconds, in which it neither hears nor speaks. Pure. Must not know why. */
#ifndef CONVOY_MEET_LATE_H
#define CONVOY_MEET_LATE_H

#include <stdint.h>

#define LATE_TICK_MS 100 /* ticks should be so far apart */
#define LATE_FREE_MS 200 /* that much more is usual */
/* so much and more is a process that was stopped, not a host with too much to do */
#define LATE_STOP_MS 3000
#define LATE_KEPT_MS 15000 /* how long the worst is remembered */

struct late {
    int64_t ticked_ms, worst_ms, worst_at_ms;
};

void late_init(struct late *late, int64_t now_ms);
/* late_tick — by how much this tick is late; 0: it is not. */
int64_t late_tick(struct late *late, int64_t now_ms);
/* late_worst — the longest of the last LATE_KEPT_MS, stops left out. */
int64_t late_worst(const struct late *late, int64_t now_ms);

#endif
