/* warmup — see warmup.h. */
#include "train/warmup.h"

#include "base/assert.h"

int64_t warmup_at(const struct warmup *warmup, int64_t to, int64_t unit, int64_t s)
{
    if (s >= warmup->steps)
        return to;
    ASSERTF(s >= 0 && unit > 0 && warmup->from > 0 && warmup->from <= to,
            "step %lld unit %lld from %lld to %lld", (long long)s, (long long)unit,
            (long long)warmup->from, (long long)to);
    const __int128 units = (to - warmup->from) / unit;
    return warmup->from + unit * (int64_t)(units * s / warmup->steps);
}
