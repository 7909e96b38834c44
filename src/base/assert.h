/* assert — assertions for conditions that only a bug in this program can break. They stay on in
 * every build.
 *
 * Files, settings, network and memory are never asserted; those FAIL(). A broken ASSERT prints the
 * expression, its file and line, the caller's values and the last notes of this process, then ends
 * the process with exit code 70. Must not know the computation of the program. */
#ifndef CONVOY_BASE_ASSERT_H
#define CONVOY_BASE_ASSERT_H

/* assert_note — keeps one short line for a crash report, such as "step 120 begins"; the last 16 are
 * kept. Any thread. */
void assert_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* assert_fail — prints the crash report to stderr and ends the process with exit code 70. */
_Noreturn void assert_fail(const char *file, int line, const char *expr, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
/* assert_crash — for a handler of fatal signals: prints the headline and the last notes to stderr.
 * Returns. */
void assert_crash(const char *headline) __attribute__((cold));

#define ASSERT(expr) ASSERTF(expr, "%s", "")
/* ASSERTF — with values: ASSERTF(n == want, "n %d want %d", n, want) */
#define ASSERTF(expr, ...) ((expr) ? (void)0 : assert_fail(__FILE__, __LINE__, #expr, __VA_ARGS__))

#endif
