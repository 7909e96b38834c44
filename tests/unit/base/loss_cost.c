/* loss_cost — one sentence for each protection: copies with a known interval, copies whose interval
 * is measured, checkpoints only, nothing, and a run of which nothing is known. */
#include "harness.h"

#include "base/loss_cost.h"

static const char *text_of(struct loss_cost cost)
{
    static char text[LOSS_COST_TEXT];
    return loss_cost_text(&cost, text, sizeof text);
}

TEST(protections_have_sentences)
{
    const int64_t bytes = (int64_t)3 << 30;
    assert_string_equal(text_of((struct loss_cost){4, 1, bytes, 50, 2100, NAN}),
                        "a lost node costs at most 1 step (2.10 s); copies use 3.0 GiB of host "
                        "memory on each node");
    assert_string_equal(text_of((struct loss_cost){4, 7, bytes, 50, 100, 2600}),
                        "a lost node costs at most 7 steps (700 ms); the last recovery took 2.60 "
                        "s; copies use 3.0 GiB of host memory on each node");
    assert_string_equal(text_of((struct loss_cost){4, -1, bytes, 50, 100, NAN}),
                        "a lost node costs the steps since the last copy, whose interval is being "
                        "measured; copies use 3.0 GiB of host memory on each node");
    assert_string_equal(text_of((struct loss_cost){2, 0, 0, 50, NAN, NAN}),
                        "a lost node costs at most 50 steps since the last checkpoint");
    assert_string_equal(text_of((struct loss_cost){1, 0, 0, 500, 600, 1500}),
                        "a lost worker costs at most 500 steps (5m) since the last checkpoint; the "
                        "last recovery took 1.50 s");
    assert_non_null(
        strstr(text_of((struct loss_cost){2, 0, 0, 0, 100, NAN}), "costs all steps of the run"));
    assert_string_equal(text_of((struct loss_cost){1, 0, 0, -1, NAN, NAN}), "");
}

TEST(steps_at_risk)
{
    assert_int_equal(loss_cost_steps(&(struct loss_cost){4, 7, 1, 50, 1, NAN}), 7);
    assert_int_equal(loss_cost_steps(&(struct loss_cost){4, 0, 0, 50, 1, NAN}), 50);
    assert_int_equal(loss_cost_steps(&(struct loss_cost){4, 0, 0, 0, 1, NAN}), -1);
    assert_int_equal(loss_cost_steps(&(struct loss_cost){4, -1, 1, 50, 1, NAN}), -1);
}

HARNESS_RUN_ALL()
