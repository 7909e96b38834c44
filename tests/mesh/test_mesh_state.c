/* test_mesh_state — the state of a model that one mesh holds, another takes over: the same bits on
 * every rank, whatever is cut, staged or sharded. */
#include "mesh/state.h"

#include "mesh/ranks.h"

#include "mesh/mesh_comm.h"
#include "mesh/part_map.h"
#include "mesh/pipe/split.h"
#include "mesh/store/state.h"

#define ARRAYS 3
#define MODEL_SHARDS_MAX 8

/* A mesh, and how its ranks hold the model. */
struct layouts {
    const char *name;
    int tensor, stages, chunks, data;
    enum layout_shard shard;
};
static const struct layouts meshes[] = {
    {"1", 1, 1, 1, 1, LAYOUT_SHARD_NONE},
    {"DP2", 1, 1, 1, 2, LAYOUT_SHARD_NONE},
    {"DP3 full", 1, 1, 1, 3, LAYOUT_SHARD_FULL},
    {"TP2", 2, 1, 1, 1, LAYOUT_SHARD_NONE},
    {"TP4", 4, 1, 1, 1, LAYOUT_SHARD_FULL},
    {"TP2 DP2 full", 2, 1, 1, 2, LAYOUT_SHARD_FULL},
    {"PP2", 1, 2, 1, 1, LAYOUT_SHARD_NONE},
    {"PP4 chunks 2", 1, 4, 2, 1, LAYOUT_SHARD_NONE},
    {"PP2 TP2", 2, 2, 1, 1, LAYOUT_SHARD_NONE},
    {"PP2 TP2 DP2 optimizer", 2, 2, 2, 2, LAYOUT_SHARD_OPTIMIZER},
};
#define MESHES ((int)(sizeof meshes / sizeof *meshes))

enum work {
    WORK_SAVE, /* every rank has its own state; rank 0 reads it */
    WORK_LOAD, /* rank 0 writes; every rank has its own */
    WORK_FAIL  /* rank 0 ends with a failure */
};

/* What a rank is asked, and what it made. */
struct job {
    const struct layouts *like;
    const struct model_dims *dims;
    enum work work;
    int64_t each;         /* elements of a range */
    float *state[ARRAYS]; /* rank 0: all tensors of the whole model, one behind the other */
    int64_t checked;
    enum status served;
    /* of the rank */
    struct mesh_comm mesh;
    struct comm *alone;
    struct stream *stream;
    struct store *store;
    struct param_table whole, own;
    struct part_map map;
    struct mesh shape;
    struct state m;
};

static float value_of(int array, int tensor, int64_t i)
{
    return (float)(((int64_t)tensor * 7919 + i * 31 + array * 1013) % 1000003) / 64 + 1;
}

/* ---- a rank ---- */

/* The table of a shard; shards of pipelines have equal costs. */
static enum status describe(const struct job *j, int i, struct param_table *out)
{
    const struct layouts *like = j->like;
    struct model_shard shard = {.tensor_rank = i % like->tensor, .tensor_ranks = like->tensor};
    struct model_dims dims;
    int64_t first[RANKS_MAX * 2 + 1];
    double cost[64];
    for (int k = 0; k < 64; k++)
        cost[k] = 1;
    TRY(pipe_split(cost, j->dims->layers, like->stages, like->chunks, first));
    if (like->stages > 1)
        pipe_split_shard(first, like->stages, like->chunks, i / like->tensor, &shard);
    TRY(model_shard_dims(j->dims, &shard, &dims));
    TRY(model_ops(&dims)->describe(&dims, out));
    layout_pad(out, like->data);
    return ST_OK;
}

static enum status open_map(struct job *j)
{
    int shards_n = j->like->tensor * j->like->stages;
    TRY(model_ops(j->dims)->describe(j->dims, &j->whole));
    if (shards_n == 1) {
        layout_pad(&j->whole, j->like->data);
        return ST_OK;
    }
    part_map_init(&j->whole, shards_n, &j->map);
    for (int i = 0; i < shards_n; i++) {
        struct param_table t;
        TRY(describe(j, i, &t));
        enum status st = part_map_add(&j->map, i, &t);
        param_table_free(&t);
        TRY(st);
    }
    return part_map_check(&j->map);
}

