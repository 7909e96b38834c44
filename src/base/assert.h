/* assert — assertions that stay on: for what only a bug of ours can break.
 *
 * Never for files, settings, network or memory (those FAIL()). A broken ASSERT prints the
 *   expression, place, the caller's values, and the last notes of this process, then ends the
 *   process with exit code 70 (tests look at it from a parent process). This module must not know
 *   what the program computes. */
#ifndef CONVOY_BASE_ASSERT_H
#define CONVOY_BASE_ASSERT_H

/* assert_note — remember one short line (a ring of the last 16) to print in a crash report: "step
 * 120 begins". */
void assert_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* assert_fail — print the crash report to stderr and end the process with exit code 70. Never
 * returns. */
_Noreturn void assert_fail(const char *file, int line, const char *expr, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
/* assert_crash — for a handler of fatal signals: headline and the last notes to stderr. Returns. */
void assert_crash(const char *headline) __attribute__((cold));

#define ASSERT(expr) ASSERTF(expr, "%s", "")
/* ASSERTF — with values: ASSERTF(n == want, "n %d want %d", n, want) */
#define ASSERTF(expr, ...) ((expr) ? (void)0 : assert_fail(__FILE__, __LINE__, #expr, __VA_ARGS__))

#endif
