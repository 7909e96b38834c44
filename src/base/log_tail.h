/* log_tail — a ring of the newest log lines, which other processes may read while lines are added.
 *
 * One writer at a time. A reader never blocks it. A writer that is killed loses only its current
 * line. Plain data, so it may lie in shared memory. Must not know the meaning of the lines. */
#ifndef CONVOY_BASE_LOG_TAIL_H
#define CONVOY_BASE_LOG_TAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOG_TAIL_LINES 32
#define LOG_TAIL_TEXT 1264

struct log_tail_line {
    uint64_t number; /* number of the line; the first is 0 */
    int64_t wall_ms;
    char text[LOG_TAIL_TEXT]; /* longer lines are shortened */
};

struct log_tail_slot {
    _Alignas(64) _Atomic uint64_t sequence; /* odd: being written */
    _Atomic uint64_t words[sizeof(struct log_tail_line) / 8];
};

/* All zero: empty. */
struct log_tail {
    _Atomic uint64_t lines_n; /* lines added so far; line i is at [i % LOG_TAIL_LINES] */
    struct log_tail_slot slots[LOG_TAIL_LINES];
};

/* log_tail_add — adds a line; a log_tap_fn. tail is a struct log_tail. */
void log_tail_add(void *tail, int64_t wall_ms, const char *text);
/* log_tail_next — copies the next line after the first *seen lines, or the oldest one that is still
 * in the ring, and sets *seen to the number of lines up to it. Start with *seen = 0. Returns false
 * if there is no newer line. */
bool log_tail_next(const struct log_tail *tail, uint64_t *seen, struct log_tail_line *out);

#endif
