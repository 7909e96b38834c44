/* decoder — the cache changes no token: the same text with and without it, greedy and sampled,
 * with random and with trained weights, up to the context and beyond; another text does not use the
 * cache. */
#include "train/generate/decoder.h"

#include <math.h>
#include <string.h>

#include "architectures.h"
#include "base/rand.h"
#include "harness.h"
#include "kernels/cpu.h"
#include "train/generate/sampling.h"
#include "train/weights/weights.h"

enum { TEXT_MAX = 1100 };

static struct dev *dev;

static int set_up(void **state) { return dev_cpu_open(2, CPU_ISA_N, &dev) != ST_OK; }

static int tear_down(void **state)
{
    dev_close(dev);
    return 0;
}

static void ok(enum status st)
{
    if (st != ST_OK)
        fail_msg("%s: %s", status_name(st), status_message());
}

static struct decoder *open_random(struct model_dims *dims, int64_t window)
{
    struct decoder *d;
    ok(decoder_open(dev, dims, window, DTYPE_F32, &d));
    struct load_target to = decoder_target(d);
    for (int row = 0; row < to.table->params_n; row++) {
        const struct param *p = &to.table->param[row];
        param_fill(to.table, row, 7, 0, p->elems, (float *)to.data.data + p->offset);
    }
    return d;
}

static struct decoder *open_trained(struct model_dims *dims)
{
    struct decoder *d;
    ok(weights_dims("tests/golden/lm", dims));
    ok(decoder_open(dev, dims, dims->context, DTYPE_F32, &d));
    struct load_target to = decoder_target(d);
    ok(weights_load("tests/golden/lm", &to));
    return d;
}

/* prompt_n tokens, then tokens_n written; forgetful: without the cache. */
static void write_text(struct decoder *d, int64_t vocab, double temperature, bool forgetful,
                       int prompt_n, int tokens_n, int32_t *tokens)
{
    const struct sampling_params rule = {.temperature = temperature, .top_k = 40, .top_p = 0.95};
    float *work = malloc((size_t)vocab * sizeof *work);
    assert_non_null(work);
    for (int i = 0; i < prompt_n; i++)
        tokens[i] = (int32_t)rand_below(3, RAND_STREAM(TEST, 1), (uint64_t)i, (uint32_t)vocab);
    for (int i = prompt_n; i < prompt_n + tokens_n; i++) {
        const float *logits;
        if (forgetful)
            decoder_reset(d);
        ok(decoder_logits(d, tokens, i, &logits));
        double u = rand_uniform(5, RAND_STREAM(SAMPLE, 0), (uint64_t)i);
        tokens[i] = (int32_t)sampling_pick(logits, vocab, &rule, u, work);
        assert_true(tokens[i] >= 0);
    }
    free(work);
}

static void check_text(struct decoder *d, int64_t vocab, double temperature, int prompt_n,
                       int tokens_n)
{
    static int32_t want[TEXT_MAX], got[TEXT_MAX];
    write_text(d, vocab, temperature, true, prompt_n, tokens_n, want);
    decoder_reset(d);
    write_text(d, vocab, temperature, false, prompt_n, tokens_n, got);
    for (int i = 0; i < prompt_n + tokens_n; i++)
        if (got[i] != want[i])
            fail_msg("token %d is %d, without memory %d (temperature %g)", i, got[i], want[i],
                     temperature);
}

static void test_random_weights(void **state)
{
    struct model_dims dims;
    assert_true(model_preset("gpt2-nano", &dims));
    struct decoder *d = open_random(&dims, dims.context);
    for (int greedy = 0; greedy < 2; greedy++) {
        check_text(d, dims.vocab, greedy ? 0 : 1, 1, 40);
        /* six tokens before the end of the context, and six after it */
        check_text(d, dims.vocab, greedy ? 0 : 1, 1018, 12);
    }
    decoder_close(d);
}

