/* test_load — weights of a Hugging Face folder are loaded by their names; dimensions survive a
 * round trip through JSON. */
#include "train/load.h"

#include <math.h>
#include <string.h>

#include "harness.h"
#include "kernels/cpu.h"

static const struct hf_config gpt2 = {.arch = HF_ARCH_GPT2, .is_tied = true};

static void test_dims(void **state)
{
    (void)state;
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

static void test_bad_dims(void **state)
{
    (void)state;
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
    assert_int_equal(load_hf(&to, hf), ST_OK);
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
    assert_int_equal(load_hf(&to, hf), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "wte.weight"));
    param_table_free(&t);
    free(data);
    hf_close(hf);
    dev_stream_close(stream);
    dev_close(dev);
}

static void test_hf(void **state)
{
    (void)state;
    load_folder("tests/golden/lm", MODEL_TASK_LM);
    load_folder("tests/golden/lm/", MODEL_TASK_QA);
    load_folder("tests/golden/qa", MODEL_TASK_QA);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_dims),
    cmocka_unit_test(test_bad_dims),
    cmocka_unit_test(test_hf),
};
HARNESS_MAIN(tests)
