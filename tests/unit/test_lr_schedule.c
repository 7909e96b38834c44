/* test_lr_schedule — the schedules at their corners. */
#include "train/lr_schedule.h"

#include "harness.h"

static struct lr_schedule_config config(enum lr_schedule_kind schedule)
{
    return (struct lr_schedule_config){
        .kind = schedule, .lr = 1e-3, .lr_min = 1e-4, .warmup_steps = 4, .steps = 104};
}

static void near(double got, double want) { assert_float_equal(got, want, 1e-15); }

static void test_warmup(void **state)
{
    (void)state;
    for (int schedule = LR_SCHEDULE_KIND_COSINE; schedule <= LR_SCHEDULE_KIND_WSD; schedule++) {
        struct lr_schedule_config c = config((enum lr_schedule_kind)schedule);
        near(lr_schedule_at(&c, 0), 0.25e-3);
        near(lr_schedule_at(&c, 3), 1e-3);
        near(lr_schedule_at(&c, 4), 1e-3);
    }
}

static void test_after(void **state)
{
    (void)state;
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

static void test_short_runs(void **state)
{
    (void)state;
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_warmup),
    cmocka_unit_test(test_after),
    cmocka_unit_test(test_short_runs),
};
HARNESS_MAIN(tests)
