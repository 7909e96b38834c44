/* test_reduce_precision — gradients that travel as bf16: the same learning, the same bits for every
 * SHARD, and the planned memory. test_mesh_device counts their bytes. */
#include "mesh/trial.h"

static struct trial learner(void)
{
    struct trial like = trial_of(MODEL_TASK_LM, 4, 16);
    like.takes_state = false;
    like.learnable = true;
    like.lr = 2e-3;
    like.steps = 200;
    return like;
}

static double last_losses(const struct trial *t)
{
    double mean = 0;
    for (int i = t->steps - 20; i < t->steps; i++)
        mean += t->loss[i] / 20;
    return mean;
}

/* 200 steps end within 1 % of the loss without rounding; the losses are not the same bits. */
static void test_learns(void **state)
{
    (void)state;
    struct trial like = learner();
    struct trial want = trial_run(&like, 1, 2);
    like.config.store.reduce_dtype = DTYPE_BF16;
    struct trial got = trial_run(&like, 1, 2);
    print_message(
        "# loss %.4f to %.4f in 200 steps, %.4f as fp32; a step differs by at most %.1e\n",
        got.loss[0], last_losses(&got), last_losses(&want), trial_apart(&got, &want));
    assert_true(fabs(last_losses(&got) / last_losses(&want) - 1) < 0.01);
    assert_true(last_losses(&got) < 0.8 * got.loss[0]);
    assert_true(memcmp(got.loss, want.loss, sizeof got.loss) != 0);
}

/* With rows exchanged (short samples) and not, with and without accumulation. */
static void test_shards(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        struct trial like = trial_of(MODEL_TASK_LM, 12, form & 1 ? 90 : 8);
        like.config.store.reduce_dtype = DTYPE_BF16;
        like.config.store.bucket_elems_min = form & 2 ? 0 : 1;
        like.config.batch_samples = form & 2 ? 1 : 4;
        like.steps = 4;
        struct trial want = trial_run(&like, 1, 3);
        for (int shard = LAYOUT_SHARD_OPTIMIZER; shard <= LAYOUT_SHARD_FULL; shard++) {
            like.config.store.shard = (enum layout_shard)shard;
            struct trial got = trial_run(&like, 1, 3);
            trial_same(&got, &want, "bf16");
            trial_free(&got);
        }
        trial_free(&want);
    }
}

/* One rank sends nothing and rounds nothing. */
static void test_alone(void **state)
{
    (void)state;
    struct trial like = trial_of(MODEL_TASK_LM, 4, 8);
    like.steps = 4;
    struct trial want = trial_run(&like, 1, 1);
    like.config.store.reduce_dtype = DTYPE_BF16;
    struct trial got = trial_run(&like, 1, 1);
    trial_same(&got, &want, "alone");
    assert_int_equal(got.memory.store.unsharded, want.memory.store.unsharded);
    trial_free(&got);
    trial_free(&want);
}

/* The rounded copy is planned: two bytes for each gradient that a rank holds or buffers. step_open
 * asserts that what is planned is what is taken. */
static void test_memory(void **state)
{
    (void)state;
    struct trial like = trial_of(MODEL_TASK_LM, 4, 8);
    like.steps = 1;
    like.takes_state = false;
    struct trial wide = trial_run(&like, 1, 2);
    like.config.store.reduce_dtype = DTYPE_BF16;
    struct trial narrow = trial_run(&like, 1, 2);
    assert_int_equal(narrow.memory.store.unsharded - wide.memory.store.unsharded,
                     wide.memory.store.grads / 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_learns), cmocka_unit_test(test_shards), cmocka_unit_test(test_alone),
    cmocka_unit_test(test_memory)};
HARNESS_MAIN(tests)
