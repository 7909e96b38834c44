/* optim — which ranges of parameters have weight decay, how many moments there are, and that
 * an update calls the right operation. */
#include "train/step/optim.h"

#include "dev/dev.h"
#include "harness.h"
#include "kernels/cpu.h"
#include "model/model.h"

static struct param_table describe(void)
{
    struct model_dims dims = {.layers = 2, .heads = 1, .embed = 5, .context = 3, .vocab = 7};
    struct param_table t;
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    return t;
}

static float decay_at(const struct optim_span *span, int64_t n, int64_t offset)
{
    for (int64_t i = 0; i < n; i++)
        if (offset >= span[i].offset && offset < span[i].offset + span[i].elems)
            return span[i].weight_decay;
    fail();
    return -1;
}

static void test_spans(void **state)
{
    struct param_table t = describe();
    int64_t n, end = 0;
    struct optim_span *span = optim_spans(&t, &(struct optim_config){.weight_decay = 0.5}, &n);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(span[i].offset, end);
        /* neighbours are merged */
        assert_true(i == 0 || span[i].weight_decay != span[i - 1].weight_decay);
        end += span[i].elems;
    }
    assert_int_equal(end, t.total_elems);
    for (int i = 0; i < t.params_n; i++)
        assert_float_equal(decay_at(span, n, t.param[i].offset), t.param[i].dims_n == 2 ? 0.5 : 0,
                           0);
    free(span);
    span = optim_spans(&t, &(struct optim_config){.weight_decay = 0}, &n);
    assert_int_equal(n, 1);
    free(span);
    param_table_free(&t);
}

/* The parts of ranges, wherever they are cut, add up to the ranges. */
static void test_cut(void **state)
{
    struct param_table t = describe();
    struct optim_span out[64];
    int64_t n;
    struct optim_span *span = optim_spans(&t, &(struct optim_config){.weight_decay = 0.5}, &n);
    assert_true(n <= 64);
    for (int64_t each = 1; each < t.total_elems; each += 13)
        for (int64_t first = 0; first < t.total_elems; first += each) {
            int64_t elems = t.total_elems - first < each ? t.total_elems - first : each, end = 0;
            int64_t out_n = optim_cut(span, n, first, elems, out);
            for (int64_t i = 0; i < out_n; i++) {
                assert_int_equal(out[i].offset, end);
                assert_float_equal(out[i].weight_decay, decay_at(span, n, first + end), 0);
                end += out[i].elems;
            }
            assert_int_equal(end, elems);
        }
    assert_int_equal(optim_cut(span, n, 5, 0, out), 0);
    free(span);
    param_table_free(&t);
}

static void test_moments(void **state)
{
    struct optim_config c = {.kind = OPTIM_KIND_ADAMW, .weight_decay = 0.25};
    assert_int_equal(optim_moments(&c), 2);
    assert_float_equal(optim_decay(&c), 0.25, 0);
    c.kind = OPTIM_KIND_SGD;
    assert_int_equal(optim_moments(&c), 0);
    assert_float_equal(optim_decay(&c), 0, 0);
    c.momentum = 0.9;
    assert_int_equal(optim_moments(&c), 1);
}

/* By hand: AdamW's first step is lr · sign(g) beside the decay; SGD's is lr · g; both after
 * scaling 4 to 1. */
static void test_update(void **state)
{
    struct dev *dev;
    struct stream *stream;
    assert_int_equal(dev_cpu_open(1, CPU_ISA_PLAIN, &dev), ST_OK);
    assert_int_equal(dev_stream_open(dev, &stream), ST_OK);
    float p[16] = {2}, g[16] = {4}, m[16] = {0}, v[16] = {0};
    double scale = 0.25;
    const struct optim_span span = {.elems = 16, .weight_decay = 0.5f};
    struct optim_arrays a = {
        .p = {p, DTYPE_F32}, .g = {g, DTYPE_F32}, .m = {m, DTYPE_F32}, .v = {v, DTYPE_F32}};
    struct optim_config c = {.kind = OPTIM_KIND_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    struct tensor grad_scale = {&scale, DTYPE_F64};
    assert_int_equal(optim_update(&c, dev_op(dev), stream, &a, &span, 1, grad_scale, 0.1, 0),
                     ST_OK);
    assert_float_equal(p[0], 2 - 0.1 * 0.5 * 2 - 0.1, 1e-6);
    assert_float_equal(m[0], 0.1 * 1, 1e-6);
    assert_float_equal(p[1], 0, 0);
    const struct optim_span plain = {.elems = 16};
    p[0] = 2;
    m[0] = 0;
    c.kind = OPTIM_KIND_SGD;
    assert_int_equal(optim_update(&c, dev_op(dev), stream, &a, &plain, 1, grad_scale, 0.1, 0),
                     ST_OK);
    assert_float_equal(p[0], 2 - 0.1 * 1, 1e-6);
    dev_stream_close(stream);
    dev_close(dev);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_spans),
    cmocka_unit_test(test_cut),
    cmocka_unit_test(test_moments),
    cmocka_unit_test(test_update),
};
HARNESS_MAIN(tests)
