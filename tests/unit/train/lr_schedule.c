/* lr_schedule — the schedules at their corners. */
#include "train/step/lr_schedule.h"

#include "harness.h"

static struct lr_schedule_config config(enum lr_schedule_kind schedule)
{
    return (struct lr_schedule_config){
        .kind = schedule, .lr = 1e-3, .lr_min = 1e-4, .warmup_steps = 4, .steps = 104};
}

static void near(double got, double want) { assert_float_equal(got, want, 1e-15); }

TEST(test_warmup)
{
    for (int schedule = LR_SCHEDULE_KIND_COSINE; schedule <= LR_SCHEDULE_KIND_WSD; schedule++) {
        struct lr_schedule_config c = config((enum lr_schedule_kind)schedule);
        near(lr_schedule_at(&c, 0), 0.25e-3);
        near(lr_schedule_at(&c, 3), 1e-3);
        near(lr_schedule_at(&c, 4), 1e-3);
    }
}

TEST(test_after)
{
    struct lr_schedule_config c = config(LR_SCHEDULE_KIND_COSINE);
    near(lr_schedule_at(&c, 54), 5.5e-4); /* half-way: the mean */
    near(lr_schedule_at(&c, 104), 1e-4);
    near(lr_schedule_at(&c, 1000), 1e-4);
    c = config(LR_SCHEDULE_KIND_LINEAR);
    near(lr_schedule_at(&c, 29), 7.75e-4);
    near(lr_schedule_at(&c, 104), 1e-4);
    c = config(LR_SCHEDULE_KIND_CONSTANT);
    near(lr_schedule_at(&c, 103), 1e-3);
    near(lr_schedule_at(&c, 1000), 1e-3);
    c = config(LR_SCHEDULE_KIND_WSD);
    c.steps = 100;
    near(lr_schedule_at(&c, 79), 1e-3);
    near(lr_schedule_at(&c, 80), 1e-3);
    near(lr_schedule_at(&c, 90), 5.5e-4);
    near(lr_schedule_at(&c, 100), 1e-4);
    c.decay_steps = 40;
    near(lr_schedule_at(&c, 60), 1e-3);
    near(lr_schedule_at(&c, 80), 5.5e-4);
    c.decay_steps = 1000; /* all that the warm-up leaves */
    near(lr_schedule_at(&c, 4), 1e-3);
    near(lr_schedule_at(&c, 52), 5.5e-4);
}

TEST(test_short_runs)
{
    struct lr_schedule_config c = config(LR_SCHEDULE_KIND_COSINE);
    c.steps = 0;
    c.warmup_steps = 0;
    near(lr_schedule_at(&c, 0), 1e-4); /* nothing planned: the end's value */
    c.steps = c.warmup_steps = 3;      /* all of it is warm-up: no division by zero behind it */
    near(lr_schedule_at(&c, 2), 1e-3);
    near(lr_schedule_at(&c, 3), 1e-4);
    c.steps = 1;
    c.warmup_steps = 0;
    near(lr_schedule_at(&c, 0), 1e-3);
}

/* A step of a larger batch begins between two steps of the schedule. */
TEST(test_between_steps)
{
    struct lr_schedule_config c = config(LR_SCHEDULE_KIND_LINEAR);
    near(lr_schedule_at(&c, 1.5), 0.625e-3);
    near(lr_schedule_at(&c, 3.5), 1e-3); /* never above LR */
    near(lr_schedule_at(&c, 4.5), 1e-3 - 0.9e-3 * 0.005);
    c = config(LR_SCHEDULE_KIND_WSD);
    c.steps = 100;
    near(lr_schedule_at(&c, 79.5), 1e-3);
    near(lr_schedule_at(&c, 80.5), 1e-3 - 0.9e-3 * 0.025);
}

/* 16 steps of 2 samples were done; batches of any size follow. */
TEST(test_unit)
{
    const struct lr_schedule_unit none = {0}, two = {.samples = 2},
                                  warm = {.samples = 8, .ahead = 12}, behind = {2, -4};
    assert_true(lr_schedule_step(&none, 17, 999) == 17);
    assert_int_equal(lr_schedule_steps(&none, 24, 64), 24);
    assert_true(lr_schedule_step(&two, 16, 32) == 16);
    assert_true(lr_schedule_step(&two, 17, 37) == 18.5);
    assert_int_equal(lr_schedule_steps(&two, 24, 65), 32);
    assert_true(lr_schedule_step(&warm, 6, 36) == 6); /* a batch warm-up left out 12 samples */
    assert_int_equal(lr_schedule_steps(&warm, 9, 60), 9);
    assert_true(lr_schedule_step(&behind, 0, 6) == 1);
    assert_int_equal(lr_schedule_steps(&warm, 9, INT64_MAX), INT64_MAX / 8 + 2);
}

HARNESS_RUN_ALL()
