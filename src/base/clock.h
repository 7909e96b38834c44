/* clock — the clocks of the program. Durations and deadlines use the monotonic clock; only logs and
 * files that people read use wall time. */
#ifndef CONVOY_BASE_CLOCK_H
#define CONVOY_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* clock_ns — returns the monotonic time in nanoseconds. Its origin is the same in every process of
 * this machine. */
int64_t clock_ns(void);
int64_t clock_ms(void);      /* monotonic, milliseconds */
int64_t clock_wall_ms(void); /* milliseconds since 1970 */
/* clock_thread_ns — returns the processor time of the calling thread in nanoseconds. It does not
 * advance while other threads use the core. */
int64_t clock_thread_ns(void);
/* clock_process_ns — returns the processor time of all threads of this process in nanoseconds. */
int64_t clock_process_ns(void);
/* clock_iso — writes wall time as "2026-01-31T12:00:00.123Z"; returns out. cap ≥ 25. */
const char *clock_iso(char *out, size_t cap, int64_t wall_ms);
/* clock_sleep_ms — blocks the thread for that time, also if signals arrive. ms ≤ 0: returns
 * immediately. */
void clock_sleep_ms(int64_t ms);
/* clock_sleep_us — does the same in microseconds. */
void clock_sleep_us(int64_t us);

#endif
