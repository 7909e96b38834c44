/* json: hostile documents are refused with a reason, getters name key and kind, numbers come out
 * exact. */
#include "harness.h"

#include "base/json.h"

static enum status parse(const char *text, cJSON **out)
{
    return json_parse(text, strlen(text), "test.json", out);
}

TEST(good_documents)
{
    static const char *const good[] = {"{}",
                                       "[]",
                                       " {\"a\":1}\r\n\t ",
                                       "null",
                                       "\"x\"",
                                       "-1.5e3",
                                       "[{\"a\":1},{\"a\":2}]",
                                       "{\"a\":{\"a\":1}}",
                                       "{\"ä\":1,\"a\":2}",
                                       "{\"a\":1,\"A\":2}",
                                       "[\"[[[[{{{\\\"\"]"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        cJSON *root = NULL;
        assert_int_equal(parse(good[i], &root), ST_OK);
        cJSON_Delete(root);
    }
}

TEST(bad_documents)
{
    static const struct {
        const char *text;
        const char *reason;
    } bad[] = {
        {"", "not JSON"},
        {"   ", "not JSON"},
        {"{", "not JSON"},
        {"{\"a\":1", "byte"},
        {"{\"a\":1}x", "more bytes"},
        {"{} {}", "more bytes"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "\"a\" appears twice"},
        {"[[{\"x\":{\"k\":1,\"k\":1}}]]", "\"k\" appears twice"},
        {"{\"a\":1,\"\\u0061\":2}", "\"a\" appears twice"},
        {"{\"a\\u0000b\":1}", "\\u0000"},
        {"\"\xff\"", "UTF-8"},
        {"\"\xc0\x80\"", "UTF-8"},         /* overlong zero */
        {"\"\xed\xa0\x80\"", "UTF-8"},     /* surrogate */
        {"\"\xf4\x90\x80\x80\"", "UTF-8"}, /* beyond U+10FFFF */
        {"\"\xe2\x82", "UTF-8"},           /* cut */
        {"{a:1}", "not JSON"},
        {"[1,]", "not JSON"},
        {"\"\\", "not JSON"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cJSON *root = NULL;
        assert_int_equal(parse(bad[i].text, &root), ST_BAD_DATA);
        assert_null(root);
        assert_non_null(strstr(status_message(), bad[i].reason));
        assert_non_null(strstr(status_message(), "test.json"));
    }
    cJSON *root = NULL;
    assert_int_equal(json_parse("{\"a\":\0001}", 8, "t", &root), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "zero byte at 5"));
    assert_int_equal(json_parse(NULL, 0, "t", &root), ST_BAD_DATA);
}

TEST(every_cut_is_refused)
{
    static const char text[] =
        "{\"name\":\"gpt2 \\u00e9 é\",\"list\":[1,2.5e-3,{\"x\":null}],\"t\":true}";
    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        char *exact = malloc(n + 1); /* so that an address sanitizer sees a read beyond n */
        memcpy(exact, text, n);
        char *shrunk = realloc(exact, n > 0 ? n : 1);
        cJSON *root = NULL;
        assert_int_equal(json_parse(shrunk, n, "t", &root), ST_BAD_DATA);
        free(shrunk);
    }
}

TEST(depth_is_bounded)
{
    static char text[200001];
    cJSON *root = NULL;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_int_equal(json_parse(text, 128, "t", &root), ST_OK);
    cJSON_Delete(root);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_int_equal(json_parse(text, 130, "t", &root), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "deeper than 64"));
    memset(text, '[', 200000);
    assert_int_equal(json_parse(text, 200000, "t", &root), ST_BAD_DATA);
}

/* Random damage to a real document: no crash, and either refused or a document. */
TEST(damage_is_survived)
{
    static const char text[] =
        "{\"a\":[1,2,{\"b\":\"c\\n\\u20ac\"}],\"d\":-1.5e10,\"e\":{\"f\":null,\"g\":[true,false]}}";
    uint32_t seed = 12345;
    for (int round = 0; round < 20000; round++) {
        char copy[sizeof(text)];
        memcpy(copy, text, sizeof(text));
        for (int hit = 0; hit < 3; hit++) {
            seed = seed * 1664525u + 1013904223u;
            copy[(seed >> 8) % (sizeof(text) - 1)] = (char)(seed >> 24);
        }
        cJSON *root = NULL;
        if (json_parse(copy, sizeof(text) - 1, "t", &root) == ST_OK)
            cJSON_Delete(root);
    }
}

