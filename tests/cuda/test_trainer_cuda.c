/* The trainer over the CUDA device without a GPU (guarded.h): checkpoints of a state that the host cannot read, written while
 * training goes on and at the end, and read back; a run that goes on gives the same numbers, loss scale included; faults that touch
 * the state; samples of text. */
#ifndef CONVOY_CUDA
#include "harness.h"

static void is_skipped(void **state)
{
    (void)state;
    HARNESS_SKIP("CUDA is not built in");
}
static const struct CMUnitTest tests[] = {cmocka_unit_test(is_skipped)};
HARNESS_MAIN(tests)
#else
#include "kernel_test.h"
#include "tests/cuda/guarded.h"
#include "base/text.h"
#include "train/trainer.h"

struct rig {
    struct dev *dev;
    struct board *board;
    struct feed *feed, *val_feed;
    struct trainer_config config;
    char dir[600];
};

static void rig_open(struct rig *r, enum dtype dtype, const char *name, int64_t steps)
{
    memset(r, 0, sizeof *r);
    struct feed_config feed = {.task = FEED_TASK_LM, .seq_tokens = 8, .global_samples = 4, .vocab = 40, .seed = 3};
    r->dev = open_device();
    kt_ok(board_create(1, 1, &r->board));
    kt_ok(feed_open(&feed, &r->feed));
    kt_ok(feed_open(&feed, &r->val_feed));
    board_worker_post(r->board, 0, &(struct board_worker){.pid = 1, .phase = BOARD_PHASE_LOADING, .loss = NAN, .checkpoint.step = -1});
    text_format(r->dir, sizeof r->dir, "%s/%s", harness_tmpdir(), name);
    r->config = (struct trainer_config){
        .dev = r->dev,
        .board = r->board,
        .dims = {.name = "tiny", .layers = 1, .heads = 2, .embed = 16, .context = 8, .vocab = 40},
        .model_path = "",
        .feed = r->feed,
        .val_feed = r->val_feed,
        .batch_samples = 2,
        .global_samples = 4,
        .seq_tokens = 8,
        .epochs = 1,
        .steps = steps,
        .optim = {.kind = OPTIM_KIND_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .grad_clip = 1},
        .rate = {.schedule = RATE_SCHEDULE_CONSTANT, .lr = 1e-2},
        .dtype = dtype,
        .dropout = 0.1f,
        .seed = 3,
        .checkpoint_dir = r->dir,
        .checkpoint_every = 1,
        .checkpoint_mode = SAVER_MODE_ON,
        .checkpoint_keep = 10,
        .eval_every = 2,
        .metrics_file = "",
        .settings_json = "{\"OPTIMIZER\":\"adamw\",\"moments\":2,\"SEED\":3}",
        .version = "test",
    };
}

static void rig_close(struct rig *r)
{
    feed_close(r->feed);
    feed_close(r->val_feed);
    board_close(r->board);
    dev_close(r->dev);
    assert_int_equal(runtime.pieces_n + runtime.events_n + runtime.streams_n, 0);
}

static struct board_worker last(const struct rig *r)
{
    struct board_worker post;
    assert_true(board_worker_copy(r->board, 0, &post));
    return post;
}

static void goes_on_from_a_checkpoint(void **state)
{
    (void)state;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        struct rig r;
        char whole[32], parts[32];
        text_format(whole, sizeof whole, "whole-%d", dtype);
        text_format(parts, sizeof parts, "parts-%d", dtype);
        rig_open(&r, (enum dtype)dtype, whole, 5);
        kt_ok(trainer_run(&r.config));
        struct board_worker want = last(&r);
        assert_int_equal(want.checkpoint.step, 5);
        rig_close(&r);
        for (int64_t steps = 2; steps <= 5; steps += 3) {
            rig_open(&r, (enum dtype)dtype, parts, steps);
            kt_ok(trainer_run(&r.config));
            assert_int_equal(last(&r).checkpoint.step, steps);
            if (steps == 5)
                assert_int_equal(last(&r).step_ms_n, 3);
            rig_close(&r);
        }
        rig_open(&r, (enum dtype)dtype, parts, 5);
        struct ckpt *a = NULL, *b = NULL;
        kt_ok(ckpt_open_newest(r.dir, NULL, &a));
        text_format(r.dir, sizeof r.dir, "%s/%s", harness_tmpdir(), whole);
        kt_ok(ckpt_open_newest(r.dir, NULL, &b));
        float x[640], y[640];
        for (int part = 0; part < 3; part++) {
            static const char *const names[] = {"model", "optim_m", "optim_v"};
            kt_ok(ckpt_range(a, names[part], "wte.weight", 0, 640, x));
            kt_ok(ckpt_range(b, names[part], "wte.weight", 0, 640, y));
            assert_memory_equal(x, y, sizeof x);
        }
        assert_int_equal(ckpt_meta(a)->loss_scale, dtype == DTYPE_F16 ? 65536 : 0);
        assert_int_equal(ckpt_meta(a)->loss_scale_steps, dtype == DTYPE_F16 ? 5 : 0);
        ckpt_close(a);
        ckpt_close(b);
        rig_close(&r);
    }
}

static void faults_reach_the_state(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, DTYPE_BF16, "clean", 2);
    kt_ok(trainer_run(&r.config));
    double clean = last(&r).loss;
    rig_close(&r);
    rig_open(&r, DTYPE_BF16, "flip", 2);
    r.config.fault = TRAINER_FAULT_FLIP;
    r.config.fault_step = 2;
    enum status st = trainer_run(&r.config);
    assert_true(st == ST_NOT_FINITE || last(&r).loss != clean);
    rig_close(&r);
    rig_open(&r, DTYPE_F16, "nan", 2);
    r.config.fault = TRAINER_FAULT_NAN;
    r.config.fault_step = 2;
    assert_int_equal(trainer_run(&r.config), ST_NOT_FINITE);
    rig_close(&r);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(goes_on_from_a_checkpoint), cmocka_unit_test(faults_reach_the_state)};
HARNESS_MAIN(tests)
#endif
