/* warmup — sizes that grow over the first steps, and the window that one of them sets. */

#include "harness.h"
#include "train/step/batch.h"
#include "train/step/step.h"
#include "train/step/lr_schedule.h"

TEST(test_line)
{
    const struct warmup w = {.from = 2, .steps = 6};
    const int64_t want[] = {2, 2, 4, 4, 6, 6, 8, 8};
    for (int s = 0; s < 8; s++)
        assert_int_equal(step_warmup_at(&w, 8, 2, s), want[s]);
    assert_int_equal(step_warmup_at(&w, 8, 2, INT64_MAX), 8);
    assert_int_equal(step_warmup_at(&w, 2, 2, 3), 2); /* nothing to rise to */
}

TEST(test_none) { assert_int_equal(step_warmup_at(&(struct warmup){0}, 8, 0, 0), 8); }

/* No product overflows, and the last step before the end is below it. */
TEST(test_huge)
{
    const struct warmup w = {.from = 1, .steps = INT64_C(1000000000000)};
    assert_int_equal(step_warmup_at(&w, INT64_MAX, 1, 0), 1);
    assert_int_equal(step_warmup_at(&w, INT64_MAX, 1, w.steps / 2), 1 + (INT64_MAX - 1) / 2);
    assert_true(step_warmup_at(&w, INT64_MAX, 1, w.steps - 1) < INT64_MAX);
    for (int64_t s = 1; s < 1000; s++)
        assert_true(step_warmup_at(&w, 16777216, 3, s) >= step_warmup_at(&w, 16777216, 3, s - 1));
}

TEST(test_window)
{
    struct batch batch;
    assert_int_equal(batch_init(&batch, FEED_TASK_LM, 2, 6), ST_OK);
    assert_int_equal(batch_add_documents(&batch), ST_OK);
    const int32_t documents[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3},
                  want[] = {0, 0, 0, 1, 2, 3, 0, 0, 0, 3, 3, 3};
    memcpy(batch.host.first_key, documents, sizeof documents);
    batch_set_window(&batch, 6);
    assert_memory_equal(batch.host.first_key, documents, sizeof documents);
    batch_set_window(&batch, 3);
    assert_memory_equal(batch.host.first_key, want, sizeof want);
    batch_set_window(&batch, 1);
    for (int32_t i = 0; i < 12; i++)
        assert_int_equal(batch.host.first_key[i], i % 6); /* itself alone */
    batch_free(&batch);
}

/* Steps of 2, 2, 4, 4, 6, 6 samples, then of 8. */
TEST(test_counts)
{
    const struct step_config c = {.global_samples = 8, .batch_warmup = {.from = 2, .steps = 6}};
    static const int64_t before[] = {0, 2, 4, 8, 12, 18, 24, 32, 40};
    for (int64_t first = 0; first <= 8; first++) {
        assert_int_equal(step_samples_before(&c, first), before[first]);
        for (int64_t samples = 0; first + samples < 48; samples++) {
            int64_t left = samples;
            const int64_t n = step_count(&c, first, &left);
            assert_int_equal(step_samples_before(&c, first + n) + left, before[first] + samples);
            assert_true(left >= 0 && left < step_samples_at(&c, first + n));
        }
    }
    int64_t all = INT64_MAX;
    assert_int_equal(step_count(&c, 100, &all), INT64_MAX / 8);
    assert_int_equal(all, 7);
    assert_int_equal(step_samples_before(&c, INT64_MAX), INT64_MAX / 2);
}

HARNESS_RUN_ALL()
