/* chart — curves and events of a history as text, without terminal controls. */
#include "harness.h"

#include "serve/chart.h"

static struct text shown;

static const char *sketch(const char *json)
{
    text_free(&shown);
    chart_write(json, strlen(json), &shown);
    assert_false(shown.overflow);
    return shown.len > 0 ? shown.data : "";
}

TEST(curves)
{
    sketch("{\"points\":{\"loss\":[8,null,6,4,1],\"tokens_per_second\":[1000,null,1500,1500,2000]},"
           "\"events\":[]}");
    assert_string_equal(shown.data, "loss          8 █ ▆▄▁ 1\ntok/s     1.00k ▁ ▅▅█ 2.00k\n");
    sketch("{\"points\":{\"loss\":[3,3]}}"); /* a curve without a height lies in the middle */
    assert_string_equal(shown.data, "loss          3 ▅▅ 3\n");
    text_free(&shown);
}

TEST(a_long_curve_is_made_short)
{
    struct text json = {0};
    text_add(&json, "{\"points\":{\"loss\":[9");
    for (int i = 0; i < 4999; i++)
        text_add(&json, ",%d", i < 2500 ? 9 : 1);
    text_add(&json, "]}}");
    sketch(json.data);
    assert_true(text_starts(shown.data, "loss          9 ████"));
    assert_true(text_ends(shown.data, "▁▁▁▁ 1\n"));
    assert_int_equal(shown.len, strlen("loss          9  1\n") + 48 * strlen("█"));
    text_free(&json);
    text_free(&shown);
}

TEST(events)
{
    sketch("{\"events\":[{\"seconds\":0,\"text\":\"old\"},{\"seconds\":1,\"text\":\"1\"},{"
           "\"seconds\":2,\"text\":\"2\"},{\"seconds\":60,\"text\":\"3\"},{\"seconds\":-1,\"text\":"
           "\"4\"},{\"seconds\":\"x\",\"text\":\"5\"},{\"seconds\":7200.5,\"text\":\"worker\\u001b["
           "2J\\u009b\\u007f\\n lost\"}]}");
    assert_string_equal(
        shown.data,
        "after 1s     1\nafter 2s     2\nafter 1m     3\nafter -      4\nafter -      5\n"
        "after 2h00m  worker?[2J???? lost\n");
    text_free(&shown);
}

TEST(strange_histories)
{
    static const char *const cases[] = {
        "",
        "{}",
        "[]",
        "{\"points\":[1,2],\"events\":{\"a\":1}}",
        "<html>",
        "{\"points\":{\"loss\":7}}",
        "null",
        "{\"points\":{\"loss\":[\"8\",{},[1]]},\"events\":[1,null,{}]}",
        "{\"points\":{\"loss\":[null,1e300,-1e300]}}"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(sketch(cases[i]), "");
    text_free(&shown);
}

HARNESS_RUN_ALL()
