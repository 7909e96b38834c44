/* test_mesh_device — the same training where gradients and parameters lie in a device's own memory
 * (fake_device.h): with transports of host memory, and with the tests' own NCCL. Copies run as late
 * as they may, so code that relies on an unfinished copy fails. */
#include "mesh/trial.h"

#include "comm/core/part.h"
#include "mesh/mixed.h"
#include "mesh/ways.h"
#include "train/step/inside.h" /* async */

static struct trial run_on(const struct trial *like, int ranks, enum way way)
{
    ways_choose(way, ranks);
    struct trial got = trial_run(like, 1, ranks);
    ways_done();
    return got;
}

/* Where ranks reduce or exchange over memory of a device, the same numbers are added in the same
 * order as over host memory. */
static void same_bits(struct trial like, const char *what)
{
    like.config.dims.vocab = 256; /* without rows of zeros on devices: the same table in both */
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        like.config.store.shard = (enum layout_shard)shard;
        struct trial want = run_on(&like, 3, WAY_HOST);
        for (int way = WAY_STAGED; way < WAY_N; way++) {
            char name[96];
            struct trial got = run_on(&like, 3, (enum way)way);
            text_format(name, sizeof name, "%s, %s, shard %d", what, way_name[way], shard);
            trial_same(&got, &want, name);
            assert_int_equal(got.memory.store.unsharded, want.memory.store.unsharded);
            trial_free(&got);
        }
        trial_free(&want);
    }
}

/* Long samples: the embedding's gradient is reduced as a whole. */
static void whole(enum grad_compress_kind compress, int64_t batch_samples)
{
    struct trial like = trial_of(MODEL_TASK_LM, 6, 90);
    like.steps = 3;
    like.config.store.compress = compress;
    like.config.batch_samples = batch_samples;
    same_bits(like, "whole");
}
TEST(plain) { (void)state, whole(GRAD_COMPRESS_KIND_NONE, 2); }
TEST(accumulated) { (void)state, whole(GRAD_COMPRESS_KIND_NONE, 1); }
TEST(quantised)
{
    whole(GRAD_COMPRESS_KIND_INT4, 2);
    whole(GRAD_COMPRESS_KIND_INT8, 1);
}

TEST(rounded)
{
    whole(GRAD_COMPRESS_KIND_BF16, 2);
    whole(GRAD_COMPRESS_KIND_BF16, 1);
}

static struct mixed mixed_on(const struct mixed *like, int ranks, enum way way)
{
    ways_choose(way, ranks);
    struct mixed got = mixed_run(like, ranks);
    ways_done();
    return got;
}

/* What each rank sends to each other rank in a step, whatever the dtypes: a number in each
 * direction of an all-reduce (mixed_counts). */
static const int64_t counts_bytes = 2 * 8;

/* A 16-bit compute copy: current (mixed.h), and half the bytes are sent. NCCL counts a share of
 * each whole bucket, so two or four ranks, for which shares are whole numbers. */
TEST(half_the_bytes)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            int64_t sent[DTYPE_F16 + 1] = {0};
            for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
                struct mixed like = {.shard = (enum layout_shard)shard,
                                     .dtype = (enum dtype)dtype,
                                     .bucket_elems_min = 1};
                if (dtype == DTYPE_BF16 && ranks == 2)
                    mixed_on(&like, 3, WAY_STAGED);
                sent[dtype] = mixed_on(&like, ranks, WAY_NCCL).gathered_bytes -
                              (MIXED_STEPS - 1) * (ranks - 1) * counts_bytes;
            }
            print_message(
                "# shard %d, %d ranks: %lld bytes gathered for f32, %lld for bf16, %lld for fp16\n",
                shard, ranks, (long long)sent[DTYPE_F32], (long long)sent[DTYPE_BF16],
                (long long)sent[DTYPE_F16]);
            assert_true(sent[DTYPE_F32] > 0 && sent[DTYPE_F16] == sent[DTYPE_BF16]);
            /* with none gradients are gathered, always f32 */
            int times = shard == LAYOUT_SHARD_NONE ? 1 : 2;
            assert_true(sent[DTYPE_F32] == times * sent[DTYPE_BF16]);
        }
}

