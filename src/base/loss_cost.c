/* loss_cost — see loss_cost.h. */
#include "base/loss_cost.h"

#include <math.h>

#define SECONDS_MOST_MS 100000 /* longer times are written in minutes or more */
#define SPAN_MOST_MS 1e15

int64_t loss_cost_steps(const struct loss_cost *c)
{
    return c->copy_every != 0 ? c->copy_every : c->checkpoint_every > 0 ? c->checkpoint_every : -1;
}

const char *loss_cost_text(const struct loss_cost *c, char *out, size_t cap)
{
    const char *what = c->nodes > 1 ? "a lost node" : "a lost worker";
    const int64_t steps = loss_cost_steps(c);
    char time[32] = "", word[32], recovery[64] = "", copies[96] = "";
    const double steps_ms = (double)steps * c->step_ms;
    if (steps > 0 && c->step_ms > 0)
        text_format(
            time, sizeof time, " (%s)",
            steps_ms < SECONDS_MOST_MS
                ? text_format_ms(word, sizeof word, steps_ms)
                : text_format_span(word, sizeof word, (int64_t)fmin(steps_ms, SPAN_MOST_MS)));
    if (c->recovery_ms >= 0)
        text_format(recovery, sizeof recovery, "; the last recovery took %s",
                    text_format_ms(word, sizeof word, c->recovery_ms));
    if (c->copy_every != 0)
        text_format(copies, sizeof copies, "; copies use %s of host memory on each node",
                    text_format_bytes(word, sizeof word, (double)c->copy_bytes));
    if (c->copy_every < 0)
        text_format(out, cap,
                    "%s costs the steps since the last copy, whose interval is being measured%s%s",
                    what, recovery, copies);
    else if (steps > 0)
        text_format(out, cap, "%s costs at most %lld step%s%s%s%s%s", what, (long long)steps,
                    steps == 1 ? "" : "s", time,
                    c->copy_every > 0 ? "" : " since the last checkpoint", recovery, copies);
    else if (c->checkpoint_every < 0)
        text_copy(out, cap, "");
    else
        text_format(out, cap,
                    "%s costs all steps of the run: there are no copies in peers' memory and no "
                    "checkpoints; set CHECKPOINT_DIR and CHECKPOINT_EVERY%s",
                    what, recovery);
    return out;
}
