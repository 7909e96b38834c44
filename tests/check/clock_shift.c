/* clock_shift — a library to preload: the wall clock of the process is CLOCK_SHIFT_S seconds ahead,
 * or so many as the file CLOCK_SHIFT_FILE has. The monotonic clock is right. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int shift_s(void)
{
    const char *shift = getenv("CLOCK_SHIFT_S"), *path = getenv("CLOCK_SHIFT_FILE");
    char text[16] = "";
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0)
        shift = text;
    if (fd >= 0)
        close(fd);
    return shift ? atoi(shift) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, out);
    if (clock == CLOCK_REALTIME)
        out->tv_sec += shift_s();
    return result;
}
