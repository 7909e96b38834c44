/* test_mesh_exact_axes — EXACT=layout beside tensor and context parallelism: for each TP and CP
 * losses, norms and the whole state have one result, on any number of groups, wherever their ranks
 * are, with every SHARD and PP. */
#define RANKS_MAX 12
#include "mesh/models.h"
#include "mesh/trial.h"
#include "train/step/dry.h"

/* Key heads are more than, as many as and fewer than ranks; the vocabulary is cut unevenly. */
enum { GPT2, LLAMA_TWO, QWEN_ONE, MODELS_N };
static const struct model_dims models[MODELS_N] = {
    MODELS_GPT2,
    {.name = "llama, 4 heads, 2 key heads",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 2,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 24,
     .embed = 96,
     .ffn = 44,
     .vocab = 211,
     .features = {MODELS_LLAMA, .is_untied = true}},
    MODELS_QWEN_ONE,
};

static struct trial exact_of(int model, int tensor, int context, int64_t t)
{
    struct trial like = trial_of(MODEL_TASK_LM, 6, t);
    like.steps = 2;
    like.config.dims = models[model];
    like.config.dims.context = t + 3;
    like.config.shards = 6;
    like.config.dropout = 0.1f;
    like.config.axis_ranks[MESH_AXIS_TENSOR] = tensor;
    like.config.axis_ranks[MESH_AXIS_CONTEXT] = context;
    return like;
}

struct world {
    int nodes, locals;
};

static void same(const struct trial *like, const struct trial *want, struct world world)
{
    char what[128];
    snprintf(what, sizeof what, "%s: %d x %d ranks, TP %d, CP %d, PP %d, shard %d",
             like->config.dims.name, world.nodes, world.locals,
             like->config.axis_ranks[MESH_AXIS_TENSOR], like->config.axis_ranks[MESH_AXIS_CONTEXT],
             like->config.axis_ranks[MESH_AXIS_PIPELINE], (int)like->config.store.shard);
    struct trial got = trial_run(like, world.nodes, world.locals);
    trial_same(&got, want, what);
    trial_free(&got);
}

/* The first world's result, in the others with one SHARD after the other, and in the last with
 * each. Returns the norm. */
static double same_in_worlds(struct trial like, const struct world *world, int n)
{
    struct trial want = trial_run(&like, world[0].nodes, world[0].locals);
    const double norm = want.norm[like.steps - 1];
    assert_true(isfinite(norm));
    for (int i = 1; i < n - 1; i++) {
        like.config.store.shard = (enum layout_shard)(i % (LAYOUT_SHARD_FULL + 1));
        same(&like, &want, world[i]);
    }
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        like.config.store.shard = (enum layout_shard)shard;
        same(&like, &want, world[n - 1]);
    }
    trial_free(&want);
    return norm;
}
#define SAME_IN_WORLDS(like, world) \
    same_in_worlds((like), (world), (int)(sizeof(world) / sizeof *(world)))

/* One to three groups of two, of four; on one node, on several, across nodes. */
static const struct world twos[] = {{1, 2}, {2, 1}, {1, 4}, {4, 1}, {3, 2}, {2, 3}};
static const struct world fours[] = {{1, 4}, {2, 2}, {4, 1}, {2, 4}, {6, 2}};

/* The norm is that of one rank: what several ranks hold counts once. */
TEST(test_tensor)
{
    for (int model = 0; model < MODELS_N; model++) {
        struct trial like = exact_of(model, 1, 1, 16), one = trial_run(&like, 1, 1);
        double two = SAME_IN_WORLDS(exact_of(model, 2, 1, 16), twos),
               four = SAME_IN_WORLDS(exact_of(model, 4, 1, 16), fours);
        assert_true(fabs(two / one.norm[like.steps - 1] - 1) < 1e-4);
        assert_true(fabs(four / one.norm[like.steps - 1] - 1) < 1e-4);
        trial_free(&one);
    }
}

