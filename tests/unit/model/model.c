/* model — presets, bounds and flops; logits agree with losses; what is planned is taken, and
 * recomputation takes less; when the token embedding's gradient is ready. */
#include "model/model.h"

#include "dev/dev.h"
#include "harness.h"
#include "kernels/cpu.h"

TEST(test_presets)
{
    static const struct {
        const char *name;
        int64_t parameters; /* as Hugging Face counts the published ones */
    } row[] = {{"gpt2-nano", 7357312},
               {"gpt2-mini", 30339456},
               {"gpt2", 124439808},
               {"gpt2-medium", 354823168},
               {"gpt2-large", 774030080},
               {"gpt2-xl", 1557611200},
               {"gpt2-modern-nano", 13659392},
               {"gpt2-modern-mini", 49245696},
               {"gpt2-modern", 162252288},
               {"llama-toy", 18089216},
               {"llama-2-7b", 6738415616},
               {"llama-2-13b", 13015864320},
               {"llama-2-70b", 68976648192},
               {"llama-3-8b", 8030261248},
               {"llama-3-70b", 70553706496},
               {"llama-3.2-1b", 1235814400},
               {"smollm2-135m", 134515008},
               {"qwen2.5-0.5b", 494032768},
               {"qwen3-0.6b", 596049920},
               {"pythia-70m", 70426624},
               {"pythia-160m", 162322944},
               {"pythia-410m", 405334016},
               {"pythia-1b", 1011781632},
               {"pythia-1.4b", 1414647808},
               {"pythia-2.8b", 2775208960},
               {"pythia-6.9b", 6857302016},
               {"pythia-12b", 11846072320},
               {"gpt-neox-2.7b", 2775208960},
               {"gpt-neox-20b", 20554567680}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct model_dims dims;
        struct param_table t;
        assert_true(model_preset(row[i].name, &dims));
        assert_string_equal(dims.name, row[i].name);
        assert_int_equal(model_check(&dims), ST_OK);
        assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
        assert_int_equal(t.parameters, row[i].parameters);
        param_table_free(&t);
    }
    assert_null(model_preset_name(sizeof row / sizeof *row));
    assert_non_null(model_preset_name(sizeof row / sizeof *row - 1));
    struct model_dims dims;
    assert_false(model_preset("gpt3", &dims));
    assert_false(model_preset("", &dims));
}

TEST(test_check)
{
    struct model_dims good, bad;
    assert_true(model_preset("gpt2", &good));
    bad = good;
    bad.heads = 7;
    assert_int_equal(model_check(&bad), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "HEADS=7 does not divide EMBED=768"));
    int64_t *field[] = {&bad.layers, &bad.heads, &bad.embed, &bad.context, &bad.vocab};
    const int64_t wrong[] = {0, -1, INT64_MAX, INT64_MIN};
    for (size_t f = 0; f < sizeof field / sizeof *field; f++)
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            bad = good;
            *field[f] = wrong[i];
            assert_int_equal(model_check(&bad), ST_BAD_SETTING);
        }
}

static struct model_dims dims_of(enum model_arch arch)
{
    struct model_dims dims = {.layers = 2, .heads = 2, .embed = 8, .context = 8, .vocab = 9};
    dims.arch = arch;
    dims.features = model_arch_features(arch);
    dims.features.rope.theta = 10000;
    dims.features.rope.fraction = 1;
    return dims;
}

