/* balance — see balance.h. */
#include "train/balance.h"

#include <math.h>

#define ALIGNED_COSTS 1.03 /* times the best deal's time, at most, for runs that are aligned */

/* time_of — the slowest rank's. */
static double time_of(const struct balance *b, const int *begin)
{
    double most = 0;
    for (int i = 0; i < b->ranks; i++)
        most = fmax(most, (begin[i + 1] - begin[i]) * b->ms[i]);
    return most;
}

/* next_of — the rank that would end first with `unit` shards more. begin[i + 1]: its shards. */
static int next_of(const struct balance *b, const int *begin, int unit)
{
    int best = 0;
    for (int i = 1; i < b->ranks; i++)
        if ((begin[i + 1] + unit) * b->ms[i] < (begin[best + 1] + unit) * b->ms[best])
            best = i;
    return best;
}

/* deal — in runs of whole units; false: there are too few. */
static bool deal(const struct balance *b, int unit, int *begin)
{
    if (b->shards % unit != 0 || b->shards / unit < b->ranks)
        return false;
    begin[0] = 0;
    for (int i = 0; i < b->ranks; i++)
        begin[i + 1] = unit;
    for (int left = b->shards / unit - b->ranks; left > 0; left--)
        begin[next_of(b, begin, unit) + 1] += unit;
    for (int i = 0; i < b->ranks; i++)
        begin[i + 1] += begin[i];
    return true;
}

static bool is_measured(const struct balance *b)
{
    for (int i = 0; i < b->ranks; i++)
        if (!(b->ms[i] > 0) || !isfinite(b->ms[i]))
            return false;
    return true;
}

bool balance_deal(const struct balance *b, int *begin)
{
    int unit = 1;
    if (!is_measured(b) || !deal(b, 1, begin))
        return false;
    const double best = time_of(b, begin), now = time_of(b, b->begin);
    while (b->shards % (2 * unit) == 0)
        unit *= 2;
    for (; unit >= 1; unit /= 2) {
        bool is_found = deal(b, unit, begin) &&
                        (unit == 1 || time_of(b, begin) <= ALIGNED_COSTS * best) &&
                        b->takes(b->arg, begin);
        if (is_found)
            return time_of(b, begin) <= BALANCE_GAIN * now;
    }
    return false;
}
