/* test_guard — requests become statuses; rehearsed failures do what they say. */
#include "harness.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "train/guard.h"

static void test_requests(void **state)
{
    (void)state;
    assert_false(guard_is_stop(BOARD_REQUEST_NONE));
    assert_false(guard_is_stop(BOARD_REQUEST_SAVE));
    assert_int_equal(guard_status(BOARD_REQUEST_NONE), ST_OK);
    assert_int_equal(guard_status(BOARD_REQUEST_SAVE), ST_OK);
    assert_string_equal(guard_signal(BOARD_REQUEST_SAVE), "");
    assert_int_equal(guard_status(BOARD_REQUEST_PREEMPT), ST_RETRY);
    assert_string_equal(guard_signal(BOARD_REQUEST_PREEMPT), "SIGUSR1");
    assert_int_equal(guard_status(BOARD_REQUEST_TERMINATE), ST_TERMINATED);
    assert_string_equal(guard_signal(BOARD_REQUEST_TERMINATE), "SIGTERM");
    assert_int_equal(guard_status(BOARD_REQUEST_INTERRUPT), ST_INTERRUPTED);
    assert_string_equal(guard_signal(BOARD_REQUEST_INTERRUPT), "SIGINT");
    for (int r = BOARD_REQUEST_PREEMPT; r <= BOARD_REQUEST_INTERRUPT; r++)
        assert_true(guard_is_stop((enum board_request)r));
}

static void test_kill(void **state)
{
    (void)state;
    int wait_status;
    pid_t pid = fork();
    if (pid == 0)
        guard_kill();
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
}

static void test_stall(void **state)
{
    (void)state;
    int wait_status;
    pid_t pid = fork();
    if (pid == 0)
        guard_stall();
    clock_sleep_ms(100);
    assert_int_equal(waitpid(pid, &wait_status, WNOHANG), 0); /* alive */
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_requests),
    cmocka_unit_test(test_kill),
    cmocka_unit_test(test_stall),
};
HARNESS_MAIN(tests)
