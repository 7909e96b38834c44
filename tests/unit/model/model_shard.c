/* model_shard — the shards of a model are the whole: names, offsets and initial values of all
 * architectures, for ranks of a tensor group and stages of a pipeline; which shards are refused. */
#include "model/model.h"

#include "harness.h"

#define LAYERS 5

/* Odd sizes: 31 tokens are no multiple of any number of ranks. */
static struct model_dims dims_of(enum model_arch arch, int64_t kv_heads)
{
    struct model_dims dims = {.name = "odd",
                              .arch = arch,
                              .layers = LAYERS,
                              .heads = 8,
                              .kv_heads = kv_heads,
                              .embed = 64,
                              .context = 10,
                              .vocab = 31,
                              .features = model_arch_features(arch)};
    if (arch == MODEL_ARCH_LLAMA || arch == MODEL_ARCH_QWEN3)
        dims.head_dim = 10;
    if (arch != MODEL_ARCH_GPT2)
        dims.ffn = 44;
    return dims;
}

/* The whole model's initial values, those that its shards gave, and how often each was given. */
struct assembled {
    struct param_table t;
    float *want, *got;
    int *times;
};

/* Each run of a shard's tensor to its range of the whole. */
static void put_param(struct assembled *g, const struct param_table *t, int i)
{
    const struct param *own = &t->param[i];
    const struct param *whole = &g->t.param[own->whole_param];
    float *values = calloc((size_t)own->elems, sizeof *values);
    assert_string_equal(own->name, whole->name);
    assert_int_equal(own->init, whole->init);
    param_fill(t, i, 9, 0, own->elems, values);
    int64_t at, run;
    for (int64_t first = 0; first < own->elems; first += run) {
        run = param_run(own, first, &at);
        assert_true(run > 0 && at + run <= whole->elems);
        memcpy(g->got + whole->offset + at, values + first, (size_t)run * sizeof *values);
        for (int64_t k = 0; k < run; k++)
            g->times[whole->offset + at + k]++;
    }
    /* a range that begins and ends anywhere gives the same bits */
    float *again = calloc((size_t)own->elems, sizeof *again);
    for (int64_t first = 0, n; first < own->elems; first += n) {
        n = own->elems - first < 37 ? own->elems - first : 37;
        param_fill(t, i, 9, first, n, again + first);
    }
    assert_memory_equal(values, again, (size_t)own->elems * sizeof *values);
    free(values), free(again);
}

static void put_shard(struct assembled *g, const struct model_dims *whole,
                      const struct model_shard *shard)
{
    struct model_dims dims;
    struct param_table t;
    assert_int_equal(model_shard_dims(whole, shard, &dims), ST_OK);
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    assert_int_equal(t.units_n, dims.layers + 2);
    assert_int_equal(t.layers, LAYERS);
    int64_t end = 0, offset, elems;
    for (int unit = 0; unit < t.units_n; unit++) {
        param_unit_span(&t, unit, &offset, &elems);
        assert_int_equal(offset, end);
        end += elems;
    }
    assert_int_equal(end, t.total_elems);
    param_pad(&t, 64);
    for (int i = 0; i < t.params_n; i++)
        put_param(g, &t, i);
    param_table_free(&t);
}

/* How often a parameter of the whole is somewhere: once, on each rank of the tensor group, and the
 * tied embedding on the last stage too. */
static void check_all(const struct assembled *g, const struct model_dims *whole, int ranks,
                      int stages)
{
    for (int i = 0; i < g->t.params_n; i++) {
        const struct param *p = &g->t.param[i];
        bool is_cut = p->split_dim >= 0,
             is_keys = strstr(p->name, "k_proj") || strstr(p->name, "v_proj");
        int64_t heads = model_kv_heads(whole);
        int times = !is_cut ? ranks : is_keys && heads < ranks ? ranks / (int)heads : 1;
        if (i == 0 && stages > 1 && !whole->features.is_untied && whole->task == MODEL_TASK_LM)
            times *= 2;
        assert_memory_equal(g->got + p->offset, g->want + p->offset,
                            (size_t)p->elems * sizeof(float));
        for (int64_t k = 0; k < p->elems; k++)
            if (g->times[p->offset + k] != times)
                fail_msg("%s: element %lld is in %d shards, not %d", p->name, (long long)k,
                         g->times[p->offset + k], times);
    }
}

