/* hf_config — a model that would compute something else is refused by name; what is written
 * can be read. */
#include "harness.h"

#include "base/json.h"
#include "format/hf_config.h"

#define GOOD                                                                                      \
    "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":8,\"n_positions\":16,\"vocab_" \
    "size\":10"
#define DIMS                                                                                     \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"hidden_size\":16,\"intermediate_size\"" \
    ":24,\"vocab_size\":10"
#define LLAMA "{\"model_type\":\"llama\"," DIMS
#define NEOX                                                                                   \
    "{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":2,\"num_attention_heads\":2,\"hidden_" \
    "size\":"                                                                                  \
    "16,\"intermediate_size\":64,\"vocab_size\":10"

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
    {"{\"model_type\":\"bert\"}", "bert"},
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
    {LLAMA "}", NULL},
    {LLAMA ",\"hidden_act\":\"swish\",\"head_dim\":6,\"num_key_value_heads\":2}", NULL},
    {LLAMA ",\"hidden_act\":\"gelu\"}", "\"hidden_act\" is \"gelu\", expected \"silu\""},
    {LLAMA ",\"num_key_value_heads\":3}", "num_key_value_heads\" 3"},
    {LLAMA ",\"num_key_value_heads\":0}", "num_key_value_heads"},
    {LLAMA ",\"head_dim\":5}", "5 of a head's 5 elements rotate"},
    {LLAMA ",\"rms_norm_eps\":0}", "rms_norm_eps"},
    {LLAMA ",\"rms_norm_eps\":\"1e-5\"}", "rms_norm_eps"},
    {LLAMA ",\"attention_bias\":true}", "attention_bias"},
    {LLAMA ",\"mlp_bias\":true}", "mlp_bias"},
    {LLAMA ",\"tie_word_embeddings\":1}", "tie_word_embeddings"},
    {LLAMA ",\"quantization_config\":{\"bits\":4}}", "quantization_config"},
    {LLAMA ",\"architectures\":[\"LlamaForQuestionAnswering\"]}", "question-answering head"},
    {LLAMA ",\"sliding_window\":8}", NULL}, /* LlamaConfig knows no window */
    {LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
    {LLAMA ",\"rope_theta\":0}", "rope_theta"},
    {LLAMA ",\"rope_theta\":1}", "rope_theta"},
    {LLAMA ",\"rope_theta\":\"1e4\"}", "rope_theta"},
    {LLAMA ",\"rope_scaling\":[]}", "\"rope_scaling\" is not an object"},
    {LLAMA ",\"rope_parameters\":7}", "\"rope_parameters\" is not an object"},
    {LLAMA ",\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":2}}", "dynamic"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"longrope\"}}", "longrope"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":3}}", "not a string"},
    {LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4}}}", "full_attention"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", "\"factor\""},
    {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":-1}}", "\"factor\""},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
           "\"high_freq_factor\":4}}",
     "low_freq_factor"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,\"truncate\":false}}",
     "truncate"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
           "\"original_max_position_embeddings\":0}}",
     "original_max_position_embeddings"},
    {LLAMA ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":5e5}}",
     "\"rope_theta\" is 10000, but \"rope_theta\" in rope_parameters is 500000"},
    {LLAMA ",\"rope_theta\":5e5,\"rope_parameters\":{\"rope_theta\":500000.0}}", NULL},
    {LLAMA ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":null}}", NULL},
    {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
           "\"rope_parameters\":{\"rope_type\":\"default\"}}",
     "\"rope_type\" in rope_parameters is \"default\", but \"type\" in rope_scaling is \"linear\""},
    {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
           "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4}}",
     "\"factor\" in rope_parameters is 4, but \"factor\" in rope_scaling is 2"},
    {LLAMA ",\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"yarn\","
           "\"factor\":2,\"original_max_position_embeddings\":32}}",
     "\"original_max_position_embeddings\" is 64, but "},
    {NEOX ",\"rope_parameters\":{\"partial_rotary_factor\":1.0},\"rotary_pct\":0.5}",
     "\"rotary_pct\" is 0.5, but \"partial_rotary_factor\" in rope_parameters is 1"},
    {NEOX ",\"rope_theta\":1e4,\"rotary_emb_base\":5e4}",
     "\"rope_theta\" is 10000, but \"rotary_emb_base\" is 50000"},
    {LLAMA ",\"eos_token_id\":10}",
     "\"eos_token_id\" is 10, outside the vocabulary (\"vocab_size\" 10"},
    {LLAMA ",\"eos_token_id\":[3,-1]}", "\"eos_token_id\" is -1, outside the vocabulary"},
    {LLAMA ",\"eos_token_id\":1.5}", "\"eos_token_id\" is not the number of a token"},
    {LLAMA ",\"bos_token_id\":128000}", "\"bos_token_id\" is 128000, outside the vocabulary"},
    {LLAMA ",\"bos_token_id\":9,\"eos_token_id\":[0,null]}", NULL},
    {"{" GOOD ",\"bos_token_id\":50256,\"eos_token_id\":50256}", NULL}, /* GPT-2's own: none */
    {"{" GOOD ",\"eos_token_id\":50257}", "\"eos_token_id\" is 50257, outside the vocabulary"},
    {"{\"model_type\":\"llama\",\"hidden_size\":12}", "num_hidden_layers"},
    {"{\"model_type\":\"mixtral\"," DIMS "}", "mixtral"},
    {"{\"model_type\":\"qwen3_moe\"," DIMS "}", "qwen3_moe"},
    {"{\"model_type\":\"mistral\"," DIMS ",\"num_key_value_heads\":1}",
     "\"sliding_window\" 4096 is shorter than the context of 131072"},
    {"{\"model_type\":\"mistral\"," DIMS ",\"num_key_value_heads\":1,\"sliding_window\":null}",
     NULL},
    {"{\"model_type\":\"mistral\"," DIMS ",\"num_key_value_heads\":1,\"sliding_window\":64,"
     "\"max_position_embeddings\":64}",
     NULL},
    {"{\"model_type\":\"mistral\"," DIMS "}", "num_key_value_heads\" 8"}, /* the class's default */
    {"{\"model_type\":\"qwen2\"," DIMS ",\"num_key_value_heads\":null}", NULL},
    {"{\"model_type\":\"qwen2\"," DIMS ",\"num_key_value_heads\":1,\"sliding_window\":8,"
     "\"use_sliding_window\":true,\"max_window_layers\":1}",
     "\"sliding_window\" 8"},
    {"{\"model_type\":\"qwen2\"," DIMS ",\"num_key_value_heads\":1,\"sliding_window\":8,"
     "\"use_sliding_window\":true}",
     NULL}, /* the first 28 layers see all */
    {"{\"model_type\":\"qwen3\"," DIMS ",\"num_key_value_heads\":1,\"sliding_window\":8,"
     "\"use_sliding_window\":true,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
     "\"sliding_window\" 8"},
    {"{\"model_type\":\"qwen3\"," DIMS ",\"num_key_value_heads\":1,\"attention_bias\":true}",
     "attention_bias"},
    {NEOX "}", NULL},
    {NEOX ",\"attention_bias\":false}", "attention_bias"},
    {NEOX ",\"hidden_act\":\"gelu_new\"}", NULL},
    {NEOX ",\"hidden_act\":\"relu\"}", "relu"},
    {NEOX ",\"rotary_pct\":0.1}", "rotary_pct"},
    {NEOX ",\"rotary_pct\":1.5}", "rotary_pct"},
    {NEOX ",\"use_parallel_residual\":0}", "use_parallel_residual"},
    {"{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":2,\"num_attention_heads\":3,\"hidden_"
     "size\":16,\"intermediate_size\":64,\"vocab_size\":10}",
     "not divisible"},
};

