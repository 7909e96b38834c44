/* part_map — the parts of a model, of all architectures, give and take the whole: every
 * element has its offset, ranges may begin and end anywhere, and what does not fit is refused. */
#include "mesh/part_map.h"

#include "harness.h"
#include "mesh/store/layout.h"
#include "mesh/pipe/split.h"

#define LAYERS 9
#define PARTS_MAX 16

/* Odd sizes: no number of ranks divides 31 tokens. */
static struct model_dims dims_of(enum model_arch arch, int64_t kv_heads, bool is_untied)
{
    struct model_dims dims = {.name = "odd",
                              .arch = arch,
                              .layers = LAYERS,
                              .heads = 12,
                              .kv_heads = kv_heads,
                              .embed = 36,
                              .context = 5,
                              .vocab = 31,
                              .features = model_arch_features(arch)};
    dims.features.is_untied = is_untied;
    if (arch == MODEL_ARCH_LLAMA || arch == MODEL_ARCH_QWEN3)
        dims.head_dim = 4;
    if (arch != MODEL_ARCH_GPT2)
        dims.ffn = 24;
    return dims;
}

/* A model, its parts, and what each holds. */
struct model {
    struct param_table whole, own[PARTS_MAX];
    float *values, *held[PARTS_MAX]; /* each laid out by its table */
    struct part_map map;
    int parts_n;
};

/* No two elements are equal. */
static float value_at(int64_t at) { return (float)at * 0.5F + 1; }

static void open_part(struct model *m, const struct model_dims *whole, int i,
                      const struct model_shard *part)
{
    struct model_dims dims;
    assert_int_equal(model_shard_dims(whole, part, &dims), ST_OK);
    assert_int_equal(model_ops(&dims)->describe(&dims, &m->own[i]), ST_OK);
    layout_pad(&m->own[i], i % 2 ? 3 : 2);
    m->held[i] = malloc((size_t)m->own[i].total_elems * sizeof *m->held[i]);
    for (int64_t k = 0; k < m->own[i].total_elems; k++)
        m->held[i][k] = NAN;
}

static void open_model(struct model *m, const struct model_dims *dims, int tensor, int stages,
                       int chunks)
{
    int64_t first[PARTS_MAX + 1];
    double cost[LAYERS + 2];
    *m = (struct model){.parts_n = tensor * stages};
    assert_int_equal(model_ops(dims)->describe(dims, &m->whole), ST_OK);
    m->values = calloc((size_t)m->whole.total_elems, sizeof *m->values);
    for (int i = 0; i < m->whole.params_n; i++)
        for (int64_t k = 0; k < m->whole.param[i].elems; k++)
            m->values[m->whole.param[i].offset + k] = value_at(m->whole.param[i].offset + k);
    for (int i = 0; i < LAYERS + 2; i++)
        cost[i] = 1;
    assert_int_equal(pipe_split(cost, LAYERS, stages, chunks, first), ST_OK);
    for (int i = 0; i < m->parts_n; i++) {
        struct model_shard part = {.tensor_rank = i % tensor, .tensor_ranks = tensor};
        if (stages > 1)
            pipe_split_shard(first, stages, chunks, i / tensor, &part);
        open_part(m, dims, i, &part);
    }
    part_map_init(&m->whole, m->parts_n, &m->map);
}

static void add_all(struct model *m)
{
    for (int i = 0; i < m->parts_n; i++)
        if (part_map_add(&m->map, i, &m->own[i]) != ST_OK)
            fail_msg("%s", status_message());
    if (part_map_check(&m->map) != ST_OK)
        fail_msg("%s", status_message());
}

static void close_model(struct model *m)
{
    part_map_free(&m->map);
    part_map_free(&m->map);
    param_table_free(&m->whole);
    free(m->values);
    for (int i = 0; i < m->parts_n; i++) {
        param_table_free(&m->own[i]);
        free(m->held[i]);
    }
}

/* ---- give and take ---- */

/* What a part holds, by param_run, which knows nothing of ranges. */
static void check_held(const struct model *m, int part)
{
    const struct param_table *t = &m->own[part];
    int64_t tensors = 0, numbers = 0, whole, run;
    for (int i = 0; i < t->params_n; i++)
        for (int64_t k = 0; k < t->param[i].elems; k += run, tensors += run) {
            run = param_run(&t->param[i], k, &whole);
            for (int64_t at = 0; at < run; at++) {
                float want = value_at(m->whole.param[t->param[i].whole_param].offset + whole + at),
                      is = m->held[part][t->param[i].offset + k + at];
                if (is != want)
                    fail_msg("part %d of %d, %s[%lld] is %g, want %g", part, m->parts_n,
                             t->param[i].name, (long long)(k + at), (double)is, (double)want);
            }
        }
    for (int64_t k = 0; k < t->total_elems; k++)
        numbers += m->held[part][k] != 0 && !isnan(m->held[part][k]); /* padding was not read */
    assert_int_equal(numbers, tensors);
}

