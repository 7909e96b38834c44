/* test_mesh_virtual_pipe — VIRTUAL_TP with stages of a pipeline: losses, norms and the whole state
 * are those of as many tensor ranks in one stage, to the bit, for every number of tensor ranks,
 * stages and chunks, every schedule and SHARD, with CP, on any number of pipelines. */
#define RANKS_MAX 12
#include "mesh/ask.h"
#include "mesh/virtual.h"
#include "train/step_dry.h"

/* What TP, PP and PP_CHUNKS are, and the ranks: of one pipeline, or of several. */
struct form {
    int tensor, stages, chunks;
    struct world world;
};

/* staged — a model of four layers. */
static struct trial staged(int model, int parts)
{
    struct trial like = trial_like(model, 1, parts);
    like.config.dims.layers = 4;
    return like;
}

static struct trial in_form(struct trial like, const struct form *form)
{
    like.config.axis_ranks[MESH_AXIS_TENSOR] = form->tensor;
    like.config.axis_ranks[MESH_AXIS_PIPELINE] = form->stages;
    like.config.pipe_chunks = form->chunks;
    return like;
}

/* want_of — what `like` computes on a tensor rank for each part, in one stage. */
static struct trial want_of(struct trial like)
{
    const int context = like.config.axis_ranks[MESH_AXIS_CONTEXT];
    like.config.axis_ranks[MESH_AXIS_TENSOR] = like.config.tensor_parts;
    like.config.tensor_parts = 0;
    struct trial want =
        trial_run(&like, 1, like.config.axis_ranks[MESH_AXIS_TENSOR] * (context > 1 ? context : 1));
    assert_int_equal(want.done, like.steps);
    assert_true(isfinite(want.norm[1]) && want.norm[1] > 0);
    return want;
}

/* same_in — in each layout, with SHARD none and full in turns. */
static void same_in(const struct trial *like, const struct form *form, int n, int first)
{
    struct trial want = want_of(*like);
    for (int i = 0; i < n; i++) {
        struct trial one = in_form(*like, &form[i]);
        one.config.store.shard = (first + i) % 2 ? LAYOUT_SHARD_NONE : LAYOUT_SHARD_FULL;
        same(&one, &want, form[i].world);
    }
    trial_free(&want);
}
#define SAME_IN(like, forms, first) \
    same_in(&(like), (forms), (int)(sizeof(forms) / sizeof *(forms)), (first))

/* Messages come early only where no other rank takes part in a pass: TP=1, SHARD=none. */
static const struct form forms[] = {
    {1, 2, 1, {1, 2}}, {1, 2, 1, {2, 1}}, {1, 2, 2, {1, 2}}, {1, 2, 2, {2, 2}}, {1, 2, 1, {2, 2}},
    {1, 3, 1, {3, 1}}, {1, 4, 1, {1, 4}}, {2, 2, 1, {1, 4}}, {2, 2, 2, {4, 1}}, {2, 2, 1, {2, 4}},
    {2, 2, 2, {1, 8}}, {2, 3, 1, {1, 6}}, {2, 4, 1, {2, 4}}, {4, 2, 1, {1, 8}}, {4, 2, 2, {2, 4}}};

static void test_models(void **state)
{
    (void)state;
    for (int model = GPT2; model < MODELS_N; model++) {
        struct trial like = staged(model, PARTS);
        SAME_IN(like, forms, model);
    }
}

/* Every layout with the other SHARD; chunks of unlike numbers of layers; more chunks. */
static void test_layouts(void **state)
{
    static const struct form longer[] = {{1, 2, 3, {1, 2}},
                                         {1, 3, 2, {1, 3}},
                                         {2, 3, 2, {1, 6}},
                                         {2, 2, 3, {1, 4}},
                                         {1, 4, 1, {4, 1}}};
    struct trial like = staged(LLAMA_TWO, PARTS);
    (void)state;
    SAME_IN(like, forms, LLAMA_TWO + 1);
    for (int shard = 0; shard < 2; shard++) {
        like = staged(NEOX, PARTS);
        like.config.dims.layers = 7;
        like.config.global_samples = 12;
        SAME_IN(like, longer, shard);
    }
}

