/* journal — the newest lines of several processes, ordered by time. */
#include "harness.h"

#include "serve/journal.h"

static struct log_tail own;
static struct journal journal;
static struct board *board;

static const char *written(void)
{
    static char out[1 << 17];
    struct text t = {0};
    journal_write(&journal, &t);
    assert_true(text_copy(out, sizeof out, t.data != NULL ? t.data : ""));
    text_free(&t);
    return out;
}

TEST(processes_in_the_order_of_time)
{
    log_tail_add(&own, 1000, "info  supervisor  a");
    log_tail_add(board_log_tail(board, 1), 3000, "info  rank 1 worker  c");
    log_tail_add(board_log_tail(board, 0), 2000, "warn  rank 0 worker  b");
    journal_collect(&journal, &own, board, 2);
    log_tail_add(&own, 4000, "info  supervisor  d");
    journal_collect(&journal, &own, board, 2);
    journal_collect(&journal, &own, board, 2);
    assert_string_equal(written(), "1970-01-01T00:00:01.000Z info  supervisor  a\n"
                                   "1970-01-01T00:00:02.000Z warn  rank 0 worker  b\n"
                                   "1970-01-01T00:00:03.000Z info  rank 1 worker  c\n"
                                   "1970-01-01T00:00:04.000Z info  supervisor  d\n");
}

TEST(the_newest_stay)
{
    char text[32];
    for (int i = 0; i < 3 * JOURNAL_LINES; i++) {
        text_format(text, sizeof text, "number %d", i);
        log_tail_add(&own, 5000 + i, text);
        journal_collect(&journal, &own, board, 2);
    }
    text_format(text, sizeof text, "number %d\n", 2 * JOURNAL_LINES);
    const char *all = written();
    assert_non_null(strstr(all, text));
    assert_null(strstr(all, "number 399\n"));
    assert_non_null(strstr(all, "number 599\n"));
}

TEST(none)
{
    struct text t = {0};
    journal_write(NULL, &t);
    assert_int_equal(t.len, 0);
}

static int open_board(void **state) { return board_create(2, 2, &board) == ST_OK ? 0 : -1; }

HARNESS_RUN_ALL_WITH(open_board, NULL)
