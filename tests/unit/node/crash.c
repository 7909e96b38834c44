/* crash — a fatal signal is reported with the last notes, and remains the cause of death. */
#include "harness.h"

#include <signal.h>

#include "base/assert.h"
#include "node/process/crash.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

static void die(void *arg)
{
    crash_install();
    assert_note("step %d begins", 41);
    assert_note("step %d begins", 42);
    raise(*(const int *)arg);
}

static void test_report(void **state)
{
    if (IS_SANITIZED) {
        HARNESS_SKIP("sanitizers keep their own handlers");
    }
    static int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    static const char *const names[] = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        char out[16384];
        int wait_status = harness_output_of(die, &signals[i], false, out, sizeof out);
        assert_true(WIFSIGNALED(wait_status));
        assert_int_equal(WTERMSIG(wait_status), signals[i]);
        assert_non_null(strstr(out, names[i]));
        assert_non_null(strstr(out, "  note: step 41 begins\n  note: step 42 begins\n"));
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_report)};
HARNESS_MAIN(tests)
