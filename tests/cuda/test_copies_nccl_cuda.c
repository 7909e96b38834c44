/* Copies in peers' memory of a state that lies on the CUDA device without a GPU, with streams that
 * run at the same time (streams.h), CUDA graphs and the tests' own NCCL: a rank ends in the middle
 * of a step, a node loses its memory, and the job goes on to the bits of a run that was never
 * disturbed, in every PRECISION, the loss scale of fp16 included. */
#define GUARDED_STREAMS
#include "kernel_test.h"

#include "mesh/device_copies.h"
#include "tests/cuda/rank_devices.h"

static struct job job_of(enum layout_shard shard, enum dtype dtype, int every)
{
    struct job job = copies_job_of(shard);
    struct trial *t = &job.trial;
    t->config.store.dtype = dtype;
    t->config.global_samples = 4;
    t->config.batch_samples = 1;
    t->config.seq_tokens = 3;
    t->config.dims.layers = 2;
    t->config.dims.heads = 1;
    t->config.dims.embed = 8;
    t->config.dims.context = 4;
    t->config.dims.vocab = 11;
    job.every = every;
    return job;
}

static const int units[] = {COPIES_LAST_UNIT, 1, 0, COPIES_AFTER_UNIT_0};

TEST(every_shard_and_precision)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            const struct job like = job_of((enum layout_shard)shard, (enum dtype)dtype, 1);
            const int i = shard + dtype;
            device_copies_heal(&like, i % 3 == 1 ? PATH_STAGED : PATH_NCCL, 2, 1 + i % 2,
                               units[i % 4], i % 3 > 0);
        }
}

/* A scale at which gradients overflow: the next step is repeated until they do not. */
static atomic_int repeated_n;
static void enlarge_scale(struct step *step, int64_t steps)
{
    if (steps == 3 && step_loss_scale(step).factor < STEP_LOSS_SCALE_MAX)
        atomic_fetch_add(&repeated_n, 1);
    if (steps == 2 || steps == 4)
        step_loss_scale_set(step, (struct step_loss_scale){STEP_LOSS_SCALE_MAX, 0});
}

TEST(repeated_steps)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL) {
        struct job like = job_of((enum layout_shard)shard, DTYPE_F16, 1);
        like.end_step = enlarge_scale;
        device_copies_heal(&like, PATH_NCCL, 2, 1, 0, true);
        device_copies_heal(&like, PATH_NCCL, 2, 1, COPIES_AFTER_UNIT_0, false);
    }
    assert_true(atomic_load(&repeated_n) > 0);
}

TEST(every_third)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        const struct job like = job_of(LAYOUT_SHARD_FULL, (enum dtype)dtype, 3);
        device_copies_heal(&like, PATH_NCCL, 2, 1, units[dtype], true);
    }
}

int main(void)
{
    static char path[700];
    harness_quiet();
    streams_begin();
    device_copies_dev = rank_device;
    for (int rank = 0; rank < 4; rank++)
        open_once(rank_device(rank)); /* which leads to another folder */
    text_format(path, sizeof path, "%s", here("/nccl"));
    library_dir(path);
    struct fake_nccl *knobs = fake_nccl_find(path);
    knobs->base = knobs->alias = streams.space;
    knobs->bytes = STREAMS_SPACE;
    return harness_run_all(__FILE__, NULL, NULL);
}
