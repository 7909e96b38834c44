/* linger: the event loop turns for LINGER, or until a signal; other events of the loop are served
 * meanwhile. */
#include "harness.h"

#include <event2/event.h>

#include "node/supervisor/linger.h"

static int turns;

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    if (++turns == 3 && arg != NULL)
        raise(*(int *)arg);
}

/* How long it takes with this signal at the third turn; 0: none. */
static int64_t lasts(int64_t ms, int signal_n)
{
    static const struct timeval every = {0, 20000};
    struct event_base *loop = event_base_new();
    struct conf *conf;
    char word[32], *words[] = {word}, *nothing[] = {NULL};
    snprintf(word, sizeof word, "LINGER=%dms", (int)ms);
    assert_int_equal(conf_open(1, words, nothing, &conf), ST_OK);
    struct event *timer =
        event_new(loop, -1, EV_PERSIST, on_turn, signal_n != 0 ? &signal_n : NULL);
    turns = 0;
    event_add(timer, &every);
    int64_t from_ms = clock_ms();
    FAIL(ST_RETRY, "told once");
    linger_run(loop, conf, ST_RETRY);
    assert_string_equal(status_message(), "");
    conf_close(conf);
    int64_t elapsed_ms = clock_ms() - from_ms;
    event_free(timer);
    event_base_free(loop);
    return elapsed_ms;
}

TEST(its_time)
{
    /* libevent counts from when its loop last looked at the clock */
    assert_true(lasts(300, 0) >= 250);
    assert_true(turns >= 1);
}

TEST(signals_end_it)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_true(lasts(600000, numbers[i]) < 60000);
        assert_in_range(turns, 3, 4); /* the timer may be due again when the signal is read */
    }
}

TEST(says_why)
{
    struct conf *conf;
    char text[96], *words[] = {"LINGER=90s"}, *nothing[] = {NULL};
    assert_int_equal(conf_open(1, words, nothing, &conf), ST_OK);
    assert_string_equal(linger_text(conf, text, sizeof text), "LINGER=90s, argument");
    conf_close(conf);
}

HARNESS_RUN_ALL()