TEST(test_parse)
{
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

static struct hf_config parsed(const char *text)
{
    struct hf_config config;
    if (hf_config_parse(text, strlen(text), "config.json", &config) != ST_OK)
        fail_msg("%s: %s", text, status_message());
    return config;
}

/* The numbers of published files, in the form of the time. */
TEST(test_llama)
{
    const struct hf_config old = parsed(
        "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"bos_token_id\":"
        "128000,"
        "\"eos_token_id\":[128001,128008],\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":"
        "2048,\"intermediate_size\":8192,\"max_position_embeddings\":131072,\"model_type\":"
        "\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":16,\"num_key_value_heads\":8,"
        "\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,"
        "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,\"rope_type\":"
        "\"llama3\"},\"rope_theta\":500000.0,\"tie_word_embeddings\":true,\"vocab_size\":128256}");
    const struct hf_config c = parsed(
        "{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":8192,"
        "\"max_position_embeddings\":131072,\"num_attention_heads\":32,\"num_hidden_layers\":16,"
        "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_parameters\":{\"factor\":32.0,"
        "\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,\"original_max_position_embeddings\":"
        "8192,"
        "\"rope_theta\":500000.0,\"rope_type\":\"llama3\"},\"tie_word_embeddings\":true,"
        "\"vocab_size\":128256}");
    assert_int_equal(c.arch, HF_ARCH_LLAMA);
    assert_int_equal(c.layers, 16);
    assert_int_equal(c.heads, 32);
    assert_int_equal(c.kv_heads, 8);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.embed, 2048);
    assert_int_equal(c.ffn, 8192);
    assert_int_equal(c.context, 131072);
    assert_int_equal(c.vocab, 128256);
    assert_float_equal(c.norm_eps, 1e-5, 0);
    assert_true(c.is_tied && !c.qkv_bias && !c.out_bias && !c.parallel_residual);
    assert_int_equal(c.rope.kind, HF_ROPE_LLAMA3);
    assert_float_equal(c.rope.theta, 5e5, 0);
    assert_float_equal(c.rope.fraction, 1, 0);
    assert_float_equal(c.rope.factor, 32, 0);
    assert_float_equal(c.rope.low_freq_factor, 1, 0);
    assert_float_equal(c.rope.high_freq_factor, 4, 0);
    assert_int_equal(c.rope.original_context, 8192);
    assert_memory_equal(&c.rope.theta, &old.rope.theta,
                        sizeof(c.rope) - offsetof(struct hf_rope, theta));
    assert_int_equal(old.bos, 128000);
    assert_true(old.eos_n == 2 && old.eos[0] == 128001 && old.eos[1] == 128008);
    assert_int_equal(c.bos, -1);
}

