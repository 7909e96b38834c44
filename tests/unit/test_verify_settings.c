/* test_verify_settings — from a provenance to the arguments of a `train`: what is taken, what is
 * refused and why; devices; and STEPS=a..b. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "node/verify_repeat.h"
#include "node/verify_settings.h"

#define MODEL "\"model\":{\"task\":\"lm\"}"
#define ONE "\"nodes\":1,\"ranks\":1,\"exact\":true," MODEL
#define TWO "\"nodes\":1,\"ranks\":2,\"exact\":true," MODEL

static struct ledger_range range;
static struct verify_settings settings;
static char joined[4096];

/* of — the words, joined by blanks; NULL: refused. */
static const char *of(const char *provenance, int workers)
{
    size_t at = 0;
    text_copy(range.maker[0].provenance, LEDGER_LINE_MAX, provenance);
    enum status st = verify_settings_of(&range.maker[0], 50, workers, &settings);
    joined[0] = 0;
    for (int i = 0; i < settings.args_n; i++) {
        text_format(joined + at, sizeof joined - at, "%s ", settings.arg[i]);
        at += strlen(joined + at);
    }
    verify_settings_free(&settings);
    return st == ST_OK ? joined : NULL;
}

static void test_taken(void **state)
{
    (void)state;
    assert_non_null(of("{\"settings\":{\"LR_SCHEDULE\":\"cosine\",\"LR\":0.1,\"moments\":2,"
                       "\"EXACT\":\"layout\",\"TOKENIZER\":\"ab\"},\"planned_steps\":90," TWO "}",
                       0));
    assert_string_equal(joined, "PRECISION=fp32 LR_SCHEDULE=cosine LR=0.1 "
                                "EXACT=layout STEPS=90 TASK=lm N_GPU_EACH_NODE=1 ");
    assert_true(settings.is_layout);
    assert_non_null(of("{\"settings\":{\"LR_SCHEDULE\":\"cosine\",\"EXACT\":\"layout\"},"
                       "\"planned_steps\":12,\"samples_ahead\":-58,\"EPOCHS\":3," TWO "}",
                       0));
    assert_string_equal(joined, "PRECISION=fp32 LR_SCHEDULE=cosine EXACT=layout EPOCHS=3 TASK=lm "
                                "N_GPU_EACH_NODE=1 ");
    assert_non_null(of("{\"settings\":{\"LR_SCHEDULE\":\"constant\",\"EXACT\":\"layout\","
                       "\"TP\":4,\"CP\":2},\"TP\":4,\"CP\":2," TWO "}",
                       0));
    assert_string_equal(joined, "PRECISION=fp32 LR_SCHEDULE=constant EXACT=layout TP=4 CP=2 "
                                "STEPS=50 TASK=lm N_GPU_EACH_NODE=8 ");
    assert_non_null(of("{\"settings\":{\"LR_SCHEDULE\":\"constant\",\"EXACT\":\"layout\","
                       "\"VIRTUAL_TP\":4,\"CP\":2},\"TP\":4,\"CP\":2," TWO "}",
                       0));
    assert_string_equal(joined, "PRECISION=fp32 LR_SCHEDULE=constant EXACT=layout TP=4 CP=2 "
                                "STEPS=50 TASK=lm N_GPU_EACH_NODE=8 ");
    assert_non_null(of("{\"settings\":{\"LR_SCHEDULE\":\"constant\",\"PRECISION\":\"bf16\"},"
                       "\"SHARD\":3,\"TP\":2,\"reduce_bytes\":2," TWO "}",
                       2));
    assert_string_equal(joined, "PRECISION=fp32 LR_SCHEDULE=constant PRECISION=bf16 STEPS=50 TP=2 "
                                "SHARD=full REDUCE_PRECISION=bf16 TASK=lm N_GPU_EACH_NODE=2 ");
}

static void refused(const char *provenance, int workers, const char *why)
{
    assert_null(of(provenance, workers));
    if (!strstr(status_message(), why))
        fail_msg("'%s' is not in '%s'", why, status_message());
}

static void test_refused(void **state)
{
    (void)state;
    refused("", 0, "does not say with which settings");
    refused("{\"settings\":{}," MODEL "}", 0, "the same bits twice");
    refused("{\"settings\":{}," ONE "}", 0, "planned steps");
    refused("{\"settings\":{\"LOCAL_STEPS\":5}," ONE "}", 0, "LOCAL_STEPS");
    refused("{\"settings\":{\"METRICS_FILE\":\"/etc/x\"}," ONE "}", 0, "METRICS_FILE");
    refused("{\"settings\":{},\"planned_steps\":9," TWO "}", 3, "set N_GPU_EACH_NODE=2, not 3");
    refused("{\"settings\":{},\"planned_steps\":9,\"nodes\":2,\"ranks\":2,\"exact\":true," MODEL
            "}",
            0, "had 2 nodes");
    refused("{\"settings\":{},\"planned_steps\":9,\"SHARD\":99," ONE "}", 0, "SHARD");
    refused("{\"settings\":[]," ONE "}", 0, "settings");
    refused("{\"settings\":{\"EXACT\":\"layout\",\"VIRTUAL_TP\":4},\"TP\":2," TWO "}", 0,
            "a run with VIRTUAL_TP=4 and TP=2 cannot be repeated by this version");
    refused("[", 0, "provenance");
}

