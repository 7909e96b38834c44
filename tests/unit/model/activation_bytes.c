/* activation_bytes — what a rank keeps for its backward passes, and its scratch, are the
 * formulas of docs/multi-node.md ("Memory of a rank") within 2 %: for each architecture, TP, CP,
 * PP, RECOMPUTE and type, and the micro-batches that a stage has in flight. */
#include "harness.h"

#include "mesh/pipe/split.h"
#include "train/step/step.h"
#include "train/step/memory.h"

enum { B = 2, T = 512 };

/* The numbers of the formulas: e bytes of an element, p tensor ranks, n own rows of a micro-batch
 * with t tokens of each sample, kv the width of keys and values, exchanged with a context axis. */
struct sizes {
    double e, p, n, t, kv, m, c, f, u, att, q, h, raw, stats, rotated;
    bool is_parallel;
};

static struct sizes sizes_of(const struct model_dims *dims, int p, int context, enum dtype dtype)
{
    double d = (double)model_head_dim(dims), kv = (double)model_kv_heads(dims);
    double own_kv = kv >= p ? kv / p : 1; /* fewer key heads than ranks: each has one */
    bool has_gate = dims->features.mlp == MODEL_MLP_SWIGLU;
    struct sizes s = {.e = (double)dtype_bytes(dtype),
                      .p = p,
                      .n = (double)(B * T / context),
                      .t = (double)(T / context),
                      .m = (double)(B * T / context) / p,
                      .c = (double)dims->embed,
                      .f = (double)model_ffn(dims) / p,
                      .att = (double)dims->heads * d / p,
                      .h = (double)dims->heads / p,
                      .stats = dims->features.norm == MODEL_NORM_LAYER ? 8 : 4,
                      .is_parallel = dims->features.is_parallel};
    s.u = has_gate ? 2 * s.f : s.f;
    s.q = s.att + 2 * own_kv * d;
    s.kv = context > 1 ? 2 * own_kv * d : 0;
    s.raw = dims->features.has_qk_norm ? s.q : 0;
    s.rotated =
        dims->features.position == MODEL_POSITION_ROPE ? d * dims->features.rope.fraction : 0;
    return s;
}

static double attention(const struct sizes *s)
{
    return s->e * s->n * (s->q + s->raw + s->att) + 4 * s->n * s->h;
}

static double rest(const struct sizes *s)
{
    return s->e * ((s->is_parallel ? 0 : s->m * s->c) + s->n * s->u) + 2 * s->stats * s->m;
}

static double outputs(const struct sizes *s) { return s->e * (2 * s->m * s->c + s->n * s->f); }

/* layer — what one layer keeps. */
static double layer(const struct sizes *s, enum model_recompute way)
{
    double bytes = s->e * s->m * s->c;
    bytes += way < MODEL_RECOMPUTE_BLOCK ? rest(s) : 0;
    bytes += way < MODEL_RECOMPUTE_ATTENTION ? attention(s) : 0;
    return bytes + (way < MODEL_RECOMPUTE_LIGHT ? outputs(s) : 0);
}

/* pass — what one micro-batch keeps in layers [first, end), with the output of the last one. */
static double pass(const struct sizes *s, struct model_recomputed what, int64_t first, int64_t end)
{
    double bytes = s->e * s->m * s->c + s->stats * s->m;
    for (int64_t i = first; i < end; i++)
        bytes += layer(s, model_recompute_of(what, i));
    return bytes;
}

/* scratch — of all layers of a model. Logits: `rows` of them at a time. */
static double scratch(const struct sizes *s, const struct model_dims *dims,
                      struct model_recomputed what, double rows)
{
    double wide = s->q + s->att, mlp = dims->features.mlp == MODEL_MLP_SWIGLU ? 3 * s->f : s->f;
    double logits = rows * (double)dims->vocab / s->p;
    wide = s->n * (wide > mlp ? wide : mlp);
    double bytes =
        s->e * ((s->is_parallel ? 3 : 2) * s->m * s->c + (wide > logits ? wide : logits));
    bytes += s->p > 1 ? s->e * s->n * s->c + 12 * s->p * rows : 0;
    bytes += 4 * s->t * s->rotated + 2 * s->e * B * T * s->kv;
    enum model_recompute most = model_recompute_of(what, 0);
    bytes += most >= MODEL_RECOMPUTE_ATTENTION ? attention(s) : 0;
    return bytes + (most >= MODEL_RECOMPUTE_BLOCK ? rest(s) : 0);
}

static void near(double got, double want, const char *name, const char *what)
{
    double off = got / want - 1;
    if (off > 0.02 || off < -0.02)
        fail_msg("%s, %s: %.0f bytes, by the formula %.0f (%+.1f %%)", name, what, got, want,
                 100 * off);
}

/* ---- a rank of a mesh ---- */

struct form {
    const char *preset;
    int tensor, context, stages, micros;
    enum dtype dtype;
    struct model_recomputed what;
};

