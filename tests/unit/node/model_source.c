/* model_source — which model MODEL and CHECKPOINT_DIR name, and the failure when they name
 * none. tests/e2e/test_eval.sh tests checkpoints. */
#include "node/choose/model_source.h"

#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "harness.h"

static enum status open_named(const char *model, const char *dir, struct model_source *out)
{
    char words[2][800], *argv[] = {words[0], words[1]}, *none[] = {NULL};
    struct conf *conf;
    text_format(words[0], sizeof words[0], "MODEL=%s", model);
    text_format(words[1], sizeof words[1], "CHECKPOINT_DIR=%s", dir);
    assert_int_equal(conf_open(2, argv, none, &conf), ST_OK);
    enum status st = model_source_open(conf, out);
    conf_close(conf);
    return st;
}

static void test_folders(void **state)
{
    struct model_source lm = {0}, qa = {0};
    assert_int_equal(open_named("tests/golden/lm", "", &lm), ST_OK);
    assert_int_equal(lm.dims.task, MODEL_TASK_LM);
    assert_int_equal(lm.dims.layers, 3);
    assert_int_equal(lm.dims.vocab, 311);
    assert_string_equal(lm.dims.name, "lm");
    assert_int_equal(model_source_step(&lm), -1);
    assert_int_equal(open_named("tests/golden/qa", "", &qa), ST_OK);
    assert_int_equal(qa.dims.task, MODEL_TASK_QA);
    model_source_close(&lm);
    model_source_close(&lm);
    model_source_close(&qa);
    assert_string_equal(model_source_path(&lm), "");
    assert_int_equal(open_named("tests/golden/hf_export/lm_f32.bin", "", &lm), ST_OK);
    assert_int_equal(lm.dims.task, MODEL_TASK_LM);
    assert_string_equal(lm.dims.name, "lm_f32.bin");
    assert_string_equal(model_source_path(&lm), "tests/golden/hf_export/lm_f32.bin");
    model_source_close(&lm);
    /* MODEL's weights come first */
    assert_int_equal(open_named("tests/golden/lm", harness_tmpdir(), &lm), ST_OK);
    model_source_close(&lm);
}

static void refused(const char *model, const char *dir, const char *says)
{
    struct model_source none = {0};
    assert_int_equal(open_named(model, dir, &none), ST_NO_INPUT);
    assert_non_null(strstr(status_message(), says));
    assert_string_equal(none.path, "");
    assert_null(none.ckpt);
}

static void test_refused(void **state)
{
    refused("gpt2", "", "CHECKPOINT_DIR is empty");
    refused("gpt2", harness_tmpdir(), "no valid checkpoint");
    refused(harness_tmpdir(), "", "no valid checkpoint");
    refused("/no/where", "", "CHECKPOINT_DIR is empty");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_folders),
    cmocka_unit_test(test_refused),
};
HARNESS_MAIN(tests)
