/* pace — means over the last twenty steps. */
#include "harness.h"

#include "train/trainer/console.h"

TEST(test_nothing_yet)
{
    struct console_pace pace = {0};
    assert_true(isnan(console_pace_mean_ms(&pace)));
    assert_true(isnan(console_pace_per_second(&pace, 100)));
    assert_true(isnan(console_pace_eta_seconds(&pace, 10)));
}

TEST(test_means)
{
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

TEST(test_no_time_at_all)
{
    struct console_pace pace = {0};
    console_pace_add(&pace, 0);
    assert_true(isnan(console_pace_per_second(&pace, 1024)));
    assert_true(console_pace_eta_seconds(&pace, 7) == 0);
}

HARNESS_RUN_ALL()
