/* test_mesh_every — every mesh of 1 to 4 ranks with every SHARD, number of micro-batches, RECOMPUTE
 * and COMPRESS=bf16, and some of 8 ranks: two steps each. Losses, norms, parameters and momentum
 * are those of one rank within rounding. A flipped bit stays within its rank's shard, and the job
 * goes on.
 *
 * The suite runs about a fortieth of the table, `make torture` all of it. */
#include "mesh/trial.h"

#include "architectures.h"

#define SAMPLES 8
#define STEPS 2
#define LAYERS 4

struct form {
    int data, context, tensor, stages, chunks;
};
static const struct form forms[] = {
    {1, 1, 1, 1, 1}, {2, 1, 1, 1, 1}, {4, 1, 1, 1, 1}, {1, 1, 2, 1, 1}, {1, 1, 4, 1, 1},
    {1, 1, 1, 2, 1}, {1, 1, 1, 4, 1}, {1, 1, 1, 2, 2}, {2, 1, 2, 1, 1}, {2, 1, 1, 2, 1},
    {2, 1, 1, 2, 2}, {1, 1, 2, 2, 1}, {1, 1, 2, 2, 2}, {2, 1, 2, 2, 1}, {2, 1, 2, 2, 2},
    {1, 2, 1, 1, 1}, {1, 4, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 2, 2, 1, 1}, {1, 2, 1, 2, 1},
    {1, 2, 1, 2, 2}, {2, 2, 2, 1, 1}, {2, 2, 1, 2, 1}, {1, 2, 2, 2, 1}};
#define FORMS_N (int)(sizeof forms / sizeof forms[0])

/* RECOMPUTE, as model_recompute_nth: none, light, attention:3, attention, block:1, block. */
static const int recomputes[] = {0, 4, 7, 8, 9, 12};
#define RECOMPUTES_N (int)(sizeof recomputes / sizeof recomputes[0])

/* A row of the table. */
struct combination {
    struct form form;
    /* GPT-2 as LM, as QA, Llama with a head of its own, an adapter of that, one of q, v and down */
    int model;
    int micros, shard;
    int recompute; /* in recomputes */
    bool is_bf16;  /* sums of gradients */
};
#define MODELS_N 5

static int ranks_of(const struct form *f) { return f->data * f->context * f->tensor * f->stages; }

static struct trial trial_for(const struct combination *c)
{
    struct trial like = trial_of(c->model == 1 ? MODEL_TASK_QA : MODEL_TASK_LM, SAMPLES, 32);
    struct step_config *config = &like.config;
    if (c->model >= 2)
        config->dims = architectures[0];
    if (c->model >= 3)
        config->dims.adapter = (struct model_adapter){
            .r = 3,
            .alpha = 6,
            .targets = c->model == 3 ? MODEL_TARGETS_ALL
                                     : MODEL_TARGET_Q | MODEL_TARGET_V | MODEL_TARGET_DOWN};
    config->dims.layers = LAYERS;
    config->dims.heads = config->dims.kv_heads = 4;
    config->dims.head_dim = 0;
    config->dims.embed = 16;
    config->dims.ffn = 64;
    config->dims.vocab = 64;
    config->dims.context = 36;
    config->optim = (struct optim_config){
        .kind = OPTIM_KIND_SGD, .momentum = 0.9, .weight_decay = 0.1, .grad_clip = 1};
    config->batch_samples = SAMPLES / c->form.data / c->micros;
    config->dropout = 0.1f;
    config->recompute = model_recompute_nth(LAYERS, recomputes[c->recompute]);
    config->store.shard = (enum layout_shard)c->shard;
    config->store.compress = c->is_bf16 ? GRAD_COMPRESS_KIND_BF16 : GRAD_COMPRESS_KIND_NONE;
    config->store.bucket_elems_min = c->recompute % 2;
    config->axis_ranks[MESH_AXIS_TENSOR] = c->form.tensor;
    config->axis_ranks[MESH_AXIS_CONTEXT] = c->form.context;
    config->axis_ranks[MESH_AXIS_PIPELINE] = c->form.stages;
    config->pipe_chunks = c->form.chunks;
    like.lr = 0.1;
    like.steps = STEPS;
    return like;
}

/* Of one rank, by model; kept. */
static const struct trial *alone(int model)
{
    static struct trial kept[MODELS_N];
    if (kept[model].elems == 0) {
        struct trial like = trial_for(&(struct combination){
            .form = forms[0], .model = model, .micros = 1, .shard = LAYOUT_SHARD_NONE});
        kept[model] = trial_run(&like, 1, 1);
    }
    return &kept[model];
}

