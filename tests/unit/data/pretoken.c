/* pretoken — where pre-tokens end by GPT-2's pattern, worked out by hand; '|' shows the
 * ends. */
#include "harness.h"

#include "data/tokenizer/pretoken.h"

#define NBSP "\xc2\xa0"
#define WIDE "\xe3\x80\x80" /* U+3000 */
#define NEL "\xc2\x85"
#define ONE_HALF "\xc2\xbd"
#define E_ACUTE "\xc3\xa9"
#define ACCENT "\xcc\x81"            /* U+0301, a mark: other */
#define MONGOLIAN "\xe1\xa0\x8e"     /* U+180E, not white space */
#define GARAY "\xf0\x90\xb5\x90"     /* U+10D50, a letter of Unicode 16 */
#define GARAY_TWO "\xf0\x90\xb5\x82" /* U+10D42, a digit of Unicode 16 */

static void test_ends(void **state)
{
    static const char *const cases[] = {
        "hello| world",
        " a|  |\n|b",
        "a|   ",
        "a|   | b",
        "a|\n|b",
        "a|\n|\n|b",
        "a|\n\n  |\t|b",
        "it|'s| we|'ll| I|'m| they|'re| you|'ve| he|'d| don|'t",
        "IT|'|S| '|LL",
        "'s|tuff",
        " '|s",
        "!'|s",
        "a|1|b|22| 333|x",
        "3|.|14|!?|x",
        "x" E_ACUTE "y|" ACCENT "|z",
        "a|" NBSP "|b",
        "a|" WIDE "|" NBSP "|b",
        "a|" NEL "|1",
        "a|" MONGOLIAN "|b",
        "1" ONE_HALF "|a",
        "a" GARAY "b|" GARAY_TWO "1|c",
        "a|\x1c|b",
        "a|\xff\xfe|b",
        "a|\xc3|b",     /* cut off */
        "a|\xc0\xaf|b", /* overlong */
        "a|\xe0\x80\xaf|b",
        "a|\xed\xa0\x80|b",     /* half of a surrogate pair */
        "a|\xf4\x90\x80\x80|b", /* over U+10FFFF */
        "a|\xe3\x80",
        "a| \xff",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128], got[256];
        size_t n = 0, at = 0, out = 0;
        for (const char *p = cases[i]; *p != '\0'; p++)
            if (*p != '|')
                text[n++] = *p;
        while (at < n) {
            const uint8_t *end = pretoken_end(PRETOKEN_KIND_GPT2, (const uint8_t *)text + at,
                                              (const uint8_t *)text + n);
            const size_t to = (size_t)(end - (const uint8_t *)text);
            assert_true(to > at && to <= n);
            memcpy(got + out, text + at, to - at);
            out += to - at;
            at = to;
            if (at < n)
                got[out++] = '|';
        }
        got[out] = '\0';
        if (strcmp(got, cases[i]) != 0)
            fail_msg("case %zu: \"%s\", expected \"%s\"", i, got, cases[i]);
    }
}

static void test_cut(void **state)
{
    static const struct {
        const char *text;
        size_t cut;
    } cases[] = {
        {"", 0},
        {"a", 0},
        {"   ", 0},
        {"ab cd", 2},
        {"ab cd ef", 5},
        {"ab  ", 2},
        {"ab1", 2},
        {"ab'", 2},
        {"'s", 0},
        {"a's", 1},
        {"!s", 1},
        {"' ", 1},
        {"a\nb", 1},
        {"a" E_ACUTE, 0},
        {"a\xc2", 0},
        {"1\xc2", 0},
        {"\n\n\n", 0},
        {"a" WIDE "  ", 1},
        {"a" WIDE "bcd", 1},
        {"\x80\x80 a", 2},
        {"ab " E_ACUTE, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t cut =
            pretoken_cut(PRETOKEN_KIND_GPT2, (const uint8_t *)cases[i].text, strlen(cases[i].text));
        if (cut != cases[i].cut)
            fail_msg("case %zu \"%s\": %zu, expected %zu", i, cases[i].text, cut, cases[i].cut);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_ends),
    cmocka_unit_test(test_cut),
};
HARNESS_MAIN(tests)
