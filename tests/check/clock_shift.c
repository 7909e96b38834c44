/* clock_shift — a library to preload: the wall clock of the process is CLOCK_SHIFT_S seconds ahead.
 * The monotonic clock is right. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *out)
{
    static int (*real)(clockid_t, struct timespec *);
    const char *shift = getenv("CLOCK_SHIFT_S");
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, out);
    if (clock == CLOCK_REALTIME && shift)
        out->tv_sec += atoi(shift);
    return result;
}