/* The greatest difference of the states, relative to the greatest value of an array. */
static double apart(const struct trial *a, const struct trial *b)
{
    double worst = 0;
    for (int array = 0; array < 2; array++) {
        double most = 0, scale = 1e-30;
        for (int64_t i = 0; i < a->elems; i++) {
            double x = a->state[array][i], y = b->state[array][i];
            most = fabs(x - y) > most || isnan(x - y) ? fabs(x - y) : most;
            scale = fabs(y) > scale ? fabs(y) : scale;
        }
        worst = most / scale > worst ? most / scale : worst;
    }
    return worst;
}

/* A sum rounded to bf16 is off by some 2^-9 of its value. */
static void compare(const struct combination *c)
{
    char name[160];
    const struct trial *want = alone(c->model);
    struct trial like = trial_for(c), got = trial_run(&like, 1, ranks_of(&c->form));
    double loss = trial_apart(&got, want), state = apart(&got, want),
           norm = fabs(got.norm[0] / want->norm[0] - 1);
    bool is_rounded = c->is_bf16 && c->form.data * c->form.context > 1;
    size_t cap = sizeof name;
    text_format(name, cap,
                "data %d x context %d x tensor %d x stages %d (%d chunks), model %d, %d "
                "micro-batches, recompute "
                "%d, shard %d, bf16 %d",
                c->form.data, c->form.context, c->form.tensor, c->form.stages, c->form.chunks,
                c->model, c->micros, c->recompute, c->shard, c->is_bf16);
    if (!(got.elems == want->elems && loss <= (is_rounded ? 2e-3 : 2e-6) &&
          norm <= (is_rounded ? 4e-3 : 1e-5) && state <= (is_rounded ? 1e-2 : 1e-5)))
        fail_msg("%s: losses differ by %.1e, norms by %.1e, states by %.1e, %lld elements of %lld",
                 name, loss, norm, state, (long long)got.elems, (long long)want->elems);
    trial_free(&got);
}

/* is_picked — a sample of the table, drawn evenly; rows of few ranks take little time. */
static bool is_picked(int row, const struct combination *c)
{
    static int is_all = -1;
    if (is_all < 0)
        is_all = getenv("TORTURE") != NULL;
    uint32_t every = ranks_of(&c->form) == 8 ? 79 : 37;
    return is_all || rand_below(11, RAND_STREAM(TEST, 0), (uint64_t)row, every) == 0;
}

TEST(test_every)
{
    int rows = 0, tried = 0;
    struct combination c;
    for (int form = 0; form < FORMS_N; form++)
        for (c.model = 0; c.model < MODELS_N; c.model++)
            for (c.micros = 1; c.micros <= 4; c.micros *= 2)
                for (c.recompute = 0; c.recompute < RECOMPUTES_N; c.recompute++)
                    for (c.shard = 0; c.shard <= LAYOUT_SHARD_FULL; c.shard++)
                        for (int bf16 = 0; bf16 < 2; bf16++) {
                            c.form = forms[form];
                            c.is_bf16 = bf16 > 0;
                            if (!(SAMPLES / c.form.data % c.micros == 0 &&
                                  (c.form.chunks == 1 || c.micros % c.form.stages == 0)) ||
                                !is_picked(rows++, &c))
                                continue;
                            compare(&c);
                            tried++;
                        }
    print_message("# %d of %d combinations\n", tried, rows);
    assert_true(tried > 200);
}

/* FAULT=flip on each rank: the job goes on, and all ranks have the same losses. They differ from
 * those of an undisturbed run, but where no token of the batch has the row of the embedding that
 * was hit: on half of the ranks at most. */
static void flip(const struct form *form, int shard)
{
    int differ = 0, ranks = ranks_of(form);
    struct combination c = {.form = *form, .micros = 2, .shard = shard};
    struct trial like = trial_for(&c);
    like.steps = 4;
    struct trial calm = trial_run(&like, 1, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        like.flip_step = 1;
        like.flip_rank = rank;
        struct trial got = trial_run(&like, 1, ranks);
        assert_true(got.loss[0] == calm.loss[0] && !isnan(got.loss[3]));
        assert_true(rank > 0 || got.flipped.before != got.flipped.after);
        differ += got.loss[3] != calm.loss[3];
        trial_free(&got);
    }
    if (2 * differ < ranks)
        fail_msg("data %d x context %d x tensor %d x stages %d, shard %d: %d of %d flips changed "
                 "the loss",
                 form->data, form->context, form->tensor, form->stages, shard, differ, ranks);
    trial_free(&calm);
}

TEST(test_flip)
{
    for (int form = 0; form < FORMS_N; form++)
        for (int shard = 0; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL)
            if (ranks_of(&forms[form]) <= 4 && forms[form].chunks == 1 &&
                (shard == 0 || forms[form].data * forms[form].context > 1))
                flip(&forms[form], shard);
}

HARNESS_RUN_ALL()
