/* gguf_save — a model of every architecture is read back with the same config and the same values;
 * what the format cannot hold is refused, and nothing is left of it. */
#include "harness.h"

#include "base/text.h"
#include "format/gguf/form.h"
#include "format/gguf/model.h"
#include "format/gguf/save.h"
#include "format/gguf/vocab.h"

enum { C = 32, H = 4, D = 8, K = 2, F = 64, V = 5 };

/* A parameter whose element i is first + i. */
struct values {
    float first;
    int done_n;
};

static void read_values(void *arg, int64_t first, int64_t n, float *out)
{
    const struct values *v = arg;
    for (int64_t i = 0; i < n; i++)
        out[i] = v->first + (float)(first + i);
}

static enum status end_values(void *arg)
{
    ((struct values *)arg)->done_n++;
    return ST_OK;
}

struct shape {
    const char *name;
    int64_t rows, columns; /* columns 0: one dimension */
};

struct model {
    struct hf_config config;
    struct shape shape[8];
};

/* models — parts of models: what is read is looked up by name. */
static const struct model models[] = {
    {{.arch = HF_ARCH_LLAMA,
      .layers = 1,
      .heads = H,
      .embed = C,
      .context = 64,
      .vocab = V,
      .kv_heads = K,
      .head_dim = D,
      .ffn = F,
      .norm_eps = 1e-5,
      .is_tied = true,
      .rope = {HF_ROPE_LLAMA3, 500000, 1, 8, 1, 4, 16, 0, 0, 0},
      .bos = -1},
     {{"embed_tokens.weight", V, C},
      {"layers.0.self_attn.q_proj.weight", H *D, C},
      {"layers.0.self_attn.k_proj.weight", K *D, C},
      {"layers.0.mlp.down_proj.weight", C, F},
      {"layers.0.input_layernorm.weight", C, 0}}},
    {{.arch = HF_ARCH_QWEN3,
      .layers = 1,
      .heads = H,
      .embed = C,
      .context = 64,
      .vocab = V,
      .kv_heads = K,
      .head_dim = 16,
      .ffn = F,
      .norm_eps = 1e-6,
      .rope = {HF_ROPE_YARN, 1e6, 1, 4, 0, 0, 32, 32, 1, 0},
      .bos = -1},
     {{"embed_tokens.weight", V, C},
      {"lm_head.weight", V, C},
      {"layers.0.self_attn.q_proj.weight", H * 16, C},
      {"layers.0.self_attn.q_norm.weight", 16, 0}}},
    {{.arch = HF_ARCH_QWEN2,
      .layers = 1,
      .heads = H,
      .embed = C,
      .context = 64,
      .vocab = V,
      .kv_heads = K,
      .head_dim = D,
      .ffn = F,
      .norm_eps = 1e-6,
      .is_tied = true,
      .qkv_bias = true,
      .rope = {HF_ROPE_LINEAR, 1e4, 1, 2, 0, 0, 0, 0, 0, 0},
      .bos = -1},
     {{"embed_tokens.weight", V, C}, {"layers.0.self_attn.k_proj.bias", K *D, 0}}},
    {{.arch = HF_ARCH_NEOX,
      .layers = 1,
      .heads = H,
      .embed = C,
      .context = 64,
      .vocab = V,
      .kv_heads = H,
      .head_dim = D,
      .ffn = F,
      .norm_eps = 1e-5,
      .qkv_bias = true,
      .out_bias = true,
      .parallel_residual = true,
      .rope = {HF_ROPE_NONE, 1e4, 0.25, 0, 0, 0, 0, 0, 0, 0},
      .bos = -1},
     {{"embed_in.weight", V, C},
      {"embed_out.weight", V, C},
      {"layers.0.attention.query_key_value.weight", 3 * C, C},
      {"layers.0.attention.query_key_value.bias", 3 * C, 0}}},
    {{.arch = HF_ARCH_GPT2,
      .layers = 1,
      .heads = H,
      .embed = C,
      .context = 64,
      .vocab = V,
      .kv_heads = H,
      .head_dim = D,
      .ffn = 4 * C,
      .norm_eps = 1e-5,
      .is_tied = true,
      .qkv_bias = true,
      .out_bias = true,
      .gelu_tanh = true,
      .bos = -1},
     {{"wte.weight", V, C},
      {"wpe.weight", 64, C},
      {"h.0.attn.c_attn.weight", C, 3 * C},
      {"h.0.attn.c_attn.bias", 3 * C, 0},
      {"h.0.mlp.c_fc.weight", C, 4 * C}}},
};