TEST(test_context)
{
    for (int model = GPT2; model <= LLAMA_TWO; model++) {
        struct trial like = exact_of(model, 1, 1, 16), one = trial_run(&like, 1, 1);
        double two = SAME_IN_WORLDS(exact_of(model, 1, 2, 16), twos);
        assert_true(fabs(two / one.norm[like.steps - 1] - 1) < 1e-4);
        trial_free(&one);
    }
    (void)SAME_IN_WORLDS(exact_of(LLAMA_TWO, 1, 4, 16), fours);
    (void)SAME_IN_WORLDS(exact_of(LLAMA_TWO, 2, 2, 16), fours);
}

/* Six ranks: the sums of the comm itself follow the nodes. */
TEST(test_six)
{
    static const struct world sixes[] = {{1, 6}, {2, 3}, {3, 2}, {6, 1}, {1, 12}, {4, 3}};
    static const struct world threes[] = {{1, 3}, {3, 1}, {2, 3}, {3, 2}, {1, 9}};
    struct trial like = exact_of(GPT2, 6, 1, 24);
    like.config.dims.heads = 6;
    (void)SAME_IN_WORLDS(like, sixes);
    like = exact_of(LLAMA_TWO, 1, 6, 24);
    (void)SAME_IN_WORLDS(like, sixes);
    like = exact_of(LLAMA_TWO, 1, 3, 24);
    (void)SAME_IN_WORLDS(like, threes);
    like = exact_of(GPT2, 12, 1, 24); /* six ranks have the same key head */
    like.config.dims = models[LLAMA_TWO];
    like.config.dims.heads = 12;
    like.config.dims.ffn = 48;
    like.config.dims.context = 27;
    static const struct world twelves[] = {{1, 12}, {4, 3}, {2, 6}, {12, 1}};
    (void)SAME_IN_WORLDS(like, twelves);
}

TEST(test_stages)
{
    static const struct world piped[] = {{1, 4}, {4, 1}, {2, 4}, {4, 3}};
    for (int context = 1; context <= 2; context++) {
        struct trial like = exact_of(LLAMA_TWO, 3 - context, context, 16),
                     want = trial_run(&like, 1, 2);
        like.config.axis_ranks[MESH_AXIS_PIPELINE] = 2;
        for (size_t i = 0; i < sizeof piped / sizeof *piped; i++) {
            like.config.store.shard = (enum layout_shard)i;
            same(&like, &want, piped[i]);
        }
        trial_free(&want);
    }
}

/* An embedding that the output layer shares is on the first and on the last stage, and its gradient
 * is made as on one. */
static const struct model_dims tied[] = {
    {.name = "gpt2 of 8 layers", .layers = 8, .heads = 4, .embed = 48, .vocab = 211},
    {.name = "llama of 8 layers, tied",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 8,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 12,
     .embed = 48,
     .ffn = 44,
     .vocab = 211,
     .features = {MODELS_LLAMA}}};
#define TIED (int)(sizeof tied / sizeof *tied)

static struct trial tied_of(int model, int tensor, int context)
{
    struct trial like = exact_of(GPT2, tensor, context, 16);
    like.config.dims = tied[model];
    like.config.dims.context = 19;
    return like;
}

/* form: stages, chunks of each, and how many pipelines beside each other; each with a SHARD. */
static void tied_forms(struct trial like, const struct trial *want, int others)
{
    static const struct form {
        int stages, chunks, pipelines;
    } forms[] = {{2, 1, 1}, {2, 1, 2}, {2, 1, 3}, {3, 1, 2}, {4, 1, 1}, {2, 2, 1},
                 {2, 3, 3}, {4, 2, 1}, {3, 2, 1}, {3, 2, 2}, {2, 1, 2}, {2, 1, 6}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct form *f = &forms[i];
        const int ranks = f->stages * f->pipelines * others,
                  micros = like.config.shards / f->pipelines;
        if (ranks > RANKS_MAX || (f->chunks > 1 && micros % f->stages != 0))
            continue;
        like.config.axis_ranks[MESH_AXIS_PIPELINE] = f->stages;
        like.config.pipe_chunks = f->chunks;
        like.config.store.shard = (enum layout_shard)(i % (LAYOUT_SHARD_FULL + 1));
        same(&like, want, i % 2 ? (struct world){ranks, 1} : (struct world){1, ranks});
    }
}