static void test_context(void **state)
{
    static const struct form grouped[] = {{1, 2, 1, {1, 4}},
                                          {1, 2, 2, {2, 2}},
                                          {2, 2, 1, {1, 8}},
                                          {2, 2, 2, {2, 4}},
                                          {1, 3, 1, {2, 6}}};
    (void)state;
    for (int model = GPT2; model < MODELS_N; model++) {
        struct trial like = staged(model, PARTS);
        like.config.axis_ranks[MESH_AXIS_CONTEXT] = 2;
        if (models[model].task == MODEL_TASK_LM)
            SAME_IN(like, grouped, model);
    }
}

/* Every way of recomputing; documents; shards of several micro-batches; other numbers of parts. */
static void test_ways(void **state)
{
    static const struct form few[] = {{1, 2, 1, {1, 2}}, {1, 2, 2, {1, 2}}, {2, 2, 2, {1, 4}}};
    static const struct form alone[] = {{1, 2, 1, {1, 2}}, {1, 2, 2, {1, 4}}};
    (void)state;
    for (int way = 0; way <= MODEL_RECOMPUTE_BLOCK; way++) {
        struct trial like = staged(way % 2 ? LLAMA_TWO : NEOX, PARTS);
        like.config.recompute = (struct model_recomputed){(enum model_recompute)way, way == 2};
        like.config.masks_documents = way % 2;
        SAME_IN(like, few, way);
    }
    struct trial like = staged(QWEN_ONE, PARTS);
    like.config.dims.parts.is_untied = true; /* else a shard is one micro-batch */
    like.config.global_samples = 16;
    like.config.batch_samples = 2;
    SAME_IN(like, few, 0);
    like = staged(LLAMA_TWO, 3);
    like.config.seq_tokens = 24;
    like.config.dims.context = 27;
    like.config.dims.heads = like.config.dims.ffn = 24;
    like.config.dims.kv_heads = 3;
    SAME_IN(like, alone, 0);
}

/* A run goes on in another layout, from the state that rank 0 has read. */
static void test_goes_on(void **state)
{
    static const struct form runs[] = {
        {1, 2, 1, {1, 4}}, {2, 1, 1, {1, 4}}, {2, 2, 2, {1, 4}}, {1, 1, 1, {1, 4}}};
    enum { RUNS = sizeof runs / sizeof *runs };
    (void)state;
    for (int model = GPT2; model < MODELS_N; model++) {
        struct trial like = staged(model, 2);
        like.steps = RUNS;
        struct trial want = want_of(like), got = {.done = 0};
        like.steps = 1;
        for (int i = 0; i < RUNS; i++) {
            struct trial one = in_form(like, &runs[i]);
            one.first_step = i;
            one.config.store.shard = i % 2 ? LAYOUT_SHARD_FULL : LAYOUT_SHARD_NONE;
            got = trial_run(&one, runs[i].world.nodes, runs[i].world.locals);
            assert_int_equal(got.done, 1);
            assert_memory_equal(&got.loss[0], &want.loss[i], sizeof want.loss[i]);
            trial_free(&like);
            for (int part = 0; part < TRIAL_PARTS; part++)
                like.load[part] = like.state[part] = got.state[part];
        }
        for (int part = 0; part < TRIAL_PARTS; part++)
            assert_memory_equal(got.state[part], want.state[part],
                                (size_t)want.elems * sizeof(float));
        trial_free(&got);
        trial_free(&want);
    }
}

/* ---- without training ---- */

#define EVALUATED 5 /* samples: the last micro-batch has one */

struct evaluation {
    struct step_config config;
    double loss[2];
};

/* evaluate — twice, with steps of training before, between and behind: memory is the same. */
static enum status evaluate(struct ranks_one *one)
{
    struct evaluation *e = one->arg;
    struct step_result r;
    struct step *step = NULL;
    struct feed *feed = NULL;
    const struct feed_config samples = {.task = e->config.dims.task == MODEL_TASK_QA ? FEED_TASK_QA
                                                                                     : FEED_TASK_LM,
                                        .data = FEED_SYNTHETIC,
                                        .seq_tokens = e->config.seq_tokens,
                                        .global_samples = e->config.global_samples,
                                        .vocab = e->config.dims.vocab,
                                        .seed = 9};
    enum status st;
    e->config.dev = one->dev;
    e->config.comm = one->comm;
    TRY_OR(feed_open(&samples, &feed), out_close);
    TRY_OR(step_open(&e->config, &step), out_close);
    for (int i = 0; i < 2; i++) {
        TRY_OR(step_run(step, feed, i, i * e->config.global_samples, 1e-2, STEP_FAULT_NONE, &r),
               out_close);
        TRY_OR(step_eval(step, feed, EVALUATED, NULL, NULL, &e->loss[i]), out_close);
    }
    st = step_run(step, feed, 2, 2 * e->config.global_samples, 1e-2, STEP_FAULT_NONE, &r);
out_close:
    step_close(step);
    feed_close(feed);
    return st;
}