static int64_t sent(enum layout_shard shard, enum grad_compress_kind compress, int ranks)
{
    struct mixed like = {.shard = shard, .compress = compress, .bucket_elems_min = 1};
    return mixed_on(&like, ranks, WAY_NCCL).sent_bytes;
}

/* Bytes that a rank sends because of gradients of `width` bytes. A reduce-scatter sends
 * (ranks-1)/ranks of all elements, and an all-gather as many. With SHARD=none gradients are
 * all-gathered after each step but the last, which is counted before. */
static int64_t sent_of_grads(enum layout_shard shard, int width, int ranks)
{
    struct param_table t;
    assert_int_equal(model_ops(&mixed_dims)->describe(&mixed_dims, &t), ST_OK);
    layout_pad(&t, ranks);
    int64_t elems = MIXED_STEPS * t.total_elems;
    if (shard == LAYOUT_SHARD_NONE)
        elems += (MIXED_STEPS - 1) * t.total_elems;
    param_table_free(&t);
    return (ranks - 1) * (elems / ranks * width);
}

/* COMPRESS=bf16: two bytes of four less for each element. Rows of tokens are not sent. */
TEST(rounded_bytes)
{
    for (int i = LAYOUT_SHARD_NONE; i <= LAYOUT_SHARD_FULL; i++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            enum layout_shard shard = (enum layout_shard)i;
            int64_t wide = sent(shard, GRAD_COMPRESS_KIND_NONE, ranks),
                    narrow = sent(shard, GRAD_COMPRESS_KIND_BF16, ranks);
            print_message("# shard %d, %d ranks: %lld bytes with gradients as fp32, %lld as bf16\n",
                          i, ranks, (long long)wide, (long long)narrow);
            assert_int_equal(wide - narrow,
                             sent_of_grads(shard, 4, ranks) - sent_of_grads(shard, 2, ranks));
        }
}

/* ---- the device of every rank decides on the update ---- */

/* One rank has a gradient that is not finite: no rank changes anything, whatever is held in parts,
 * and training goes on with the same bits as where the hosts decide. */
TEST(not_finite_on_one_rank)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        char name[64];
        struct trial like = trial_of(MODEL_TASK_LM, 6, 90);
        like.steps = 4;
        like.config.store.shard = (enum layout_shard)shard;
        like.config.batch_samples = 1 + shard % 2;
        like.nan_step = 1;
        like.nan_rank = 2;
        struct trial want = run_on(&like, 3, WAY_STAGED), got = run_on(&like, 3, WAY_NCCL);
        text_format(name, sizeof name, "not finite, shard %d", shard);
        assert_true(isnan(want.loss[1]) && isnan(got.loss[1]) && isfinite(got.loss[3]));
        trial_same(&got, &want, name);
        trial_free(&got);
        trial_free(&want);
    }
}

/* ---- NCCL's own memory ---- */

static atomic_int allocated_n, given_n;
static atomic_llong allocated_bytes;
static void *allocate_with_nccl(size_t bytes)
{
    void *data = NULL;
    atomic_fetch_add(&allocated_n, 1);
    atomic_fetch_add(&allocated_bytes, (long long)bytes);
    return fake_device_alloc(NULL, bytes, &data) == ST_OK ? data : NULL;
}
static void give_to_nccl(void *data)
{
    atomic_fetch_add(&given_n, 1);
    fake_device_free(NULL, data, 0);
}

/* NCCL may round each allocation up to 512 MiB, so a rank takes one for all that travels: as many
 * bytes as are planned for it, and what aligns its parts. The bits are those of ordinary memory. */
