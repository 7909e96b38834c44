/* test_model — presets, bounds and counts; logits agree with losses; a plan measured is a plan taken, and less is
 * kept when told. */
#include "model/model.h"

#include <math.h>
#include <string.h>

#include "dev/dev.h"
#include "harness.h"
#include "kernels/cpu.h"

static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters; /* as Hugging Face counts the published ones */
    } row[] = {{"gpt2-nano", 7357312},     {"gpt2-mini", 30339456},   {"gpt2", 124439808},
               {"gpt2-medium", 354823168}, {"gpt2-large", 774030080}, {"gpt2-xl", 1557611200}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct model_dims dims;
        struct param_table t;
        assert_true(model_preset(row[i].name, &dims));
        assert_string_equal(dims.name, row[i].name);
        assert_int_equal(model_check(&dims), ST_OK);
        assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
        assert_int_equal(t.parameters, row[i].parameters);
        param_table_free(&t);
    }
    struct model_dims dims;
    assert_false(model_preset("gpt3", &dims));
    assert_false(model_preset("", &dims));
}

static void test_check(void **state)
{
    (void)state;
    struct model_dims good, bad;
    assert_true(model_preset("gpt2", &good));
    bad = good;
    bad.heads = 7;
    assert_int_equal(model_check(&bad), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "HEADS=7 does not divide EMBED=768"));
    int64_t *field[] = {&bad.layers, &bad.heads, &bad.embed, &bad.context, &bad.vocab};
    const int64_t wrong[] = {0, -1, INT64_MAX, INT64_MIN};
    for (size_t f = 0; f < sizeof field / sizeof *field; f++)
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            bad = good;
            *field[f] = wrong[i];
            assert_int_equal(model_check(&bad), ST_BAD_SETTING);
        }
}

static void test_flops(void **state)
{
    (void)state;
    struct model_dims dims;
    assert_true(model_preset("gpt2", &dims));
    assert_float_equal(model_flops_per_token(&dims, 0), 741.2e6, 0.1e6); /* 6 · (12LC² + VC) */
    assert_float_equal(model_flops_per_token(&dims, 1024) - model_flops_per_token(&dims, 0), 6.0 * 12 * 768 * 1024,
                       1);
    dims.task = MODEL_TASK_QA; /* no vocabulary product */
    assert_float_equal(model_flops_per_token(&dims, 0), 6.0 * (12.0 * 12 * 768 * 768 + 2 * 768), 1);
}

static const struct model_dims tiny = {
    .name = "tiny", .layers = 3, .heads = 2, .embed = 16, .context = 10, .vocab = 21};

static size_t planned(enum model_recompute recompute, bool want_grad, size_t *scratch_out)
{
    struct arena acts, scratch;
    struct model_acts *plan;
    arena_init(&acts, "acts", NULL, 0);
    arena_init(&scratch, "scratch", NULL, 0);
    assert_int_equal(model_plan(&tiny, 8, 10, recompute, want_grad, DTYPE_F32, &acts, &scratch, &plan), ST_OK);
    model_plan_free(plan);
    *scratch_out = scratch.used_bytes;
    return acts.used_bytes;
}

static void test_plan(void **state)
{
    (void)state;
    size_t s[4], none = planned(MODEL_RECOMPUTE_NONE, true, &s[0]),
                 attention = planned(MODEL_RECOMPUTE_ATTENTION, true, &s[1]);
    size_t block = planned(MODEL_RECOMPUTE_BLOCK, true, &s[2]), eval = planned(MODEL_RECOMPUTE_NONE, false, &s[3]);
    size_t c = 80 * 16 * sizeof(float); /* one (N,C) */
    assert_true(none >= (3 * 10 + 1) * c &&
                none < (3 * 11 + 2) * c); /* 10C a block, beside it only a few numbers a row */
    assert_true(attention < none - 3 * 4 * c + c);
    assert_true(block < 6 * c);
    assert_true(eval < block);
    assert_true(s[0] < s[1] && s[1] < s[2]);
    model_plan_free(NULL);
}

/* −log softmax(logits)[target] of a row is that row's loss. */
static void test_logits(void **state)
{
    (void)state;
    enum { B = 2, T = 10, N = B * T };
    struct dev *dev;
    struct stream *stream;
    struct param_table t;
    struct arena acts, scratch;
    static char acts_bytes[1 << 16] __attribute__((aligned(64))),
        scratch_bytes[1 << 18] __attribute__((aligned(64)));
    assert_int_equal(dev_cpu_open(1, CPU_LEVEL_N, &dev), ST_OK);
    assert_int_equal(dev_stream_open(dev, &stream), ST_OK);
    const struct model_ops *model = model_ops(&tiny);
    assert_int_equal(model->describe(&tiny, &t), ST_OK);
    float *params = calloc((size_t)t.total_elems, sizeof *params), losses[N], logits[21];
    for (int i = 0; i < t.rows_n; i++)
        param_fill(&t, i, 1, 0, t.row[i].elems, params + t.row[i].offset);
    for (int64_t i = 0; i < t.row[0].elems; i++)
        params[i] *= 30; /* large enough for logits that differ */
    int32_t tokens[N], targets[N];
    for (int i = 0; i < N; i++) {
        tokens[i] = i * 7 % 21;
        targets[i] = i * 5 % 21;
    }
    arena_init(&acts, "acts", acts_bytes, sizeof acts_bytes);
    arena_init(&scratch, "scratch", scratch_bytes, sizeof scratch_bytes);
    struct pass p = {.dims = &tiny,
                     .table = &t,
                     .b = B,
                     .t = T,
                     .op = dev_op(dev),
                     .stream = stream,
                     .params = {params, DTYPE_F32},
                     .tokens = {tokens, DTYPE_I32},
                     .targets = {targets, DTYPE_I32},
                     .losses = {losses, DTYPE_F32},
                     .scale = 1};
    assert_int_equal(model_plan(&tiny, B, T, MODEL_RECOMPUTE_NONE, false, DTYPE_F32, &acts, &scratch, &p.acts), ST_OK);
    assert_int_equal(model->embed_fwd(&p), ST_OK);
    for (int block = 0; block < tiny.layers; block++)
        assert_int_equal(model->block_fwd(&p, block), ST_OK);
    assert_int_equal(model->head(&p), ST_OK);
    for (int row = 0; row < N; row++) {
        double sum = 0;
        assert_int_equal(model->logits(&p, row, (struct tensor){logits, DTYPE_F32}), ST_OK);
        for (int v = 0; v < 21; v++)
            sum += exp(logits[v]);
        assert_float_equal(log(sum) - logits[targets[row]], losses[row], 1e-5);
    }
    model_plan_free(p.acts);
    param_table_free(&t);
    free(params);
    dev_stream_close(stream);
    dev_close(dev);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_presets), cmocka_unit_test(test_check),  cmocka_unit_test(test_flops),
    cmocka_unit_test(test_plan),    cmocka_unit_test(test_logits),
};
HARNESS_MAIN(tests)
