/* peer_copy_interval — chooses how often a GPU's state is copied; see peer_copy/inside.h.
 *
 * A copy may delay steps: the update waits until the slices have left the GPU's memory, and slices
 * share buses and links with the step's own data. The shortest step of some that have a copy each
 * is compared with the shortest of some without a copy; longer steps contain other work, such as
 * checkpoints. Waits for the copy before do not count, because a longer interval ends them. In the
 * first steps of either kind memory is touched first, graphs are captured, or the last copy is
 * still being sent, so they do not count. */
#include "train/peer_copy/inside.h"

#include <math.h>

#include "base/clock.h"

#define STEPS 6         /* steps of either kind */
#define SKIPPED 2       /* steps of either kind that do not count */
#define SHARE_MOST 0.02 /* longest delay, as a share of the steps */
#define LEAST_MS 1e-3
#define EVERY_MOST 1000000

void peer_copy_interval_begin(struct peer_copy_interval *interval, int64_t step)
{
    const int64_t now_ns = clock_ns();
    if (interval->step == step)
        return;
    const int last = interval->steps_n - 1; /* the step that has ended, from 0 */
    const bool has_copy = last < STEPS;
    if (last >= 0 && last < 2 * STEPS && last % STEPS >= SKIPPED) {
        const double ms = (double)(now_ns - interval->begin_ns) / 1e6;
        double *least = &interval->least_ms[has_copy];
        *least = *least > 0 && *least < ms ? *least : ms;
    }
    interval->step = step;
    interval->begin_ns = now_ns;
    interval->steps_n++;
}

void peer_copy_interval_skip(struct peer_copy_interval *interval, int64_t waited_ns)
{
    interval->begin_ns += waited_ns;
}

bool peer_copy_interval_is_due(const struct peer_copy_interval *interval, int64_t copied_step)
{
    if (interval->step == copied_step)
        return false;
    if (interval->every > 0)
        return copied_step < 0 || interval->step - copied_step >= interval->every;
    return interval->steps_n <= STEPS;
}

bool peer_copy_interval_is_measured(const struct peer_copy_interval *interval)
{
    return interval->every == 0 && interval->steps_n == 2 * STEPS + 1;
}

int peer_copy_interval_of(double without_ms, double with_ms, double travel_ms)
{
    const double every =
        ceil(fmax((with_ms - without_ms) / SHARE_MOST, travel_ms) / fmax(without_ms, LEAST_MS));
    return every < 1 ? 1 : every > EVERY_MOST ? EVERY_MOST : (int)every;
}
