/* assert — the crash report: the broken assertion, its file and line, the values, and the last
 * notes of this process.
 *
 * Works in a process in any state: no memory is allocated, no lock is held for long, output is
 * plain write(2) to stderr, and the end is _exit, so no other exit handler runs. Must not know the
 * computation of the program. */
#include "base/assert.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "base/text.h"

#define ASSERT_NOTES 16
#define ASSERT_NOTE_BYTES 120
#define ASSERT_REPORT_BYTES 4096

static char notes[ASSERT_NOTES][ASSERT_NOTE_BYTES];
static unsigned notes_n; /* notes that were written so far */
static atomic_flag notes_busy = ATOMIC_FLAG_INIT;

/* The lock covers a memcpy, so a waiter hardly waits. The count bounds the wait nevertheless,
 * because the thread that crashed may hold the lock. */
static int notes_lock(void)
{
    for (int i = 0; i < 100000; i++) {
        if (!atomic_flag_test_and_set_explicit(&notes_busy, memory_order_acquire))
            return 1;
    }
    return 0;
}

void assert_note(const char *fmt, ...)
{
    char note[ASSERT_NOTE_BYTES];
    va_list args;
    va_start(args, fmt);
    text_format_v(note, sizeof(note), fmt, args);
    va_end(args);
    if (!notes_lock())
        return;
    memcpy(notes[notes_n++ % ASSERT_NOTES], note, sizeof(note));
    atomic_flag_clear_explicit(&notes_busy, memory_order_release);
}

static void report_notes(char *report, size_t cap)
{
    if (!notes_lock())
        return;
    unsigned first = notes_n > ASSERT_NOTES ? notes_n - ASSERT_NOTES : 0;
    for (unsigned i = first; i < notes_n; i++) {
        size_t used = strlen(report);
        text_format(report + used, cap - used, "  note: %s\n", notes[i % ASSERT_NOTES]);
    }
    atomic_flag_clear_explicit(&notes_busy, memory_order_release);
}

void assert_fail(const char *file, int line, const char *expr, const char *fmt, ...)
{
    char values[512];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(values, sizeof(values), fmt, args) < 0)
        values[0] = 0;
    va_end(args);

    char report[ASSERT_REPORT_BYTES];
    text_format(report, sizeof(report), "convoy: a bug: %s:%d: %s does not hold%s%s\n", file, line,
                expr, values[0] != 0 ? ": " : "", values);
    report_notes(report, sizeof(report));
    size_t used = strlen(report);
    text_format(report + used, sizeof(report) - used,
                "  process %ld ends with %d; please report this text\n", (long)getpid(),
                status_exit_code(ST_BUG));
    if (write(STDERR_FILENO, report, strlen(report)) < 0)
        /* stderr is closed; only the exit code reports the crash */
        _exit(status_exit_code(ST_BUG));
    _exit(status_exit_code(ST_BUG));
}

void assert_crash(const char *headline)
{
    char report[ASSERT_REPORT_BYTES];
    text_format(report, sizeof(report), "%s\n", headline);
    report_notes(report, sizeof(report));
    if (write(STDERR_FILENO, report, strlen(report)) < 0)
        return; /* stderr is closed; only the signal reports the crash */
}
