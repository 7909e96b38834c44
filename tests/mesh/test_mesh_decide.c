/* test_mesh_decide — the device of every rank decides on the update over the tests' own NCCL: a
 * loss scale that overflows, as in fp16, and SHARD=hybrid, whose norm has two levels. */
#include "mesh/trial.h"

#include "mesh/ways.h"
#include "train/step/inside.h" /* loss_scale, async */

/* ---- a loss scale, as of fp16 ---- */

struct scaled {
    struct trial trial;
    struct step_result result[3];
    struct step_loss_scale scale[3];
    float *state;
    int64_t elems;
    bool is_async;
};

/* Only ranks 0 and 1 have targets: rank 2's gradients are 0 under every scale. The passes compute
 * in fp32, so the scale that overflows is larger than fp16's. */
#define SCALE_TOO_LARGE 0x1p134
static enum status scaled_steps(struct ranks_one *one, struct scaled *x, struct step *step,
                                struct batch *batch)
{
    for (int i = 0; i < 3; i++) {
        for (int64_t row = 0; row < batch->samples; row++)
            trial_sample(&x->trial, i, one->rank * batch->samples + row, row, batch);
        for (int64_t k = 0; one->rank == 2 && k < batch->samples * batch->seq_tokens; k++)
            batch->host.targets[k] = -1;
        if (i != 1) /* the second step goes on with what the first has found */
            step->loss_scale = (struct step_loss_scale){SCALE_TOO_LARGE, 0};
        TRY(step_run_batch(step, batch, i, 0, 1e-2, false, &x->result[i]));
        x->scale[i] = step_loss_scale(step);
    }
    if (one->rank != 0)
        return state_serve(step_state(step));
    x->elems = step_whole_table(step)->param[0].elems;
    x->state = calloc((size_t)x->elems, sizeof *x->state);
    return state_end(step_state(step), state_read(step_state(step), 0, 0, x->elems, x->state));
}

static enum status scaled_rank(struct ranks_one *one)
{
    struct scaled *x = one->arg;
    struct step_config *c = &x->trial.config;
    struct step *step = NULL;
    struct batch batch = {0};
    enum status st;
    c->dev = one->dev;
    c->comm = one->comm;
    TRY_OR(step_open(c, &step), out_close);
    TRY_OR(batch_init(&batch, FEED_TASK_LM, c->global_samples / one->ranks, c->seq_tokens),
           out_close);
    x->is_async = step->async.is_on;
    TRY_OR(scaled_steps(one, x, step, &batch), out_close);
out_close:
    step_close(step);
    batch_free(&batch);
    return st;
}

static void scaled_run(struct scaled x[3], int shard, enum way way)
{
    for (int rank = 0; rank < 3; rank++) {
        x[rank] = (struct scaled){.trial = trial_of(MODEL_TASK_LM, 6, 90)};
        x[rank].trial.config.store.shard = (enum layout_shard)shard;
        x[rank].trial.config.batch_samples = 1 + shard % 2;
    }
    ways_choose(way, 3);
    ranks_run(1, 3, scaled_rank, x, sizeof *x);
    ways_done();
}

/* Gradients of two ranks overflow. All ranks repeat the step alike until none does, whoever
 * decides, and training goes on with the same bits. */
TEST(an_overflow_is_repeated_alike)
{
    static struct scaled host[3], device[3];
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        scaled_run(host, shard, WAY_STAGED);
        scaled_run(device, shard, WAY_NCCL);
        print_message("# shard %d: a step repeated %d times, scale 2^%.0f\n", shard,
                      device->result[0].retries, log2(device->scale[0].factor));
        assert_true(device->result[0].retries > 0 && device->result[1].retries == 0 &&
                    device->result[2].retries > 0);
        for (int rank = 0; rank < 3; rank++) {
            assert_true(!host[rank].is_async && device[rank].is_async);
            for (int i = 0; i < 3; i++) {
                assert_true(device[rank].result[i].loss == host[0].result[i].loss &&
                            isfinite(device[rank].result[i].loss));
                assert_true(device[rank].result[i].grad_norm == host[0].result[i].grad_norm);
                assert_int_equal(device[rank].result[i].retries, host[0].result[i].retries);
                assert_true(device[rank].scale[i].factor == host[0].scale[i].factor);
                assert_int_equal(device[rank].scale[i].steps, host[0].scale[i].steps);
            }
        }
        assert_memory_equal(device->state, host->state, (size_t)host->elems * sizeof(float));
        free(device->state), free(host->state);
    }
}

/* ---- SHARD=hybrid ---- */

/* Two nodes of two ranks. Each rank's device decides with the norm of both levels: the losses and
 * norms are those of hosts that decide within rounding, and the same bits each time. A gradient
 * that is not finite on one rank changes nothing on any. */
TEST(hybrid_decides_alike)
{
    for (int64_t batch = 1; batch <= 2; batch++) {
        struct trial got[3], like = trial_of(MODEL_TASK_LM, 8, 30);
        like.steps = 4;
        like.config.batch_samples = batch;
        like.config.store.shard = LAYOUT_SHARD_HYBRID;
        like.config.store.group_ranks = 2;
        like.nan_step = 2;
        like.nan_rank = 3;
        for (int i = 0; i < 3; i++) {
            ways_choose(i == 0 ? WAY_STAGED : WAY_NCCL, 4);
            got[i] = trial_run(&like, 2, 2);
            ways_done();
        }
        trial_same(&got[2], &got[1], "hybrid over NCCL, again");
        assert_true(isnan(got[0].loss[2]) && isnan(got[1].loss[2]));
        for (int i = 0; i < 4; i++) {
            assert_true(i == 2 || fabs(got[1].loss[i] / got[0].loss[i] - 1) <= 1e-6);
            assert_true(i == 2 || fabs(got[1].norm[i] / got[0].norm[i] - 1) <= 1e-6);
        }
        for (int i = 0; i < 3; i++)
            trial_free(&got[i]);
    }
}

int main(void)
{
    harness_quiet();
    ways_begin();
    int failed = harness_run_all(__FILE__, NULL, NULL);
    ways_end();
    return failed;
}