static enum status open_rank(struct ranks_one *one, struct job *j)
{
    const struct layouts *like = j->like;
    TRY(mesh_make(one->ranks, like->tensor, 1, like->stages, &j->shape));
    TRY(mesh_comm_open(one->comm, &j->shape, &j->mesh));
    int own = j->mesh.at.at[MESH_AXIS_PIPELINE] * like->tensor + j->mesh.at.at[MESH_AXIS_TENSOR];
    TRY(describe(j, own, &j->own));
    TRY(open_map(j));
    TRY(dev_stream_open(one->dev, &j->stream));
    if (like->data == 1) {
        int64_t bytes;
        char address[COMM_ADDRESS_MAX];
        struct comm_config alone = {.kind = COMM_KIND_SELF,
                                    .place = {.ranks = 1, .nodes = 1, .locals = 1},
                                    .timeout_ms = RANKS_TIMEOUT_MS,
                                    .shm_fd = -1};
        TRY(comm_begin_open(&alone, &j->alone, address, &bytes));
        TRY(comm_end_open(j->alone, 0, address, &bytes));
    }
    struct store_config config = {.dev = one->dev,
                                  .stream = j->stream,
                                  .comm = like->data == 1 ? j->alone
                                          : j->mesh.data  ? j->mesh.data
                                                          : one->comm,
                                  .world = one->comm,
                                  .table = &j->own,
                                  .whole = &j->whole,
                                  .settings = {.shard = like->shard, .bucket_elems_min = 1},
                                  .has_grads = true,
                                  .moments_n = ARRAYS - 1,
                                  .pass_tokens = 8};
    TRY(store_open(&config, &j->store));
    j->m = state_of_model(one->comm, j->store, &j->shape,
                          like->tensor * like->stages > 1 ? &j->map : NULL);
    return ST_OK;
}

static void close_rank(struct job *j)
{
    store_close(j->store);
    dev_stream_close(j->stream);
    part_map_free(&j->map);
    param_table_free(&j->whole);
    param_table_free(&j->own);
    comm_close(j->alone);
    mesh_comm_close(&j->mesh);
}

/* What the own table holds of an array; padding is zero. */
static float *own_values(const struct job *j, int array)
{
    float *values = calloc((size_t)j->own.total_elems, sizeof *values);
    int64_t at, run;
    for (int i = 0; values && i < j->own.params_n; i++)
        for (int64_t k = 0; k < j->own.param[i].elems; k += run) {
            run = param_run(&j->own.param[i], k, &at);
            for (int64_t n = 0; n < run; n++)
                values[j->own.param[i].offset + k + n] =
                    value_of(array, j->own.param[i].whole_param, at + n);
        }
    return values;
}

static enum status set_own(const struct job *j)
{
    for (int array = 0; array < ARRAYS; array++) {
        float *values = own_values(j, array);
        enum status st = state_write(store_state(j->store), array, 0, j->own.total_elems, values);
        free(values);
        TRY(st);
    }
    return ST_OK;
}

static enum status same(struct job *j, int array, const float *got, const float *want)
{
    for (int64_t i = 0; i < j->own.total_elems; i++, j->checked++)
        if (memcmp(&got[i], &want[i], sizeof *got))
            return FAIL(ST_BUG, "%s: array %d, element %lld is %g, want %g", j->like->name, array,
                        (long long)i, (double)got[i], (double)want[i]);
    return ST_OK;
}

/* Every rank looks at what it holds whole; the first of a group at what they share. */
static enum status check_own(struct job *j)
{
    enum status st = ST_OK;
    TRY(store_drain(j->store));
    for (int array = 0; st == ST_OK && array < ARRAYS; array++) {
        float *want = own_values(j, array), *got = own_values(j, (array + 1) % ARRAYS);
        const float *here = state_describe(store_state(j->store), array, 0).here;
        bool is_first = j->mesh.at.at[MESH_AXIS_DATA] == 0;
        st = store_state_gather(j->store, array, 0, j->own.total_elems, got);
        if (st == ST_OK && is_first)
            st = same(j, array, got, want);
        if (st == ST_OK && here)
            st = same(j, array, here, want);
        free(want);
        free(got);
    }
    return st;
}

