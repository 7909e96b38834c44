/* clock — the clocks, from the system. Must not know the use of the times. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

#include "base/assert.h"
#include "base/text.h"

static int64_t read_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_ns(void) { return read_ns(CLOCK_MONOTONIC); }

int64_t clock_ms(void) { return clock_ns() / 1000000; }

int64_t clock_thread_ns(void) { return read_ns(CLOCK_THREAD_CPUTIME_ID); }

int64_t clock_process_ns(void) { return read_ns(CLOCK_PROCESS_CPUTIME_ID); }

int64_t clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *clock_iso(char *out, size_t cap, int64_t wall_ms)
{
    ASSERTF(cap >= 25, "cap %zu", cap);
    int64_t millis = (wall_ms % 1000 + 1000) % 1000;
    /* rounded down, also before 1970 */
    time_t seconds = (time_t)(wall_ms / 1000 - (wall_ms % 1000 < 0));
    struct tm utc;
    if (gmtime_r(&seconds, &utc) == NULL || utc.tm_year < -1900 || utc.tm_year > 8099) {
        /* a year without four digits: the clock is not set */
        text_copy(out, cap, "0000-00-00T00:00:00.000Z");
        return out;
    }
    text_format(out, cap, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (int)millis);
    return out;
}

void clock_sleep_ms(int64_t ms) { clock_sleep_us(ms > 0 ? ms * 1000 : 0); }

void clock_sleep_us(int64_t us)
{
    if (us <= 0)
        return;
    int64_t until = clock_ns() + us * 1000;
    struct timespec end = {.tv_sec = (time_t)(until / 1000000000),
                           .tv_nsec = (long)(until % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        continue;
}
