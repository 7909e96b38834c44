/* history_read — an earlier run's history is taken up to the step from which this one
 * resumed; bytes that are not a history are refused. */
#include "harness.h"

#include "serve/history.h"

static struct view view;
static struct board_worker lead;
static struct history before, old, now;

static void look(struct history *h, int64_t age_ms, int64_t step, double loss)
{
    view.node.started_ms = 1000;
    view.now_ms = 1000 + age_ms;
    view.phase = BOARD_PHASE_TRAINING;
    view.first_worker = &lead;
    lead.step = step;
    lead.loss = loss;
    lead.val_loss = lead.mfu = NAN;
    lead.step_ms[lead.step_ms_n++ % BOARD_STEPS_KEPT] = 20;
    history_observe(h, &view);
}

static int fresh(void **state)
{
    memset(&before, 0, sizeof before);
    memset(&old, 0, sizeof old);
    memset(&now, 0, sizeof now);
    memset(&lead, 0, sizeof lead);
    memset(&view, 0, sizeof view);
    view.machine = machine_stats_unknown();
    return 0;
}

static enum status read_text(const char *s) { return history_read(s, strlen(s), &old); }

/* As the file would have it. */
static void keep_and_read(void)
{
    struct text t = {0};
    history_write(&before, &t);
    assert_int_equal(history_read(t.data, t.len, &old), ST_OK);
    text_free(&t);
}

TEST_WITH(what_is_written_is_read, fresh, NULL)
{
    for (int i = 0; i < 5; i++)
        look(&before, i * 1000, 10 * i, 8 - i);
    history_sample(&before, &view, 40, "a \"text\"\nof two lines");
    keep_and_read();
    assert_int_equal(old.points_n, 5);
    assert_int_equal(old.points[3].step, 30);
    assert_int_equal(old.points[3].at_ms, 3000);
    assert_int_equal(old.points[3].phase, BOARD_PHASE_TRAINING);
    assert_true(old.points[3].values[HISTORY_CURVE_LOSS] == 5 &&
                isnan(old.points[3].values[HISTORY_CURVE_MFU]));
    assert_int_equal(old.events_n, 1);
    assert_string_equal(old.events[0].text, "training");
    assert_string_equal(old.samples[0].text, "a \"text\"\nof two lines");
}

TEST_WITH(a_lost_future_does_not_stay, fresh, NULL)
{
    for (int i = 0; i < 10; i++)
        look(&before, i * 1000, 10 * i, 8);
    look(&before, 10000, 50, 7); /* restarted within the process: 50 is done again */
    look(&before, 11000, 60, 7);
    history_sample(&before, &view, 40, "stays");
    history_sample(&before, &view, 60, "goes");
    keep_and_read();
    look(&now, 0, 55, 6);
    look(&now, 1000, 56, 6);
    history_read_prepend(&now, &old, 55);
    static const int64_t steps[] = {0, 10, 20, 30, 40, 50, 55, 56};
    assert_int_equal(now.points_n, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(now.points[i].step, steps[i]);
    assert_true(now.points[5].values[HISTORY_CURVE_LOSS] == 7);
    assert_int_equal(now.points[6].at_ms, 11000); /* right behind */
    assert_int_equal(now.samples_n, 1);
    assert_string_equal(now.samples[0].text, "stays");
    assert_string_equal(now.events[now.events_n - 2].kind, "resume");
    assert_string_equal(now.events[now.events_n - 2].text, "resumed from step 55");
    look(&now, 2000, 57, 6);
    assert_int_equal(now.points[8].at_ms, 13000);
}

TEST_WITH(from_the_beginning_nothing_stays, fresh, NULL)
{
    for (int i = 1; i < 10; i++)
        look(&before, i * 1000, 10 * i, 8);
    keep_and_read();
    look(&now, 0, 1, 9);
    history_read_prepend(&now, &old, 0);
    assert_int_equal(now.points_n, 1);
    assert_int_equal(now.offset_ms, 0);
}

TEST_WITH(memory_is_bounded, fresh, NULL)
{
    for (int i = 0; i < 5000; i++)
        look(&before, i * 1000, i, 8);
    keep_and_read();
    for (int i = 0; i < HISTORY_POINTS; i++)
        look(&now, i * 1000, 4000 + i, 6);
    history_read_prepend(&now, &old, 4000);
    assert_true(now.points_n <= HISTORY_POINTS && now.points_n > HISTORY_POINTS / 4);
    for (int i = 1; i < now.points_n; i++) {
        assert_true(now.points[i].at_ms > now.points[i - 1].at_ms);
        assert_int_equal(now.points[i].at_ms % now.period_ms, 0);
    }
    assert_int_equal(now.points[now.points_n - 1].step, 4000 + HISTORY_POINTS - 1);
}

#define HEAD "{\"schema\":1,\"period_seconds\":1,\"points\":{\"seconds\":"
TEST_WITH(what_is_no_history_is_refused, fresh, NULL)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{}",
        "null",
        "{\"schema\":1}",
        "{\"schema\":2,\"period_seconds\":1,\"points\":{}}",
        "{\"schema\":1,\"period_seconds\":3,\"points\":{\"seconds\":[],\"phase\":[]}}",
        "{\"schema\":1,\"period_seconds\":1e300,\"points\":{\"seconds\":[],\"phase\":[]}}",
        "{\"schema\":1,\"period_seconds\":-1,\"points\":{\"seconds\":[],\"phase\":[]}}",
        HEAD "[0,1],\"phase\":[\"training\"]}}",
        HEAD "[0,0],\"phase\":[\"training\",\"training\"]}}",
        HEAD "[1,0],\"phase\":[\"training\",\"training\"]}}",
        HEAD "[0],\"phase\":[\"dreaming\"]}}",
        HEAD "[0],\"phase\":[7]}}",
        HEAD "[-1],\"phase\":[\"training\"]}}",
        HEAD "[1e300],\"phase\":[\"training\"]}}",
        HEAD "[null],\"phase\":[\"training\"]}}",
        HEAD "[\"0\"],\"phase\":[\"training\"]}}",
        HEAD "[0],\"phase\":[\"training\"],\"loss\":[1,2]}}",
        HEAD "[0],\"phase\":[\"training\"],\"loss\":{}}}",
        HEAD "[0],\"phase\":[\"training\"],\"loss\":[\"x\"]}}",
        HEAD "{},\"phase\":[]}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(read_text(bad[i]), ST_BAD_DATA);
        assert_int_equal(old.points_n, 0);
    }
    assert_int_equal(
        read_text(HEAD "[0],\"phase\":[\"training\"],\"step\":[-5],\"loss\":[1e308]},\"events\":[{"
                       "\"seconds\":1,\"kind\":\"<b>\",\"text\":\"x\"},7],\"samples\":{\"a\":1}}"),
        ST_OK);
    assert_int_equal(old.points_n, 1);
    assert_int_equal(old.points[0].step, -1);
    assert_true(isnan(old.points[0].values[HISTORY_CURVE_LOSS]));
    assert_int_equal(old.events_n + old.samples_n, 0);
}

