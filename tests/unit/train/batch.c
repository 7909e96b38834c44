/* batch — which labels count, the divisor of a loss, and what is refused. */
#include "train/step/batch.h"

#include "harness.h"

static void test_lm(void **state)
{
    struct batch b;
    assert_int_equal(batch_init(&b, FEED_TASK_LM, 2, 3), ST_OK);
    for (int i = 0; i < 6; i++)
        b.host.targets[i] = i - 2; /* two are ignored */
    struct batch_counts counts = {0};
    double scale, end;
    batch_count(&b, &counts);
    assert_int_equal(counts.targets, 4);
    batch_scales(FEED_TASK_LM, &counts, &scale, &end);
    assert_float_equal(scale, 0.25, 0);
    const float losses[6] = {0, 0, 1, 2, 3, 6};
    assert_float_equal(batch_loss(FEED_TASK_LM, losses, 6, scale, end), 3, 0);
    assert_int_equal(batch_check(&b, 4), ST_OK);
    assert_int_equal(batch_check(&b, 3), ST_BAD_DATA); /* target 3 */
    b.host.tokens[5] = -1;
    assert_int_equal(batch_check(&b, 4), ST_BAD_DATA);
    batch_free(&b);
    batch_free(&b);
}

static void test_qa(void **state)
{
    struct batch b;
    assert_int_equal(batch_init(&b, FEED_TASK_QA, 4, 8), ST_OK);
    /* clamped: 0 7 8 8 and 0 8 8 8; 8 is ignored */
    const int32_t starts[4] = {0, 7, 8, 100}, ends[4] = {-5, 8, 8, 8};
    for (int i = 0; i < 4; i++) {
        b.host.starts[i] = starts[i];
        b.host.ends[i] = ends[i];
    }
    struct batch_counts counts = {0};
    double scale, end;
    batch_count(&b, &counts);
    assert_int_equal(counts.starts, 2);
    assert_int_equal(counts.ends, 1);
    batch_scales(FEED_TASK_QA, &counts, &scale, &end);
    assert_float_equal(scale, 0.25, 0);
    assert_float_equal(end, 0.5, 0);
    const float losses[8] = {2, 3, 4, 0, 0, 0, 0, 0};
    /* (2+4)/2 and 3/1, their mean */
    assert_float_equal(batch_loss(FEED_TASK_QA, losses, 8, scale, end), 3, 0);
    batch_free(&b);
}

static void test_nothing_counts(void **state)
{
    struct batch_counts counts = {0};
    double scale, end;
    const float losses[2] = {0, 0};
    for (int task = FEED_TASK_LM; task <= FEED_TASK_QA; task++) {
        batch_scales((enum feed_task)task, &counts, &scale, &end);
        assert_float_equal(batch_loss((enum feed_task)task, losses, 2, scale, end), 0, 0);
    }
}

static void test_too_large(void **state)
{
    struct batch b = {0};
    assert_int_equal(batch_init(&b, FEED_TASK_LM, INT64_MAX / 2, 4), ST_BAD_SETTING);
    batch_free(&b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lm),
    cmocka_unit_test(test_qa),
    cmocka_unit_test(test_nothing_counts),
    cmocka_unit_test(test_too_large),
};
HARNESS_MAIN(tests)