/* generation — of a generation_config.json over 128001 and 128008 in config.json. */
static enum status generation(const char *json, struct hf_config *out)
{
    *out = (struct hf_config){.vocab = 128256, .bos = 5, .eos = {128001, 128008}, .eos_n = 2};
    return hf_config_parse_generation(json, strlen(json), "generation_config.json", out);
}

/* Tokens of generation_config.json replace those of config.json; each once. One beyond the
 * vocabulary is refused. */
TEST(test_generation)
{
    struct hf_config c;
    struct text text = {.data = NULL};
    assert_int_equal(generation("{\"eos_token_id\":[9,7,9],\"bos_token_id\":3}", &c), ST_OK);
    assert_true(c.eos_n == 2 && c.eos[0] == 9 && c.eos[1] == 7 && c.bos == 5);
    hf_config_write_generation(&c, &text);
    assert_non_null(strstr(text.data, "\"eos_token_id\": [9, 7]"));
    text_free(&text);
    assert_int_equal(generation("{\"eos_token_id\":11}", &c), ST_OK);
    assert_true(c.eos_n == 1 && c.eos[0] == 11);
    static const char *const kept[] = {"{}", "{\"eos_token_id\":null}", "{\"eos_token_id\":[]}"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(generation(kept[i], &c), ST_OK);
        assert_true(c.eos_n == 2 && c.eos[0] == 128001);
    }
    assert_int_equal(generation("{\"eos_token_id\":[1,2,3,4,5,6,7,8]}", &c), ST_OK);
    assert_int_equal(c.eos_n, 8);
    assert_false(c.has_more_eos);
    assert_int_equal(generation("{\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", &c), ST_OK);
    assert_true(c.eos_n == 8 && c.has_more_eos);
    static const char *const refused[] = {"{", "{\"eos_token_id\":[9,128256]}",
                                          "{\"eos_token_id\":-1}", "{\"eos_token_id\":\"8\"}"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(generation(refused[i], &c), ST_BAD_DATA);
    assert_int_equal(c.eos_n, 2);
}

TEST(test_defaults)
{
    struct hf_config c = parsed(LLAMA "}");
    assert_int_equal(c.context, 2048);
    assert_int_equal(c.kv_heads, 4);
    assert_float_equal(c.norm_eps, 1e-6, 0);
    assert_float_equal(c.rope.theta, 1e4, 0);
    assert_int_equal(c.rope.kind, HF_ROPE_NONE);
    assert_false(c.is_tied);
    c = parsed("{\"model_type\":\"qwen3\"," DIMS ",\"num_key_value_heads\":2}");
    assert_int_equal(c.arch, HF_ARCH_QWEN3);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.context, 32768);
    c = parsed("{\"model_type\":\"qwen2\"," DIMS ",\"num_key_value_heads\":2}");
    assert_int_equal(c.arch, HF_ARCH_QWEN2);
    assert_true(c.qkv_bias && !c.out_bias);
    assert_int_equal(c.head_dim, 4);
    c = parsed(NEOX ",\"rotary_pct\":0.5,\"rotary_emb_base\":50000,\"layer_norm_eps\":1e-6}");
    assert_int_equal(c.arch, HF_ARCH_NEOX);
    assert_true(c.qkv_bias && c.out_bias && c.parallel_residual && !c.is_tied);
    assert_float_equal(c.rope.fraction, 0.5, 0);
    assert_float_equal(c.rope.theta, 5e4, 0);
    assert_float_equal(c.norm_eps, 1e-6, 0);
    c = parsed(NEOX ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7e4,"
                    "\"partial_rotary_factor\":1.0}}");
    assert_float_equal(c.rope.fraction, 1, 0);
    assert_float_equal(c.rope.theta, 7e4, 0);
    c = parsed(NEOX ",\"hidden_act\":\"gelu_fast\"}");
    assert_true(c.gelu_tanh);
    c = parsed(NEOX "}");
    assert_false(c.gelu_tanh);
    assert_float_equal(c.rope.fraction, 0.25, 0);
    c = parsed("{" GOOD "}");
    assert_int_equal(c.arch, HF_ARCH_GPT2);
    assert_int_equal(c.ffn, 32);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 4);
    assert_true(c.is_tied && c.qkv_bias && c.out_bias && c.rope.theta == 0);
}

