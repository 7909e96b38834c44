/* check_limits: the table is consistent, and the words for rows are found. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "check/check_limits.h"

/* Is `a` at least as good as `b`? What is not known is no contradiction. */
static bool in_order(const struct check_limit *limit, double a, double b)
{
    return isnan(a) || isnan(b) || (limit->better == CHECK_BETTER_HIGHER ? a > b : a < b);
}

static void entries_make_sense(void **state)
{
    (void)state;
    const struct check_row *row = NULL;
    for (int i = 0; i < check_limits_count(); i++) {
        const struct check_limit *limit = check_limits_at(i);
        assert_true(limit->source[0] && limit->fail > 0);
        assert_true(in_order(limit, limit->expected, limit->warn));
        assert_true(in_order(limit, limit->warn, limit->fail));
        assert_true(in_order(limit, limit->expected, limit->fail));
        assert_true(strlen(limit->name) < sizeof row->name);
        assert_true(strlen(limit->unit) < sizeof row->unit);
        assert_true(strlen(limit->hardware) < sizeof row->hardware);
    }
}

static void each_entry_is_found_once(void **state)
{
    (void)state;
    for (int i = 0; i < check_limits_count(); i++) {
        const struct check_limit *limit = check_limits_at(i);
        if (check_limits_find(limit->name, limit->unit, limit->hardware) != limit)
            fail_msg("%s of %s is there twice", limit->name, limit->hardware);
    }
}

static void unknown_hardware_has_no_limit(void **state)
{
    (void)state;
    assert_non_null(check_limits_find("product bf16", "TFLOP/s", "NVIDIA H200"));
    assert_null(check_limits_find("product bf16", "TFLOP/s", "NVIDIA H200 NVL"));
    assert_null(check_limits_find("product bf16", "GFLOP/s", "NVIDIA H200"));
    assert_null(check_limits_find("product", "TFLOP/s", "NVIDIA H200"));
    assert_null(check_limits_find("product bf16", "TFLOP/s", ""));
}

static void key_of_a_gpu(void **state)
{
    (void)state;
    char key[32];
    check_limits_gpu("cuda 3 NVIDIA H100 80GB HBM3 sm_90 driver 13.0", key, sizeof key);
    assert_string_equal(key, "NVIDIA H100 80GB HBM3");
    check_limits_gpu("cuda 0 Tesla T4", key, sizeof key);
    assert_string_equal(key, "Tesla T4");
    check_limits_gpu("cpu", key, sizeof key);
    assert_string_equal(key, "cpu");
    check_limits_gpu("", key, sizeof key);
    assert_string_equal(key, "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(entries_make_sense),
    cmocka_unit_test(each_entry_is_found_once),
    cmocka_unit_test(key_of_a_gpu),
    cmocka_unit_test(unknown_hardware_has_no_limit),
};
HARNESS_MAIN(tests)
