/* test_mesh_device — the same training where gradients and parameters lie in a device's own memory
 * (fake_device.h): with transports of host memory, and with the tests' own NCCL. Copies run as late
 * as they may, so code that relies on an unfinished copy fails. */
#include "mesh/trial.h"

#include "comm/fake_device.h"
#include "mesh/mixed.h"
#include "dev/library.h"
#include "train/step_inside.h" /* is_async */

static struct dev *fake_device_devs[RANKS_MAX];
static struct dev *fake_device_dev(int rank)
{
    if (!fake_device_devs[rank]) {
        assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &fake_device_devs[rank]), ST_OK);
        fake_device_wrap(fake_device_devs[rank]);
    }
    return fake_device_devs[rank];
}

static char addresses[RANKS_MAX][COMM_ADDRESS_MAX];
static int64_t addresses_bytes[RANKS_MAX];
static pthread_barrier_t apart;
static enum status open_nccl(struct ranks_one *one, struct comm_config config)
{
    config.kind = COMM_KIND_NCCL;
    enum status st =
        comm_begin_open(&config, &one->comm, addresses[one->rank], &addresses_bytes[one->rank]);
    pthread_barrier_wait(&apart);
    return st == ST_OK ? comm_end_open(one->comm, 1, addresses, addresses_bytes) : st;
}

static void choose(int how)
{
    ranks_own_dev = how == 0 ? NULL : fake_device_dev;
    ranks_own_open = how == 2 ? open_nccl : NULL;
}

static struct trial run_on(const struct trial *like, int ranks, int how)
{
    choose(how);
    pthread_barrier_init(&apart, NULL, (unsigned)ranks);
    struct trial got = trial_run(like, 1, ranks);
    pthread_barrier_destroy(&apart);
    return got;
}

/* Long samples: sparse_rows are not exchanged, so the same numbers are added in the same order. */
static void same_bits(enum grad_compress_kind compress, enum dtype reduce, int64_t batch_samples)
{
    static const char *const how_name[] = {"host", "device over host memory", "device over NCCL"};
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct trial like = trial_of(MODEL_TASK_LM, 6, 90);
        like.steps = 3;
        like.config.store.shard = (enum layout_shard)shard;
        like.config.store.compress = compress;
        like.config.store.reduce_dtype = reduce;
        like.config.batch_samples = batch_samples;
        struct trial want = run_on(&like, 3, 0);
        for (int how = 1; how <= 2; how++) {
            char name[96];
            struct trial got = run_on(&like, 3, how);
            text_format(name, sizeof name, "%s, shard %d, compress %d", how_name[how], shard,
                        (int)compress);
            trial_same(&got, &want, name);
            trial_free(&got);
        }
        trial_free(&want);
    }
}
static void plain(void **state) { (void)state, same_bits(GRAD_COMPRESS_KIND_NONE, DTYPE_F32, 2); }
static void accumulated(void **state)
{
    (void)state, same_bits(GRAD_COMPRESS_KIND_NONE, DTYPE_F32, 1);
}
static void compressed(void **state)
{
    (void)state;
    same_bits(GRAD_COMPRESS_KIND_BF16, DTYPE_F32, 2);
    same_bits(GRAD_COMPRESS_KIND_INT8, DTYPE_F32, 1);
}

static void rounded(void **state)
{
    (void)state;
    same_bits(GRAD_COMPRESS_KIND_NONE, DTYPE_BF16, 2);
    same_bits(GRAD_COMPRESS_KIND_NONE, DTYPE_BF16, 1);
}

/* Short samples: sparse_rows are exchanged in host memory only, so the order of sums differs. */
static void sparse_rows(void **state)
{
    (void)state;
    struct trial like = trial_of(MODEL_TASK_LM, 12, 17);
    like.steps = 10;
    like.lr = 3e-4;
    like.takes_state = false;
    struct trial want = run_on(&like, 2, 0), got = run_on(&like, 2, 1), over = run_on(&like, 2, 2);
    assert_true(trial_apart(&got, &want) < 2e-6);
    trial_same(&over, &got, "over NCCL");
}

/* A 16-bit compute copy: current (mixed.h), and half the bytes are sent. NCCL counts a share of
 * each whole bucket, so two or four ranks, for which shares are whole numbers. */
