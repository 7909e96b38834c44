/* log_tail — the newest lines of a log in a little memory, which other processes may read while
 * lines are added.
 *
 * One writer at a time; a reader never makes it wait, and a writer killed in the midst loses its
 * line, no other. Plain data: it may lie in shared memory. Must not know what lines say. */
#ifndef CONVOY_BASE_LOG_TAIL_H
#define CONVOY_BASE_LOG_TAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOG_TAIL_LINES 32
#define LOG_TAIL_TEXT 480

struct log_tail_line {
    uint64_t number; /* of the line, 0 first */
    int64_t wall_ms;
    char text[LOG_TAIL_TEXT]; /* what is longer is cut */
};

struct log_tail_slot {
    _Alignas(64) _Atomic uint64_t sequence; /* odd: being written */
    _Atomic uint64_t words[sizeof(struct log_tail_line) / 8];
};

/* All zero is an empty one. */
struct log_tail {
    _Atomic uint64_t lines_n; /* so far: the i-th (0 first) is at [i % LOG_TAIL_LINES] */
    struct log_tail_slot slots[LOG_TAIL_LINES];
};

void log_tail_add(struct log_tail *tail, int64_t wall_ms, const char *text);
/* log_tail_next — the oldest line that *seen (0 at first) has not counted yet, and that is still
 * there; false: none. */
bool log_tail_next(const struct log_tail *tail, uint64_t *seen, struct log_tail_line *out);

#endif