/* chunks: of each stage; 0: there is one stage. */
static struct model_shard shard_of(int rank, int ranks, int stage, int stages, int chunks)
{
    struct model_shard shard = {.tensor_rank = rank,
                                .tensor_ranks = ranks,
                                .lacks_embed = stage > 0,
                                .lacks_head = stage + 1 < stages};
    for (int i = 0; i < chunks; i++) {
        int n = stages * chunks, at = i * stages + stage;
        int64_t first = LAYERS * at / n, end = LAYERS * (at + 1) / n;
        shard.chunk[shard.chunks_n].first = first;
        shard.chunk[shard.chunks_n++].n = end - first;
    }
    return shard;
}

static void check_split(const struct model_dims *whole, int ranks, int stages, int chunks)
{
    struct assembled g;
    assert_int_equal(model_ops(whole)->describe(whole, &g.t), ST_OK);
    size_t n = (size_t)g.t.total_elems;
    g.want = calloc(n, sizeof *g.want);
    g.got = calloc(n, sizeof *g.got);
    g.times = calloc(n, sizeof *g.times);
    for (int i = 0; i < g.t.params_n; i++) {
        assert_int_equal(g.t.param[i].whole_param, i);
        assert_int_equal(g.t.param[i].tensor_copies, 1);
        assert_int_equal(g.t.param[i].cut.whole, 0);
        assert_false(g.t.param[i].grad_is_partial);
        param_fill(&g.t, i, 9, 0, g.t.param[i].elems, g.want + g.t.param[i].offset);
    }
    for (int stage = 0; stage < stages; stage++)
        for (int rank = 0; rank < ranks; rank++) {
            struct model_shard shard = shard_of(rank, ranks, stage, stages, chunks);
            put_shard(&g, whole, &shard);
        }
    check_all(&g, whole, ranks, stages);
    param_table_free(&g.t);
    free(g.want), free(g.got), free(g.times);
}

static void check_splits(struct model_dims whole)
{
    assert_int_equal(model_check(&whole), ST_OK);
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        check_split(&whole, ranks, 1, 0);
        check_split(&whole, ranks, 1, 1);
        check_split(&whole, ranks, 2, 1);
        check_split(&whole, ranks, 2, 2);
        check_split(&whole, ranks, 5, 1);
    }
}

TEST(test_shards_are_the_whole)
{
    for (int arch = 0; arch < MODEL_ARCH_N; arch++)
        check_splits(dims_of((enum model_arch)arch, 0));
    for (int64_t kv = 1; kv <= 4; kv *= 2) {
        check_splits(dims_of(MODEL_ARCH_LLAMA, kv));
        check_splits(dims_of(MODEL_ARCH_QWEN2, kv));
        check_splits(dims_of(MODEL_ARCH_QWEN3, kv));
    }
    struct model_dims qa = dims_of(MODEL_ARCH_GPT2, 0), untied = dims_of(MODEL_ARCH_LLAMA, 2);
    qa.task = MODEL_TASK_QA;
    untied.features.is_untied = !untied.features.is_untied;
    check_splits(qa);
    check_splits(untied);
}

/* What one rank of four has, in numbers. */
TEST(test_dims)
{
    struct model_dims whole = dims_of(MODEL_ARCH_LLAMA, 2), d;
    struct model_shard shard = shard_of(3, 4, 1, 2, 2);
    assert_int_equal(model_shard_dims(&whole, &shard, &d), ST_OK);
    assert_int_equal(d.heads, 2);
    assert_int_equal(d.kv_heads, 1);
    assert_int_equal(d.head_dim, 10);
    assert_int_equal(d.ffn, 11);
    assert_int_equal(d.embed, 64);
    assert_int_equal(d.vocab, 31);
    assert_int_equal(d.layers, 3); /* 1 and 3, 4 */
    assert_int_equal(model_layer(&d, 0), 1);
    assert_int_equal(model_layer(&d, 1), 3);
    assert_int_equal(model_layer(&d, 2), 4);
    assert_int_equal(d.shard.layers, 5);
    assert_int_equal(d.shard.kv_heads, 2);
    int64_t first, n;
    model_vocab_shard(&d, &first, &n);
    assert_int_equal(first, 23);
    assert_int_equal(n, 8);
}

