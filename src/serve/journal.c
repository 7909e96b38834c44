/* journal — see journal.h. */
#include "serve/journal.h"

#include "base/clock.h"

/* Inserts a line after all lines that are not newer: the processes are read one after the other. */
static void insert_line(struct journal *journal, const struct log_tail_line *line)
{
    int64_t at = journal->lines_n++, first = at >= JOURNAL_LINES ? at - JOURNAL_LINES + 1 : 0;
    for (; at > first && journal->lines[(at - 1) % JOURNAL_LINES].wall_ms > line->wall_ms; at--)
        journal->lines[at % JOURNAL_LINES] = journal->lines[(at - 1) % JOURNAL_LINES];
    journal->lines[at % JOURNAL_LINES] = *line;
}

void journal_collect(struct journal *journal, const struct log_tail *own, const struct board *board,
                     int workers_n)
{
    struct log_tail_line line;
    while (own != NULL && log_tail_next(own, &journal->seen[BOARD_WORKERS_MAX], &line))
        insert_line(journal, &line);
    for (int i = 0; i < workers_n; i++)
        while (log_tail_next(board_log_tail(board, i), &journal->seen[i], &line))
            insert_line(journal, &line);
}

void journal_write(const struct journal *journal, struct text *t)
{
    char time[32];
    int64_t n = journal != NULL ? journal->lines_n : 0;
    for (int64_t i = n > JOURNAL_LINES ? n - JOURNAL_LINES : 0; i < n; i++) {
        const struct log_tail_line *line = &journal->lines[i % JOURNAL_LINES];
        text_add(t, "%s %s\n", clock_iso(time, sizeof(time), line->wall_ms), line->text);
    }
}
