/* fault_injection — a kill ends the process by SIGKILL; a stall leaves it alive. */
#include "harness.h"

#include <signal.h>

#include "base/clock.h"
#include "train/trainer/stop_request.h"

static void test_kill(void **state)
{
    int wait_status;
    pid_t pid = fork();
    if (pid == 0)
        stop_request_kill();
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
}

static void test_stall(void **state)
{
    int wait_status;
    pid_t pid = fork();
    if (pid == 0)
        stop_request_stall();
    clock_sleep_ms(100);
    assert_int_equal(waitpid(pid, &wait_status, WNOHANG), 0); /* alive */
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_kill),
    cmocka_unit_test(test_stall),
};
HARNESS_MAIN(tests)