static void test_trained_weights(void **state)
{
    struct model_dims dims;
    struct decoder *d = open_trained(&dims);
    for (int greedy = 0; greedy < 2; greedy++)
        for (int prompt_n = 1; prompt_n < 60; prompt_n += 13)
            check_text(d, dims.vocab, greedy ? 0 : 1, prompt_n, 70); /* context 48 */
    decoder_close(d);
}

/* Every architecture, within its context and beyond, with weights large enough to matter. */
static void test_architectures(void **state)
{
    for (int i = 0; i < ARCHITECTURES_N; i++) {
        struct model_dims dims = architectures[i];
        dims.context = 24;
        struct decoder *d = open_random(&dims, dims.context);
        struct load_target to = decoder_target(d);
        for (int64_t j = 0; j < to.table->total_elems; j++)
            ((float *)to.data.data)[j] *= 8;
        for (int greedy = 0; greedy < 2; greedy++)
            for (int prompt_n = 1; prompt_n < 30; prompt_n += 7)
                check_text(d, dims.vocab, greedy ? 0 : 1, prompt_n, 30);
        decoder_close(d);
    }
}

static void copy_logits(struct decoder *d, const int32_t *tokens, int64_t n, float *out,
                        int64_t vocab)
{
    const float *logits;
    ok(decoder_logits(d, tokens, n, &logits));
    memcpy(out, logits, (size_t)vocab * sizeof *out);
}

/* Without a cached prefix the bits are the same; with one they differ by rounding. */
static void test_other_text(void **state)
{
    static float want[400], got[400];
    int32_t a[] = {1, 2, 3, 4, 5}, b[] = {1, 2, 7, 4, 5};
    struct model_dims dims;
    struct decoder *d = open_trained(&dims);
    assert_true(dims.vocab <= 400);
    copy_logits(d, b, 5, want, dims.vocab);
    decoder_reset(d);
    copy_logits(d, a, 4, got, dims.vocab);
    copy_logits(d, b, 5, got, dims.vocab); /* another text */
    assert_memory_equal(got, want, sizeof *got * (size_t)dims.vocab);
    decoder_reset(d);
    copy_logits(d, b, 2, got, dims.vocab);
    copy_logits(d, b, 5, got, dims.vocab); /* three tokens more */
    assert_memory_equal(got, want, sizeof *got * (size_t)dims.vocab);
    copy_logits(d, b, 5, got, dims.vocab); /* the same again: its last token once more */
    for (int64_t i = 0; i < dims.vocab; i++)
        assert_float_equal(got[i], want[i], 1e-4);
    decoder_close(d);
    decoder_close(NULL);
}

/* A window of three tokens: beyond it only the last three count. */
static void test_window(void **state)
{
    static float want[64], got[64];
    int32_t a[] = {9, 8, 1, 2, 3}, same[] = {4, 4, 4, 4, 4};
    struct model_dims dims = {
        .name = "tiny", .layers = 2, .heads = 2, .embed = 24, .context = 8, .vocab = 50};
    struct decoder *d = open_random(&dims, 3);
    copy_logits(d, a + 2, 3, want, dims.vocab);
    for (int n = 1; n <= 5; n++)
        copy_logits(d, a, n, got, dims.vocab);
    assert_memory_equal(got, want, sizeof *got * (size_t)dims.vocab);
    copy_logits(d, same, 3, want, dims.vocab);
    copy_logits(d, same, 5, got, dims.vocab); /* shifted, a text of equal tokens is the same text */
    for (int64_t i = 0; i < dims.vocab; i++)
        assert_float_equal(got[i], want[i], 1e-4);
    decoder_close(d);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_random_weights), cmocka_unit_test(test_trained_weights),
    cmocka_unit_test(test_architectures),  cmocka_unit_test(test_other_text),
    cmocka_unit_test(test_window),
};

HARNESS_MAIN_WITH(tests, set_up, tear_down)
