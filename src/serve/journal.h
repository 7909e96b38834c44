/* journal — the newest lines of this node's log, its workers' among them, in the order of time and
 * in bounded memory.
 *
 * Lines come from tails (base/log_tail.h), which mask what could be secret. Must not know HTTP. */
#ifndef CONVOY_SERVE_JOURNAL_H
#define CONVOY_SERVE_JOURNAL_H

#include "base/board.h"
#include "base/log_tail.h"
#include "base/text.h"

#define JOURNAL_LINES 200

/* All zero is an empty one. */
struct journal {
    int64_t lines_n; /* so far: the i-th (0 first) is at [i % JOURNAL_LINES] */
    uint64_t seen[BOARD_WORKERS_MAX + 1];
    struct log_tail_line lines[JOURNAL_LINES];
};

/* journal_collect — take over what is new, of this process (own, may be NULL) and of all
 * workers. */
void journal_collect(struct journal *journal, const struct log_tail *own, const struct board *board,
                     int workers_n);
/* journal_write — append the lines as text, as they stand in the log. journal NULL: none. */
void journal_write(const struct journal *journal, struct text *t);

#endif