/* Words, and the same set written again; NULL: refused. */
TEST(test_targets)
{
    static const struct {
        enum model_arch arch;
        const char *text, *again;
    } rows[] = {{MODEL_ARCH_LLAMA, "all", "all"},
                {MODEL_ARCH_LLAMA, "attention", "attention"},
                {MODEL_ARCH_LLAMA, "mlp", "mlp"},
                {MODEL_ARCH_LLAMA, "attention,mlp", "all"},
                {MODEL_ARCH_LLAMA, "v,q", "q,v"},
                {MODEL_ARCH_LLAMA, "q_proj, v_proj", "q,v"},
                {MODEL_ARCH_LLAMA, "self_attn.o_proj,mlp.gate_proj", "o,gate"},
                {MODEL_ARCH_LLAMA, "qkv,o", "attention"},
                {MODEL_ARCH_LLAMA, "up,down,gate", "mlp"},
                {MODEL_ARCH_QWEN3, "k,up,down", "k,up,down"},
                {MODEL_ARCH_GPT2, "all", "all"},
                {MODEL_ARCH_GPT2, "qkv", "qkv"},
                {MODEL_ARCH_GPT2, "c_attn", "qkv"},
                {MODEL_ARCH_GPT2, "q,k,v,o", "attention"},
                {MODEL_ARCH_GPT2, "c_proj", "o,down"},
                {MODEL_ARCH_GPT2, "mlp.c_proj", "down"},
                {MODEL_ARCH_GPT2, "up,down", "mlp"},
                {MODEL_ARCH_NEOX, "query_key_value,dense", "attention"},
                {MODEL_ARCH_NEOX, "dense_h_to_4h", "up"},
                {MODEL_ARCH_GPT2, "q", NULL},
                {MODEL_ARCH_GPT2, "q,v", NULL},
                {MODEL_ARCH_GPT2, "gate", NULL},
                {MODEL_ARCH_GPT2, "q_proj", NULL},
                {MODEL_ARCH_LLAMA, "c_attn", NULL},
                {MODEL_ARCH_LLAMA, "", NULL},
                {MODEL_ARCH_LLAMA, ",", NULL},
                {MODEL_ARCH_LLAMA, "q,,v", NULL},
                {MODEL_ARCH_LLAMA, "proj", NULL},
                {MODEL_ARCH_LLAMA, "Q", NULL},
                {MODEL_ARCH_LLAMA, "lm_head", NULL}};
    char text[MODEL_TARGETS_TEXT_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_dims dims = dims_of(rows[i].arch);
        const enum status st =
            model_targets_parse(&dims, "LORA_TARGETS", rows[i].text, &dims.adapter.targets);
        assert_int_equal(st, rows[i].again ? ST_OK : ST_BAD_SETTING);
        if (!rows[i].again)
            continue;
        assert_string_equal(model_targets_text(&dims, text), rows[i].again);
        dims.adapter.r = 2;
        dims.adapter.alpha = 4;
        assert_int_equal(model_check(&dims), ST_OK);
        /* The table has two factors for each matrix, and only matrices of the set. */
        struct param_table t;
        assert_int_equal(model_describe_trained(&dims, &t), ST_OK);
        unsigned seen = 0;
        for (int p = 0; p < t.params_n; p++)
            seen |= model_targets_of(&dims, t.param[p].name);
        assert_int_equal(seen, dims.adapter.targets);
        param_table_free(&t);
    }
    struct model_dims dims = dims_of(MODEL_ARCH_GPT2);
    assert_int_equal(model_targets_of(&dims, "h.0.attn.c_proj.lora_A.weight"), MODEL_TARGET_O);
    assert_int_equal(model_targets_of(&dims, "h.0.ln_1.weight"), 0);
    dims.adapter = (struct model_adapter){.r = 2, .alpha = 4, .targets = MODEL_TARGET_V};
    assert_int_equal(model_check(&dims), ST_BAD_SETTING);
    dims.adapter.targets = 0;
    assert_int_equal(model_check(&dims), ST_BAD_SETTING);
    dims.adapter.targets = 1u << 20;
    assert_int_equal(model_check(&dims), ST_BAD_SETTING);
}

TEST(test_flops)
{
    struct model_dims dims;
    assert_true(model_preset("gpt2", &dims));
    assert_float_equal(model_flops_per_token(&dims, 0), 741.2e6, 0.1e6); /* 6 · (12LC² + VC) */
    assert_float_equal(model_flops_per_token(&dims, 1024) - model_flops_per_token(&dims, 0),
                       6.0 * 12 * 768 * 1024, 1);
    dims.task = MODEL_TASK_QA; /* no vocabulary product */
    assert_float_equal(model_flops_per_token(&dims, 0), 6.0 * (12.0 * 12 * 768 * 768 + 2 * 768), 1);
}

static const struct model_dims tiny = {
    .name = "tiny", .layers = 3, .heads = 2, .embed = 16, .context = 10, .vocab = 21};

