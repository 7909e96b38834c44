/* test_hf_export — models that transformers and llm.c's form wrote (tests/golden/hf_export, made by
 * make.py) answer here as they do there: logits of a language model in several files, of one for
 * questions, and of both kinds of model file.
 *
 * With arguments it is a tool for show.py: `test_hf_export MODEL ID …` prints the logits of one
 * sample of IDs. */

#include "base/json.h"
#include "golden/logits.h"
#include "harness.h"

#define DIR "tests/golden/hf_export/"
#define LIMIT 2e-6 /* fp32 against float64, logits up to about 3 */

static cJSON *expected;

static int setup(void **state)
{
    char *bytes;
    size_t n;
    assert_int_equal(file_read(DIR "expected.json", 1 << 20, &bytes, &n), ST_OK);
    assert_int_equal(json_parse(bytes, n, "expected.json", &expected), ST_OK);
    free(bytes);
    return 0;
}

static int teardown(void **state)
{
    cJSON_Delete(expected);
    return 0;
}

/* compare — the logits of the model at `path` with expected.json's `key`. */
static void compare(const char *path, const char *key, enum model_task task)
{
    enum { B = 2, T = 24 };
    const cJSON *samples, *want;
    struct logits_run run;
    int32_t tokens[B * T];
    double worst = 0, largest = 0;
    assert_int_equal(json_get_array(expected, "tokens", &samples), ST_OK);
    assert_int_equal(json_get_array(expected, key, &want), ST_OK);
    for (int i = 0; i < B * T; i++)
        tokens[i] = cJSON_GetArrayItem(cJSON_GetArrayItem(samples, i / T), i % T)->valueint;
    if (logits_open(path, B, T, &run) != ST_OK)
        fail_msg("%s: %s", path, status_message());
    assert_int_equal(run.dims.task, task);
    float *got = calloc((size_t)(B * T * run.width), sizeof *got);
    assert_int_equal(logits_of(&run, tokens, B, T, got), ST_OK);
    for (int row = 0; row < B * T; row++) {
        const cJSON *at = cJSON_GetArrayItem(cJSON_GetArrayItem(want, row / T), row % T)->child;
        for (int64_t v = 0; v < run.width; v++, at = at->next) {
            worst = fmax(worst, fabs(got[row * run.width + v] - at->valuedouble));
            largest = fmax(largest, fabs(at->valuedouble));
        }
        assert_null(at);
    }
    print_message("# %s: largest difference %.2g of logits up to %.2f\n", path, worst, largest);
    assert_true(largest > 1 && worst <= LIMIT * fmax(1, largest));
    free(got);
    logits_close(&run);
}

TEST(test_transformers)
{
    compare(DIR "lm", "lm", MODEL_TASK_LM);
    compare(DIR "qa", "qa", MODEL_TASK_QA);
}

TEST(test_llmc)
{
    compare(DIR "lm_f32.bin", "lm", MODEL_TASK_LM);
    compare(DIR "lm_bf16.bin", "lm_bf16", MODEL_TASK_LM);
}

/* print_logits — MODEL, then one sample's t ids; one row a line. */
static int print_logits(unsigned t, char **argv)
{
    static int32_t tokens[1024];
    int64_t id;
    struct logits_run run;
    if (t > 1024 || logits_open(argv[0], 1, t, &run) != ST_OK)
        return 1;
    for (unsigned i = 0; i < t; i++) {
        if (text_parse_i64(argv[i + 1], 0, run.dims.vocab - 1, &id) != TEXT_OK)
            return 1;
        tokens[i] = (int32_t)id;
    }
    float *got = calloc((size_t)(t * run.width), sizeof *got);
    if (!got || logits_of(&run, tokens, 1, t, got) != ST_OK)
        return 1;
    for (int64_t i = 0; i < t * run.width; i++)
        printf("%.9g%c", (double)got[i], (i + 1) % run.width ? ' ' : '\n');
    free(got);
    logits_close(&run);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2)
        return print_logits((unsigned)argc - 2, argv + 1);
    return harness_run_all(__FILE__, setup, teardown);
}