static int list_sources(const struct model *m, struct values *value, struct gguf_source *source)
{
    int n = 0;
    for (; n < 8 && m->shape[n].name != NULL; n++) {
        value[n] = (struct values){.first = (float)n / 4};
        source[n] = (struct gguf_source){.name = m->shape[n].name,
                                         .dims_n = m->shape[n].columns > 0 ? 2 : 1,
                                         .dim = {m->shape[n].rows, m->shape[n].columns},
                                         .read = read_values,
                                         .done = end_values,
                                         .arg = &value[n]};
    }
    return n;
}

static const char *new_path(char *out, size_t cap)
{
    static int n;
    text_format(out, cap, "%s/%d/model.gguf", harness_tmpdir(), n++);
    return out;
}

static enum status save(const char *path, const struct model *m, const char *type,
                        struct values *value, int *f16_n)
{
    struct gguf_source source[8];
    struct gguf_head head = {.n = 0};
    const int n = list_sources(m, value, source);
    enum status st = gguf_config_write(&m->config, "name", &head);
    gguf_head_text(&head, "tokenizer.ggml.model", GGUF_VOCAB_NONE);
    if (st == ST_OK)
        st = gguf_save(path, &m->config, gguf_quant_named(type), &head, source, n, f16_n);
    text_free(&head.bytes);
    return st;
}

static void assert_config(const struct hf_config *a, const struct hf_config *b)
{
    assert_int_equal(a->arch, b->arch);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->embed, b->embed);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->ffn, b->ffn);
    assert_float_equal(a->norm_eps, b->norm_eps, 0);
    assert_int_equal(a->is_tied, b->is_tied);
    assert_int_equal(a->qkv_bias, b->qkv_bias);
    assert_int_equal(a->out_bias, b->out_bias);
    assert_int_equal(a->gelu_tanh, b->gelu_tanh);
    assert_int_equal(a->parallel_residual, b->parallel_residual);
    assert_int_equal(a->rope.kind, b->rope.kind);
    assert_float_equal(a->rope.theta, b->rope.theta, 0);
    assert_float_equal(a->rope.fraction, b->rope.fraction, 0);
    assert_float_equal(a->rope.factor, b->rope.factor, 0);
    assert_float_equal(a->rope.beta_fast, b->rope.beta_fast, 0);
    assert_int_equal(a->rope.original_context, b->rope.original_context);
}

/* assert_values — the values of a file, read in ranges that begin and end inside rows. */
static void assert_values(const struct gguf_model *read, const struct model *m, double within)
{
    for (int i = 0; i < 8 && m->shape[i].name != NULL; i++) {
        const struct shape *shape = &m->shape[i];
        struct gguf_entry entry;
        float out[4 * C * C];
        const int64_t dim[2] = {shape->rows, shape->columns};
        assert_int_equal(
            gguf_model_tensor(read, shape->name, shape->columns > 0 ? 2 : 1, dim, &entry), ST_OK);
        for (int64_t at = 0, n; at < entry.elems; at += n) {
            n = entry.elems - at < 41 ? entry.elems - at : 41;
            gguf_model_to_f32(&entry, at, n, out + at);
        }
        for (int64_t at = 0; at < entry.elems; at++)
            if (!(fabs(out[at] - ((double)i / 4 + (double)at)) <= within))
                fail_msg("element %lld of %s is %g", (long long)at, shape->name, (double)out[at]);
    }
}

TEST(test_back)
{
    static const struct {
        const char *type;
        double within;
    } list[] = {{"F32", 0}, {"F16", 2}, {"BF16", 16}, {"Q8_0", 32}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
            char path[FILE_PATH_MAX];
            struct values value[8];
            struct gguf_model *read;
            int f16_n = -1;
            if (save(new_path(path, sizeof path), &models[i], list[k].type, value, &f16_n) != ST_OK)
                fail_msg("%s", status_message());
            assert_int_equal(f16_n, 0);
            assert_int_equal(value[0].done_n, 1);
            assert_int_equal(gguf_model_open(path, &read), ST_OK);
            assert_config(gguf_model_config(read), &models[i].config);
            assert_false(gguf_vocab_is_there(gguf_model_file(read)));
            assert_values(read, &models[i], list[k].within);
            gguf_model_close(read);
        }
}

