/* test_transformer_values — value embeddings against their definition: a table of equal rows is a
 * bias of the values; with one token of text each row is that token's bias. And refusals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "harness.h"
#include "kernels/cpu.h"
#include "model/model_part.h"
#include "train/step.h"

#define WIDTH 16
#define VOCAB 11
#define LAYERS 3
#define T 7

static struct model_dims dims_of(int64_t value_embeds, bool has_qk_norm)
{
    struct model_dims dims = {
        .name = "values", .layers = LAYERS, .heads = 2, .embed = WIDTH, .vocab = VOCAB};
    dims.context = T;
    dims.parts.value_embeds = value_embeds;
    dims.parts.has_qk_norm = has_qk_norm;
    return dims;
}

static struct step *open_step(struct dev *dev, const struct model_dims *dims)
{
    struct step_config config = {.dev = dev,
                                 .dims = *dims,
                                 .batch_samples = 1,
                                 .global_samples = 1,
                                 .seq_tokens = T,
                                 .seed = 3,
                                 .optim = {.kind = OPTIM_KIND_ADAMW}};
    struct step *step;
    assert_int_equal(step_open(&config, &step), ST_OK);
    return step;
}

static double value(int64_t i) { return 0.3 * sin((double)(i * i % 1013) * 0.71 + 0.2); }

static float *find(struct step *step, const char *name, int layer)
{
    char full[PARAM_NAME_MAX];
    snprintf(full, sizeof full, name, layer);
    const struct param *p = param_find(step_own_table(step), full);
    return p ? step_part(step, 0) + p->offset : NULL;
}

/* fill — the same numbers by name in both models; tables aside. */
static void fill(struct step *from, struct step *to)
{
    const struct param_table *t = step_own_table(from);
    for (int i = 0; i < t->params_n; i++) {
        const struct param *p = &t->param[i], *other = param_find(step_own_table(to), p->name);
        assert_non_null(other);
        for (int64_t j = 0; j < p->elems; j++)
            step_part(from, 0)[p->offset + j] += (float)value(37 * i + j);
        memcpy(step_part(to, 0) + other->offset, step_part(from, 0) + p->offset,
               (size_t)p->elems * sizeof(float));
    }
}

/* compare — logits of n tokens of both models. */
static double apart(struct step *a, struct step *b, const int32_t *tokens, int64_t n)
{
    float x[VOCAB], y[VOCAB];
    double most = 0;
    assert_int_equal(step_logits(a, tokens, n, x), ST_OK);
    assert_int_equal(step_logits(b, tokens, n, y), ST_OK);
    for (int i = 0; i < VOCAB; i++)
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
    return most;
}

/* set_rows — of every table, row k: that of `row(k)`. Layers without one have none. */
static void set_rows(struct step *values, int first_layer, int64_t (*row)(int64_t k))
{
    for (int layer = 0; layer < LAYERS; layer++) {
        float *table = find(values, "h.%d.attn.value_embed.weight", layer);
        assert_true((table != NULL) == (layer >= first_layer));
        for (int64_t i = 0; table && i < VOCAB * WIDTH; i++)
            table[i] = (float)value(1000 * layer + 100 * row(i / WIDTH) + i % WIDTH);
    }
}

/* add_bias — a row to the biases of values; sign -1: takes it away. */
static void add_bias(struct step *plain, int first_layer, int64_t row, float sign)
{
    for (int layer = first_layer; layer < LAYERS; layer++)
        for (int64_t i = 0; i < WIDTH; i++)
            find(plain, "h.%d.attn.c_attn.bias", layer)[2 * WIDTH + i] +=
                sign * (float)value(1000 * layer + 100 * row + i);
}

static int64_t first_row(int64_t k)
{
    (void)k;
    return 0;
}
static int64_t own_row(int64_t k) { return k; }

static void check(int64_t value_embeds, bool has_qk_norm)
{
    static const int32_t text[T] = {3, 1, 10, 3, 0, 7, 2};
    const int first_layer = (int)(LAYERS - value_embeds);
    struct model_dims with = dims_of(value_embeds, has_qk_norm), without = dims_of(0, has_qk_norm);
    struct dev *dev;
    assert_int_equal(dev_cpu_open(1, CPU_ISA_PLAIN, &dev), ST_OK);
    struct step *values = open_step(dev, &with), *plain = open_step(dev, &without);
    fill(plain, values);
    assert_true(apart(values, plain, text, T) == 0); /* tables begin at zero */
    set_rows(values, first_layer, first_row);
    assert_true(apart(values, plain, text, T) > 1e-2);
    add_bias(plain, first_layer, 0, 1);
    double most = apart(values, plain, text, T);
    add_bias(plain, first_layer, 0, -1);
    set_rows(values, first_layer, own_row);
    for (int32_t token = 0; token < VOCAB; token++) {
        add_bias(plain, first_layer, token, 1);
        most = fmax(most, apart(values, plain, &token, 1));
        add_bias(plain, first_layer, token, -1);
    }
    print_message("# %d tables: logits differ by at most %.1e\n", (int)value_embeds, most);
    assert_true(most < 2e-5);
    step_close(values);
    step_close(plain);
    dev_close(dev);
}

static void test_definition(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= LAYERS; n++) {
        check(n, false);
        check(n, true);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct model_dims dims = dims_of(LAYERS + 1, false), out;
    assert_int_equal(model_check(&dims), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "VALUE_EMBEDS=4 is outside 0 … LAYERS=3"));
    dims = dims_of(1, false);
    const struct model_part half = {.tensor_ranks = 2};
    assert_int_equal(model_part_dims(&dims, &half, &out), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "TP=2 does not go with VALUE_EMBEDS=1"));
}

/* A stage has the tables of its own layers, with the numbers that they have in the whole model. */
static void test_numbers(void **state)
{
    (void)state;
    struct model_dims dims = dims_of(2, true), own;
    const struct model_part last = {.chunks_n = 1, .chunk = {{2, 1}}, .lacks_embed = true};
    struct param_table whole, part;
    assert_int_equal(model_part_dims(&dims, &last, &own), ST_OK);
    assert_int_equal(model_ops(&dims)->describe(&dims, &whole), ST_OK);
    assert_int_equal(model_ops(&own)->describe(&own, &part), ST_OK);
    assert_non_null(param_find(&part, "h.2.attn.value_embed.weight"));
    for (int i = 0; i < part.params_n; i++)
        assert_string_equal(part.param[i].name, whole.param[part.param[i].whole_param].name);
    param_table_free(&whole);
    param_table_free(&part);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_definition),
                                          cmocka_unit_test(test_refused),
                                          cmocka_unit_test(test_numbers)};
HARNESS_MAIN(tests)