static bool agree(const char *was, const char *is, bool is_layout)
{
    range.makers_n = 2;
    range.maker[1].after = 10;
    text_copy(range.maker[0].provenance, LEDGER_LINE_MAX, was);
    text_copy(range.maker[1].provenance, LEDGER_LINE_MAX, is);
    return verify_settings_agree(&range, is_layout) == ST_OK;
}

static void test_agree(void **state)
{
    (void)state;
    range.maker[0].data = range.maker[1].data = 7;
    assert_true(agree("{\"settings\":{\"LR\":1},\"ranks\":3}",
                      "{\"settings\":{\"LR\":1.0},\"ranks\":4}", true));
    assert_false(agree("{\"settings\":{},\"ranks\":3}", "{\"settings\":{},\"ranks\":4}", false));
    assert_non_null(strstr(status_message(), "after step 10: ranks was 3, is 4"));
    assert_false(agree("{\"settings\":{\"LR\":1}}", "{\"settings\":{\"LR\":2}}", true));
    assert_non_null(strstr(status_message(), "LR was 1, is 2"));
    assert_true(agree("{\"settings\":{\"VIRTUAL_TP\":4},\"TP\":4}",
                      "{\"settings\":{\"TP\":4},\"TP\":4}", true));
    assert_false(agree("{\"settings\":{},\"TP\":4}", "{\"settings\":{},\"TP\":1}", false));
    assert_false(agree("{\"settings\":{\"TP\":2}}", "{\"settings\":{}}", true));
    assert_non_null(strstr(status_message(), "TP was 2, is not set"));
    assert_false(agree("{\"planned_steps\":1}", "{\"planned_steps\":2}", true));
    assert_false(agree("{\"samples_ahead\":1}", "{\"samples_ahead\":2}", true));
    range.maker[1].data = 8;
    assert_false(agree("{}", "{}", true));
    assert_non_null(strstr(status_message(), "DATA was 0000000000000007, is 0000000000000008"));
}

static void test_device(void **state)
{
    static const char was[] = "{\"devices\":[\"cpu 1 thread avx2\",\"cpu 2 threads avx2\"]}";
    (void)state;
    assert_int_equal(verify_settings_device(was, true, "cpu 64 threads avx2"), ST_OK);
    assert_int_equal(verify_settings_device(was, true, "cpu 2 threads avx512"), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "\"cpu 1 thread avx2\", and this machine is \"cpu 2 "
                                             "threads avx512\""));
    assert_int_equal(verify_settings_device(was, true, "cpu 2 threads avx2 bf16"), ST_BAD_SETTING);
    assert_int_equal(verify_settings_device(was, false, "cpu 2 threads avx2"), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "OMP_NUM_THREADS"));
    assert_int_equal(
        verify_settings_device("{\"devices\":[\"NVIDIA H100\"]}", false, "NVIDIA H100"), ST_OK);
    assert_int_equal(verify_settings_device("{\"devices\":[\"NVIDIA H100\"]}", true, "NVIDIA A100"),
                     ST_BAD_SETTING);
}

static void test_parse(void **state)
{
    static const char *const bad[] = {"",
                                      "5",
                                      "..",
                                      "5..",
                                      "..9",
                                      "9..5",
                                      "5..5",
                                      "-1..5",
                                      "1..2x",
                                      "a..b",
                                      "1...2",
                                      "1..2..3",
                                      "1..9999999999999"};
    int64_t from, to;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(verify_repeat_parse(bad[i], &from, &to), ST_BAD_SETTING);
    assert_int_equal(verify_repeat_parse("0..1000000000000", &from, &to), ST_OK);
    assert_true(from == 0 && to == 1000000000000);
}

static void test_take(void **state)
{
    char *argv[] = {(char *)"DATA=a", (char *)"STEPS=1..2", (char *)"JSON=1"};
    int argc = 3;
    const char *steps;
    (void)state;
    assert_int_equal(verify_repeat_take(&argc, argv, &steps), ST_OK);
    assert_int_equal(argc, 2);
    assert_string_equal(steps, "1..2");
    assert_string_equal(argv[1], "JSON=1");
    char *other[] = {(char *)"STEPS=1..2", (char *)"CHECKPOINT_DIR=x"};
    argc = 2;
    assert_int_equal(verify_repeat_take(&argc, other, &steps), ST_BAD_SETTING);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_taken),  cmocka_unit_test(test_refused), cmocka_unit_test(test_agree),
    cmocka_unit_test(test_device), cmocka_unit_test(test_parse),   cmocka_unit_test(test_take),
};
HARNESS_MAIN(tests)
