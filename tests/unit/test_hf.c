/* hf: PyTorch's folders are read with and without prefix; whatever would compute something else is refused by
 * name. */
#include "harness.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "format/hf.h"

static char dir[FILE_PATH_MAX];

static int setup(void **state)
{
    static int n;
    (void)state;
    text_format(dir, sizeof(dir), "%s/%d", harness_tmpdir(), n++);
    return mkdir(dir, 0777);
}

static void write_text(const char *name, const char *text)
{
    char path[FILE_PATH_MAX];
    assert_int_equal(file_join(path, sizeof(path), dir, name), ST_OK);
    assert_int_equal(file_replace(path, text, strlen(text)), ST_OK);
}

static void write_weights(const struct safetensors_source *source, int n)
{
    char path[FILE_PATH_MAX];
    uint64_t hash;
    int64_t bytes;
    assert_int_equal(file_join(path, sizeof(path), dir, "model.safetensors"), ST_OK);
    unlink(path);
    assert_int_equal(safetensors_write(path, source, n, NULL, NULL, &hash, &bytes), ST_OK);
}

static void assert_says(const char *part)
{
    if (!strstr(status_message(), part))
        fail_msg("expected \"%s\" in: %s", part, status_message());
}

static void test_golden(void **state)
{
    (void)state;
    for (int qa = 0; qa < 2; qa++) {
        const char *from = qa ? "tests/golden/qa" : "tests/golden/lm";
        struct hf_config config;
        struct hf_model *hf = NULL;
        const struct safetensors_entry *entry;
        assert_true(hf_is_folder(from));
        assert_int_equal(hf_read_config(from, &config), ST_OK);
        assert_int_equal(config.layers, 3);
        assert_int_equal(config.heads, 4);
        assert_int_equal(config.embed, 64);
        assert_int_equal(config.context, 48);
        assert_int_equal(config.vocab, 311);
        assert_int_equal(config.is_qa, qa);
        assert_int_equal(hf_open(from, &hf), ST_OK);
        assert_int_equal(hf_tensor(hf, "wte.weight", 2, (int64_t[]){311, 64}, &entry), ST_OK);
        assert_string_equal(entry->name, "transformer.wte.weight");
        assert_int_equal(hf_tensor(hf, "h.2.attn.c_attn.weight", 2, (int64_t[]){64, 192}, &entry), ST_OK);
        assert_int_equal(hf_tensor(hf, "h.2.attn.c_attn.weight", 2, (int64_t[]){192, 64}, &entry),
                         ST_BAD_DATA);
        assert_says("(64, 192), expected (192, 64)");
        assert_int_equal(hf_tensor(hf, "h.3.ln_1.bias", 1, (int64_t[]){64}, &entry), ST_BAD_DATA);
        assert_says("h.3.ln_1.bias");
        assert_int_equal(hf_has(hf, "qa_outputs.weight"), qa);
        hf_close(hf);
    }
    assert_false(hf_is_folder("tests/golden"));
    assert_false(hf_is_folder("tests/nothing"));
    hf_close(NULL);
}

#define GOOD                                                                                                 \
    "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":10"
