/* normal_text — NFC equals utf8proc's on whole texts, characters that are said to stand do so
 * before and after every other, and bytes that are not UTF-8 stay. */
#include "harness.h"

#include <utf8proc.h>

#include "base/rand.h"
#include "data/tokenizer/normal_text.h"

static size_t put(int32_t c, uint8_t *out) { return (size_t)utf8proc_encode_char(c, out); }

static bool is_char(int32_t c) { return c > 0 && c < 0x110000 && !(c >= 0xd800 && c < 0xe000); }

static void check(const uint8_t *text, size_t n)
{
    uint8_t out[3 * 256];
    size_t made;
    utf8proc_uint8_t *want = NULL;
    const utf8proc_ssize_t want_n =
        utf8proc_map(text, (utf8proc_ssize_t)n, &want, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(want_n >= 0);
    assert_int_equal(normal_text_form(NORMAL_FORM_NFC, NULL, text, n, out, &made), ST_OK);
    assert_int_equal(made, want_n);
    assert_memory_equal(out, want, made);
    free(want);
}

/* Every character before and after those that NFC composes with. */
TEST(test_pairs)
{
    static const int32_t others[] = {'e',    0x301, 0x323,  0x1100, 0x1161, 0x11a8,
                                     0xac00, 0x93c, 0x3099, 0x4e00, 0x212b};
    for (int32_t c = 1; c < 0x30000; c++) {
        if (!is_char(c))
            continue;
        uint8_t text[16];
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            size_t n = put(others[i], text);
            n += put(c, text + n);
            check(text, n + put(others[(i + 1) % 11], text + n));
        }
    }
}

/* What stands may be cut off from what is before it. */
TEST(test_standing)
{
    int standing = 0;
    for (int32_t c = 1; c < 0x30000; c++) {
        uint8_t text[8], after[4];
        if (!is_char(c))
            continue;
        const size_t n = put(c, after);
        if (!normal_text_stands(after, after + n))
            continue;
        standing++;
        const utf8proc_property_t *property = utf8proc_get_property(c);
        assert_int_equal(property->combining_class, 0);
        for (int32_t before = 0x41; before < 0x3100; before += 1 + before / 0x250) {
            uint8_t out[24];
            size_t made;
            if (!is_char(before))
                continue;
            const size_t k = put(before, text);
            memcpy(text + k, after, n);
            assert_int_equal(normal_text_form(NORMAL_FORM_NFC, NULL, text, k + n, out, &made),
                             ST_OK);
            assert_true(made > n && memcmp(out + made - n, after, n) == 0);
        }
    }
    assert_true(standing > 20000);
}

/* A run of one character that decomposes: U+0390 has 2 bytes and becomes 3 characters. */
TEST(test_runs)
{
    int decomposed = 0;
    for (int32_t c = 1; c < 0x30000; c++) {
        int32_t chars[8];
        uint8_t text[256];
        size_t n = 0;
        int bound = 0;
        if (!is_char(c) || utf8proc_decompose_char(c, chars, 8, UTF8PROC_DECOMPOSE, &bound) < 2)
            continue;
        decomposed++;
        while (n + 6 < sizeof text)
            n += put(c, text + n);
        check(text, n);
        check(text, n + put(0x301, text + n));
    }
    assert_true(decomposed > 10000);
}

TEST(test_broken)
{
    static const char text[] = "a\xff\xcc\x81"
                               "e\xcc\x81\xe2\x82z\xc3";
    uint8_t out[64];
    size_t n;
    assert_int_equal(
        normal_text_form(NORMAL_FORM_NFC, NULL, (const uint8_t *)text, sizeof text - 1, out, &n),
        ST_OK);
    assert_int_equal(n, 10);
    assert_memory_equal(out, "a\xff\xcc\x81\xc3\xa9\xe2\x82z\xc3", 10);
    n = normal_text_spm((const uint8_t *)"\xe2\x96\x81x\xff", 5, out);
    assert_int_equal(n, 5);
    assert_memory_equal(out, " x\xef\xbf\xbd", 5);
    assert_true(normal_text_is_ascii((const uint8_t *)"abcdefghij", 10));
    assert_false(normal_text_is_ascii((const uint8_t *)"abcdefghi\x80", 10));
}

HARNESS_RUN_ALL()