/* ---- rank 0 ---- */

/* Between the tensors in an array of the test and one laid out as the whole model's table. */
static void repack(const struct job *j, float *tensors, float *table, bool is_to_table)
{
    for (int i = 0; i < j->whole.params_n; tensors += j->whole.param[i++].elems)
        memcpy(is_to_table ? table + j->whole.param[i].offset : tensors,
               is_to_table ? tensors : table + j->whole.param[i].offset,
               (size_t)j->whole.param[i].elems * sizeof *table);
}

/* In ranges that end anywhere. */
static enum status move(const struct job *j, int array, float *table, bool is_put)
{
    for (int64_t first = 0, n; first < j->whole.total_elems; first += n) {
        n = j->whole.total_elems - first < j->each ? j->whole.total_elems - first : j->each;
        TRY(is_put ? state_write(&j->m, array, first, n, table + first)
                   : state_read(&j->m, array, first, n, table + first));
    }
    return ST_OK;
}

static enum status first_rank(struct job *j)
{
    enum status st = ST_OK;
    float *table = calloc((size_t)j->whole.total_elems, sizeof *table);
    for (int array = 0; st == ST_OK && array < ARRAYS && j->work != WORK_FAIL; array++) {
        bool is_put = j->work == WORK_LOAD;
        memset(table, is_put ? 0 : 0x7f, (size_t)j->whole.total_elems * sizeof *table);
        if (is_put)
            repack(j, j->state[array], table, true);
        st = move(j, array, table, is_put);
        if (st == ST_OK && !is_put) {
            double all = 0, tensors = 0; /* all values are positive */
            for (int64_t i = 0; i < j->whole.total_elems; i++)
                all += (double)table[i];
            for (int row = 0; row < j->whole.params_n; row++)
                for (int64_t i = 0; i < j->whole.param[row].elems; i++)
                    tensors += (double)table[j->whole.param[row].offset + i];
            st = all == tensors
                     ? ST_OK
                     : FAIL(ST_BUG, "%s: padding sums to %g", j->like->name, all - tensors);
        }
        if (st == ST_OK && !is_put)
            repack(j, j->state[array], table, false);
    }
    free(table);
    enum status asked = j->work == WORK_FAIL ? ST_STORE : st, end;
    if (j->work == WORK_FAIL)
        (void)FAIL(ST_STORE, "the disk is full");
    end = state_end(&j->m, asked);
    j->served = end;
    return j->work == WORK_FAIL ? ST_OK : end;
}

static enum status rank(struct ranks_one *one)
{
    struct job *j = one->arg;
    enum status st;
    TRY_OR(open_rank(one, j), out);
    if (j->work == WORK_SAVE)
        TRY_OR(set_own(j), out);
    if (one->rank == 0)
        TRY_OR(first_rank(j), out);
    else
        j->served = state_serve(&j->m);
    st = j->work == WORK_FAIL ? ST_OK : j->served;
    if (st == ST_OK && j->work == WORK_LOAD)
        st = check_own(j);
out:
    close_rank(j);
    return st;
}

/* ---- meshes ---- */

static struct job *run(const struct layouts *like, const struct model_dims *dims, enum work work,
                       int64_t each, float *const state[ARRAYS])
{
    static struct job all[RANKS_MAX];
    int ranks = like->tensor * like->stages * like->data;
    for (int i = 0; i < ranks; i++) {
        all[i] = (struct job){.like = like, .dims = dims, .work = work, .each = each};
        for (int array = 0; array < ARRAYS && i == 0; array++)
            all[i].state[array] = state[array];
    }
    ranks_run(1, ranks, rank, all, sizeof *all);
    for (int i = 0; i < ranks && work == WORK_LOAD; i++)
        assert_true(all[i].checked > 0 || like->shard != LAYOUT_SHARD_NONE);
    return all;
}

