/* config_diff — each key that differs is reported once, with both values as text. */
#include "harness.h"

#include "base/config_diff.h"

static void add(void *arg, const char *key, const char *left, const char *right)
{
    text_add(arg, "%s:%s:%s ", key, left ? left : "-", right ? right : "-");
}

/* differ — "KEY:LEFT:RIGHT " for each difference; "?" for a text that is not an object. */
static const char *differ(const char *left, const char *right, char *out, size_t cap)
{
    struct text text = {0};
    bool is_comparable = config_diff_each(left, right, add, &text);
    text_copy(out, cap, !is_comparable ? "?" : text.data ? text.data : "");
    text_free(&text);
    return out;
}

TEST(test_differences)
{
    char out[512];
    assert_string_equal(differ("{\"A\":1,\"B\":\"x\"}", "{\"B\":\"x\",\"A\":1}", out, sizeof out),
                        "");
    assert_string_equal(differ("{\"A\":1,\"B\":\"x\"}", "{\"A\":2,\"B\":\"y\"}", out, sizeof out),
                        "A:1:2 B:x:y ");
    assert_string_equal(differ("{\"A\":1}", "{\"B\":2}", out, sizeof out), "A:1:- B:-:2 ");
    assert_string_equal(differ("{\"LR\":0.1}", "{\"LR\":0.10000000000000001}", out, sizeof out),
                        "");
    assert_string_equal(differ("{\"A\":\"\"}", "{\"A\":[1]}", out, sizeof out), "A::[1] ");
    assert_string_equal(differ("{\"VIRTUAL_TP\":2}", "{\"TP\":2}", out, sizeof out), "");
    assert_string_equal(differ("{\"VIRTUAL_TP\":2}", "{\"TP\":4}", out, sizeof out), "TP:2:4 ");
    assert_string_equal(differ("{\"TP\":2}", "{\"VIRTUAL_TP\":4}", out, sizeof out), "TP:2:4 ");
}

TEST(test_long_values)
{
    char out[512], left[256], value[128];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = 0;
    text_format(left, sizeof left, "{\"A\":\"%s\"}", value);
    assert_int_equal(strlen(differ(left, "{}", out, sizeof out)),
                     2 + CONFIG_DIFF_VALUE_BYTES - 1 + 3);
}

TEST(test_hostile)
{
    char out[512];
    assert_string_equal(differ("", "", out, sizeof out), "?");
    assert_string_equal(differ("{", "{\"A\":1}", out, sizeof out), "?");
    assert_string_equal(differ("[1,2]", "{}", out, sizeof out), "?");
    assert_string_equal(differ("7", "{\"A\":1}", out, sizeof out), "?");
}

HARNESS_RUN_ALL()