TEST(one_allocation)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct trial like = trial_of(MODEL_TASK_LM, 6, 90);
        like.steps = 2;
        like.config.store.shard = (enum layout_shard)shard;
        like.config.store.compress = GRAD_COMPRESS_KIND_BF16;
        struct trial want = run_on(&like, 3, WAY_NCCL);
        atomic_store(&allocated_n, 0), atomic_store(&given_n, 0), atomic_store(&allocated_bytes, 0);
        ways_nccl->mem_alloc = allocate_with_nccl, ways_nccl->mem_free = give_to_nccl;
        struct trial got = run_on(&like, 3, WAY_NCCL);
        ways_nccl->mem_alloc = NULL;
        assert_true(atomic_load(&allocated_n) == 3 && atomic_load(&given_n) == 3);
        const struct store_memory *m = &got.memory.store;
        int64_t masters = shard == LAYOUT_SHARD_NONE ? 0 : m->params, /* not gathered there */
            travel = masters + m->grads + m->unsharded;
        assert_in_range(atomic_load(&allocated_bytes), 3 * travel, 3 * (travel + 5 * 256));
        trial_same(&got, &want, "in NCCL's memory");
        trial_free(&got);
        trial_free(&want);
    }
}

struct voting {
    struct trial trial;
    struct step_result result[3];
    struct step_memory memory;
    bool is_async;
};

/* Rank 1 votes in the second of three steps. */
static enum status vote_rank(struct ranks_one *one)
{
    struct voting *v = one->arg;
    struct step_config *c = &v->trial.config;
    struct step *step = NULL;
    struct batch batch = {0};
    enum status st;
    c->dev = one->dev;
    c->comm = one->comm;
    TRY_OR(step_open(c, &step), out_close);
    TRY_OR(batch_init(&batch, FEED_TASK_LM, c->global_samples / one->ranks, c->seq_tokens),
           out_close);
    v->is_async = step->async.is_on;
    v->memory = step_memory(step);
    for (int i = 0; i < 3; i++) {
        for (int64_t row = 0; row < batch.samples; row++)
            trial_sample(&v->trial, i, one->rank * batch.samples + row, row, &batch);
        step_vote(step, one->rank == 1 && i == 1 ? 4 : 0);
        TRY_OR(step_run_batch(step, &batch, i, 0, 1e-2, false, &v->result[i]), out_close);
    }
out_close:
    step_close(step);
    batch_free(&batch);
    return st;
}

TEST(votes_of_ranks)
{
    static struct voting all[2][3];
    for (int how = WAY_STAGED; how <= WAY_NCCL; how++) {
        for (int rank = 0; rank < 3; rank++)
            all[how - 1][rank] = (struct voting){.trial = trial_of(MODEL_TASK_LM, 6, 90)};
        ways_choose((enum way)how, 3);
        ranks_run(1, 3, vote_rank, all[how - 1], sizeof all[0][0]);
        ways_done();
    }
    for (int rank = 0; rank < 3; rank++) {
        const struct voting *host = &all[0][rank], *device = &all[1][rank];
        assert_true(!host->is_async && device->is_async);
        /* What ranks report to each other is planned; step_open asserts that the plan is what is
         * taken. It is two samples' losses and a vote of each of three ranks, in whole parts, on
         * device and host. */
        int64_t t = device->trial.config.seq_tokens, losses = 2 * t,
                each = (losses + 1 + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
        assert_int_equal(host->memory.gathered, 0);
        assert_int_equal(host->memory.readback, 2 * (int64_t)sizeof(double) + 4 * losses);
        assert_int_equal(device->memory.gathered, 3 * each * 4);
        assert_int_equal(device->memory.readback - host->memory.readback, device->memory.gathered);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(device->result[i].vote, i == 1 ? 4 : 0);
            assert_true(device->result[i].loss == host->result[i].loss &&
                        device->result[i].grad_norm == host->result[i].grad_norm);
        }
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
