/* load — weights of a Hugging Face folder are loaded by their names; dimensions survive a
 * round trip through JSON. */
#include "train/weights/load.h"

#include <math.h>
#include <string.h>

#include "architectures.h"
#include "base/text.h"
#include "harness.h"
#include "kernels/cpu.h"

static const struct hf_config gpt2 = {.arch = HF_ARCH_GPT2, .is_tied = true};

static void test_dims(void **state)
{
    struct model_dims dims = {.name = "my \"own\"\\model",
                              .task = MODEL_TASK_QA,
                              .layers = 3,
                              .heads = 4,
                              .embed = 64,
                              .context = 48,
                              .vocab = 311},
                      back;
    char json[1024];
    load_dims_json(&dims, json, sizeof json);
    assert_int_equal(load_dims_parse(json, &back), ST_OK);
    assert_string_equal(back.name, dims.name);
    assert_int_equal(back.task, dims.task);
    assert_int_equal(back.layers, 3);
    assert_int_equal(back.heads, 4);
    assert_int_equal(back.embed, 64);
    assert_int_equal(back.context, 48);
    assert_int_equal(back.vocab, 311);
}

/* Every architecture and part comes back; GPT-2's is written as by older versions. */
static void test_arch_dims(void **state)
{
    char json[1024], again[1024];
    struct model_dims back;
    for (int i = 0; i < ARCHITECTURES_N; i++) {
        struct model_dims dims = architectures[i];
        dims.context = 48;
        model_resolve(&dims);
        dims.marks = (struct model_marks){.has_bos = i % 2, .eos_n = 1 + i % 3, .eos = {i, 7, 9}};
        load_dims_json(&dims, json, sizeof json);
        assert_int_equal(load_dims_parse(json, &back), ST_OK);
        model_resolve(&back); /* GPT-2's widths are not written */
        assert_int_equal(back.arch, dims.arch);
        assert_true(back.kv_heads == dims.kv_heads && back.head_dim == dims.head_dim &&
                    back.ffn == dims.ffn && back.norm_eps == dims.norm_eps);
        assert_true(back.parts.mlp == dims.parts.mlp && back.parts.bias == dims.parts.bias &&
                    back.parts.norm == dims.parts.norm &&
                    back.parts.position == dims.parts.position &&
                    back.parts.is_parallel == dims.parts.is_parallel &&
                    back.parts.has_qk_norm == dims.parts.has_qk_norm &&
                    back.parts.is_untied == dims.parts.is_untied &&
                    back.parts.logit_cap == dims.parts.logit_cap &&
                    back.parts.rope.theta == dims.parts.rope.theta);
        assert_int_equal(back.marks.has_bos, i % 2);
        assert_int_equal(back.marks.eos_n, 1 + i % 3);
        assert_int_equal(back.marks.eos[0], i);
        load_dims_json(&back, again, sizeof again);
        assert_string_equal(json, again);
    }
    assert_true(model_preset("gpt2", &back));
    load_dims_json(&back, json, sizeof json);
    assert_string_equal(json, "{\"name\":\"gpt2\",\"task\":\"lm\",\"layers\":12,\"heads\":12,"
                              "\"embed\":768,\"context\":1024,\"vocab\":50257}");
}

static const struct model_dims modern = {.name = "modern",
                                         .layers = 2,
                                         .heads = 2,
                                         .embed = 12,
                                         .context = 20,
                                         .vocab = 37,
                                         .parts = {.mlp = MODEL_MLP_RELU2,
                                                   .position = MODEL_POSITION_ROPE,
                                                   .rope = {.theta = 100, .fraction = 1},
                                                   .has_qk_norm = true,
                                                   .is_untied = true,
                                                   .logit_cap = 7.5,
                                                   .has_zero_init = true}};

/* A GPT-2 with other parts: older versions refuse its "arch"; how it began is not written. */
static void test_modern_dims(void **state)
{
    struct model_dims dims = modern, back;
    char json[1024];
    load_dims_json(&dims, json, sizeof json);
    assert_non_null(strstr(json, "\"arch\":\"gpt2-modern\""));
    assert_int_equal(load_dims_parse(json, &back), ST_OK);
    assert_false(back.parts.has_zero_init);
    assert_int_equal(load_dims_agree(&back, &dims, "here"), ST_OK);
    dims.parts = (struct model_parts){.has_zero_init = true};
    load_dims_json(&dims, json, sizeof json);
    assert_null(strstr(json, "arch"));
}

/* What the shapes of tensors do not tell apart, a run must not go on with. */
static void test_disagreement(void **state)
{
    struct model_dims is = modern;
    is.parts.mlp = MODEL_MLP_GELU_TANH;
    assert_int_equal(load_dims_agree(&modern, &is, "here"), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "ACTIVATION is gelu_tanh, but the model in here"));
    is = modern, is.parts.logit_cap = 0;
    assert_int_equal(load_dims_agree(&modern, &is, "here"), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "LOGIT_CAP is 0, but the model in here has 7.5"));
    is = modern, is.parts.position = MODEL_POSITION_LEARNED;
    assert_int_equal(load_dims_agree(&modern, &is, "here"), ST_BAD_SETTING);
    assert_non_null(
        strstr(status_message(), "POSITIONS=learned, but the model in here has rotary"));
}