static void half_the_bytes(void **state)
{
    (void)state;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            int64_t sent[DTYPE_F16 + 1] = {0};
            for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
                struct mixed like = {.shard = (enum layout_shard)shard,
                                     .dtype = (enum dtype)dtype,
                                     .bucket_elems_min = 1};
                choose(1);
                if (dtype == DTYPE_BF16 && ranks == 2)
                    mixed_run(&like, 3);
                choose(2);
                pthread_barrier_init(&apart, NULL, (unsigned)ranks);
                sent[dtype] = mixed_run(&like, ranks).gathered_bytes;
                pthread_barrier_destroy(&apart);
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

static int64_t sent(enum layout_shard shard, enum dtype reduce_dtype, int ranks)
{
    struct mixed like = {.shard = shard, .reduce_dtype = reduce_dtype, .bucket_elems_min = 1};
    choose(2);
    pthread_barrier_init(&apart, NULL, (unsigned)ranks);
    int64_t bytes = mixed_run(&like, ranks).sent_bytes;
    pthread_barrier_destroy(&apart);
    return bytes;
}

/* REDUCE_PRECISION=bf16. A rank sends (ranks-1)/ranks of all elements in a reduce-scatter, and as
 * many in the all-gather of SHARD=none: two bytes of four less for each. */
static void rounded_bytes(void **state)
{
    (void)state;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            struct param_table t;
            assert_int_equal(model_ops(&mixed_dims)->describe(&mixed_dims, &t), ST_OK);
            layout_pad(&t, ranks);
            int64_t wide = sent((enum layout_shard)shard, DTYPE_F32, ranks),
                    narrow = sent((enum layout_shard)shard, DTYPE_BF16, ranks),
                    each = 2 * t.total_elems / ranks * (ranks - 1);
            /* all_gathers follow each step but the last, which is counted before them */
            int times = MIXED_STEPS + (shard == LAYOUT_SHARD_NONE ? MIXED_STEPS - 1 : 0);
            print_message("# shard %d, %d ranks: %lld bytes with gradients as fp32, %lld as bf16\n",
                          shard, ranks, (long long)wide, (long long)narrow);
            assert_int_equal(wide - narrow, times * each);
            param_table_free(&t);
        }
}

/* ---- the device of every rank decides on the update ---- */

/* One rank has a gradient that is not finite: no rank changes anything, whatever is held in parts,
 * and training goes on with the same bits as where the hosts decide. */
static void not_finite_on_one_rank(void **state)
{
    (void)state;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        char name[64];
        struct trial like = trial_of(MODEL_TASK_LM, 6, 90);
        like.steps = 4;
        like.config.store.shard = (enum layout_shard)shard;
        like.config.batch_samples = 1 + shard % 2;
        like.nan_step = 1;
        like.nan_rank = 2;
        struct trial want = run_on(&like, 3, 1), got = run_on(&like, 3, 2);
        text_format(name, sizeof name, "not finite, shard %d", shard);
        assert_true(isnan(want.loss[1]) && isnan(got.loss[1]) && isfinite(got.loss[3]));
        trial_same(&got, &want, name);
        trial_free(&got);
        trial_free(&want);
    }
}

struct voting {
    struct trial trial;
    struct step_result result[3];
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
    v->is_async = step->is_async;
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

static void votes_of_ranks(void **state)
{
    (void)state;
    static struct voting all[2][3];
    for (int how = 1; how <= 2; how++) {
        for (int rank = 0; rank < 3; rank++)
            all[how - 1][rank] = (struct voting){.trial = trial_of(MODEL_TASK_LM, 6, 90)};
        choose(how);
        pthread_barrier_init(&apart, NULL, 3);
        ranks_run(1, 3, vote_rank, all[how - 1], sizeof all[0][0]);
        pthread_barrier_destroy(&apart);
    }
    for (int rank = 0; rank < 3; rank++) {
        const struct voting *host = &all[0][rank], *device = &all[1][rank];
        assert_true(!host->is_async && device->is_async);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(device->result[i].vote, i == 1 ? 4 : 0);
            assert_true(device->result[i].loss == host->result[i].loss &&
                        device->result[i].grad_norm == host->result[i].grad_norm);
        }
    }
}

static void use_fake(void)
{
    char path[700];
    ssize_t n = readlink("/proc/self/exe", path, 512);
    path[n > 0 ? n : 0] = 0;
    strcpy(strstr(path, "/mesh/"), "/comm/nccl");
    library_dir(path);
    struct fake_nccl *knobs = fake_nccl_find(path);
    knobs->base = fake_device.base;
    knobs->alias = fake_device.alias;
    knobs->bytes = FAKE_DEVICE_BYTES;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),          cmocka_unit_test(accumulated),
        cmocka_unit_test(compressed),     cmocka_unit_test(sparse_rows),
        cmocka_unit_test(half_the_bytes), cmocka_unit_test(not_finite_on_one_rank),
        cmocka_unit_test(votes_of_ranks), cmocka_unit_test(rounded),
        cmocka_unit_test(rounded_bytes)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    fake_device_map(true);
    use_fake();
    int failed = cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
    for (int i = 0; i < RANKS_MAX; i++)
        if (fake_device_devs[i]) {
            fake_device_unwrap(fake_device_devs[i]);
            dev_close(fake_device_devs[i]);
        }
    return failed;
}