static struct step_config config_of(const struct form *form)
{
    struct step_config c = {.batch_samples = B,
                            .global_samples = (int64_t)form->micros * B,
                            .seq_tokens = T,
                            .recompute = form->what,
                            .pipe_chunks = 1,
                            .store.dtype = form->dtype,
                            .optim.kind = OPTIM_KIND_ADAMW};
    assert_true(model_preset(form->preset, &c.dims));
    model_resolve(&c.dims);
    c.axis_ranks[MESH_AXIS_TENSOR] = form->tensor;
    c.axis_ranks[MESH_AXIS_CONTEXT] = form->context;
    c.axis_ranks[MESH_AXIS_PIPELINE] = form->stages;
    return c;
}

/* check_stage — the activations of a stage: of as many micro-batches as it has in flight. */
static void check_stage(const struct form *form, int stage)
{
    struct step_config c = config_of(form);
    struct sizes s = sizes_of(&c.dims, form->tensor, form->context, form->dtype);
    const int group = form->tensor * form->context;
    const struct step_place place = {.rank = stage * group, .ranks = form->stages * group};
    struct step_memory memory;
    double cost[128];
    int64_t first[9] = {0, c.dims.layers};
    char name[128], way[32];
    if (form->stages > 1) {
        pipe_split_costs(&c.dims, T, form->what, cost);
        assert_int_equal(pipe_split(cost, c.dims.layers, form->stages, 1, first), ST_OK);
    }
    assert_int_equal(step_plan(&c, &place, &memory), ST_OK);
    int left = form->stages - stage, flying = form->micros < left ? form->micros : left;
    text_format(name, sizeof name,
                "%s TP=%d CP=%d PP=%d stage %d of %d micro-batches, %s, RECOMPUTE=%s", form->preset,
                form->tensor, form->context, form->stages, stage, form->micros,
                form->dtype == DTYPE_F32 ? "fp32" : "bf16",
                model_recompute_text(form->what, way, sizeof way));
    near((double)memory.activations,
         (form->stages > 1 ? flying : 1) * pass(&s, form->what, first[stage], first[stage + 1]),
         name, "kept");
}

/* check_scratch — of the whole model's layers. */
static void check_scratch(const struct form *form)
{
    struct step_config c = config_of(form);
    struct model_shard shard = {.tensor_ranks = form->tensor,
                                .tensor_rank = form->tensor - 1,
                                .context_ranks = form->context};
    struct sizes s = sizes_of(&c.dims, form->tensor, form->context, form->dtype);
    double rows = form->dtype == DTYPE_F32 && s.n > 512 ? 512 : s.n;
    struct model_dims dims;
    struct model_acts *plan;
    struct arena arena[2];
    arena_init(&arena[0], "acts", NULL, 0);
    arena_init(&arena[1], "scratch", NULL, 0);
    assert_int_equal(model_shard_dims(&c.dims, &shard, &dims), ST_OK);
    assert_int_equal(model_plan(&dims, B, T / form->context, form->what, true, form->dtype,
                                &arena[0], &arena[1], &plan),
                     ST_OK);
    model_plan_free(plan);
    near((double)arena[1].used_bytes, scratch(&s, &c.dims, form->what, rows), form->preset,
         "scratch");
}

static void check_model(const char *preset, enum dtype dtype)
{
    static const int meshes[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {4, 1, 1, 2},
                                    {1, 1, 2, 8}, {2, 1, 2, 1}, {1, 1, 4, 8},
                                    {4, 1, 4, 3}, {1, 2, 1, 1}, {2, 4, 2, 4}};
    static const struct model_recomputed ways[] = {
        {MODEL_RECOMPUTE_NONE, 0},      {MODEL_RECOMPUTE_LIGHT, 0}, {MODEL_RECOMPUTE_ATTENTION, 0},
        {MODEL_RECOMPUTE_ATTENTION, 5}, {MODEL_RECOMPUTE_BLOCK, 0}, {MODEL_RECOMPUTE_BLOCK, 7}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            const struct form form = {.preset = preset,
                                      .tensor = meshes[i][0],
                                      .context = meshes[i][1],
                                      .stages = meshes[i][2],
                                      .micros = meshes[i][3],
                                      .dtype = dtype,
                                      .what = ways[way]};
            for (int stage = 0; stage < form.stages; stage++)
                check_stage(&form, stage);
            check_scratch(&form);
        }
}

static void check_types(const char *preset)
{
    check_model(preset, DTYPE_F32);
    check_model(preset, DTYPE_BF16);
}

TEST(test_gpt2) { (void)state, check_types("gpt2"); }
TEST(test_llama) { (void)state, check_types("llama-3.2-1b"); }
TEST(test_neox) { (void)state, check_types("pythia-160m"); }
TEST(test_qwen) { (void)state, check_types("qwen3-0.6b"); }

HARNESS_RUN_ALL()