/* Norms and positions are F32, and a row that is no whole block is F16. */
TEST(test_types)
{
    struct model m = models[4];
    char path[FILE_PATH_MAX];
    struct values value[8];
    struct gguf_model *read;
    int f16_n = 0;
    m.config.embed = 24, m.config.head_dim = 6, m.config.ffn = 96;
    m.shape[0] = (struct shape){"wte.weight", V, 24};
    m.shape[1] = (struct shape){"wpe.weight", 64, 24};
    m.shape[2] = (struct shape){"h.0.mlp.c_proj.weight", 96, 24}; /* its rows in the file have 96 */
    m.shape[3] = (struct shape){"h.0.ln_1.bias", 24, 0};
    m.shape[4].name = NULL;
    assert_int_equal(save(new_path(path, sizeof path), &m, "Q8_0", value, &f16_n), ST_OK);
    assert_int_equal(f16_n, 1);
    assert_int_equal(gguf_model_open(path, &read), ST_OK);
    static const char *const want[][2] = {{"token_embd.weight", "F16"},
                                          {"position_embd.weight", "F32"},
                                          {"blk.0.ffn_down.weight", "Q8_0"},
                                          {"blk.0.attn_norm.bias", "F32"}};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(gguf_find_tensor(gguf_model_file(read), want[i][0])->quant->name,
                            want[i][1]);
    gguf_model_close(read);
}

/* Each of the two orders of rows undoes the other. */
TEST(test_rows)
{
    for (int64_t row = 0; row < H * D; row++)
        assert_int_equal(gguf_form_our_row(GGUF_FORM_PAIRS, H, D,
                                           gguf_form_file_row(GGUF_FORM_PAIRS, H, D, row)),
                         row);
    for (int64_t row = 0; row < 3 * H * D; row++)
        assert_int_equal(
            gguf_form_our_row(GGUF_FORM_QKV, H, D, gguf_form_file_row(GGUF_FORM_QKV, H, D, row)),
            row);
}

static void refuse(const struct model *m, const char *type, const char *says)
{
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    struct values value[8];
    int f16_n;
    assert_int_equal(save(new_path(path, sizeof path), m, type, value, &f16_n), ST_BAD_SETTING);
    harness_assert_message(says);
    text_copy(folder, sizeof folder, path);
    *strrchr(folder, '/') = 0;
    DIR *dir = opendir(folder);
    int entries_n = 0;
    while (dir != NULL && readdir(dir) != NULL)
        entries_n++;
    assert_true(dir == NULL || entries_n == 2);
    if (dir != NULL)
        closedir(dir);
}

TEST(test_refused)
{
    struct model m = models[0];
    m.shape[1] = (struct shape){"layers.0.self_attn.q_proj.bias", H * D, 0};
    refuse(&m, "F16", "no tensor for parameter layers.0.self_attn.q_proj.bias");
    m = models[0];
    m.config.rope.low_freq_factor = 2;
    refuse(&m, "F16", "bounds other than 1 and 4");
    m = models[1];
    m.config.rope.attention_factor = 1.5;
    refuse(&m, "F16", "an attention factor");
    m = models[3];
    m.config.gelu_tanh = true;
    refuse(&m, "F16", "GELU by tanh");
    m = models[4];
    m.config.is_qa = true;
    refuse(&m, "F16", "answers questions");
    m = models[0];
    m.shape[1] = (struct shape){"layers.0.self_attn.q_proj.weight", H * D, 8192};
    refuse(&m, "F16", "q_proj.weight has numbers beyond the range of F16");
}

/* A file that exists is not replaced, nor a folder or a link. */
TEST(test_target)
{
    char path[FILE_PATH_MAX], taken[FILE_PATH_MAX];
    struct values value[8];
    int f16_n;
    assert_int_equal(save(new_path(path, sizeof path), &models[0], "F16", value, &f16_n), ST_OK);
    assert_int_equal(save(path, &models[0], "F16", value, &f16_n), ST_BAD_SETTING);
    harness_assert_message("exists, as a file; choose a new file");
    assert_int_equal(gguf_save_check(harness_tmpdir()), ST_BAD_SETTING);
    harness_assert_message("exists, as a folder");
    text_format(taken, sizeof taken, "%s/link.gguf", harness_tmpdir());
    assert_int_equal(symlink("elsewhere", taken), 0);
    assert_int_equal(gguf_save_check(taken), ST_BAD_SETTING);
    harness_assert_message("symbolic link");
}

HARNESS_RUN_ALL()
