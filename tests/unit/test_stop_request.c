/* test_stop_request — requests become statuses; rehearsed failures do what they say. */
#include "harness.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "train/stop_request.h"

static void test_requests(void **state)
{
    (void)state;
    assert_false(stop_request_is_stop(BOARD_REQUEST_NONE));
    assert_false(stop_request_is_stop(BOARD_REQUEST_SAVE));
    assert_int_equal(stop_request_status(BOARD_REQUEST_NONE), ST_OK);
    assert_int_equal(stop_request_status(BOARD_REQUEST_SAVE), ST_OK);
    assert_string_equal(stop_request_signal(BOARD_REQUEST_SAVE), "");
    assert_int_equal(stop_request_status(BOARD_REQUEST_PREEMPT), ST_RETRY);
    assert_string_equal(stop_request_signal(BOARD_REQUEST_PREEMPT), "SIGUSR1");
    assert_int_equal(stop_request_status(BOARD_REQUEST_TERMINATE), ST_TERMINATED);
    assert_string_equal(stop_request_signal(BOARD_REQUEST_TERMINATE), "SIGTERM");
    assert_int_equal(stop_request_status(BOARD_REQUEST_INTERRUPT), ST_INTERRUPTED);
    assert_string_equal(stop_request_signal(BOARD_REQUEST_INTERRUPT), "SIGINT");
    for (int r = BOARD_REQUEST_PREEMPT; r <= BOARD_REQUEST_INTERRUPT; r++)
        assert_true(stop_request_is_stop((enum board_request)r));
}

static void test_kill(void **state)
{
    (void)state;
    int wait_status;
    pid_t pid = fork();
    if (pid == 0)
        fault_injection_kill();
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
}

static void test_stall(void **state)
{
    (void)state;
    int wait_status;
    pid_t pid = fork();
    if (pid == 0)
        fault_injection_stall();
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