static void evaluate_on(const struct trial *like, int ranks, struct evaluation *out)
{
    static struct evaluation all[RANKS_MAX];
    for (int rank = 0; rank < ranks; rank++)
        all[rank] = (struct evaluation){.config = like->config};
    ranks_run(1, ranks, evaluate, all, sizeof *all);
    for (int rank = 1; rank < ranks; rank++)
        assert_memory_equal(all[rank].loss, all[0].loss, sizeof all[0].loss);
    *out = all[0];
}

/* One pipeline adds up the losses of samples in the order of one group. */
static void test_evaluation(void **state)
{
    static const struct form one[] = {{1, 2, 1, {1, 2}}, {1, 2, 2, {1, 2}}, {2, 2, 2, {1, 4}}};
    (void)state;
    for (int model = GPT2; model < MODELS_N; model++) {
        struct trial like = staged(model, PARTS);
        struct evaluation want, got;
        like.config.batch_samples = 2;
        like.config.global_samples = 8;
        struct trial whole = like;
        whole.config.axis_ranks[MESH_AXIS_TENSOR] = PARTS;
        evaluate_on(&whole, PARTS, &want);
        assert_true(isfinite(want.loss[1]) && want.loss[1] != want.loss[0]);
        for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
            struct trial in = in_form(like, &one[i]);
            evaluate_on(&in, one[i].world.locals, &got);
            assert_memory_equal(got.loss, want.loss, sizeof want.loss);
        }
    }
}

static void test_logits(void **state)
{
    static const struct form one[] = {{1, 2, 1, {1, 2}}, {1, 2, 2, {1, 2}}, {2, 2, 1, {1, 4}}};
    static struct ask want[PARTS], got[RANKS_MAX];
    (void)state;
    for (int model = GPT2; model < MODELS_N; model++) {
        struct trial like = staged(model, PARTS);
        const size_t bytes = (size_t)models[model].vocab * sizeof(float);
        if (models[model].task != MODEL_TASK_LM)
            continue;
        like.config.axis_ranks[MESH_AXIS_TENSOR] = PARTS;
        for (int rank = 0; rank < PARTS; rank++)
            want[rank] = (struct ask){.config = like.config, .n = 5};
        ranks_run(1, PARTS, ask_rank, want, sizeof *want);
        for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
            for (int rank = 0; rank < one[i].world.locals; rank++)
                got[rank] = (struct ask){.config = in_form(like, &one[i]).config, .n = 5};
            ranks_run(1, one[i].world.locals, ask_rank, got, sizeof *got);
            for (int rank = 0; rank < one[i].world.locals; rank++)
                assert_memory_equal(got[rank].logits, want[0].logits, bytes);
        }
    }
}

/* ---- plans ---- */

/* What a rank is planned to do in a step. */
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

/* plan_stage — of all tensor ranks of a stage together. */
static struct planned plan_stage(const struct step_config *c, int stage)
{
    const int tensor = c->axis_ranks[MESH_AXIS_TENSOR], stages = c->axis_ranks[MESH_AXIS_PIPELINE];
    struct planned all = {0};
    const struct step_dry_listener listener = {.on_op = on_op, .on_call = on_call, .arg = &all};
    for (int i = 0; i < tensor; i++) {
        const struct step_place place = {.rank = stage * tensor + i, .ranks = tensor * stages};
        struct step_dry_about about;
        assert_int_equal(step_dry_run(c, &place, &listener, &about), ST_OK);
        assert_int_equal(about.stage, stage);
    }
    return all;
}

/* A rank does what as many tensor ranks do together, and its messages are as large as theirs; also
 * in a step of more micro-batches than are walked through. */