TEST(test_tied)
{
    for (int model = 0; model < TIED; model++)
        for (int tensor = 1; tensor <= 2; tensor++)
            for (int context = 1; context <= 3 - tensor; context++) {
                struct trial like = tied_of(model, tensor, context),
                             want = trial_run(&like, 1, tensor * context);
                tied_forms(like, &want, tensor * context);
                trial_free(&want);
            }
}

/* Every way of recomputing, Muon, a gradient that is not finite on either stage. */
TEST(test_tied_ways)
{
    struct trial like = tied_of(0, 1, 1);
    for (int way = 0; way <= MODEL_RECOMPUTE_BLOCK; way++) {
        like.config.axis_ranks[MESH_AXIS_PIPELINE] = 1;
        like.config.recompute.way = (enum model_recompute)way;
        like.config.optim.kind = way % 2 ? OPTIM_KIND_MUON : OPTIM_KIND_ADAMW;
        like.config.optim.momentum = 0.9;
        struct trial want = trial_run(&like, 1, 1);
        like.config.axis_ranks[MESH_AXIS_PIPELINE] = 2;
        same(&like, &want, (struct world){2, 2});
        trial_free(&want);
    }
    like.nan_step = 1;
    for (int rank = 0; rank < 2; rank++) {
        like.nan_rank = rank;
        struct trial got = trial_run(&like, 1, 2);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]));
        trial_free(&got);
    }
}

/* Shards of several micro-batches have another order there. */
TEST(test_tied_refused)
{
    struct step_config config[2];
    struct ranks_one one[RANKS_MAX];
    config[0] = tied_of(0, 1, 1).config;
    config[0].shards = 3;
    config[0].axis_ranks[MESH_AXIS_PIPELINE] = 2;
    config[1] = config[0];
    ranks_try(1, 2, RANKS_TIMEOUT_MS, trial_open, config, sizeof *config, one);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(one[rank].st, ST_BAD_SETTING);
        assert_non_null(strstr(one[rank].message, "set VIRTUAL_SHARDS=6"));
    }
}

/* The work of a rank in a plan. */
struct planned {
    double products, messages, message_bytes;
};

static void on_op(void *arg, const struct step_dry_op *op)
{
    struct planned *p = arg;
    p->products += op->op == OP_KIND_matmul_fwd ? op->times : 0;
}

static void on_call(void *arg, const struct step_dry_call *call)
{
    struct planned *p = arg;
    if (call->kind != STEP_DRY_CALL_MESSAGE)
        return;
    p->messages += call->times;
    p->message_bytes += call->times * (double)call->bytes;
}

static struct planned plan_stage(const struct step_config *c, int stage)
{
    struct planned all = {0};
    const struct step_dry_listener listener = {.on_op = on_op, .on_call = on_call, .arg = &all};
    const struct step_place place = {.rank = 2 * stage, .ranks = 4};
    struct step_dry_about about;
    assert_int_equal(step_dry_run(c, &place, &listener, &about), ST_OK);
    assert_int_equal(about.stage, stage);
    return all;
}

/* A plan looks at fewer micro-batches than a long step has; VIRTUAL_SHARDS need not divide it. */
TEST(test_plan)
{
    for (int i = 0; i < 4; i++) {
        struct step_config c = exact_of(LLAMA_TWO, 2, 1, 16).config;
        c.dims.layers = 4;
        c.axis_ranks[MESH_AXIS_PIPELINE] = 2;
        c.pipe_chunks = 1 + i % 2;
        c.shards = i < 2 ? 4 : 24;
        c.global_samples = c.shards;
        for (int stage = 0; stage < 2; stage++) {
            const struct planned exact = plan_stage(&c, stage);
            struct step_config without = c;
            without.shards = 0;
            const struct planned want = plan_stage(&without, stage);
            assert_true(want.products > 0 && want.messages > 0);
            assert_memory_equal(&exact, &want, sizeof want);
        }
    }
}

