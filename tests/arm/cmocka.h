/* cmocka — as much of cmocka 1.1 as the tests of kernels and sums use, for a processor whose cmocka
 * this machine lacks: found in place of <cmocka.h> by -Itests/arm (arm.mk). A check that fails
 * prints why and ends its test; the others run. Output is TAP. Must not know what is tested. */
#ifndef CONVOY_TESTS_ARM_CMOCKA_H
#define CONVOY_TESTS_ARM_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    int (*setup_func)(void **state);
    int (*teardown_func)(void **state);
    void *initial_state;
};

enum cm_message_output { CM_OUTPUT_TAP };

#define cmocka_unit_test(test) cmocka_unit_test_setup_teardown(test, NULL, NULL)
#define cmocka_unit_test_setup_teardown(test, set_up, tear_down) \
    {                                                            \
#test, test, set_up, tear_down, NULL                     \
    }
#define cmocka_set_message_output(output) ((void)(output))
#define cmocka_run_group_tests_name(group, tests, set_up, tear_down) \
    cmocka_run(tests, sizeof(tests) / sizeof(tests)[0], set_up, tear_down)
#define _cmocka_run_group_tests(group, tests, n, set_up, tear_down) \
    cmocka_run(tests, n, set_up, tear_down)

/* Programs run on an emulated processor: tests leave out what takes minutes there. */
#define HARNESS_EMULATED

static jmp_buf cmocka_end;

static inline __attribute__((format(printf, 1, 2))) void print_message(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

static inline _Noreturn __attribute__((format(printf, 3, 4))) void
cmocka_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    printf("# %s:%d: ", file, line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    longjmp(cmocka_end, 1);
}

#define fail_msg(...) cmocka_fail(__FILE__, __LINE__, __VA_ARGS__)
#define assert_true(x) ((x) ? (void)0 : fail_msg("false: %s", #x))
#define assert_false(x) assert_true(!(x))
#define assert_null(x) assert_true(!(x))
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_int_equal(a, b) \
    cmocka_int_equal(__FILE__, __LINE__, #a, (long long)(a), (long long)(b))
#define assert_in_range(x, low, high) assert_true((x) >= (low) && (x) <= (high))
#define assert_float_equal(a, b, most) assert_true((a) - (b) <= (most) && (b) - (a) <= (most))
#define assert_memory_equal(a, b, bytes) assert_true(memcmp(a, b, bytes) == 0)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)

static inline void cmocka_int_equal(const char *file, int line, const char *what, long long a,
                                    long long b)
{
    if (a != b)
        cmocka_fail(file, line, "%s is %lld, want %lld", what, a, b);
}

static inline int cmocka_run_one(const struct CMUnitTest *test)
{
    void *state = test->initial_state;
    if (test->setup_func && test->setup_func(&state) != 0)
        return 1;
    volatile int bad = 1;
    if (setjmp(cmocka_end) == 0) {
        test->test_func(&state);
        bad = 0;
    }
    return test->teardown_func && test->teardown_func(&state) != 0 ? 1 : bad;
}

/* Returns the number of tests that failed. */
static inline int cmocka_run(const struct CMUnitTest *tests, size_t n, int (*set_up)(void **state),
                             int (*tear_down)(void **state))
{
    int failed = 0;
    void *state = NULL;
    printf("1..%zu\n", n);
    if (set_up && set_up(&state) != 0) {
        printf("Bail out! the tests' common set-up failed\n");
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        int bad = cmocka_run_one(&tests[i]);
        printf("%s %zu - %s\n", bad ? "not ok" : "ok", i + 1, tests[i].name);
        fflush(stdout);
        failed += bad;
    }
    return tear_down && tear_down(&state) != 0 ? failed + 1 : failed;
}

#endif