static void read_range(const struct model *m, int64_t first, int64_t n, float *whole,
                       int64_t *read_elems)
{
    part_map_pad(&m->map, first, n, whole);
    for (int part = 0; part < m->parts_n; part++) {
        struct part_map_range r = part_map_sources(&m->map, part, first, n);
        struct part_map_range held = part_map_held(&m->map, part, first, n);
        if (r.n == 0)
            continue;
        assert_true(r.first >= held.first && r.first + r.n <= held.first + held.n);
        float *own = malloc((size_t)r.n * sizeof *own);
        memcpy(own, m->held[part] + r.first, (size_t)r.n * sizeof *own);
        part_map_copy_to_whole(&m->map, part, first, n, r, own, whole);
        *read_elems += r.n;
        free(own);
    }
}

/* Writes to all parts and reads the whole again, in ranges of `each` elements. */
static void round_trip(struct model *m, int64_t each)
{
    int64_t total = m->whole.total_elems, read_elems = 0;
    float *got = malloc((size_t)(total + 1) * sizeof *got);
    for (int64_t k = 0; k <= total; k++)
        got[k] = NAN;
    for (int64_t first = 0; first < total; first += each) {
        int64_t n = total - first < each ? total - first : each;
        for (int part = 0; part < m->parts_n; part++) {
            struct part_map_range r = part_map_held(&m->map, part, first, n);
            assert_true(r.n >= 0 && r.first >= 0 && r.first + r.n <= m->own[part].total_elems);
            float *own = malloc((size_t)(r.n + 1) * sizeof *own);
            own[r.n] = -5;
            if (r.n > 0)
                part_map_copy_from_whole(&m->map, part, first, n, r, m->values + first, own);
            assert_true(own[r.n] == -5);
            memcpy(m->held[part] + r.first, own, (size_t)r.n * sizeof *own);
            free(own);
        }
    }
    for (int part = 0; part < m->parts_n; part++)
        check_held(m, part);
    for (int64_t first = 0; first < total; first += each)
        read_range(m, first, total - first < each ? total - first : each, got + first, &read_elems);
    assert_memory_equal(got, m->values, (size_t)total * sizeof *got);
    assert_true(isnan(got[total]));
    /* one element at a time, messages hold no padding and nothing twice */
    if (each == 1)
        assert_int_equal(read_elems, m->whole.parameters);
    free(got);
}

/* is_thorough: each element alone, too. */
static void check_model(const struct model_dims *dims, int tensor, int stages, int chunks,
                        bool is_thorough)
{
    static const int64_t each[] = {1, 37, 1000, 1 << 20};
    struct model m;
    open_model(&m, dims, tensor, stages, chunks);
    add_all(&m);
    for (size_t i = is_thorough ? 0 : 1; i < sizeof each / sizeof *each; i++)
        round_trip(&m, each[i]);
    close_model(&m);
}

static const struct {
    int tensor, stages, chunks;
} meshes[] = {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 4, 1},
              {1, 2, 2}, {1, 4, 2}, {2, 2, 1}, {3, 2, 2}, {4, 4, 1}, {2, 4, 2}};

TEST(all_architectures)
{
    int models = 0;
    for (int arch = 0; arch < MODEL_ARCH_N; arch++)
        for (int64_t kv_heads = 1; kv_heads <= 12; kv_heads += kv_heads < 4 ? 1 : 8)
            for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
                int tensor = meshes[i].tensor;
                bool is_mha = arch == MODEL_ARCH_GPT2 || arch == MODEL_ARCH_NEOX;
                if ((is_mha && kv_heads != 12) || (kv_heads % tensor && tensor % kv_heads))
                    continue;
                struct model_dims dims =
                    dims_of((enum model_arch)arch, kv_heads, arch == MODEL_ARCH_NEOX || i % 2);
                dims.features.is_untied = dims.features.is_untied && arch != MODEL_ARCH_GPT2;
                check_model(&dims, tensor, meshes[i].stages, meshes[i].chunks, kv_heads == 12);
                models++;
            }
    struct model_dims qa = dims_of(MODEL_ARCH_GPT2, 12, false);
    qa.task = MODEL_TASK_QA;
    check_model(&qa, 2, 2, 1, true);
    print_message("# %d models in parts\n", models + 1);
}

