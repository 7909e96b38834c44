/* console — the progress line of a run. On a terminal it is a bar that is rewritten in place;
 * elsewhere it is a line every few steps. The first and the last step of a process always get a
 * line, and so does a step whose loss jumped.
 *
 *   step 120/5000  loss 3.2145  lr 3.0e-04  norm 1.02  182 ms  1.41M tok/s  mfu 41.2%  comm 12%
 *   eta 14m
 *
 * - step: done/planned; loss: of the global batch, before the update; lr: learning rate
 * - norm: gradient norm before clipping; then the time of the step
 * - tok/s, mfu (share of the device's peak), eta (time left): means of the last 20 steps
 * - comm, with several ranks: share of the step in which this rank waited for others; "(85%
 *   hidden)": share of the communication time that overlapped computation
 *
 * Unknown values are left out. It must not know the board or files. */
#ifndef CONVOY_TRAIN_CONSOLE_H
#define CONVOY_TRAIN_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct console_step {
    int64_t step, steps;
    double loss, lr, grad_norm, step_ms;
    double tokens_per_second, mfu, eta_seconds; /* NAN: unknown */
    /* share of the step in which this rank waited for others; 0: one rank */
    double comm;
    double hidden; /* share of the communication time that overlapped computation; NAN: none */
};

struct console {
    bool is_terminal; /* draw the bar */
    bool is_brief;    /* lines only for the first step, one a minute and the last: not on node 0 */
    /* steps between lines; 0: a hundredth of all steps (terminal: a tenth), and one a minute */
    int64_t every;
    size_t shown;     /* columns of the bar on the screen */
    int64_t shown_ms; /* when the bar was drawn */
    int64_t line_ms;  /* when the last line was printed; 0: none yet */
    bool is_pending;  /* `last` has no line yet */
    struct console_step last;
};

/* console_step — shows a step: prints its line if one is due, and draws the bar on a terminal. Call
 * it after each step. */
void console_step(struct console *console, const struct console_step *now);
/* console_clear — removes the bar; call it before anything else is printed. */
void console_clear(struct console *console);
/* console_flush — prints the line of the last step if it has none. Call it before output that
 * belongs to that step, and at the end. */
void console_flush(struct console *console);

/* The rest is pure, and public for tests. */

/* console_is_due — for tests: returns true if this step gets a line at this time. */
bool console_is_due(const struct console *console, const struct console_step *now, int64_t at_ms);
/* console_line — for tests: writes the line of a step. Returns out. */
const char *console_line(char *out, size_t cap, const struct console_step *now);
/* console_bar — for tests: writes "[####----]  42% step 50/120 loss 3.2 1.4M tok/s eta 14m" in at
 * most `columns` columns. The bar shrinks first, then the text is cut. Returns out. */
const char *console_bar(char *out, size_t cap, int columns, const struct console_step *now);

/* The speed of the last steps, and the time left at that speed. Pure; it must not know clocks. */
/* steps in the mean: few enough to follow a change, enough to be steady */
#define CONSOLE_PACE_KEPT 20

struct console_pace {
    double ms[CONSOLE_PACE_KEPT]; /* ring buffer */
    int64_t n;                    /* number of steps added */
};

/* console_pace_add — adds the time of a step; the oldest of CONSOLE_PACE_KEPT times is dropped. */
void console_pace_add(struct console_pace *pace, double step_ms);

/* console_pace_mean_ms — public for tests: returns the mean time of a step; NAN before the first
 * step. */
double console_pace_mean_ms(const struct console_pace *pace);

/* console_pace_per_second — returns the speed. step_amount: tokens or operations per step. NAN
 * before the first step. */
double console_pace_per_second(const struct console_pace *pace, double step_amount);
/* console_pace_eta_seconds — returns the time left. NAN before the first step. */
double console_pace_eta_seconds(const struct console_pace *pace, int64_t steps_left);

#endif
