/* test_mesh_pipe — stages of a pipeline train as one rank does that accumulates: the same bits, for
 * every schedule, number of stages and architecture; where the first and the last stage share the
 * token embedding, within the rounding of its gradient's sum. */
#include "mesh/trial.h"

#include "architectures.h"

/* The state of the whole model after the steps. */
struct whole {
    struct param_table table;
    float *value[TRIAL_ARRAYS];
};

struct job {
    struct trial trial;
    struct whole *whole;
    double eval, busy;
    float logits[211];
};

static struct whole whole_of(const struct model_dims *dims)
{
    struct whole w = {0};
    assert_int_equal(model_ops(dims)->describe(dims, &w.table), ST_OK);
    for (int array = 0; array < TRIAL_ARRAYS; array++)
        w.value[array] = calloc((size_t)w.table.total_elems, sizeof(float));
    return w;
}

static void whole_free(struct whole *w)
{
    for (int array = 0; array < TRIAL_ARRAYS; array++)
        free(w->value[array]);
    param_table_free(&w->table);
}

static enum status read_whole(struct job *job, struct step *step)
{
    enum status st = ST_OK;
    const struct param_table *table = step_whole_table(step);
    for (int i = 0; i < table->params_n; i++)
        for (int array = 0; st == ST_OK && array < step_arrays(step); array++)
            st = state_read(step_state(step), array, table->param[i].offset, table->param[i].elems,
                            job->whole->value[array] + job->whole->table.param[i].offset);
    return state_end(step_state(step), st);
}

static enum status train(struct ranks_one *one, struct job *job, struct step *step, struct batch *b)
{
    struct trial *t = &job->trial;
    struct mesh mesh;
    TRY(step_mesh(&t->config, one->ranks, &mesh));
    int data = mesh_coord_of(&mesh, one->rank).at[MESH_AXIS_DATA];
    for (int i = 0; i < t->steps; i++) {
        for (int64_t row = 0; row < b->samples; row++)
            trial_sample(t, i, data * b->samples + row, row, b);
        TRY(step_run_batch(step, b, i, i * t->config.global_samples, t->lr,
                           t->nan_step == i && t->nan_rank == one->rank, &t->last));
        t->loss[i] = t->last.loss;
        t->norm[i] = t->last.grad_norm;
    }
    if (t->config.dims.task == MODEL_TASK_LM)
        TRY(step_logits(step, (const int32_t[]){5, 3, 200, 8, 13}, 5, job->logits));
    return one->rank == 0 ? read_whole(job, step) : state_serve(step_state(step));
}

static enum status pipe_rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    struct step *step = NULL;
    struct batch batch = {0};
    enum feed_task task =
        job->trial.config.dims.task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA;
    enum status st;
    job->trial.config.dev = one->dev;
    job->trial.config.comm = one->comm;
    struct mesh mesh;
    TRY(step_mesh(&job->trial.config, one->ranks, &mesh));
    TRY_OR(step_open(&job->trial.config, &step), out_close);
    TRY_OR(batch_init(&batch, task, job->trial.config.global_samples / mesh.size[MESH_AXIS_DATA],
                      job->trial.config.seq_tokens),
           out_close);
    st = train(one, job, step, &batch);
out_close:
    step_close(step);
    batch_free(&batch);
    return st;
}

/* Rank 0's outcome; all ranks have the same losses, norms and logits. */
static struct job run_job(const struct trial *like, int ranks, struct whole *whole)
{
    static struct job all[RANKS_MAX];
    for (int rank = 0; rank < ranks; rank++)
        all[rank] = (struct job){.trial = *like, .whole = whole};
    ranks_run(1, ranks, pipe_rank, all, sizeof *all);
    for (int rank = 1; rank < ranks; rank++) {
        assert_memory_equal(all[rank].trial.loss, all[0].trial.loss, sizeof all[0].trial.loss);
        assert_memory_equal(all[rank].trial.norm, all[0].trial.norm, sizeof all[0].trial.norm);
        assert_memory_equal(all[rank].logits, all[0].logits, sizeof all[0].logits);
    }
    return all[0];
}

