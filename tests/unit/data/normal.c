/* normal — steps that normalise texts, as the package tokenizers 0.23.3 does. */
#include "harness.h"

#include "data/tokenizer/normal.h"

static struct normal_step form(enum normal_form form)
{
    return (struct normal_step){.kind = NORMAL_FORM, .form = form};
}

static struct normal_step replace(const char *regex, const char *content)
{
    struct normal_step step = {.kind = NORMAL_REPLACE, .content = content};
    assert_int_equal(pattern_open(regex, strlen(regex), "t.json", &step.pattern), ST_OK);
    return step;
}

/* Checks the normal form of a text by one or two steps. */
static void check(struct normal_step first, const struct normal_step *second, const char *text,
                  const char *want)
{
    struct normal *normal = normal_new();
    size_t n = strlen(text);
    const uint8_t *p = (const uint8_t *)text;
    normal_add(normal, &first);
    if (second != NULL)
        normal_add(normal, second);
    struct normal_work *work = normal_work_new(normal, NULL, n);
    const size_t most = normal_most(normal, n);
    assert_int_equal(normal_run(work, true, &p, &n), ST_OK);
    if (n != strlen(want) || memcmp(p, want, n) != 0)
        fail_msg("%s: got %.*s, want %s", text, (int)n, (const char *)p, want);
    assert_true(n <= most);
    normal_work_free(work);
    normal_close(normal);
}

TEST(test_forms)
{
    const struct normal_step lower = {.kind = NORMAL_LOWERCASE};
    check(form(NORMAL_FORM_NFC), NULL, "e\u0301\ufb01", "\u00e9\ufb01");
    check(form(NORMAL_FORM_NFD), NULL, "\u00e9\uac01\u0390x",
          "e\u0301\u1100\u1161\u11a8\u03b9\u0308\u0301x");
    check(form(NORMAL_FORM_NFKC), NULL, "\ufb01\u00a0\u2026\uff21e\u0301", "fi ...A\u00e9");
    check(form(NORMAL_FORM_NFKD), &lower, "\ufb01\u2460\u00c9", "fi1e\u0301");
    check(form(NORMAL_FORM_NFKC), NULL, "\ufdfa\ufdfa", "صلى الله عليه وسلمصلى الله عليه وسلم");
    check(form(NORMAL_FORM_NFKC), NULL, "a\xff\ufb01\xc3",
          "a\xff"
          "fi\xc3");
}

/* A run of each character that NFKC makes longest. */
TEST(test_growth)
{
    static const int32_t codes[] = {0xfdfa, 0x390, 0x3b0,  0x1d15e, 0x33a9,
                                    0x2167, 0xbd,  0x1f70, 0x149};
    for (int f = NORMAL_FORM_NFC; f <= NORMAL_FORM_NFKD; f++)
        for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
            uint8_t text[4 * 500], out[NORMAL_TEXT_GROWTH_COMPAT * sizeof text];
            size_t n = 0, made;
            for (int k = 0; k < 500; k++)
                n += text_utf8_put(text + n, (uint32_t)codes[i]);
            assert_int_equal(normal_text_form((enum normal_form)f, NULL, text, n, out, &made),
                             ST_OK);
            assert_true(made > 0);
        }
}

TEST(test_steps)
{
    const struct normal_step both = {.kind = NORMAL_STRIP, .left = true, .right = true},
                             left = {.kind = NORMAL_STRIP, .left = true},
                             lower = {.kind = NORMAL_LOWERCASE}, accents = {.kind = NORMAL_ACCENTS},
                             prepend = {.kind = NORMAL_PREPEND, .content = "x "};
    check(both, NULL, " \u3000a b\n\xc2\x85", "a b");
    check(both, NULL, " \n", "");
    check(both, &prepend, " \n", "");
    check(left, &prepend, " a ", "x a ");
    check(lower, NULL, "\u0130\u1e9e\u03a3\u01c5\U00010400Z\xff",
          "i\u0307\u00df\u03c3\u01c6\U00010428z\xff");
    check(form(NORMAL_FORM_NFD), &accents, "\u00c9t\u0e31", "Et");
    check(replace("\\s+", " "), NULL, "a \n b", "a b");
    check(replace("``", "\""), NULL, "``a` ```", "\"a` \"`");
    check(replace("x", ""), &lower, "xAxBx", "ab");
    check(replace("x", "yy"), NULL, "x\xff", "x\xff"); /* not UTF-8 */
}

HARNESS_RUN_ALL()