/* The flags by which gradients are summed and counted. */
TEST(test_shared)
{
    struct model_dims whole = dims_of(MODEL_ARCH_QWEN3, 2), d;
    struct model_shard shard = shard_of(2, 4, 0, 1, 0);
    struct param_table t;
    assert_int_equal(model_shard_dims(&whole, &shard, &d), ST_OK);
    assert_int_equal(model_ops(&d)->describe(&d, &t), ST_OK);
    static const struct {
        const char *name;
        int copies;
        bool is_partial;
    } row[] = {{"embed_tokens.weight", 1, false},
               {"layers.0.input_layernorm.weight", 4, true},
               {"layers.0.self_attn.q_proj.weight", 1, false},
               {"layers.0.self_attn.k_proj.weight", 2, true},
               {"layers.0.self_attn.v_proj.weight", 2, true},
               {"layers.0.self_attn.q_norm.weight", 4, true},
               {"layers.0.self_attn.k_norm.weight", 4, true},
               {"layers.0.self_attn.o_proj.weight", 1, false},
               {"layers.0.mlp.down_proj.weight", 1, false},
               {"norm.weight", 4, true}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct param *p = param_find(&t, row[i].name);
        assert_non_null(p);
        assert_int_equal(p->tensor_copies, row[i].copies);
        assert_int_equal(p->grad_is_partial, row[i].is_partial);
    }
    assert_int_equal(param_find(&t, "layers.0.self_attn.k_proj.weight")->cut.first, 10);
    param_table_free(&t);
}

/* A bias of a product by columns of its input: the same on all ranks, its gradient complete. q, k
 * and v in one tensor are three groups of GPT-2's, and one of NeoX's. */
TEST(test_biases_and_groups)
{
    static const struct {
        enum model_arch arch;
        const char *bias, *fused;
        int groups;
    } row[] = {{MODEL_ARCH_GPT2, "h.1.attn.c_proj.bias", "h.1.attn.c_attn.bias", 3},
               {MODEL_ARCH_NEOX, "layers.1.attention.dense.bias",
                "layers.1.attention.query_key_value.bias", 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct model_dims whole = dims_of(row[i].arch, 0), d;
        struct model_shard shard = shard_of(1, 2, 0, 1, 0);
        struct param_table t;
        assert_int_equal(model_shard_dims(&whole, &shard, &d), ST_OK);
        assert_int_equal(model_ops(&d)->describe(&d, &t), ST_OK);
        const struct param *bias = param_find(&t, row[i].bias),
                           *fused = param_find(&t, row[i].fused);
        assert_non_null(bias);
        assert_non_null(fused);
        assert_int_equal(bias->tensor_copies, 2);
        assert_false(bias->grad_is_partial);
        assert_int_equal(fused->cut.whole, 3 * 64);
        assert_int_equal(fused->cut.groups, row[i].groups);
        assert_int_equal(fused->cut.n, 96 / row[i].groups);
        assert_int_equal(fused->cut.first, 96 / row[i].groups);
        param_table_free(&t);
    }
}

/* A stage that has the head of a tied model, or neither end. */
TEST(test_stages)
{
    struct model_dims whole = dims_of(MODEL_ARCH_GPT2, 0), d;
    struct param_table t;
    for (int stage = 0; stage < 3; stage++) {
        struct model_shard shard = shard_of(0, 1, stage, 3, 1);
        assert_int_equal(model_shard_dims(&whole, &shard, &d), ST_OK);
        assert_int_equal(model_ops(&d)->describe(&d, &t), ST_OK);
        const struct param *wte = param_find(&t, "wte.weight");
        assert_int_equal(wte != NULL, stage != 1);
        assert_int_equal(param_find(&t, "wpe.weight") != NULL, stage == 0);
        assert_int_equal(param_find(&t, "ln_f.bias") != NULL, stage == 2);
        if (wte)
            assert_int_equal(wte->grad_is_added, stage == 0);
        param_table_free(&t);
    }
}

static void refused(struct model_dims whole, struct model_shard shard, const char *why)
{
    struct model_dims out = {.layers = -7};
    assert_int_equal(model_shard_dims(&whole, &shard, &out), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), why));
    assert_int_equal(out.layers, -7);
}