static size_t planned(struct model_recomputed what, bool want_grad, size_t *scratch_out)
{
    struct arena acts, scratch;
    struct model_acts *plan;
    arena_init(&acts, "acts", NULL, 0);
    arena_init(&scratch, "scratch", NULL, 0);
    assert_int_equal(model_plan(&tiny, 8, 10, what, want_grad, DTYPE_F32, &acts, &scratch, &plan),
                     ST_OK);
    model_plan_free(plan);
    *scratch_out = scratch.used_bytes;
    return acts.used_bytes;
}

static size_t planned_as(enum model_recompute way, bool want_grad, size_t *scratch_out)
{
    return planned((struct model_recomputed){.way = way}, want_grad, scratch_out);
}

TEST(test_plan)
{
    size_t s[5], light = planned_as(MODEL_RECOMPUTE_LIGHT, true, &s[0]),
                 attention = planned_as(MODEL_RECOMPUTE_ATTENTION, true, &s[1]);
    size_t block = planned_as(MODEL_RECOMPUTE_BLOCK, true, &s[2]),
           eval = planned_as(MODEL_RECOMPUTE_NONE, false, &s[3]);
    size_t all = planned_as(MODEL_RECOMPUTE_NONE, true, &s[4]);
    size_t c = 80 * 16 * sizeof(float);       /* one (N,C) */
    assert_int_equal(all - light, 3 * 6 * c); /* the outputs of LayerNorm and GELU */
    assert_int_equal(s[4], s[0]);
    /* 10C a block, and a few numbers a row */
    assert_true(light >= (3 * 10 + 1) * c && light < (3 * 11 + 2) * c);
    assert_true(attention < light - 3 * 4 * c + c);
    assert_true(block < 6 * c);
    assert_true(eval < block);
    assert_true(s[0] < s[1] && s[1] < s[2]);
    model_plan_free(NULL);
}

/* Number by number less is kept, and what is kept and scratch together never grow. The numbers of
 * whole ways are those ways. */
TEST(test_plan_by_layer)
{
    const int64_t layers = tiny.layers;
    size_t kept = SIZE_MAX, all = SIZE_MAX;
    for (int64_t i = 0; i <= MODEL_RECOMPUTE_BLOCK * layers; i++) {
        struct model_recomputed what = model_recompute_nth(layers, i);
        size_t scratch, acts = planned(what, true, &scratch), whole_scratch;
        assert_true(acts < kept && acts + scratch <= all);
        if (i % layers == 0) {
            struct model_recomputed whole = {.way = (enum model_recompute)(i / layers)};
            assert_int_equal(planned(whole, true, &whole_scratch), acts);
            assert_int_equal(scratch, whole_scratch);
        }
        kept = acts;
        all = acts + scratch;
    }
}

TEST(test_recompute_by_layer)
{
    char text[32];
    const struct model_recomputed what = {MODEL_RECOMPUTE_BLOCK, 2};
    assert_int_equal(model_recompute_of(what, 1), MODEL_RECOMPUTE_BLOCK);
    assert_int_equal(model_recompute_of(what, 2), MODEL_RECOMPUTE_ATTENTION);
    assert_int_equal(model_recompute_of((struct model_recomputed){.layers = 0}, 7),
                     MODEL_RECOMPUTE_NONE);
    assert_string_equal(model_recompute_text(what, text, sizeof text), "block:2");
    static const char *const want[] = {"none", "light:1", "light:2", "light", "attention:1",
                                       NULL,   NULL,      NULL,      NULL,    "block"};
    for (int i = 0; i < 10; i++)
        if (want[i])
            assert_string_equal(model_recompute_text(model_recompute_nth(3, i), text, sizeof text),
                                want[i]);
}

/* A pass through the tiny model, and its memory. */
struct rig {
    struct dev *dev;
    struct stream *stream;
    struct param_table t;
    float *params, *grads, *losses;
    int32_t *tokens, *targets;
    char *memory[2];
    struct arena arena[2]; /* acts, scratch */
    struct pass p;
};

