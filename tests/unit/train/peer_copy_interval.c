/* peer_copy_interval — how often a GPU's state is copied: in the first steps each, then not at all,
 * then so often that steps become at most 2 % longer. */
#include "harness.h"

#include "base/clock.h"
#include "train/peer_copy/inside.h"

TEST(test_interval_of)
{
    assert_int_equal(peer_copy_interval_of(100, 100, 1), 1);
    assert_int_equal(peer_copy_interval_of(100, 90, 1), 1); /* noise */
    assert_int_equal(peer_copy_interval_of(100, 102, 99), 1);
    assert_int_equal(peer_copy_interval_of(100, 102.1, 99), 2);
    assert_int_equal(peer_copy_interval_of(100, 140, 99), 20);
    assert_int_equal(peer_copy_interval_of(100, 100, 250), 3); /* a slow network */
    assert_int_equal(peer_copy_interval_of(0, 0, 0), 1);
    assert_int_equal(peer_copy_interval_of(1e-9, 1e9, 0), 1000000);
    for (double with_ms = 100; with_ms < 1000; with_ms += 7) {
        const int every = peer_copy_interval_of(100, with_ms, 0);
        assert_true((with_ms - 100) / every <= 2 + 1e-9);
        assert_true(every == 1 || (with_ms - 100) / (every - 1) > 2 - 1e-9);
    }
}

/* Steps 40, 41, …; steps with a copy need 6 ms more. */
TEST(test_measured)
{
    struct peer_copy_interval interval = {.step = -1};
    int64_t copied = -1;
    int copies_n = 0;
    for (int64_t step = 40; !peer_copy_interval_is_measured(&interval); step++) {
        assert_true(step < 60);
        peer_copy_interval_begin(&interval, step);
        const bool is_due = peer_copy_interval_is_due(&interval, copied);
        copied = is_due ? step : copied;
        copies_n += is_due;
        peer_copy_interval_begin(&interval, step); /* the step is repeated */
        assert_false(peer_copy_interval_is_due(&interval, copied) && is_due);
        clock_sleep_ms(is_due ? 8 : 2);
    }
    assert_int_equal(copies_n, 6);
    assert_int_equal(copied, 45);
    assert_int_equal(interval.step, 52);
    assert_true(interval.least_ms[0] >= 2 && interval.least_ms[1] >= 8);
}

TEST(test_is_due)
{
    struct peer_copy_interval interval = {.every = 3, .step = -1};
    int64_t copied = -1;
    for (int64_t step = 7; step < 20; step++) {
        peer_copy_interval_begin(&interval, step);
        const bool is_due = peer_copy_interval_is_due(&interval, copied);
        assert_int_equal(is_due, step % 3 == 1);
        copied = is_due ? step : copied;
    }
    assert_false(peer_copy_interval_is_measured(&interval));
}

HARNESS_RUN_ALL()
