/* The trainer over the CUDA device without a GPU (guarded.h): checkpoints of a state that the host
 * cannot read, written during training and at its end, and read back; a resumed run gives the same
 * numbers, loss scale included; faults that touch the state; samples of text. */
#include "kernel_test.h"
#include "tests/cuda/guarded.h"
#include "rig.h"

/* of the rig's model: embeddings, a block, the last norm */
#define PARAMETERS (40 * 16 + 8 * 16 + 12 * 16 * 16 + 13 * 16 + 2 * 16)

static void open_rig(struct rig *r, enum dtype dtype, const char *name, int64_t steps)
{
    rig_open(r, open_device(), name, steps);
    rig_feed(&r->val_feed);
    r->config.val_feed = r->val_feed;
    r->config.eval_every = 2;
    r->config.step.store.dtype = dtype;
    r->config.step.dropout = 0.1f;
    r->config.checkpoint_every = 1;
    r->config.checkpoint_mode = CHECKPOINT_ASYNC_MODE_ON;
}

static void close_rig(struct rig *r)
{
    rig_close(r);
    assert_int_equal(runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

TEST(resumes_from_a_checkpoint)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        struct rig r;
        char whole[32], resumed[32];
        text_format(whole, sizeof whole, "whole-%d", dtype);
        text_format(resumed, sizeof resumed, "parts-%d", dtype);
        open_rig(&r, (enum dtype)dtype, whole, 5);
        kt_ok(trainer_run(&r.config));
        struct board_worker want = rig_last(&r);
        assert_int_equal(want.checkpoint.step, 5);
        close_rig(&r);
        for (int64_t steps = 2; steps <= 5; steps += 3) {
            open_rig(&r, (enum dtype)dtype, resumed, steps);
            kt_ok(trainer_run(&r.config));
            assert_int_equal(rig_last(&r).checkpoint.step, steps);
            if (steps == 5)
                assert_int_equal(rig_last(&r).step_ms_n, 3);
            close_rig(&r);
        }
        open_rig(&r, (enum dtype)dtype, resumed, 5);
        struct ckpt *a = NULL, *b = NULL;
        kt_ok(ckpt_open_newest(r.dir, NULL, &a));
        text_format(r.dir, sizeof r.dir, "%s/%s", harness_tmpdir(), whole);
        kt_ok(ckpt_open_newest(r.dir, NULL, &b));
        float x[640], y[640];
        for (int array = 0; array < 3; array++) {
            static const char *const names[] = {"model", "optim_m", "optim_v"};
            kt_ok(ckpt_range(a, names[array], "wte.weight", 0, 640, x));
            kt_ok(ckpt_range(b, names[array], "wte.weight", 0, 640, y));
            assert_memory_equal(x, y, sizeof x);
        }
        assert_int_equal(ckpt_meta(a)->loss_scale, dtype == DTYPE_F16 ? 65536 : 0);
        assert_int_equal(ckpt_meta(a)->loss_scale_steps, dtype == DTYPE_F16 ? 5 : 0);
        ckpt_close(a);
        ckpt_close(b);
        close_rig(&r);
    }
}

/* A GPU has rows of zeros behind the vocabulary, files and CPUs have none: a CPU goes on from a
 * GPU's checkpoint, and a GPU from the CPU's. */
TEST(a_cpu_and_a_gpu_read_each_others_checkpoints)
{
    for (int64_t steps = 1; steps <= 3; steps++) {
        struct dev *dev = NULL;
        struct rig r;
        struct ckpt *ckpt = NULL;
        if (steps == 2)
            kt_ok(dev_cpu_open(1, CPU_ISA_N, &dev));
        rig_open(&r, dev ? dev : open_device(), "each", steps);
        r.config.checkpoint_every = 1;
        kt_ok(trainer_run(&r.config));
        assert_int_equal(rig_last(&r).step_ms_n, 1);
        assert_int_equal(rig_last(&r).model.parameters, PARAMETERS);
        kt_ok(ckpt_open_newest(r.dir, NULL, &ckpt));
        assert_int_equal(ckpt_meta(ckpt)->step, steps);
        ckpt_close(ckpt);
        rig_close(&r);
    }
}

/* The share of the chip's peak, of the precision in use; of a chip that is unknown, as in the other
 * tests, it is so, too. */
TEST(mfu_of_a_known_chip)
{
    double mfu[2], per_second[2];
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        struct rig r;
        runtime.sm_count = 132;
        rig_open(&r, open_device(), NULL, 2);
        r.config.step.store.dtype = (enum dtype)dtype;
        kt_ok(trainer_run(&r.config));
        mfu[dtype] = rig_last(&r).mfu;
        per_second[dtype] = rig_last(&r).tokens_per_second;
        close_rig(&r);
        runtime.sm_count = 4;
    }
    assert_true(mfu[0] > 0 && mfu[1] > 0);
    assert_true(fabs(mfu[0] / per_second[0] * 66.9 / (mfu[1] / per_second[1] * 989.4) - 1) < 1e-6);
}

/* SENTINEL_EVERY, with evaluations and checkpoints between updates: nothing is found, and the
 * numbers equal a run without it. */
TEST(updates_that_are_checked)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        double loss[2];
        for (int every = 0; every < 2; every++) {
            struct rig r;
            char name[32];
            text_format(name, sizeof name, "checked-%d-%d", dtype, every);
            for (int64_t steps = 3; steps <= 6; steps += 3) { /* the second one resumes */
                open_rig(&r, (enum dtype)dtype, name, steps);
                r.config.step.sentinel_every = every;
                kt_ok(trainer_run(&r.config));
                loss[every] = rig_last(&r).loss;
                close_rig(&r);
            }
        }
        assert_true(isfinite(loss[0]) && loss[0] == loss[1]);
    }
}

TEST(faults_reach_the_state)
{
    struct rig r;
    open_rig(&r, DTYPE_BF16, "clean", 2);
    kt_ok(trainer_run(&r.config));
    double clean = rig_last(&r).loss;
    assert_true(isnan(rig_last(&r).mfu));
    close_rig(&r);
    open_rig(&r, DTYPE_BF16, "flip", 2);
    /* so the step that is flipped begins with weights that are rounded already */
    r.config.eval_every = 1;
    r.config.fault = TRAINER_FAULT_FLIP;
    r.config.fault_step = 2;
    enum status st = trainer_run(&r.config);
    assert_true(st == ST_NOT_FINITE || rig_last(&r).loss != clean);
    close_rig(&r);
    open_rig(&r, DTYPE_F16, "nan", 2);
    r.config.fault = TRAINER_FAULT_NAN;
    r.config.fault_step = 2;
    assert_int_equal(trainer_run(&r.config), ST_NOT_FINITE);
    close_rig(&r);
}

HARNESS_RUN_ALL()