/* A run that ended before it resumed keeps all that was there. */
TEST_WITH(without_a_step_nothing_is_dropped, fresh, NULL)
{
    for (int i = 0; i < 3; i++)
        look(&before, i * 1000, 10 * i, 8);
    history_sample(&before, &view, 20, "stays");
    keep_and_read();
    view.phase = BOARD_PHASE_FAILED;
    view.now_ms = 1000;
    view.first_worker = NULL;
    history_observe(&now, &view);
    history_read_prepend(&now, &old, HISTORY_ALL);
    assert_int_equal(now.points_n, 4);
    assert_int_equal(now.points[2].step, 20);
    assert_int_equal(now.points[3].phase, BOARD_PHASE_FAILED);
    assert_int_equal(now.samples_n, 1);
    assert_int_equal(now.events_n, 2);
    assert_string_equal(now.events[1].text, "failed");
}

TEST_WITH(cut_files_are_refused, fresh, NULL)
{
    struct text t = {0};
    for (int i = 0; i < 20; i++)
        look(&before, i * 1000, i, 8);
    history_write(&before, &t);
    for (size_t n = 0; n + 2 < t.len; n += 1 + n % 7)
        assert_int_equal(history_read(t.data, n, &old), ST_BAD_DATA);
    text_free(&t);
}

TEST_WITH(csv, fresh, NULL)
{
    struct text t = {0};
    look(&before, 0, 3, 2.5);
    view.phase = BOARD_PHASE_EVALUATING;
    view.now_ms += 1000;
    history_observe(&before, &view);
    history_csv(&before, &t);
    assert_string_equal(
        t.data,
        "seconds,step,phase,loss,val_loss,lr,grad_norm,tokens_per_second,step_ms,compute_ms,comm_"
        "ms,wait_ms,mfu,gpu_utilisation,gpu_memory,gpu_celsius,gpu_watts,machine_cpu,machine_cpu_"
        "high,"
        "machine_memory,machine_disk_read,machine_disk_write,machine_received,machine_sent,"
        "loss_low,loss_high\n"
        "0,3,training,2.5,,0,0,0,20,0,0,0,,,,,,,,,,,,,2.5,2.5\n"
        "1,,evaluating,,,,,,,,,,,,,,,,,,,,,,,\n");
    text_free(&t);
}

HARNESS_RUN_ALL()
