/* tail — the newest lines of a log in a little memory, which other processes may read while lines
 * are added.
 *
 * One writer at a time; a reader never makes it wait, and a writer killed in the midst loses its
 * line, no other. Plain data: it may lie in shared memory. Must not know what lines say. */
#ifndef CONVOY_BASE_TAIL_H
#define CONVOY_BASE_TAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TAIL_LINES 32
#define TAIL_TEXT 480

struct tail_line {
    uint64_t number; /* of the line, 0 first */
    int64_t wall_ms;
    char text[TAIL_TEXT]; /* what is longer is cut */
};

struct tail_slot {
    _Alignas(64) _Atomic uint64_t sequence; /* odd: being written */
    _Atomic uint64_t words[sizeof(struct tail_line) / 8];
};

/* All zero is an empty one. */
struct tail {
    _Atomic uint64_t lines_n; /* so far: the i-th (0 first) is at [i % TAIL_LINES] */
    struct tail_slot slots[TAIL_LINES];
};

void tail_add(struct tail *tail, int64_t wall_ms, const char *text);
/* tail_next — the oldest line that *seen (0 at first) has not counted yet, and that is still there;
 * false: none. */
bool tail_next(const struct tail *tail, uint64_t *seen, struct tail_line *out);

#endif
