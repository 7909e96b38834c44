/* crash — a fatal signal is reported with the last notes, and remains the cause of death. */
#include "harness.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/assert.h"
#include "node/crash.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

/* die — a child that raises a signal; its stderr into out, its wait status returned. */
static int die(int signal_n, char *out, size_t cap)
{
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipe_fd[1], STDERR_FILENO);
        crash_install();
        assert_note("step %d begins", 41);
        assert_note("step %d begins", 42);
        raise(signal_n);
        _exit(0);
    }
    return harness_child_output(pid, pipe_fd, out, cap);
}

static void test_report(void **state)
{
    (void)state;
    if (IS_SANITIZED) {
        HARNESS_SKIP("sanitizers keep their own handlers");
    }
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    static const char *const names[] = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        char out[16384];
        int wait_status = die(signals[i], out, sizeof out);
        assert_true(WIFSIGNALED(wait_status));
        assert_int_equal(WTERMSIG(wait_status), signals[i]);
        assert_non_null(strstr(out, names[i]));
        assert_non_null(strstr(out, "  note: step 41 begins\n  note: step 42 begins\n"));
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_report)};
HARNESS_MAIN(tests)
