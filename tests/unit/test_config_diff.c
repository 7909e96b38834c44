/* test_config_diff — differences by name, with both values. */
#include "harness.h"

#include <string.h>

#include "base/config_diff.h"

static int differ(const char *there, const char *here, bool (*which)(const char *key), char *out,
                  size_t cap)
{
    struct text text = {0};
    int n = config_diff_add(there, here, which, &text);
    text_copy(out, cap, text.data ? text.data : "");
    text_free(&text);
    return n;
}

static void test_differences(void **state)
{
    (void)state;
    char out[512];
    assert_int_equal(differ("{\"A\":1,\"B\":\"x\"}", "{\"B\":\"x\",\"A\":1}", config_diff_is_any,
                            out, sizeof out),
                     0);
    assert_string_equal(out, "");
    assert_int_equal(differ("{\"A\":1,\"B\":\"x\"}", "{\"A\":2,\"B\":\"y\"}", config_diff_is_any,
                            out, sizeof out),
                     2);
    assert_string_equal(out, "A there 1, here 2; B there \"x\", here \"y\"");
    assert_int_equal(differ("{\"A\":1}", "{\"B\":2}", config_diff_is_any, out, sizeof out), 2);
    assert_string_equal(out, "A there 1, here nothing; B there nothing, here 2");
    assert_int_equal(
        differ("{\"LR\":0.1}", "{\"LR\":0.10000000000000001}", config_diff_is_any, out, sizeof out),
        0);
}

static void test_which(void **state)
{
    (void)state;
    char out[512];
    const char *a =
        "{\"name\":\"x\",\"layers\":2,\"OPTIMIZER\":\"adamw\",\"moments\":2,\"SEED\":1}";
    const char *b = "{\"name\":\"y\",\"layers\":2,\"OPTIMIZER\":\"sgd\",\"moments\":0,\"SEED\":2}";
    assert_int_equal(differ(a, b, config_diff_is_state, out, sizeof out), 2);
    assert_string_equal(out, "OPTIMIZER there \"adamw\", here \"sgd\"; moments there 2, here 0");
    assert_int_equal(differ("{\"name\":\"x\",\"layers\":2}", "{\"name\":\"y\",\"layers\":2}",
                            config_diff_is_shape, out, sizeof out),
                     0);
}

static void test_hostile(void **state)
{
    (void)state;
    char out[512];
    assert_int_equal(differ("", "", config_diff_is_any, out, sizeof out), 0);
    assert_int_equal(differ("{", "{\"A\":1}", config_diff_is_any, out, sizeof out), 1);
    assert_int_equal(differ("[1,2]", "{}", config_diff_is_any, out, sizeof out), 0);
    assert_int_equal(differ("7", "{\"A\":1}", config_diff_is_any, out, sizeof out), 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_differences),
    cmocka_unit_test(test_which),
    cmocka_unit_test(test_hostile),
};
HARNESS_MAIN(tests)
