/* check_limits — see check_limits.h. */
#include "check/check_limits.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

#define LIMIT(name, unit, hardware, better, expected, warn, fail, source) \
    {name, unit, hardware, CHECK_BETTER_##better, expected, warn, fail, source},
static const struct check_limit limits[] = {
#include "check/check_limits.def"
};
enum { LIMITS = sizeof limits / sizeof limits[0] };

void check_limits_gpu(const char *device, char *out, size_t cap)
{
    for (int words = 0; words < 2 && strchr(device, ' '); words++)
        device = strchr(device, ' ') + 1;
    const char *end = strstr(device, " sm_");
    text_format(out, cap, "%.*s", end ? (int)(end - device) : (int)strlen(device), device);
}

int check_limits_count(void) { return LIMITS; }

const struct check_limit *check_limits_at(int i) { return &limits[i]; }

const struct check_limit *check_limits_find(const char *name, const char *unit,
                                            const char *hardware)
{
    for (int i = 0; hardware[0] && i < LIMITS; i++)
        if (!strcmp(limits[i].hardware, hardware) && !strcmp(limits[i].name, name) &&
            !strcmp(limits[i].unit, unit))
            return &limits[i];
    return NULL;
}