TEST(test_questions)
{
    static const struct world few[] = {{1, 2}, {2, 2}, {3, 2}};
    for (int context = 1; context <= 2; context++) {
        struct trial like = exact_of(GPT2, 3 - context, context, 16);
        like.config.dims.task = MODEL_TASK_QA;
        (void)SAME_IN_WORLDS(like, few);
    }
}

/* Shards of several micro-batches, in unequal runs; every way of recomputing; Muon. */
TEST(test_ways)
{
    static const struct world few[] = {{1, 2}, {1, 4}, {3, 2}};
    struct trial like = exact_of(LLAMA_TWO, 2, 1, 16);
    like.config.global_samples = 14;
    like.config.shards = 7;
    (void)SAME_IN_WORLDS(like, few);
    like = exact_of(LLAMA_TWO, 2, 1, 16);
    struct trial want = trial_run(&like, 1, 2);
    for (int way = 0; way <= MODEL_RECOMPUTE_BLOCK; way++) {
        like.config.recompute.way = (enum model_recompute)way;
        same(&like, &want, (struct world){2, 2});
    }
    trial_free(&want);
    like = exact_of(GPT2, 1, 2, 16);
    like.config.optim.kind = OPTIM_KIND_MUON;
    like.config.optim.momentum = 0.9;
    (void)SAME_IN_WORLDS(like, few);
}

/* Groups of unlike speeds. */
static double unlike_ms(const struct ranks_one *one, int step)
{
    (void)step;
    return one->rank < 2 ? 3 : 1;
}

TEST(test_balance)
{
    for (int context = 1; context <= 2; context++) {
        struct trial like = exact_of(LLAMA_TWO, 3 - context, context, 16);
        like.steps = STEP_BALANCE_STEPS + 2;
        struct trial want = trial_run(&like, 1, 2);
        like.config.balances = true;
        like.compute_ms = unlike_ms;
        struct trial got = trial_run(&like, 2, 2);
        trial_same(&got, &want, "dealt by speed");
        assert_true(got.deal[0] < got.deal[1]);
        trial_free(&got);
        trial_free(&want);
    }
}

/* A gradient that is not finite, on a rank whose copy the norm does not count. */
TEST(test_nan)
{
    for (int rank = 0; rank < 2; rank++) {
        struct trial like = exact_of(GPT2, 2, 1, 16);
        like.nan_step = 1;
        like.nan_rank = rank;
        struct trial got = trial_run(&like, 1, 2);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]));
        trial_free(&got);
    }
}

/* That the tests above can fail: TP is in the bits, and without virtual shards groups are. */
TEST(test_without)
{
    for (int context = 1; context <= 2; context++) {
        struct trial like = exact_of(LLAMA_TWO, 3 - context, context, 16),
                     exact = trial_run(&like, 1, 2);
        const size_t bytes = (size_t)exact.elems * sizeof(float);
        like.config.shards = 0;
        struct trial one = trial_run(&like, 1, 2), three = trial_run(&like, 1, 6);
        assert_memory_not_equal(one.state[0], three.state[0], bytes);
        assert_true(trial_apart(&one, &exact) < 1e-6);
        like = exact_of(LLAMA_TWO, 1, 1, 16);
        struct trial alone = trial_run(&like, 1, 1);
        assert_memory_not_equal(alone.state[0], exact.state[0], bytes);
        assert_true(trial_apart(&alone, &exact) < 1e-6);
        trial_free(&alone);
        trial_free(&one);
        trial_free(&three);
        trial_free(&exact);
    }
}

HARNESS_RUN_ALL()