struct form {
    int stages, chunks, data, tensor;
};

static struct trial trial_in(struct trial like, const struct form *form)
{
    like.config.axis_ranks[MESH_AXIS_PIPELINE] = form->stages;
    like.config.pipe_chunks = form->chunks;
    return like;
}

/* The greatest difference of the states, relative to the greatest value. */
static double apart(const struct whole *a, const struct whole *b, int array)
{
    double most = 0, scale = 1e-30;
    for (int64_t i = 0; i < a->table.total_elems; i++) {
        double x = a->value[array][i], y = b->value[array][i];
        most = fabs(x - y) > most || isnan(x - y) ? fabs(x - y) : most;
        scale = fabs(y) > scale ? fabs(y) : scale;
    }
    return most / scale;
}

static void same_job(const struct job *got, const struct job *want, const char *what)
{
    trial_same(&got->trial, &want->trial, what);
    for (int array = 0; array < TRIAL_ARRAYS; array++)
        if (memcmp(got->whole->value[array], want->whole->value[array],
                   (size_t)got->whole->table.total_elems * sizeof(float)))
            fail_msg("%s: array %d differs by %g", what, array,
                     apart(got->whole, want->whole, array));
    assert_memory_equal(got->logits, want->logits, sizeof got->logits);
}

/* Trains with and without stages; within: 0: the same bits. */
static void compare(const struct trial *like, const struct form *form, double within,
                    const char *what)
{
    char name[128];
    struct whole one = whole_of(&like->config.dims), many = whole_of(&like->config.dims);
    int others = form->data * form->tensor;
    struct trial plain = *like;
    plain.config.axis_ranks[MESH_AXIS_TENSOR] = form->tensor;
    struct trial staged = trial_in(plain, form);
    text_format(name, sizeof name, "%s: PP=%d x %d chunks, %d ranks a stage", what, form->stages,
                form->chunks, others);
    struct job want = run_job(&plain, others, &one),
               got = run_job(&staged, form->stages * others, &many);
    if (within == 0)
        same_job(&got, &want, name);
    else
        print_message("# %s: losses differ by %.1e, parameters by %.1e\n", name,
                      trial_apart(&got.trial, &want.trial), apart(&many, &one, 0));
    assert_true(within == 0 || (trial_apart(&got.trial, &want.trial) < within &&
                                apart(&many, &one, 0) < 100 * within));
    whole_free(&one);
    whole_free(&many);
}

/* A Llama with a head of its own, and six layers. */
static struct trial untied(int64_t samples)
{
    struct trial like = trial_of(MODEL_TASK_LM, samples, 17);
    like.config.dims = architectures[0];
    like.config.dims.layers = 6;
    like.config.dims.context = 20;
    like.config.dims.vocab = 211;
    like.steps = 10;
    return like;
}

TEST(test_stages)
{
    static const struct form forms[] = {{2, 1, 1, 1}, {3, 1, 1, 1}, {4, 1, 1, 1},
                                        {2, 2, 1, 1}, {2, 3, 1, 1}, {3, 2, 1, 1}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct trial like = untied(12);
        compare(&like, &forms[i], 0, "untied");
    }
    struct trial few = untied(1);
    compare(&few, &forms[0], 0, "one micro-batch");
    compare(&few, &forms[2], 0, "one micro-batch");
}

TEST(test_recompute)
{
    static const struct form forms[] = {{2, 1, 1, 1}, {2, 2, 1, 1}};
    for (int64_t nth = 1; nth <= MODEL_RECOMPUTE_BLOCK * 6; nth += nth < 6 ? 5 : 4)
        for (int i = 0; i < 2; i++) {
            struct trial like = untied(4);
            like.config.batch_samples = 1;
            like.config.dropout = 0.1f;
            like.config.recompute = model_recompute_nth(like.config.dims.layers, nth);
            compare(&like, &forms[i], 0, "recomputation, dropout");
        }
}