/* The tied token embedding is on the first and the last stage: read from one, written to both. */
TEST(tied_embedding)
{
    struct model m;
    struct model_dims dims = dims_of(MODEL_ARCH_GPT2, 12, false);
    open_model(&m, &dims, 2, 3, 1);
    add_all(&m);
    const struct param *wte = param_find(&m.whole, "wte.weight");
    for (int part = 0; part < 6; part++) {
        struct part_map_range held = part_map_held(&m.map, part, wte->offset, wte->elems),
                              read = part_map_sources(&m.map, part, wte->offset, wte->elems);
        int64_t rows = part % 2 == 0 ? 15 : 16;
        assert_int_equal(held.n, part / 2 == 1 ? 0 : rows * 36);
        assert_int_equal(read.n, part / 2 == 0 ? rows * 36 : 0);
    }
    close_model(&m);
}

/* A cut along columns: one message has whole rows of the part, whatever the range. */
TEST(columns_travel_together)
{
    struct model m;
    struct model_dims dims = dims_of(MODEL_ARCH_GPT2, 12, false);
    open_model(&m, &dims, 3, 1, 1);
    add_all(&m);
    const struct param *p = param_find(&m.whole, "h.4.attn.c_attn.weight");
    for (int part = 0; part < 3; part++) {
        const struct param *own = param_find(&m.own[part], p->name);
        struct part_map_range r = part_map_sources(&m.map, part, p->offset, p->elems);
        assert_int_equal(r.first, own->offset);
        assert_int_equal(r.n, 36 * 3 * 12);
        r = part_map_sources(&m.map, part, p->offset + 108 * 7, 108 * 2);
        assert_int_equal(r.first, own->offset + 36 * 7);
        assert_int_equal(r.n, 36 * 2);
    }
    close_model(&m);
}

/* ---- what is refused ---- */

static void refused(struct model *m, enum status st, const char *what)
{
    assert_int_equal(st, ST_BUG);
    if (!strstr(status_message(), what))
        fail_msg("\"%s\" has no \"%s\"", status_message(), what);
    status_clear();
    close_model(m);
}

static void open_pair(struct model *m, bool is_added)
{
    struct model_dims dims = dims_of(MODEL_ARCH_LLAMA, 2, true);
    open_model(m, &dims, 2, 1, 1);
    if (is_added)
        assert_int_equal(part_map_add(&m->map, 0, &m->own[0]), ST_OK);
}

static struct param *tensor_of(struct model *m, int part, const char *name)
{
    return &m->own[part].param[param_find(&m->own[part], name) - m->own[part].param];
}

TEST(what_does_not_fit)
{
    struct model m;
    open_pair(&m, true);
    refused(&m, part_map_check(&m.map), "have 540 of 1116 elements of embed_tokens.weight");

    open_pair(&m, true);
    strcpy(tensor_of(&m, 1, "norm.weight")->name, "other");
    refused(&m, part_map_add(&m.map, 1, &m.own[1]), "other");

    open_pair(&m, true);
    tensor_of(&m, 1, "layers.3.mlp.up_proj.weight")->dim[1]++;
    refused(&m, part_map_add(&m.map, 1, &m.own[1]), "layers.3.mlp.up_proj.weight");

    open_pair(&m, true);
    tensor_of(&m, 1, "layers.3.mlp.up_proj.weight")->cut.first++;
    refused(&m, part_map_add(&m.map, 1, &m.own[1]), "layers.3.mlp.up_proj.weight");

    open_pair(&m, true);
    tensor_of(&m, 1, "layers.3.mlp.up_proj.weight")->cut.first--; /* one row twice, one missing */
    assert_int_equal(part_map_add(&m.map, 1, &m.own[1]), ST_OK);
    refused(&m, part_map_check(&m.map), "layers.3.mlp.up_proj.weight");

    open_pair(&m, false); /* another order */
    struct param *a = tensor_of(&m, 0, "layers.3.mlp.gate_proj.weight"), was = a[0];
    a[0] = a[1], a[1] = was;
    refused(&m, part_map_add(&m.map, 0, &m.own[0]), "another order");

    open_pair(&m, true); /* a part that has the tensor whole, where another has it cut */
    *tensor_of(&m, 1, "layers.3.mlp.down_proj.weight") =
        *param_find(&m.whole, "layers.3.mlp.down_proj.weight");
    refused(&m, part_map_add(&m.map, 1, &m.own[1]), "layers.3.mlp.down_proj.weight");
}

HARNESS_RUN_ALL()
