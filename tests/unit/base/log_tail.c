/* log_tail: the newest lines, in order, read while another thread adds. */
#include "harness.h"

#include <pthread.h>

#include "base/log_tail.h"

static struct log_tail tail;
static struct log_tail_line line;

static int fresh(void **state)
{
    memset(&tail, 0, sizeof tail);
    return 0;
}

TEST_WITH(in_order, fresh, NULL)
{
    uint64_t seen = 0;
    assert_false(log_tail_next(&tail, &seen, &line));
    log_tail_add(&tail, 7, "one");
    log_tail_add(&tail, 8, "two");
    assert_true(log_tail_next(&tail, &seen, &line));
    assert_string_equal(line.text, "one");
    assert_int_equal(line.wall_ms, 7);
    assert_true(log_tail_next(&tail, &seen, &line));
    assert_string_equal(line.text, "two");
    assert_false(log_tail_next(&tail, &seen, &line));
}

TEST_WITH(the_newest_stay_and_long_ones_are_cut, fresh, NULL)
{
    char text[2000];
    uint64_t seen = 0;
    int n = 0;
    for (int i = 0; i < 100; i++) {
        text_format(text, sizeof text, "%d", i);
        log_tail_add(&tail, i, text);
    }
    while (log_tail_next(&tail, &seen, &line))
        assert_int_equal(atoi(line.text), 100 - LOG_TAIL_LINES + n++);
    assert_int_equal(n, LOG_TAIL_LINES);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    log_tail_add(&tail, 0, text);
    assert_true(log_tail_next(&tail, &seen, &line));
    assert_int_equal(strlen(line.text), LOG_TAIL_TEXT - 1);
}

/* A crashing worker may have scribbled over it. */
TEST_WITH(scribbled_memory_ends, fresh, NULL)
{
    uint64_t seen = 5;
    memset(&tail, 0xFF, sizeof tail);
    for (int i = 0; i < 3 * LOG_TAIL_LINES; i++)
        if (log_tail_next(&tail, &seen, &line))
            assert_true(strnlen(line.text, LOG_TAIL_TEXT) < LOG_TAIL_TEXT);
    memset(&tail, 0, sizeof tail);
    assert_false(log_tail_next(&tail, &seen, &line)); /* the number went back */
    log_tail_add(&tail, 1, "again");
    assert_true(log_tail_next(&tail, &seen, &line));
    assert_string_equal(line.text, "again");
}

#define LINES 200000

static void *add_all(void *arg)
{
    char text[64];
    for (int i = 1; i <= LINES; i++) {
        text_format(text, sizeof text, "%d %d %d %d", i, i, i, i);
        log_tail_add(arg, i, text);
    }
    return NULL;
}

TEST_WITH(lines_are_whole_while_others_are_added, fresh, NULL)
{
    pthread_t thread;
    uint64_t seen = 0;
    int64_t last = 0;
    char wanted[64];
    assert_int_equal(pthread_create(&thread, NULL, add_all, &tail), 0);
    while (last < LINES) {
        if (!log_tail_next(&tail, &seen, &line))
            continue;
        assert_true(line.wall_ms > last);
        last = line.wall_ms;
        text_format(wanted, sizeof wanted, "%d %d %d %d", (int)last, (int)last, (int)last,
                    (int)last);
        assert_string_equal(line.text, wanted);
    }
    pthread_join(thread, NULL);
}

HARNESS_RUN_ALL()
