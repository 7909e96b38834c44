/* test_hf_config — a model that would compute something else is refused by name; what is written
 * can be read. */
#include "harness.h"

#include <string.h>

#include "base/json.h"
#include "format/hf_config.h"

#define GOOD                                                                                      \
    "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,\"vocab_" \
    "size\":10"
static const struct {
    const char *config;
    const char *says; /* NULL: good */
} case_list[] = {
    {"{" GOOD "}", NULL},
    {"{" GOOD ",\"activation_function\":\"gelu_pytorch_tanh\",\"n_inner\":32,\"layer_norm_"
     "epsilon\":0.00001}",
     NULL},
    {"{" GOOD ",\"scale_attn_weights\":true,\"tie_word_embeddings\":true,\"architectures\":null}",
     NULL},
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
    {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":3,\"n_embd\":8,\"n_positions\":16,\"vocab_"
     "size\":10}",
     "not divisible"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":0,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,\"vocab_"
     "size\":10}",
     "n_layer"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":1e18,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,"
     "\"vocab_size\":10}",
     "n_layer"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":-8,\"n_positions\":16,\"vocab_"
     "size\":10}",
     "n_embd"},
    {"[]", "not a JSON object"},
    {"", "config.json"},
    {"{", "config.json"},
};

static void test_parse(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(case_list) / sizeof(case_list[0]); i++) {
        struct hf_config config;
        const char *text = case_list[i].config;
        enum status st = hf_config_parse(text, strlen(text), "DIR/config.json", &config);
        if (st != (case_list[i].says ? ST_BAD_DATA : ST_OK))
            fail_msg("%s: %s %s", text, status_name(st), status_message());
        if (case_list[i].says && (!strstr(status_message(), case_list[i].says) ||
                                  !strstr(status_message(), "config.json")))
            fail_msg("%s: expected \"%s\" in: %s", text, case_list[i].says, status_message());
    }
}

static void test_write(void **state)
{
    (void)state;
    for (int qa = 0; qa < 2; qa++) {
        struct hf_config config = {2, 2, 8, 16, qa ? 50304 : 11, qa}, again;
        struct text text = {.data = NULL};
        cJSON *root;
        double dropout;
        hf_config_write(&config, qa ? 0.1 : 0, &text);
        assert_false(text.overflow);
        assert_int_equal(hf_config_parse(text.data, text.len, "written", &again), ST_OK);
        assert_memory_equal(&again.layers, &config.layers, 5 * sizeof(int64_t));
        assert_int_equal(again.is_qa, qa);
        assert_int_equal(json_parse(text.data, text.len, "written", &root), ST_OK);
        assert_int_equal(json_get_f64(root, "resid_pdrop", &dropout), ST_OK);
        assert_float_equal(dropout, qa ? 0.1 : 0, 0);
        assert_int_equal(cJSON_IsNull(cJSON_GetObjectItem(root, "eos_token_id")), !qa);
        assert_non_null(strstr(text.data, qa ? "\"attn_pdrop\": 0.1," : "\"attn_pdrop\": 0.0,"));
        assert_non_null(strstr(text.data, hf_config_class(&config)));
        cJSON_Delete(root);
        text_free(&text);
        hf_config_write_generation(&config, &text);
        assert_int_equal(json_parse(text.data, text.len, "generation", &root), ST_OK);
        assert_int_equal(cJSON_HasObjectItem(root, "eos_token_id"), qa);
        cJSON_Delete(root);
        text_free(&text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_parse),
    cmocka_unit_test(test_write),
};
HARNESS_MAIN(tests)