TEST(test_yarn)
{
    struct hf_config c = parsed(
        LLAMA ",\"max_position_embeddings\":65536,\"rope_theta\":1e6,\"rope_scaling\":{"
              "\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":16384}}");
    assert_int_equal(c.rope.kind, HF_ROPE_YARN);
    assert_float_equal(c.rope.factor, 4, 0);
    assert_float_equal(c.rope.beta_fast, 32, 0);
    assert_float_equal(c.rope.beta_slow, 1, 0);
    assert_float_equal(c.rope.attention_factor, 0, 0);
    assert_int_equal(c.rope.original_context, 16384);
    c = parsed(LLAMA
               ",\"max_position_embeddings\":65536,\"rope_parameters\":{\"rope_type\":\"yarn\","
               "\"factor\":null,\"original_max_position_embeddings\":4096,\"mscale\":1.0,"
               "\"mscale_all_dim\":0.5,\"beta_fast\":16}}");
    assert_float_equal(c.rope.factor, 16, 0);
    assert_float_equal(c.rope.beta_fast, 16, 0);
    /* (0.1 ln 16 + 1) / (0.05 ln 16 + 1) */
    assert_float_equal(c.rope.attention_factor, 1.2772588722239782 / 1.1386294361119891, 1e-15);
    c = parsed(LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}");
    assert_int_equal(c.rope.kind, HF_ROPE_LINEAR);
    assert_float_equal(c.rope.factor, 2, 0);
}

static void assert_same(const struct hf_config *a, const struct hf_config *b)
{
    assert_memory_equal(&a->layers, &b->layers, 5 * sizeof(int64_t));
    assert_memory_equal(&a->kv_heads, &b->kv_heads, 3 * sizeof(int64_t) + sizeof(double));
    assert_int_equal(a->arch, b->arch);
    assert_int_equal(a->is_qa, b->is_qa);
    assert_int_equal(a->is_tied, b->is_tied);
    assert_int_equal(a->qkv_bias, b->qkv_bias);
    assert_int_equal(a->out_bias, b->out_bias);
    assert_int_equal(a->parallel_residual, b->parallel_residual);
    assert_int_equal(a->gelu_tanh, b->gelu_tanh);
    assert_int_equal(a->rope.kind, b->rope.kind);
    assert_memory_equal(&a->rope.theta, &b->rope.theta,
                        sizeof(a->rope) - offsetof(struct hf_rope, theta));
    assert_int_equal(a->bos, b->bos);
    assert_int_equal(a->eos_n, b->eos_n);
    assert_memory_equal(a->eos, b->eos, (size_t)a->eos_n * sizeof a->eos[0]);
}

