/* limited: a call that ends in time gives its result and its failure; one that does not is left
 * behind, and the caller's data stay as they were. */
#include "harness.h"

#include "base/limited.h"

struct work {
    int number, fails;
    int wait_fd, done_fd; /* -1: at once */
};

static enum status work(void *arg)
{
    struct work *w = arg;
    char byte = 0;
    w->number *= 2;
    if (w->wait_fd >= 0 && read(w->wait_fd, &byte, 1) != 1)
        return FAIL(ST_BUG, "the pipe was closed");
    if (w->done_fd >= 0 && write(w->done_fd, "d", 1) != 1)
        return FAIL(ST_BUG, "nobody reads");
    return w->fails ? FAIL(ST_STORE, "the disk said %d", w->number) : ST_OK;
}

TEST(in_time)
{
    struct work w = {.number = 21, .wait_fd = -1, .done_fd = -1};
    bool is_late = true;
    const int64_t limit_ms = harness_patience_ms(20000);
    assert_int_equal(limited_run(work, &w, sizeof w, limit_ms, "is tested", &is_late), ST_OK);
    assert_int_equal(w.number, 42);
    assert_false(is_late);
    w.fails = 1;
    assert_int_equal(limited_run(work, &w, sizeof w, limit_ms, "is tested", &is_late), ST_STORE);
    assert_non_null(strstr(status_message(), "the disk said 84"));
    assert_false(is_late);
}

TEST(left_behind)
{
    int begin[2], done[2];
    char byte = 0;
    bool is_late = false;
    assert_int_equal(pipe(begin), 0);
    assert_int_equal(pipe(done), 0);
    struct work w = {.number = 21, .wait_fd = begin[0], .done_fd = done[1]};
    const int64_t since_ms = clock_ms();
    assert_int_equal(limited_run(work, &w, sizeof w, 50, "is tested", &is_late), ST_PEER);
    assert_true(clock_ms() - since_ms >= 49);
    assert_true(is_late);
    assert_int_equal(w.number, 21);
    assert_non_null(
        strstr(status_message(), "the thread that is tested has not answered for 50 ms"));
    assert_int_equal(write(begin[1], "b", 1), 1); /* it goes on with its copy, and frees it */
    assert_int_equal(read(done[0], &byte, 1), 1);
    for (int i = 0; i < 2; i++) {
        close(begin[i]);
        close(done[i]);
    }
}

HARNESS_RUN_ALL()
