/* param — the layout of the table, its names, and initial values that are functions of their
 * counters. */
#include "model/param.h"

#include "harness.h"
#include "model/model.h"

static struct param_table describe(enum model_task task, const char *preset)
{
    struct model_dims dims;
    assert_true(model_preset(preset, &dims));
    dims.task = task;
    struct param_table t;
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    return t;
}

TEST(test_layout)
{
    struct param_table t = describe(MODEL_TASK_QA, "gpt2-nano");
    int64_t end = 0, sum = 0;
    for (int i = 0; i < t.params_n; i++) {
        assert_int_equal(t.param[i].offset % PARAM_ALIGN, 0);
        assert_true(t.param[i].offset >= end && t.param[i].offset < end + PARAM_ALIGN);
        end = t.param[i].offset + t.param[i].elems;
        sum += t.param[i].elems;
    }
    assert_int_equal(t.parameters, sum);
    assert_true(t.total_elems >= end && t.total_elems % PARAM_ALIGN == 0);
    int64_t at = 0;
    assert_int_equal(t.units_n, 6);
    for (int unit = 0; unit < t.units_n; unit++) {
        int64_t offset, elems;
        param_unit_span(&t, unit, &offset, &elems);
        assert_int_equal(offset, at);
        at += elems;
    }
    assert_int_equal(at, t.total_elems);
    param_table_free(&t);
    param_table_free(&t);
}

TEST(test_gpt2_names)
{
    struct param_table t = describe(MODEL_TASK_LM, "gpt2");
    assert_int_equal(t.parameters, 124439808); /* as Hugging Face counts it */
    const struct param *p = param_find(&t, "h.11.mlp.c_proj.weight");
    assert_non_null(p);
    assert_int_equal(p->dim[0], 3072);
    assert_int_equal(p->dim[1], 768);
    assert_int_equal(p->unit, 12);
    assert_int_equal(p->init, PARAM_INIT_RESIDUAL);
    assert_null(param_find(&t, "qa_outputs.weight"));
    assert_null(param_find(&t, ""));
    assert_false(param_find(&t, "wte.weight")->grad_is_added);
    param_table_free(&t);
    t = describe(MODEL_TASK_QA, "gpt2");
    assert_int_equal(param_find(&t, "qa_outputs.weight")->dim[0], 2);
    assert_true(param_find(&t, "wte.weight")->grad_is_added);
    param_table_free(&t);
}

/* The room behind the weights of the vocabulary product is no part of the tensor, and every way to
 * lay out a table keeps it. */
TEST(test_room)
{
    struct model_dims dims;
    struct param_table t;
    assert_true(model_preset("gpt2", &dims));
    dims.shard.vocab_multiple = 64;
    assert_int_equal(model_vocab_rows(&dims), 50304);
    for (int way = 0; way < 2; way++) {
        assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
        if (way == 1)
            param_pad(&t, 4096);
        assert_int_equal(t.parameters, 124439808);
        assert_int_equal(t.param[0].dim[0], 50257);
        assert_int_equal(t.param[0].elems, 50257 * 768);
        assert_int_equal(t.param[0].room_elems, 50304 * 768);
        assert_true(t.param[1].offset >= 50304 * 768);
        for (int i = 1; i < t.params_n; i++)
            assert_int_equal(t.param[i].room_elems, t.param[i].elems);
        param_table_free(&t);
    }
    dims.task = MODEL_TASK_QA; /* no product reads the token embedding */
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    assert_int_equal(t.param[0].room_elems, t.param[0].elems);
    param_table_free(&t);
    dims.task = MODEL_TASK_LM, dims.features.is_untied = true;
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    assert_int_equal(t.param[0].room_elems, t.param[0].elems);
    assert_int_equal(t.param[t.params_n - 1].room_elems, 50304 * 768);
    assert_int_equal(t.total_elems, t.param[t.params_n - 1].offset + 50304 * 768);
    param_table_free(&t);
}

TEST(test_too_large)
{
    struct param_table t = {0};
    assert_int_equal(
        param_add(&t, 0, PARAM_INIT_ZERO, -1, "a", 2, (int64_t)1 << 40, (int64_t)1 << 40),
        ST_BAD_SETTING);
    assert_int_equal(t.params_n, 0);
    param_table_free(&t);
}

/* Any range of a parameter gives the same numbers; other parameters and seeds give others. */
TEST(test_fill_is_a_function)
{
    struct param_table t = describe(MODEL_TASK_LM, "gpt2-nano");
    enum { N = 1000 };
    float whole[N], cut[N], other[N];
    param_fill(&t, 0, 7, 0, N, whole);
    for (int64_t first = 0, n = 1; first < N; first += n, n = n * 3 % 37 + 1)
        param_fill(&t, 0, 7, first, first + n > N ? N - first : n, cut + first);
    assert_memory_equal(whole, cut, sizeof whole);
    param_fill(&t, 0, 8, 0, N, other);
    assert_memory_not_equal(whole, other, sizeof whole);
    param_fill(&t, 1, 7, 0, N, other);
    assert_memory_not_equal(whole, other, sizeof whole);
    param_table_free(&t);
}

/* Values written down once: they must never change, or old runs cannot be repeated. */
TEST(test_fill_values)
{
    struct param_table t = describe(MODEL_TASK_LM, "gpt2-nano");
    static const float want[5] = {-0.0123707084f, 0.0287227575f, -0.00283930567f, -0.0243886709f,
                                  0.0251667891f};
    float got[5];
    param_fill(&t, 0, 1, 1000003, 5, got);
    for (int i = 0; i < 5; i++)
        assert_float_equal(got[i], want[i], 1e-9);
    param_table_free(&t);
}

static void moments(const struct param_table *t, const char *name, double *mean, double *std)
{
    const struct param *p = param_find(t, name);
    int64_t n = p->elems < 1 << 20 ? p->elems : 1 << 20;
    float *v = malloc((size_t)n * sizeof *v);
    double sum = 0, squares = 0;
    param_fill(t, (int)(p - t->param), 1, 0, n, v);
    for (int64_t i = 0; i < n; i++) {
        sum += v[i];
        squares += (double)v[i] * v[i];
    }
    free(v);
    *mean = sum / (double)n;
    *std = sqrt(squares / (double)n - *mean * *mean);
}

TEST(test_fill_moments)
{
    struct param_table t = describe(MODEL_TASK_LM, "gpt2");
    double mean, std;
    moments(&t, "h.3.mlp.c_fc.weight", &mean, &std);
    assert_float_equal(mean, 0, 1e-4);
    assert_float_equal(std, 0.02, 1e-4);
    moments(&t, "h.3.attn.c_proj.weight", &mean, &std);
    assert_float_equal(std, 0.02 / sqrt(24), 2e-5);
    moments(&t, "h.3.ln_1.weight", &mean, &std);
    assert_float_equal(mean, 1, 0);
    moments(&t, "h.3.attn.c_attn.bias", &mean, &std);
    assert_float_equal(mean, 0, 0);
    param_table_free(&t);
}

HARNESS_RUN_ALL()
