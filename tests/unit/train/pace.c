/* pace — means over the last twenty steps. */
#include "harness.h"

#include <math.h>

#include "train/trainer/console.h"

static void test_nothing_yet(void **state)
{
    (void)state;
    struct console_pace pace = {0};
    assert_true(isnan(console_pace_mean_ms(&pace)));
    assert_true(isnan(console_pace_per_second(&pace, 100)));
    assert_true(isnan(console_pace_eta_seconds(&pace, 10)));
}

static void test_means(void **state)
{
    (void)state;
    struct console_pace pace = {0};
    console_pace_add(&pace, 100);
    console_pace_add(&pace, 300);
    assert_true(console_pace_mean_ms(&pace) == 200);
    assert_true(console_pace_per_second(&pace, 1024) == 5120);
    assert_true(console_pace_eta_seconds(&pace, 50) == 10);
    for (int i = 0; i < CONSOLE_PACE_KEPT; i++)
        console_pace_add(&pace, 50); /* the first two are forgotten */
    assert_true(console_pace_mean_ms(&pace) == 50);
    assert_true(console_pace_eta_seconds(&pace, 0) == 0);
}

static void test_no_time_at_all(void **state)
{
    (void)state;
    struct console_pace pace = {0};
    console_pace_add(&pace, 0);
    assert_true(isnan(console_pace_per_second(&pace, 1024)));
    assert_true(console_pace_eta_seconds(&pace, 7) == 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_nothing_yet),
    cmocka_unit_test(test_means),
    cmocka_unit_test(test_no_time_at_all),
};
HARNESS_MAIN(tests)