TEST(test_refusals)
{
    struct model_dims whole = dims_of(MODEL_ARCH_LLAMA, 4);
    refused(whole, shard_of(0, 3, 0, 1, 0), "TP=3 does not divide HEADS=8");
    refused(whole, shard_of(0, 8, 0, 1, 0), "TP=8 does not divide FFN=44");
    whole.heads = 6;
    whole.kv_heads = 3;
    refused(whole, shard_of(0, 2, 0, 1, 0), "TP=2 and KV_HEADS=3");
    whole.vocab = 1;
    whole.heads = 4;
    whole.kv_heads = 1;
    refused(whole, shard_of(0, 4, 0, 1, 0), "TP=4 is more than VOCAB=1");
    refused(whole, shard_of(0, 1, 0, 6, 1), "has 0 layers from layer 0 on");
    struct model_shard shard = {.chunks_n = 2, .chunk = {{1, 2}, {2, 2}}};
    refused(whole, shard, "has 2 layers from layer 2 on");
    shard = (struct model_shard){.chunks_n = 1, .chunk = {{3, 3}}};
    refused(whole, shard, "has 3 layers from layer 3 on, but the model has LAYERS=5");
}

static void measure(const struct model_dims *dims, enum model_recompute way, size_t *acts,
                    size_t *scratch)
{
    struct arena arena[2];
    struct model_acts *plan;
    arena_init(&arena[0], "acts", NULL, 0);
    arena_init(&arena[1], "scratch", NULL, 0);
    assert_int_equal(model_plan(dims, 4, 512, (struct model_recomputed){.way = way}, true,
                                DTYPE_F32, &arena[0], &arena[1], &plan),
                     ST_OK);
    model_plan_free(plan);
    *acts = arena[0].used_bytes;
    *scratch = arena[1].used_bytes;
}

/* Activations of a rank are a rank's share of the whole's, whatever is kept. Of the scratch the
 * gathered rows are not divided. */
TEST(test_memory_is_divided)
{
    static const char *const preset[] = {"gpt2", "llama-3.2-1b", "pythia-160m", "qwen3-0.6b"};
    for (size_t i = 0; i < sizeof preset / sizeof *preset; i++)
        for (int r = MODEL_RECOMPUTE_NONE; r < MODEL_RECOMPUTE_AUTO; r++)
            for (int ranks = 2; ranks <= 4; ranks += 2) {
                struct model_dims whole, dims;
                struct model_shard shard = shard_of(ranks - 1, ranks, 0, 1, 0);
                size_t want, got, scratch, own_scratch;
                assert_true(model_preset(preset[i], &whole));
                assert_int_equal(model_shard_dims(&whole, &shard, &dims), ST_OK);
                measure(&whole, (enum model_recompute)r, &want, &scratch);
                measure(&dims, (enum model_recompute)r, &got, &own_scratch);
                assert_float_equal((double)got * ranks / (double)want, 1, 1e-3);
                size_t rows = 4 * 512 * (size_t)whole.embed * sizeof(float);
                /* rope and the statistics of a chunk's rows are not divided either */
                assert_true(own_scratch - rows < scratch / (size_t)ranks + (1 << 18));
            }
}

/* A share of a sample's rows that ranks cannot exchange. */
TEST(test_rows_are_refused)
{
    struct model_dims whole = dims_of(MODEL_ARCH_GPT2, 0), dims;
    struct model_shard shard = shard_of(0, 4, 0, 1, 0);
    struct arena arena[2];
    struct model_acts *plan;
    arena_init(&arena[0], "acts", NULL, 0);
    arena_init(&arena[1], "scratch", NULL, 0);
    assert_int_equal(model_shard_dims(&whole, &shard, &dims), ST_OK);
    assert_int_equal(model_plan(&dims, 4, 10, (struct model_recomputed){0}, true, DTYPE_F32,
                                &arena[0], &arena[1], &plan),
                     ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "TP=4 does not divide SEQ_LEN=10 rows"));
}

HARNESS_RUN_ALL()
