/* console — the line a person watches: on a terminal one that is rewritten, with a bar; else one
 * every so many steps. The first and the last step of a process are always shown, and one whose
 * loss jumped.
 *
 *   step 120/5000  loss 3.2145  lr 3.0e-04  norm 1.02  182 ms  1.41M tok/s  mfu 41.2%  comm 12%
 *   eta 14m
 *
 * Columns: step done/planned · loss of the global batch before the update · learning rate ·
 * gradient norm before clipping · time of the step · tokens a second, share of the device's peak,
 * and time left, all three by the last 20 steps; comm, with several ranks, the share of the step
 * that this one waited for the others, and "(85% hidden)" the share of the wire's time that it did
 * not wait for. What is not known is left out. Must not know the board or files. */
#ifndef CONVOY_TRAIN_CONSOLE_H
#define CONVOY_TRAIN_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct console_step {
    int64_t step, steps;
    double loss, lr, grad_norm, step_ms;
    double tokens_per_second, mfu, eta_seconds; /* NAN: not known */
    /* share of the step's time in which this rank waited for others; 0: it has none */
    double comm;
    double hidden; /* share of the wire's time that ran beside computation; NAN: there was none */
};

struct console {
    bool is_terminal; /* the bar */
    /* steps between lines; 0: a hundredth of all (on a terminal a tenth), and one a minute */
    int64_t every;
    size_t shown;     /* columns of the bar on the screen */
    int64_t shown_ms; /* when */
    int64_t line_ms;  /* the last line; 0: none yet */
    bool is_left;     /* `last` has had no line */
    struct console_step last;
};

void console_step(struct console *console, const struct console_step *now);
/* before anything else is printed: takes the bar away */
void console_clear(struct console *console);
/* console_flush — before what belongs to the step done last, or the end: shows that step if it was
 * left out. */
void console_flush(struct console *console);

/* Pure parts. console_is_due — is this step, at this time, to be shown by a line? The others return
 * out. */
bool console_is_due(const struct console *console, const struct console_step *now, int64_t at_ms);
const char *console_line(char *out, size_t cap, const struct console_step *now);
/* console_bar — "[####----] 42% step 50/120 loss 3.2 1.4M tok/s eta 14m" in at most `columns`
 *   columns; the bar gives way to the text, then the text is cut. */
const char *console_bar(char *out, size_t cap, int columns, const struct console_step *now);

#endif
