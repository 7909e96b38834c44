/* test_mesh_resume — saving and loading with another number of ranks or another SHARD, gradients
 * that are not finite, lost ranks, refused samples, memory, learning with compression. */
#include "mesh/trial.h"

/* Saves a run and loads it with other ranks and another SHARD. */
static void resume(enum layout_shard from, int from_ranks, enum layout_shard to, int to_ranks)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, 11), next;
    like.config.dropout = 0.1f;
    like.lr = 3e-4;
    like.config.store.shard = from;
    next = like;
    next.config.store.shard = to;
    trial_resume(like, from_ranks, next, to_ranks, from_ranks == to_ranks);
}

TEST(test_resume)
{
    resume(LAYOUT_SHARD_FULL, 4, LAYOUT_SHARD_NONE, 1);
    resume(LAYOUT_SHARD_NONE, 1, LAYOUT_SHARD_FULL, 3);
    resume(LAYOUT_SHARD_FULL, 3, LAYOUT_SHARD_GRADIENTS, 2);
    resume(LAYOUT_SHARD_OPTIMIZER, 2, LAYOUT_SHARD_FULL, 4);
    resume(LAYOUT_SHARD_FULL, 3, LAYOUT_SHARD_FULL, 3);
    resume(LAYOUT_SHARD_GRADIENTS, 2, LAYOUT_SHARD_NONE, 2);
}

/* Forms of gradients. apart: how far the loss may be from that without compression after 200
 * steps. */
static const struct form {
    enum grad_compress_kind kind;
    double apart;
} forms[] = {{GRAD_COMPRESS_KIND_NONE, 0},    {GRAD_COMPRESS_KIND_BF16, 0.01},
             {GRAD_COMPRESS_KIND_INT8, 0.01}, {GRAD_COMPRESS_KIND_INT8_ZSTD, 0.01},
             {GRAD_COMPRESS_KIND_INT4, 0.1},  {GRAD_COMPRESS_KIND_INT4_ZSTD, 0.1}};

/* A NaN on one rank: all ranks leave parameters as they were, report it, and go on alike. */
TEST(test_not_finite)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int f = 0; f < (int)(sizeof forms / sizeof *forms); f++) {
            struct trial like = trial_of(MODEL_TASK_LM, 6, 8);
            like.config.store.shard = (enum layout_shard)shard;
            like.config.store.compress = forms[f].kind;
            like.steps = 3;
            like.nan_step = 1;
            like.nan_rank = 2;
            struct trial got = trial_run(&like, 1, 3);
            assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]) && isfinite(got.loss[2]));
            for (int64_t i = 0; i < got.elems; i++)
                assert_true(isfinite(got.state[0][i]) && isfinite(got.state[1][i]) &&
                            isfinite(got.state[2][i]));
            trial_free(&got);
        }
}

/* A rank ends before step 2: the others get ST_PEER in that step, and close. */
TEST(test_lost_rank)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int compress = GRAD_COMPRESS_KIND_NONE; compress <= GRAD_COMPRESS_KIND_INT8;
             compress += GRAD_COMPRESS_KIND_INT8) {
            struct trial all[3];
            struct ranks_one one[RANKS_MAX];
            for (int rank = 0; rank < 3; rank++) {
                all[rank] = trial_of(MODEL_TASK_LM, 6, 8);
                all[rank].config.store.shard = (enum layout_shard)shard;
                all[rank].config.store.compress = (enum grad_compress_kind)compress;
                all[rank].steps = 4;
                all[rank].leave_step = 2;
                all[rank].leave_rank = 1;
            }
            ranks_try(1, 3, RANKS_TIMEOUT_MS, trial_rank, all, sizeof *all, one);
            for (int rank = 0; rank < 3; rank++) {
                if (one[rank].st != (rank == 1 ? ST_RETRY : ST_PEER) || all[rank].done > 2)
                    fail_msg("shard %d compress %d rank %d: %s after %d steps: %s", shard, compress,
                             rank, status_name(one[rank].st), all[rank].done, one[rank].message);
            }
        }
}

static enum status refuse(struct ranks_one *one)
{
    struct trial *t = one->arg;
    struct step *step = NULL;
    struct batch batch = {0};
    enum status st;
    t->config.dev = one->dev;
    t->config.comm = one->comm;
    TRY_OR(step_open(&t->config, &step), out_close);
    TRY_OR(batch_init(&batch, FEED_TASK_LM, t->config.global_samples / one->ranks,
                      t->config.seq_tokens),
           out_close);
    if (one->rank == 1)
        batch.host.tokens[3] = 211;
    st = step_run_batch(step, &batch, 0, 0, 1e-3, false, &t->last);
out_close:
    step_close(step);
    batch_free(&batch);
    return st;
}

