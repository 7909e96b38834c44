/* jsonl — a line's text is exactly what JSON defines; errors have their position; any bytes
 * are survived. */
#include "harness.h"

#include "data/jsonl.h"

static void expect_n(const char *line, const char *want, size_t n)
{
    uint8_t copy[1024];
    memcpy(copy, line, strlen(line));
    const struct jsonl_text text = jsonl_text(copy, strlen(line));
    if (text.fault != NULL)
        fail_msg("%s: %s at %zu", line, text.fault, text.fault_at);
    assert_int_equal(text.n, n);
    assert_memory_equal(text.bytes, want, n);
}
static void expect(const char *line, const char *want) { expect_n(line, want, strlen(want)); }

static void refuse(const char *line, const char *word, size_t at)
{
    uint8_t copy[1024];
    memcpy(copy, line, strlen(line));
    const struct jsonl_text text = jsonl_text(copy, strlen(line));
    assert_null(text.bytes);
    if (text.fault == NULL || strstr(text.fault, word) == NULL || text.fault_at != at)
        fail_msg("%s: \"%s\" at %zu, expected \"%s\" at %zu", line,
                 text.fault != NULL ? text.fault : "taken", text.fault_at, word, at);
}

TEST(test_texts)
{
    expect("{\"text\":\"\"}", "");
    expect(" { \"text\" : \"a b\" } \r", "a b");
    expect("{\"a\":1,\"text\":\"x\",\"b\":[{\"text\":7}]}", "x"); /* only the outermost counts */
    expect("{\"a\":{\"text\":\"no\"},\"te\\u0078t\":\"yes\"}", "yes");
    expect("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t");
    expect("{\"text\":\"\\u0041\\u00e9\\u65e5\\ud83d\\ude00\"}",
           "A\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80");
    expect("{\"text\":\"\\ud83d\"}", "\xef\xbf\xbd"); /* halves of a pair */
    expect("{\"text\":\"\\ude00x\"}", "\xef\xbf\xbdx");
    expect("{\"text\":\"\\ud83d\\ud83d\\ude00\"}", "\xef\xbf\xbd\xf0\x9f\x98\x80");
    expect("{\"text\":\"\\ud83d\\u0041\"}", "\xef\xbf\xbd"
                                            "A");
    expect_n("{\"text\":\"a\\u0000b\"}", "a\0b", 3);
    expect("{\"text\":\"\xf0\x9f\x98\x80 \xed\x9f\xbf\"}", "\xf0\x9f\x98\x80 \xed\x9f\xbf");
    expect("{\"n\":[0,-1,1.5,2e3,-0.5E-7,1e+9,true,false,null,\"\",[],{}],\"text\":\"t\"}", "t");
}

TEST(test_faults)
{
    refuse("", "not a JSON object", 0);
    refuse("null", "not a JSON object", 0);
    refuse("{", "key was expected", 1);
    refuse("{}", "no \"text\"", 0);
    refuse("{\"text\"}", "':'", 7);
    refuse("{\"text\":}", "not a string", 8);
    refuse("{\"text\":null}", "not a string", 8);
    refuse("{\"text\":\"a\",}", "key was expected", 12);
    refuse("{\"text\":\"a\" \"b\":1}", "'}'", 12);
    refuse("{\"text\":\"a\"}}", "after the JSON object", 12);
    refuse("{\"text\":\"a\",\"text\":\"b\"}", "second time", 19);
    refuse("{\"text\":\"\t\"}", "control character", 9);
    refuse("{\"text\":\"\\u12g4\"}", "hexadecimal", 11);
    refuse("{\"text\":\"\\u12", "hexadecimal", 11);
    refuse("{\"text\":\"\\q\"}", "escape", 10);
    refuse("{\"text\":\"\xc0\x80\"}", "UTF-8", 9);
    refuse("{\"text\":\"\xed\xa0\x80\"}", "UTF-8", 9);
    refuse("{\"text\":\"\xf4\x90\x80\x80\"}", "UTF-8", 9);
    refuse("{\"text\":\"\xe6\x97\"}", "UTF-8", 9);
    refuse("{\"n\":01,\"text\":\"\"}", "'}'", 6);
    refuse("{\"n\":1.,\"text\":\"\"}", "point", 7);
    refuse("{\"n\":1e,\"text\":\"\"}", "exponent", 7);
    refuse("{\"n\":+1,\"text\":\"\"}", "not a JSON value", 5);
    refuse("{\"n\":nul,\"text\":\"\"}", "not a JSON value", 5);
    refuse("{\"n\":[1 2],\"text\":\"\"}", "']'", 8);
    refuse("{'text':''}", "key was expected", 1);
}

TEST(test_depth)
{
    char line[1024] = "{\"a\":";
    for (int depth = 63; depth <= 64; depth++) {
        line[5] = '\0';
        for (int i = 0; i < depth; i++)
            strcat(line, "[");
        for (int i = 0; i < depth; i++)
            strcat(line, "]");
        strcat(line, ",\"text\":\"t\"}");
        if (depth == 63)
            expect(line, "t");
        else
            refuse(line, "nested deeper", 5 + 63);
    }
    memset(line + 5, '[', 1000); /* without end */
    line[1005] = '\0';
    refuse(line, "nested deeper", 5 + 63);
}

/* Every cut of a good line is refused; every byte changed to every other value is survived. */
TEST(test_damage)
{
    static const char line[] =
        "{\"a\":[1.5e3,{\"b\":null}],\"text\":\"x\\u00e9\\ud83d\\ude00\xc3\xa9\"}";
    uint8_t copy[sizeof line];
    for (size_t n = 0; n < sizeof line - 1; n++) {
        memcpy(copy, line, n);
        assert_non_null(jsonl_text(copy, n).fault);
    }
    for (size_t i = 0; i < sizeof line - 1; i++)
        for (int c = 0; c < 256; c++) {
            memcpy(copy, line, sizeof line - 1);
            copy[i] = (uint8_t)c;
            const struct jsonl_text text = jsonl_text(copy, sizeof line - 1);
            assert_true((text.fault == NULL) == (text.bytes != NULL));
        }
}

HARNESS_RUN_ALL()