static const struct {
    const char *config;
    const char *says; /* NULL: good */
} case_list[] = {
    {"{" GOOD "}", NULL},
    {"{" GOOD ",\"activation_function\":\"gelu_pytorch_tanh\",\"n_inner\":32,\"layer_norm_epsilon\":0.00001}",
     NULL},
    {"{" GOOD ",\"scale_attn_weights\":true,\"tie_word_embeddings\":true,\"architectures\":null}", NULL},
    {"{" GOOD ",\"activation_function\":\"relu\"}", "activation_function"},
    {"{" GOOD ",\"activation_function\":\"gelu\"}", "activation_function"},
    {"{" GOOD ",\"activation_function\":3}", "activation_function"},
    {"{" GOOD ",\"layer_norm_epsilon\":1e-6}", "layer_norm_epsilon"},
    {"{" GOOD ",\"n_inner\":31}", "n_inner"},
    {"{" GOOD ",\"n_inner\":\"32\"}", "n_inner"},
    {"{" GOOD ",\"scale_attn_weights\":false}", "scale_attn_weights"},
    {"{" GOOD ",\"scale_attn_by_inverse_layer_idx\":true}", "scale_attn_by_inverse_layer_idx"},
    {"{" GOOD ",\"add_cross_attention\":true}", "add_cross_attention"},
    {"{" GOOD ",\"tie_word_embeddings\":false}", "tie_word_embeddings"},
    {"{" GOOD ",\"architectures\":\"x\"}", "architectures"},
    {"{" GOOD ",\"n_embd\":8}", "n_embd"},
    {"{\"model_type\":\"llama\"}", "llama"},
    {"{\"model_type\":\"gpt2\"}", "n_layer"},
    {"{}", "model_type"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":3,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":10}",
     "not divisible"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":0,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":10}",
     "n_layer"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":1e18,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,\"vocab_size\":"
     "10}",
     "n_layer"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":-8,\"n_positions\":16,\"vocab_size\":"
     "10}",
     "n_embd"},
    {"[]", "not a JSON object"},
    {"", "config.json"},
    {"{", "config.json"},
};

static void test_config(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(case_list) / sizeof(case_list[0]); i++) {
        struct hf_config config;
        write_text("config.json", case_list[i].config);
        enum status st = hf_read_config(dir, &config);
        if ((st == ST_OK) != (case_list[i].says == NULL))
            fail_msg("%s: %s %s", case_list[i].config, status_name(st), status_message());
        if (case_list[i].says) {
            assert_int_equal(st, ST_BAD_DATA);
            assert_says(case_list[i].says);
            assert_says("config.json");
        }
    }
    struct hf_config config;
    text_copy(dir, sizeof(dir), "/nonexistent");
    assert_int_equal(hf_read_config(dir, &config), ST_NO_INPUT);
}

static void test_weights(void **state)
{
    (void)state;
    static const float wte[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 5};
    const struct safetensors_source source[] = {
        {"wte.weight", DTYPE_F32, 2, {2, 2}, wte},
        {"h.0.attn.bias", DTYPE_U8, 1, {4}, wte},
        {"lm_head.weight", DTYPE_F32, 2, {2, 2}, wte},
        {"score.weight", DTYPE_F64, 1, {1}, wte},
    };
    struct safetensors_source untied[2] = {source[0], source[2]};
    struct hf_model *hf = NULL;
    const struct safetensors_entry *entry;
    write_weights(source, 4);
    assert_int_equal(hf_open(dir, &hf), ST_OK);
    assert_int_equal(hf_tensor(hf, "wte.weight", 2, (int64_t[]){2, 2}, &entry), ST_OK);
    assert_int_equal(hf_tensor(hf, "score.weight", 1, (int64_t[]){1}, &entry), ST_BAD_DATA);
    assert_says("dtype F64");
    hf_close(hf);
    untied[1].data = other;
    write_weights(untied, 2);
    assert_int_equal(hf_open(dir, &hf), ST_BAD_DATA);
    assert_says("lm_head.weight differs");
}

static void test_other_weights(void **state)
{
    (void)state;
    struct hf_model *hf = NULL;
    assert_int_equal(hf_open(dir, &hf), ST_NO_INPUT);
    assert_says("no model.safetensors");
    write_text("pytorch_model.bin", "x");
    assert_int_equal(hf_open(dir, &hf), ST_BAD_DATA);
    assert_says("safe_serialization");
    write_text("model.safetensors.index.json", "{}");
    assert_int_equal(hf_open(dir, &hf), ST_BAD_DATA);
    assert_says("several files");
    write_text("model.safetensors", "");
    assert_int_equal(hf_open(dir, &hf), ST_BAD_DATA);
    assert_says("0 bytes");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_golden),
    cmocka_unit_test_setup(test_config, setup),
    cmocka_unit_test_setup(test_weights, setup),
    cmocka_unit_test_setup(test_other_weights, setup),
};
HARNESS_MAIN(tests)