TEST(getters)
{
    cJSON *root = NULL;
    assert_int_equal(parse("{\"i\":5,\"big\":9007199254740992,\"huge\":9007199254740993000,\"inf\":"
                           "1e999,\"f\":1.5,\"s\":\"x\",\"a\":[],\"o\":{},\"n\":null,\"t\":true}",
                           &root),
                     ST_OK);
    int64_t i = -7;
    double f = -7;
    const char *s = NULL;
    const cJSON *item = NULL;
    assert_int_equal(json_get_i64(root, "i", 5, 5, &i), ST_OK);
    assert_int_equal(i, 5);
    assert_int_equal(json_get_i64(root, "big", 0, INT64_MAX, &i), ST_OK);
    assert_true(i == 9007199254740992);
    assert_int_equal(json_get_i64(root, "huge", INT64_MIN, INT64_MAX, &i), ST_BAD_DATA);
    assert_int_equal(json_get_i64(root, "inf", INT64_MIN, INT64_MAX, &i), ST_BAD_DATA);
    assert_int_equal(json_get_f64(root, "inf", &f), ST_BAD_DATA);
    assert_int_equal(json_get_i64(root, "f", 0, 10, &i), ST_BAD_DATA);
    assert_int_equal(json_get_i64(root, "i", 6, 10, &i), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "\"i\" is 5, expected 6 to 10"));
    assert_int_equal(json_get_i64(root, "I", 0, 10, &i), ST_BAD_DATA); /* case counts */
    assert_non_null(strstr(status_message(), "\"I\" is missing, expected a whole number"));
    assert_int_equal(json_get_f64(root, "f", &f), ST_OK);
    assert_true(f == 1.5);
    assert_int_equal(json_get_f64(root, "s", &f), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "\"s\" is a string, expected a number"));
    assert_int_equal(json_get_string(root, "s", &s), ST_OK);
    assert_string_equal(s, "x");
    assert_int_equal(json_get_string(root, "n", &s), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "is null"));
    assert_int_equal(json_get_array(root, "a", &item), ST_OK);
    assert_int_equal(json_get_array(root, "o", &item), ST_BAD_DATA);
    assert_int_equal(json_get_object(root, "o", &item), ST_OK);
    assert_int_equal(json_get_object(root, "a", &item), ST_BAD_DATA);
    assert_int_equal(json_get_object(root, "t", &item), ST_BAD_DATA);
    assert_int_equal(json_get_object(NULL, "t", &item), ST_BAD_DATA);
    cJSON_Delete(root);
}

TEST(what_is_shown_may_be_missing)
{
    cJSON *root = NULL;
    assert_int_equal(parse("{\"a\":\"x\",\"b\":1.5,\"c\":null}", &root), ST_OK);
    assert_string_equal(json_text(root, "a"), "x");
    assert_string_equal(json_text(root, "b"), "");
    assert_string_equal(json_text(root, "d"), "");
    assert_string_equal(json_text(NULL, "d"), "");
    assert_true(json_number(root, "b") == 1.5);
    assert_true(isnan(json_number(root, "a")) && isnan(json_number(root, "c")) &&
                isnan(json_number(root, "d")));
    cJSON_Delete(root);
}

TEST(numbers_are_written_exactly)
{
    cJSON *object = cJSON_CreateObject();
    json_add_number(object, "half", 0.5);
    json_add_number(object, "nan", NAN);
    json_add_number(object, "inf", -INFINITY);
    json_add_number(object, "third", 1.0 / 3);
    json_add_i64(object, "max", INT64_MAX);
    json_add_i64(object, "min", INT64_MIN);
    char *text = cJSON_PrintUnformatted(object);
    assert_string_equal(text,
                        "{\"half\":0.5,\"nan\":null,\"inf\":null,\"third\":0.3333333333333333,"
                        "\"max\":9223372036854775807,\"min\":-9223372036854775808}");
    cJSON_free(text);
    cJSON_Delete(object);
}

TEST(quoting)
{
    char out[64];
    assert_true(json_quote(out, sizeof(out), "a\"b\\c\n\x01\x7f é😀"));
    assert_string_equal(out, "\"a\\\"b\\\\c\\n\\u0001\\u007f é😀\"");
    assert_true(json_quote(out, sizeof(out), "\xff x \xe2\x82"));
    assert_string_equal(out, "\"\xEF\xBF\xBD x \xEF\xBF\xBD\xEF\xBF\xBD\"");
    assert_true(json_quote(out, 5, "ab"));
    assert_false(json_quote(out, 5, "abc"));
    assert_string_equal(out, "\"ab\"");
    assert_false(json_quote(out, 5, "abé"));
    assert_string_equal(out, "\"ab\""); /* no half characters */
    assert_true(json_quote(out, 3, ""));
    assert_false(json_quote(out, 2, ""));
    assert_string_equal(out, "");
    assert_false(json_quote(out, 0, "x"));
}

HARNESS_RUN_ALL()