static const char *const written_list[] = {
    "{" GOOD "}",
    "{" GOOD ",\"architectures\":[\"GPT2ForQuestionAnswering\"],\"eos_token_id\":9}",
    LLAMA ",\"bos_token_id\":1,\"eos_token_id\":2,\"rope_theta\":123456.789}",
    LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}",
    LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
          "\"high_freq_factor\":4,\"original_max_position_embeddings\":512}}",
    LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,\"mscale\":1,\"mscale_all_dim\":"
          "0.7}}",
    "{\"model_type\":\"mistral\"," DIMS ",\"num_key_value_heads\":2,\"sliding_window\":null}",
    "{\"model_type\":\"qwen2\"," DIMS ",\"num_key_value_heads\":2,\"tie_word_embeddings\":true}",
    "{\"model_type\":\"qwen3\"," DIMS ",\"num_key_value_heads\":1,\"head_dim\":6}",
    NEOX ",\"use_parallel_residual\":false,\"rotary_pct\":0.5}",
    NEOX ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":3},\"hidden_act\":\"gelu_fast\"}",
};

TEST(test_write)
{
    for (size_t i = 0; i < sizeof(written_list) / sizeof(written_list[0]); i++) {
        struct hf_config config = parsed(written_list[i]), again;
        struct text text = {.data = NULL};
        cJSON *root;
        hf_config_write(&config, 0.1, &text);
        assert_false(text.overflow);
        again = parsed(text.data);
        assert_same(&config, &again);
        assert_int_equal(json_parse(text.data, text.len, "written", &root), ST_OK);
        assert_string_equal(
            cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItem(root, "architectures"), 0)),
            hf_config_class(&config));
        cJSON_Delete(root);
        text_free(&text);
    }
}

/* Both forms of the rotary positions are in what is written, each whole. */
TEST(test_forms)
{
    struct hf_config config = parsed(written_list[4]);
    struct text text = {.data = NULL};
    cJSON *root, *scaling;
    const cJSON *now;
    double theta;
    hf_config_write(&config, 0, &text);
    assert_int_equal(json_parse(text.data, text.len, "written", &root), ST_OK);
    assert_int_equal(json_get_f64(root, "rope_theta", &theta), ST_OK);
    scaling = cJSON_GetObjectItem(root, "rope_scaling");
    assert_non_null(cJSON_GetObjectItem(scaling, "low_freq_factor"));
    assert_int_equal(json_get_object(root, "rope_parameters", &now), ST_OK);
    assert_true(json_number(now, "rope_theta") == theta);
    assert_true(json_number(now, "low_freq_factor") == json_number(scaling, "low_freq_factor"));
    assert_non_null(strstr(text.data, "\"attention_dropout\": 0.0,"));
    assert_non_null(strstr(text.data, "\"rope_theta\": 10000.0"));
    cJSON_Delete(root);
    text_free(&text);
    config = parsed(NEOX "}");
    hf_config_write(&config, 0, &text);
    assert_non_null(strstr(text.data, "\"rotary_pct\": 0.25"));
    assert_non_null(strstr(text.data, "\"partial_rotary_factor\": 0.25"));
    assert_non_null(strstr(text.data, "\"rope_scaling\": null"));
    text_free(&text);
}

TEST(test_write_gpt2)
{
    for (int qa = 0; qa < 2; qa++) {
        struct hf_config config = parsed("{" GOOD "}");
        struct text text = {.data = NULL};
        cJSON *root;
        double dropout;
        config.is_qa = qa;
        config.vocab = qa ? 50304 : 11;
        config.bos = config.eos[0] = qa ? 50256 : -1, config.eos_n = qa;
        hf_config_write(&config, qa ? 0.1 : 0, &text);
        assert_int_equal(json_parse(text.data, text.len, "written", &root), ST_OK);
        assert_int_equal(json_get_f64(root, "resid_pdrop", &dropout), ST_OK);
        assert_float_equal(dropout, qa ? 0.1 : 0, 0);
        assert_int_equal(cJSON_IsNull(cJSON_GetObjectItem(root, "eos_token_id")), !qa);
        assert_non_null(strstr(text.data, qa ? "\"attn_pdrop\": 0.1," : "\"attn_pdrop\": 0.0,"));
        cJSON_Delete(root);
        text_free(&text);
        hf_config_write_generation(&config, &text);
        assert_int_equal(json_parse(text.data, text.len, "generation", &root), ST_OK);
        assert_int_equal(cJSON_HasObjectItem(root, "eos_token_id"), qa);
        cJSON_Delete(root);
        text_free(&text);
    }
}

HARNESS_RUN_ALL()