static void test_plan(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct form form = {1, 2, 1 + i % 2, {1, 2}};
        struct trial like = staged(LLAMA_TWO, PARTS);
        like.config.shards *= i < 2 ? 1 : 6;
        like.config.global_samples = like.config.shards;
        struct trial few = in_form(like, &form), many = few;
        many.config.axis_ranks[MESH_AXIS_TENSOR] = PARTS;
        for (int stage = 0; stage < 2; stage++) {
            const struct planned got = plan_stage(&few.config, stage),
                                 want = plan_stage(&many.config, stage);
            assert_true(want.products > 0 && want.messages > 0);
            assert_true(got.products == want.products);
            assert_true(got.messages * PARTS == want.messages);
            assert_true(got.message_bytes == want.message_bytes);
        }
    }
}

/* memory_of — of all tensor ranks of a stage together: activations, and what else passes need. */
static void memory_of(const struct step_config *c, int stage, int64_t *acts, int64_t *rest)
{
    const int tensor = c->axis_ranks[MESH_AXIS_TENSOR], stages = c->axis_ranks[MESH_AXIS_PIPELINE];
    *acts = *rest = 0;
    for (int i = 0; i < tensor; i++) {
        const struct step_place place = {.rank = stage * tensor + i, .ranks = tensor * stages};
        struct step_memory m;
        assert_int_equal(step_plan(c, &place, &m), ST_OK);
        *acts += m.activations;
        *rest += m.passes - m.activations;
    }
}

/* Activations are those of the tensor ranks, with an output of each micro-batch in flight through a
 * chunk that the head does not follow. Scratch and inputs take no more. */
static void test_memory(void **state)
{
    static const int outputs[2][2] = {{2, 0},
                                      {4 + 2, 3}}; /* with one chunk, with two; of each stage */
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct form form = {1, 2, 1 + i, {1, 2}};
        struct trial like = staged(LLAMA_TWO, PARTS), few = in_form(like, &form), many = few;
        const int64_t rows = 16 * models[LLAMA_TWO].embed * (int64_t)sizeof(float);
        many.config.axis_ranks[MESH_AXIS_TENSOR] = PARTS;
        for (int stage = 0; stage < 2; stage++) {
            int64_t acts, rest, acts_many, rest_many;
            memory_of(&few.config, stage, &acts, &rest);
            memory_of(&many.config, stage, &acts_many, &rest_many);
            assert_int_equal(acts, acts_many + outputs[i][stage] * rows);
            assert_true(rest <= rest_many);
        }
    }
}

/* ---- what goes wrong ---- */

/* A gradient that is not finite, on any stage. */
static void test_nan(void **state)
{
    static const struct form two = {1, 2, 1, {1, 2}};
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct trial like = staged(LLAMA_TWO, PARTS);
        like = in_form(like, &two);
        like.nan_step = 1;
        like.nan_rank = rank;
        struct trial got = trial_run(&like, 1, 2);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]));
        assert_int_equal(got.step_st, ST_NOT_FINITE);
        trial_free(&got);
    }
}

/* That the tests above can fail: the number of parts is in the bits. */
static void test_without(void **state)
{
    static const struct form two = {1, 2, 2, {1, 2}};
    (void)state;
    struct trial like = staged(LLAMA_TWO, PARTS);
    like = in_form(like, &two);
    struct trial parts = trial_run(&like, 1, 2);
    for (int n = 1; n <= 2; n++) {
        like.config.tensor_parts = n;
        struct trial other = trial_run(&like, 1, 2);
        assert_memory_not_equal(other.state[0], parts.state[0],
                                (size_t)parts.elems * sizeof(float));
        assert_true(trial_apart(&other, &parts) < 1e-5);
        trial_free(&other);
    }
    trial_free(&parts);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_models),  cmocka_unit_test(test_layouts),
    cmocka_unit_test(test_context), cmocka_unit_test(test_ways),
    cmocka_unit_test(test_goes_on), cmocka_unit_test(test_evaluation),
    cmocka_unit_test(test_logits),  cmocka_unit_test(test_plan),
    cmocka_unit_test(test_memory),  cmocka_unit_test(test_nan),
    cmocka_unit_test(test_without)};

HARNESS_MAIN(tests)