static void rig_open(struct rig *r, int64_t b, int64_t t, bool want_grad)
{
    const int64_t n = b * t;
    assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &r->dev), ST_OK);
    assert_int_equal(dev_stream_open(r->dev, &r->stream), ST_OK);
    assert_int_equal(model_ops(&tiny)->describe(&tiny, &r->t), ST_OK);
    r->params = calloc((size_t)r->t.total_elems, sizeof *r->params);
    r->grads = calloc((size_t)r->t.total_elems, sizeof *r->grads);
    r->losses = calloc((size_t)n, sizeof *r->losses);
    r->tokens = calloc((size_t)n, sizeof *r->tokens);
    r->targets = calloc((size_t)n, sizeof *r->targets);
    for (int i = 0; i < r->t.params_n; i++)
        param_fill(&r->t, i, 1, 0, r->t.param[i].elems, r->params + r->t.param[i].offset);
    for (int64_t i = 0; i < r->t.param[0].elems; i++)
        r->params[i] *= 30; /* large enough for logits that differ */
    for (int i = 0; i < n; i++) {
        r->tokens[i] = i * 7 % 21;
        r->targets[i] = i * 5 % 21;
    }
    for (int i = 0; i < 2; i++) {
        r->memory[i] = aligned_alloc(64, 1 << 22);
        arena_init(&r->arena[i], i == 0 ? "acts" : "scratch", r->memory[i], 1 << 22);
    }
    r->p = (struct pass){.dims = &tiny,
                         .table = &r->t,
                         .grad_table = &r->t,
                         .b = b,
                         .t = t,
                         .op = dev_op(r->dev),
                         .stream = r->stream,
                         .tensor = &model_axis_self,
                         .context = &model_axis_self,
                         .params = {r->params, DTYPE_F32},
                         .grads = {r->grads, DTYPE_F32},
                         .tokens = {r->tokens, DTYPE_I32},
                         .targets = {r->targets, DTYPE_I32},
                         .losses = {r->losses, DTYPE_F32},
                         .want_grad = want_grad,
                         .scale = 1};
    assert_int_equal(model_plan(&tiny, b, t, (struct model_recomputed){0}, want_grad, DTYPE_F32,
                                &r->arena[0], &r->arena[1], &r->p.acts),
                     ST_OK);
    assert_int_equal(model_ops(&tiny)->embed_fwd(&r->p), ST_OK);
    for (int block = 0; block < tiny.layers; block++)
        assert_int_equal(model_ops(&tiny)->block_fwd(&r->p, block), ST_OK);
}

static void rig_close(struct rig *r)
{
    model_plan_free(r->p.acts);
    param_table_free(&r->t);
    for (int i = 0; i < 2; i++)
        free(r->memory[i]);
    free(r->params), free(r->grads), free(r->losses), free(r->tokens), free(r->targets);
    dev_stream_close(r->stream);
    dev_close(r->dev);
}

/* −log softmax(logits)[target] of a row is that row's loss. */
TEST(test_logits)
{
    struct rig r;
    float logits[21];
    rig_open(&r, 2, 10, false);
    assert_int_equal(model_ops(&tiny)->head(&r.p), ST_OK);
    for (int row = 0; row < 20; row++) {
        double sum = 0;
        assert_int_equal(model_ops(&tiny)->logits(&r.p, row, (struct tensor){logits, DTYPE_F32}),
                         ST_OK);
        for (int v = 0; v < 21; v++)
            sum += exp(logits[v]);
        assert_float_equal(log(sum) - logits[r.targets[row]], r.losses[row], 1e-5);
    }
    rig_close(&r);
}

struct told {
    const float *table;
    float then[21 * 16]; /* the embedding's gradient at the call */
    int calls;
};

static enum status note_table(void *arg)
{
    struct told *told = arg;
    memcpy(told->then, told->table, sizeof told->then);
    told->calls++;
    return ST_OK;
}

/* More rows than a chunk has: one call, and the head adds nothing after it. */
TEST(test_embedding_grad_ready)
{
    struct rig r;
    rig_open(&r, 120, 10, true);
    struct told told = {.table = r.grads + r.t.param[0].offset};
    r.p.embedding_grad_ready = note_table;
    r.p.embedding_grad_ready_arg = &told;
    assert_int_equal(model_ops(&tiny)->head(&r.p), ST_OK);
    assert_int_equal(told.calls, 1);
    assert_memory_equal(told.then, told.table, sizeof told.then);
    assert_true(told.then[0] != 0);
    rig_close(&r);
}

HARNESS_RUN_ALL()