TEST(test_refused_samples)
{
    struct trial all[2];
    struct ranks_one one[RANKS_MAX];
    all[0] = all[1] = trial_of(MODEL_TASK_LM, 2, 8);
    ranks_try(1, 2, RANKS_TIMEOUT_MS, refuse, all, sizeof *all, one);
    assert_int_equal(one[1].st, ST_BAD_DATA);
    /* refused samples or a lost rank, whichever comes first */
    assert_int_equal(one[0].st, ST_PEER);
}

/* Four ranks: each holds a quarter of what SHARD shards, and unsharded buffers. */
TEST(test_memory)
{
    struct trial like = trial_of(MODEL_TASK_LM, 4, 8);
    like.reads_state = false;
    like.steps = 1;
    like.config.dims.layers = 12;
    like.config.dims.embed = 64;
    like.config.dims.heads = 4;
    struct trial whole = trial_run(&like, 1, 1);
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        like.config.store.shard = (enum layout_shard)shard;
        struct trial part = trial_run(&like, 1, 4);
        const struct store_memory *w = &whole.memory.store, *p = &part.memory.store;
        print_message("# SHARD=%d, 4 ranks: parameters %lld of %lld, gradients %lld of %lld, "
                      "moments %lld of %lld, unsharded buffers %lld\n",
                      shard, (long long)p->params, (long long)w->params, (long long)p->grads,
                      (long long)w->grads, (long long)p->moments, (long long)w->moments,
                      (long long)p->unsharded);
        int64_t slack = 64 * (int64_t)sizeof(float) * 20; /* padding of each bucket */
        assert_true(p->params <= w->params / (shard == LAYOUT_SHARD_FULL ? 4 : 1) + slack);
        assert_true(p->grads <= w->grads / (shard >= LAYOUT_SHARD_GRADIENTS ? 4 : 1) + slack);
        assert_true(p->moments <= w->moments / (shard >= LAYOUT_SHARD_OPTIMIZER ? 4 : 1) + slack);
    }
}

/* COMPRESS=bf16: the rounded copy is planned, two bytes for each gradient that a rank holds or
 * buffers. step_open asserts that what is planned is what is taken. */
TEST(test_memory_rounded)
{
    struct trial like = trial_of(MODEL_TASK_LM, 4, 8);
    like.steps = 1;
    like.reads_state = false;
    struct trial wide = trial_run(&like, 1, 2);
    like.config.store.compress = GRAD_COMPRESS_KIND_BF16;
    struct trial narrow = trial_run(&like, 1, 2);
    assert_int_equal(narrow.memory.store.unsharded - wide.memory.store.unsharded,
                     wide.memory.store.grads / 2);
}

/* GPT-2 124M on four ranks, SHARD=full: a quarter of everything, and unsharded buffers of two
 * blocks and the embedding, which the head needs whole. From the layout alone; store/memory.c
 * asserts that the store takes the same. */
TEST(test_memory_planned)
{
    struct model_dims dims;
    struct param_table t;
    struct layout l;
    int64_t first, block, embed;
    assert_true(model_preset("gpt2", &dims));
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    layout_init(&t, 4, 1, 0, &l);
    param_unit_span(&t, 0, &first, &embed);
    param_unit_span(&t, 1, &first, &block);
    /* padding; the last norm is in a bucket with a block */
    int64_t all = t.total_elems, slack = 64 * l.buckets_n + 2 * dims.embed;
    print_message("# GPT-2 124M, SHARD=full, 4 ranks, MB: parameters, gradients and moments %.1f "
                  "of %.1f; unsharded buffers %.1f = 2 x (embedding %.1f + two blocks %.1f)\n",
                  16e-6 * (double)l.shard_elems, 16e-6 * (double)all, 8e-6 * (double)l.buffer_elems,
                  4e-6 * (double)embed, 8e-6 * (double)block);
    assert_true(l.shard_elems <= all / 4 + slack);
    assert_true(l.buffer_elems <= embed + 2 * block + slack);
    layout_free(&l);
    param_table_free(&t);
}

/* With compression a model learns as well. */
TEST(test_compressed_learns)
{
    struct trial like = trial_of(MODEL_TASK_LM, 4, 16);
    like.reads_state = false;
    like.learnable = true;
    like.lr = 2e-3;
    like.steps = 200;
    struct trial plain = trial_run(&like, 1, 2);
    double want = 0;
    for (int i = 180; i < 200; i++)
        want += plain.loss[i] / 20;
    for (int i = 1; i < (int)(sizeof forms / sizeof *forms); i++) {
        like.config.store.compress = forms[i].kind;
        struct trial got = trial_run(&like, 1, 2);
        double mean = 0;
        for (int k = 180; k < 200; k++)
            mean += got.loss[k] / 20;
        print_message("# compress %d: loss %.4f to %.4f in 200 steps, %.4f without\n",
                      (int)forms[i].kind, got.loss[0], mean, want);
        assert_true(memcmp(got.loss, plain.loss, sizeof got.loss) != 0);
        assert_true(fabs(mean / want - 1) < forms[i].apart);
        assert_true(mean < 0.8 * got.loss[0]);
    }
}

HARNESS_RUN_ALL()