TEST(test_architectures)
{
    static const struct form forms[] = {{2, 1, 1, 1}, {2, 2, 1, 1}};
    for (int i = 0; i < ARCHITECTURES_N; i++)
        for (int k = 0; k < 2; k++) {
            struct trial like = untied(4);
            like.config.dims = architectures[i];
            like.config.dims.layers = 4;
            like.config.dims.context = 20;
            like.config.dims.vocab = 211;
            like.lr = 3e-4;
            compare(&like, &forms[k], architectures[i].features.is_untied ? 0 : 2e-6,
                    architectures[i].name);
        }
}

/* GPT-2: the stages at both ends hold the embedding; all pipelines add its gradient alike. */
TEST(test_tied)
{
    static const struct form forms[] = {{2, 1, 1, 1}, {3, 1, 1, 1}, {2, 2, 1, 1}};
    struct trial like = trial_of(MODEL_TASK_LM, 6, 17);
    like.config.dims.layers = 4;
    like.lr = 3e-4;
    like.steps = 10;
    struct whole first = whole_of(&like.config.dims);
    struct trial staged = trial_in(like, &forms[0]);
    struct job want = run_job(&staged, 2, &first);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct whole other = whole_of(&like.config.dims);
        compare(&like, &forms[i], 2e-6, "tied");
        staged = trial_in(like, &forms[i]);
        struct job got = run_job(&staged, forms[i].stages, &other);
        same_job(&got, &want, "tied, among pipelines");
        whole_free(&other);
    }
    whole_free(&first);
}

TEST(test_qa)
{
    static const struct form forms[] = {{2, 1, 1, 1}, {2, 2, 1, 1}};
    for (int i = 0; i < 2; i++) {
        struct trial like = trial_of(MODEL_TASK_QA, 6, 19);
        like.config.dims.layers = 4;
        like.config.dropout = 0.1f;
        like.steps = 10;
        compare(&like, &forms[i], 0, "qa");
    }
}

/* Data ranks beside stages: buckets of one unit each, so that squares are added alike. */
TEST(test_data)
{
    static const struct form forms[] = {{2, 1, 2, 1}, {2, 2, 2, 1}, {3, 1, 2, 1}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct trial like = untied(12);
        like.config.store.has_whole_embed = true;
        compare(&like, &forms[i], 0, "data ranks");
    }
}

/* Ranks that share matrices, in each stage: the bits of one stage. With three stages two gradients
 * wait to be sent at once (pipe_plan.h: grads_out). */
TEST(test_tensor)
{
    static const struct form forms[] = {{2, 1, 1, 2}, {2, 2, 1, 2}, {3, 2, 1, 2}, {2, 1, 2, 2}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct trial like = untied(12);
        like.config.dims.heads = 4;
        like.config.dims.kv_heads = 2;
        like.config.dims.embed = 16;
        like.config.dims.ffn = 14;
        like.config.seq_tokens = 18;
        like.config.store.has_whole_embed = true;
        compare(&like, &forms[i], 0, "tensor ranks");
    }
}

/* FAULT=nan on any stage: all ranks fail alike. */
static enum status nan_rank(struct ranks_one *one)
{
    enum status st = pipe_rank(one);
    return st == ST_NOT_FINITE ? ST_OK : ST_BUG;
}

TEST(test_nan)
{
    static const struct form form = {2, 1, 1, 1};
    for (int rank = 0; rank < 2; rank++) {
        static struct job all[RANKS_MAX];
        struct trial like = untied(4);
        like.nan_step = 1;
        like.nan_rank = rank;
        struct whole whole = whole_of(&like.config.dims);
        for (int i = 0; i < 2; i++)
            all[i] = (struct job){.trial = trial_in(like, &form), .whole = &whole};
        ranks_run(1, 2, nan_rank, all, sizeof *all);
        whole_free(&whole);
    }
}

HARNESS_RUN_ALL()
