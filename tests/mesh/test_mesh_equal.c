/* test_mesh_equal — training does not depend on the number of ranks, but for the rounding of sums,
 * and not on SHARD at all. */
#include "mesh/trial.h"

#include "architectures.h"

static const char *const shard_name[] = {"none", "optimizer", "gradients", "full"};

/* The losses of 1, 2, 3 and 4 ranks on the same global batch. */
static void equal_losses(struct trial like, const char *what)
{
    like.steps = 20;
    like.reads_state = false;
    struct trial alone = trial_run(&like, 1, 1);
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL;
             shard += LAYOUT_SHARD_FULL) {
            like.config.store.shard = (enum layout_shard)shard;
            struct trial many = trial_run(&like, 1, ranks);
            double apart = trial_apart(&many, &alone);
            print_message("# %s: %d ranks, SHARD=%s: losses of 20 steps differ by at most %.1e\n",
                          what, ranks, shard_name[shard], apart);
            assert_true(apart < 2e-6);
        }
}

TEST(test_equal_lm)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, 17);
    like.lr = 3e-4;
    equal_losses(like, "lm");
    like.config.dropout = 0.1f;
    equal_losses(like, "lm, dropout");
}

TEST(test_equal_qa)
{
    struct trial like = trial_of(MODEL_TASK_QA, 12, 19);
    like.lr = 3e-4;
    like.config.dropout = 0.1f;
    equal_losses(like, "qa");
}

/* Five micro-batches: two ranks have 2 and 3 of them, three have 1, 2 and 2, four have 1, 1, 1 and
 * 2. The ranks with fewer only join the all-gathers of SHARD=full. */
TEST(test_equal_uneven)
{
    struct trial like = trial_of(MODEL_TASK_LM, 10, 17);
    like.lr = 3e-4;
    like.config.batch_samples = 2;
    like.config.dropout = 0.1f;
    equal_losses(like, "uneven");
    like = trial_of(MODEL_TASK_QA, 10, 19);
    like.lr = 3e-4;
    like.config.batch_samples = 2;
    equal_losses(like, "uneven, qa");
}

/* Every SHARD gives the same bits on the same ranks: with and without accumulation, with rows
 * exchanged (short samples) and not (long ones), with buckets of one unit and of all. */
static void same_bits(struct trial like, int nodes, int locals, const char *what)
{
    like.steps = 4;
    like.config.dropout = 0.1f;
    struct trial want = trial_run(&like, nodes, locals);
    for (int shard = LAYOUT_SHARD_OPTIMIZER; shard <= LAYOUT_SHARD_FULL; shard++) {
        like.config.store.shard = (enum layout_shard)shard;
        struct trial got = trial_run(&like, nodes, locals);
        char name[128];
        text_format(name, sizeof name, "%s, %d x %d ranks, SHARD=%s", what, nodes, locals,
                    shard_name[shard]);
        trial_same(&got, &want, name);
        trial_free(&got);
    }
    trial_free(&want);
}

static void all_bits(enum model_task task, enum grad_compress_kind compress)
{
    static const int forms[] = {0, 6, 3, 5};
    for (size_t i = 0; i < (grad_compress_quantises(compress) ? 2 : 4); i++) {
        int form = forms[i];
        struct trial like = trial_of(task, 12, form & 1 ? 90 : 8);
        like.config.store.compress = compress;
        like.config.store.bucket_elems_min = form & 2 ? 0 : 1;
        char what[64];
        text_format(what, sizeof what, "task %d form %d compress %d", (int)task, form,
                    (int)compress);
        like.config.batch_samples = form & 4 ? 1 : 4;
        same_bits(like, 1, 3, what);
        like.config.batch_samples = form & 4 ? 1 : 3;
        same_bits(like, 2, 2, what);
    }
    struct trial like = trial_of(task, 12, 8);
    same_bits(like, 1, 2, "two ranks");
    like.config.batch_samples = 3;
    same_bits(like, 1, 3, "4 micro-batches");
}

TEST(test_bits_lm) { (void)state, all_bits(MODEL_TASK_LM, GRAD_COMPRESS_KIND_NONE); }
TEST(test_bits_qa) { (void)state, all_bits(MODEL_TASK_QA, GRAD_COMPRESS_KIND_NONE); }
TEST(test_bits_bf16) { (void)state, all_bits(MODEL_TASK_LM, GRAD_COMPRESS_KIND_BF16); }
/* One rank sends nothing and rounds nothing. */
TEST(test_alone_bf16)
{
    struct trial like = trial_of(MODEL_TASK_LM, 4, 8);
    like.steps = 4;
    struct trial want = trial_run(&like, 1, 1);
    like.config.store.compress = GRAD_COMPRESS_KIND_BF16;
    struct trial got = trial_run(&like, 1, 1);
    trial_same(&got, &want, "alone");
    assert_int_equal(got.memory.store.unsharded, want.memory.store.unsharded);
    trial_free(&got);
    trial_free(&want);
}

TEST(test_bits_int8)
{
    all_bits(MODEL_TASK_LM, GRAD_COMPRESS_KIND_INT8);
    all_bits(MODEL_TASK_QA, GRAD_COMPRESS_KIND_INT8);
}

TEST(test_bits_few)
{
    all_bits(MODEL_TASK_LM, GRAD_COMPRESS_KIND_INT8_ZSTD);
    all_bits(MODEL_TASK_LM, GRAD_COMPRESS_KIND_INT4);
}

/* SGD has one moment, or none. */
TEST(test_bits_sgd)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, 8);
    like.config.optim.kind = OPTIM_KIND_SGD;
    same_bits(like, 1, 3, "sgd");
    like.config.optim.momentum = 0.9;
    same_bits(like, 1, 3, "sgd, momentum");
}

/* The other architectures: packed tensors, untied heads. Short samples exchange the embedding's
 * rows, which are all of its gradient where the head is untied. */
static struct trial trial_of_arch(int i, int64_t t)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, t);
    like.config.dims = architectures[i];
    like.config.dims.context = t + 3;
    like.config.dims.vocab = 211;
    return like;
}

TEST(test_bits_arch)
{
    for (int i = 0; i < ARCHITECTURES_N; i++)
        for (int form = 0; form < 2; form++) {
            struct trial like = trial_of_arch(i, i % 2 == form ? 8 : 90);
            like.config.batch_samples = form ? 1 : 4;
            like.config.store.bucket_elems_min = form;
            same_bits(like, 1, 3, architectures[i].name);
        }
}

TEST(test_equal_arch)
{
    for (int i = 0; i < ARCHITECTURES_N; i += 2) {
        struct trial like = trial_of_arch(i, 17);
        like.lr = 3e-4;
        equal_losses(like, architectures[i].name);
    }
}

HARNESS_RUN_ALL()