static int64_t want_state(const struct model_dims *dims, float *state[ARRAYS])
{
    struct param_table t;
    assert_int_equal(model_ops(dims)->describe(dims, &t), ST_OK);
    int64_t elems = t.parameters;
    for (int array = 0; array < ARRAYS; array++) {
        float *at = state[array] = calloc((size_t)elems, sizeof *at);
        for (int i = 0; i < t.params_n; i++)
            for (int64_t k = 0; k < t.param[i].elems; k++)
                *at++ = value_of(array, i, k);
    }
    param_table_free(&t);
    return elems;
}

static void free_state(float *state[ARRAYS])
{
    for (int array = 0; array < ARRAYS; array++)
        free(state[array]);
}

/* Every mesh reads what it holds, then every mesh is given what each of them read. */
static void every_pair(const struct model_dims *dims)
{
    static float *saved[MESHES][ARRAYS];
    float *want[ARRAYS];
    int64_t elems = want_state(dims, want);
    for (int i = 0; i < MESHES; i++) {
        for (int array = 0; array < ARRAYS; array++)
            saved[i][array] = calloc((size_t)elems, sizeof(float));
        (void)run(&meshes[i], dims, WORK_SAVE, i % 2 ? 997 : 1 << 20, saved[i]);
        for (int array = 0; array < ARRAYS; array++)
            if (memcmp(saved[i][array], want[array], (size_t)elems * sizeof(float)))
                fail_msg("%s: %s: array %d differs", dims->name, meshes[i].name, array);
    }
    for (int from = 0; from < MESHES; from++)
        for (int to = 0; to < MESHES; to++)
            (void)run(&meshes[to], dims, WORK_LOAD, from % 2 ? 1 << 20 : 1499, saved[from]);
    for (int i = 0; i < MESHES; i++)
        free_state(saved[i]);
    free_state(want);
    print_message("# %s: %d x %d meshes, %lld elements\n", dims->name, MESHES, MESHES,
                  (long long)elems);
}

static struct model_dims dims_of(const char *name, enum model_arch arch, bool is_untied)
{
    struct model_dims dims = {.arch = arch,
                              .layers = 9,
                              .heads = 4,
                              .embed = 24,
                              .context = 10,
                              .vocab = 131,
                              .features = model_arch_features(arch)};
    text_copy(dims.name, sizeof dims.name, name);
    dims.features.is_untied = is_untied;
    if (arch == MODEL_ARCH_LLAMA)
        dims.kv_heads = 2, dims.ffn = 44; /* TP4 has each key head twice */
    return dims;
}

TEST(tied_gpt2)
{
    struct model_dims dims = dims_of("gpt2", MODEL_ARCH_GPT2, false);
    every_pair(&dims);
}

TEST(llama_with_few_key_heads)
{
    struct model_dims dims = dims_of("llama", MODEL_ARCH_LLAMA, true);
    every_pair(&dims);
}

/* More than one request carries, in one call. */
TEST(many_requests)
{
    struct model_dims dims = dims_of("wide", MODEL_ARCH_GPT2, false);
    dims.vocab = 50257;
    float *want[ARRAYS], *got[ARRAYS];
    int64_t elems = want_state(&dims, want);
    assert_true(elems > STATE_RANGE_ELEMS);
    for (int i = 0; i < MESHES; i++) {
        for (int array = 0; array < ARRAYS; array++)
            got[array] = calloc((size_t)elems, sizeof(float));
        (void)run(&meshes[i], &dims, WORK_SAVE, INT64_MAX / 2, got);
        for (int array = 0; array < ARRAYS; array++)
            assert_memory_equal(got[array], want[array], (size_t)elems * sizeof(float));
        (void)run(&meshes[i], &dims, WORK_LOAD, INT64_MAX / 2, got);
        free_state(got);
    }
    free_state(want);
}

TEST(a_failure_of_rank_0)
{
    struct model_dims dims = dims_of("gpt2", MODEL_ARCH_GPT2, false);
    for (int i = 1; i < MESHES; i++) {
        int ranks = meshes[i].tensor * meshes[i].stages * meshes[i].data;
        struct job *all = run(&meshes[i], &dims, WORK_FAIL, 1, (float *[ARRAYS]){0});
        assert_int_equal(all[0].served, ST_STORE);
        for (int r = 1; r < ranks; r++)
            assert_int_equal(all[r].served, ST_PEER);
    }
}

HARNESS_RUN_ALL()
