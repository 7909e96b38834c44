/* journal — the newest log lines of this node's processes, ordered by time, in bounded memory.
 *
 * The lines come from tails (base/tail.h), which mask secrets. It must not know HTTP. */
#ifndef CONVOY_SERVE_JOURNAL_H
#define CONVOY_SERVE_JOURNAL_H

#include "base/board.h"
#include "base/log_tail.h"
#include "base/text.h"

#define JOURNAL_LINES 200

/* All zero: empty. */
struct journal {
    int64_t lines_n; /* number so far; line i (from 0) is at [i % JOURNAL_LINES] */
    uint64_t seen[BOARD_WORKERS_MAX + 1];
    struct log_tail_line lines[JOURNAL_LINES];
};

/* journal_collect — copies new lines of this process (own; NULL allowed) and of all workers. */
void journal_collect(struct journal *journal, const struct log_tail *own, const struct board *board,
                     int workers_n);
/* journal_write — appends the lines as they are in the log. journal NULL: appends none. */
void journal_write(const struct journal *journal, struct text *t);

#endif