/* A manifest of an architecture with one field wrong. */
static void test_bad_arch_dims(void **state)
{
    static const struct {
        const char *was, *is, *says;
    } row[] = {{"\"arch\":\"llama\"", "\"arch\":\"mamba\"", "mamba"},
               {"\"arch\":\"llama\"", "\"arch\":\"gpt2-value-embeds\"",
                "value embeddings were removed; train a model without VALUE_EMBEDS"},
               {"\"mlp\":\"swiglu\"", "\"mlp\":\"relu\"", "relu"},
               {"\"kv_heads\":2", "\"kv_heads\":3", "KV_HEADS=3"},
               {"\"head_dim\":6", "\"head_dim\":7", "HEAD_DIM=7"},
               {"\"rope_theta\":10000", "\"rope_theta\":0", "theta 0"},
               {"\"rope_factor\":8", "\"rope_factor\":0.5", "factor 0.5"},
               {"\"rope_original_context\":32", "\"rope_original_context\":0", "llama3"},
               {"\"untied\":0", "\"untied\":2", "untied"},
               {"\"bos\":1", "\"bos\":1000000", "bos"},
               {"\"eos\":2", "\"eos\":-1", "eos"},
               {"\"eos\":2", "\"eos\":[2,1.5]", "\"eos\" is 1.5, expected a whole number"},
               {"\"eos\":2", "\"eos\":[2,\"3\"]", "\"eos\" is"},
               {"\"eos\":2", "\"eos\":[2,1000000]", "\"eos\" is 1000000, expected 0 to"}};
    struct model_dims dims = architectures[1], back; /* with scaled positions */
    char json[1024];
    dims.context = 48;
    dims.marks = (struct model_marks){.has_bos = true, .bos = 1, .eos_n = 1, .eos = {2}};
    load_dims_json(&dims, json, sizeof json);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char bad[2048];
        char *at = strstr(json, row[i].was);
        assert_non_null(at);
        text_format(bad, sizeof bad, "%.*s%s%s", (int)(at - json), json, row[i].is,
                    at + strlen(row[i].was));
        assert_int_not_equal(load_dims_parse(bad, &back), ST_OK);
        assert_non_null(strstr(status_message(), row[i].says));
    }
}

static void test_bad_dims(void **state)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "null",
                                      "[]",
                                      "{}",
                                      "{\"name\":\"a\",\"task\":\"lm\"}",
                                      "{\"name\":\"a\",\"task\":\"xy\",\"layers\":1,\"heads\":1,"
                                      "\"embed\":1,\"context\":1,\"vocab\":1}",
                                      "{\"name\":\"a\",\"task\":\"lm\",\"layers\":0,\"heads\":1,"
                                      "\"embed\":1,\"context\":1,\"vocab\":1}",
                                      "{\"name\":\"a\",\"task\":\"lm\",\"layers\":1,\"heads\":2,"
                                      "\"embed\":3,\"context\":1,\"vocab\":1}",
                                      "{\"name\":\"a\",\"task\":\"lm\",\"layers\":1,\"heads\":1,"
                                      "\"embed\":1e30,\"context\":1,\"vocab\":1}"};
    struct model_dims dims = {.layers = 77};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(load_dims_parse(bad[i], &dims), ST_OK);
        assert_int_equal(dims.layers, 77);
    }
}

static void load_folder(const char *dir, enum model_task task)
{
    struct dev *dev;
    struct stream *stream;
    struct hf_model *hf;
    struct model_dims dims;
    struct param_table t;
    assert_int_equal(dev_cpu_open(1, CPU_ISA_PLAIN, &dev), ST_OK);
    assert_int_equal(dev_stream_open(dev, &stream), ST_OK);
    assert_int_equal(load_dims_of_hf(dir, task, &dims), ST_OK);
    assert_int_equal(dims.vocab, 311);
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_OK);
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    float *data = calloc((size_t)t.total_elems, sizeof *data), want[16];
    for (int64_t i = 0; i < t.total_elems; i++)
        data[i] = 77;
    struct load_target to = {.table = &t, .stream = stream, .data = {data, DTYPE_F32}};
    assert_int_equal(load_params(&to, &(struct load_file){.hf = hf}), ST_OK);
    for (int i = 0; i < t.params_n; i++) {
        const struct safetensors_entry *e;
        const struct param *p = &t.param[i];
        if (!hf_has(hf, p->name)) {
            /* a language model has none: unchanged */
            assert_memory_equal(p->name, "qa_outputs", 10);
            assert_float_equal(data[p->offset], 77, 0);
            continue;
        }
        assert_int_equal(hf_tensor(hf, p->name, p->dims_n, p->dim, &e), ST_OK);
        int64_t n = p->elems < 16 ? p->elems : 16;
        safetensors_to_f32(e, p->elems - n, n, want);
        assert_memory_equal(data + p->offset + p->elems - n, want, (size_t)n * sizeof *want);
    }
    dims.embed = 32; /* another shape than the folder's is refused by name */
    param_table_free(&t);
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    assert_int_equal(load_params(&to, &(struct load_file){.hf = hf}), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "wte.weight"));
    param_table_free(&t);
    free(data);
    hf_close(hf);
    dev_stream_close(stream);
    dev_close(dev);
}

static void test_hf(void **state)
{
    load_folder("tests/golden/lm", MODEL_TASK_LM);
    load_folder("tests/golden/lm/", MODEL_TASK_QA);
    load_folder("tests/golden/qa", MODEL_TASK_QA);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_dims),
    cmocka_unit_test(test_arch_dims),
    cmocka_unit_test(test_modern_dims),
    cmocka_unit_test(test_disagreement),
    cmocka_unit_test(test_bad_arch_dims),
    cmocka_unit_test(test_bad_dims),
    cmocka_unit_test(test_hf),
};
HARNESS_MAIN(tests)
