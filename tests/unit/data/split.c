/* split — the pieces of texts by patterns and behaviors, as the package tokenizers 0.23.3 splits
 * them ('|' shows the ends); refused and hostile patterns; cuts at edges. */
#include "harness.h"

#include "base/memory.h"
#include "base/rand.h"
#include "data/tokenizer/split.h"
#include "patterns.h"

static enum status open_pattern(const char *regex, struct pattern **out)
{
    return pattern_open(regex, strlen(regex), "t.json", out);
}

static void add(struct split *split, const char *regex, enum split_behavior behavior, bool invert)
{
    struct pattern *pattern;
    if (open_pattern(regex, &pattern) != ST_OK)
        fail_msg("%s", status_message());
    split_add_pattern(split, pattern, behavior, invert);
}

static enum status put(void *arg, const uint8_t *piece, size_t n)
{
    struct text *out = arg;
    assert_true(n > 0);
    text_add(out, "%s", out->len > 0 ? "|" : "");
    text_add_bytes(out, piece, n);
    return ST_OK;
}

/* Appends the pieces of text[0, n). */
static enum status run(const struct split *split, const char *text, size_t n, struct text *out)
{
    struct split_work *work = split_work_new(split, NULL, n);
    const enum status st = split_run(work, (const uint8_t *)text, n, put, out);
    split_work_free(work);
    return st;
}

/* Checks the pieces of a text, and frees the steps. */
static void check(struct split *split, const char *text, const char *want)
{
    struct text got = {0};
    assert_int_equal(run(split, text, strlen(text), &got), ST_OK);
    if (strcmp(got.len > 0 ? got.data : "", want) != 0)
        fail_msg("%s: got %s, want %s", text, got.data, want);
    text_free(&got);
    split_close(split);
}

TEST(test_patterns)
{
    static const struct {
        const char *regex, *text, *want;
    } cases[] = {
        {"^a", "a\na\na", "a|\n|a|\n|a"},
        {"a$", "a\na\na", "a|\n|a|\n|a"},
        {".+", "ab\ncd\r\nx\u2028y", "ab|\n|cd\r|\n|x\u2028y"},
        {"(?m).+", "ab\ncd", "ab\ncd"},
        {"\\p{N}{1,3}+", "1234567", "1234567"},
        {"a{2}?", "aaaaa", "aa|aa|a"},
        {"a{2,3}?", "aaaaa", "aa|aa|a"},
        {"a{,2}", "aaaaa", "aa|aa|a"},
        {"a{x}", "a{x}", "a{x}"},
        {"\\h+", "12afgz  ", "12af|gz  "},
        {"\\p{Han}+", "中文、ー々〆かな", "中文|、ー|々|〆かな"},
        {"(?i:ss)", "ſs SS", "ſs| |SS"},
        {"\\u00e9", "é", "é"},
        {"x*", "abxxc", "a|b|xx|c"},
        {"[[a-c]x]+", "zabxxc", "z|abxxc"},
        {"\\p{Letter}+", "ab1", "ab|1"},
        {"(?<=a)b", "abab", "a|b|a|b"},
        {"\\s++$|\\s", "a  \n b  ", "a| | |\n| |b|  "},
        {"\\R", "a\r\nb\u2028c", "a|\r\n|b|\u2028|c"},
        {"\\bthe\\b", "the other the", "the| other |the"},
        {"\\w+", "a\u00b2_b-\u24b6", "a\u00b2_b|-|\u24b6"},
        {"\\s", "a\u180eb\u3000c", "a\u180eb|\u3000|c"},
        {"[^\\s\\w-]|[\\S]b", "a-b.", "a|-b|."},
        {"\\p{^L}\\P{N}", "a1bc", "a|1b|c"},
        {PATTERN_O200K, "HelloWorld's  HTTPServer 12345/\n\n  x",
         "Hello|World's| | HTTPServer| |123|45|/\n\n| | x"},
        {PATTERN_DEEPSEEK, "foo.bar (baz)\n  1", "foo|.bar| (|baz|)\n| | |1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct split *split = split_new();
        add(split, cases[i].regex, SPLIT_ISOLATED, false);
        check(split, cases[i].text, cases[i].want);
    }
}

TEST(test_behaviors)
{
    static const char *const want[][2] = {
        [SPLIT_REMOVED] = {"a|b|c", "-|-|-"},
        [SPLIT_ISOLATED] = {"a|-|-|b|-|c", "a|-|-|b|-|c"},
        [SPLIT_MERGED_WITH_PREVIOUS] = {"a-|-|b-|c", "a|-|-b|-c"},
        [SPLIT_MERGED_WITH_NEXT] = {"a|-|-b|-c", "a-|-|b-|c"},
        [SPLIT_CONTIGUOUS] = {"a|--|b|-|c", "a|--|b|-|c"},
    };
    for (int b = SPLIT_REMOVED; b <= SPLIT_CONTIGUOUS; b++)
        for (int invert = 0; invert < 2; invert++) {
            struct split *split = split_new();
            add(split, "-", (enum split_behavior)b, invert);
            check(split, "a--b-c", want[b][invert]);
        }
}

/* Characters of Unicode 15 and 16 have their category: a letter, a digit, a mark, an emoji. */
TEST(test_newer)
{
    struct split *split = split_new();
    add(split, "\\p{Lu}|\\p{Han}|\\p{Nd}+|\\p{L}\\p{M}|\\p{S}+|\\P{Cn}", SPLIT_ISOLATED, false);
    check(split, "a\U00010d69\U0001fae8!\U00010d401\U00031350\ua7cb\xff",
          "a\U00010d69|\U0001fae8|!|\U00010d401|\U00031350|\ua7cb|\xff");
}

/* A step after ByteLevel finds digits in the characters of bytes; the pieces are bytes. */
TEST(test_bytes)
{
    struct split *split = split_new();
    add(split, "[.,]", SPLIT_CONTIGUOUS, false);
    split_add_kind(split, PRETOKEN_KIND_GPT2);
    split_add_bytes(split);
    add(split, "\\p{N}", SPLIT_CONTIGUOUS, false);
    check(split, "a b,.12\xc3\xb2 x", "a| b|,.|12|\xc3|\xb2| x");
    split = split_new();
    add(split, "\\P{L}", SPLIT_ISOLATED, false);
    check(split, "a\xff\xc3\xa9\xe2\x82\xff", "a|\xff|\xc3\xa9|\xe2|\x82|\xff");
}

TEST(test_refusals)
{
    static const struct {
        const char *regex, *why;
    } cases[] = {
        {"ab(c", "a ( without ), at byte 4"},
        {"a)", "a ) without (, at byte 2"},
        {"x[a-z", "a class without ], at byte 5"},
        {"[]a]", "an empty class"},
        {"[a&&b]", "intersections"},
        {"[a[^b]]", "class within a class"},
        {"a**", "two quantifiers"},
        {"a{2}{1}", "two quantifiers"},
        {"*a", "nothing to repeat, at byte 1"},
        {"(a)\\1", "this escape is not supported, at byte 5"},
        {"\\Ga", "this escape"},
        {"a\\", "backslash"},
        {"(*LIMIT_MATCH=1)a", "verbs"},
        {"(?~a)", "this kind of group"},
        {"(?x: a)", "this kind of group"},
        {"a(?i)b", "options"},
        {"\\p{Nonsense}", "unknown property"},
        {"ab[z-a]", "range out of order in character class, at byte 2"},
        {"a{3,2}", "smaller number last"},
        {"(?<=a+)b", "lookbehind assertion is not fixed length"},
        {"\\xff", "00 to 7f"},
        {"a\xff", "not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pattern *pattern;
        assert_int_equal(open_pattern(cases[i].regex, &pattern), ST_BAD_DATA);
        if (strstr(status_message(), cases[i].why) == NULL)
            fail_msg("%s: %s", cases[i].regex, status_message());
        assert_non_null(strstr(status_message(), "t.json"));
        status_clear();
    }
    struct text deep = {.limit = 1 << 16};
    struct pattern *pattern;
    for (int i = 0; i < 1 << 13; i++)
        text_add(&deep, "(");
    assert_int_equal(open_pattern(deep.data, &pattern), ST_BAD_DATA);
    for (int i = 0; i < 1 << 14; i++)
        text_add(&deep, "a");
    assert_int_equal(open_pattern(deep.data, &pattern), ST_BAD_DATA);
    assert_int_equal(open_pattern("", &pattern), ST_BAD_DATA);
    status_clear();
    text_free(&deep);
}

/* Patterns that try exponentially many ways, or need a deep stack, fail in bounded time. */
TEST(test_hostile)
{
    static const char *const regex[] = {"(a+)+$", "(a|aa)+$", "(?:a|b)*[cd]", "(?:a*)*[cd]",
                                        "(?=(?:a?){25}c)a"};
    enum { MOST = 1 << 20 };
    char *text = memory_new(1, MOST + 1);
    memset(text, 'a', MOST);
    text[MOST - 1] = '!';
    for (size_t i = 0; i < sizeof regex / sizeof regex[0]; i++) {
        struct split *split = split_new();
        struct text out = {0};
        const int64_t began_ns = clock_thread_ns();
        add(split, regex[i], SPLIT_ISOLATED, false);
        const enum status st = run(split, text, MOST, &out);
        const double seconds = (double)(clock_thread_ns() - began_ns) / 1e9;
        print_message("# %s on 1 MiB: %.2f s, %s\n", regex[i], seconds,
                      st != ST_OK ? status_message() : "done");
        assert_int_equal(st, ST_BAD_DATA);
        assert_non_null(strstr(status_message(), "too many steps for a text of 1048576 bytes"));
        assert_true(seconds < 15);
        status_clear();
        text_free(&out);
        split_close(split);
    }
    free(text);
}

TEST(test_edges)
{
    static const struct {
        const char *regex;
        enum pattern_edge edge;
    } cases[] = {
        {PATTERN_O200K, PATTERN_EDGE_MATCH},
        {PATTERN_DEEPSEEK, PATTERN_EDGE_MATCH},
        {"\\s", PATTERN_EDGE_MATCH},
        {"\\s+(?!\\S)|\\s+", PATTERN_EDGE_MATCH},
        {"\\w+|[^\\w]+", PATTERN_EDGE_MATCH},
        {"\\p{N}{1,3}", PATTERN_EDGE_NEUTRAL},
        {" ?\\p{L}+", PATTERN_EDGE_NEUTRAL},
        {"\\s{2,}", PATTERN_EDGE_NEUTRAL},
        {"[ ]+", PATTERN_EDGE_NEUTRAL},
        {"\\s+(?=\\d)", PATTERN_EDGE_NEUTRAL},
        {".+", PATTERN_EDGE_NONE},
        {"[a-z ]+", PATTERN_EDGE_NONE},
        {"x(?= )", PATTERN_EDGE_NONE},
        {"(?:x(?= )|y)z", PATTERN_EDGE_NONE},
        {"x$|\\s", PATTERN_EDGE_NONE},
        {"\\bx", PATTERN_EDGE_NONE},
        {"(?<=a)\\s", PATTERN_EDGE_NONE},
        {"\\d(?=\\d* )", PATTERN_EDGE_NONE},
        {"the cat", PATTERN_EDGE_NONE},
        {"(?:\\s|(?:x|y))+", PATTERN_EDGE_NONE},
        {"x*", PATTERN_EDGE_NONE},
        {"(?:a\\d?)+\\d*\\s", PATTERN_EDGE_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pattern *pattern;
        assert_int_equal(open_pattern(cases[i].regex, &pattern), ST_OK);
        if (pattern_edge(pattern) != cases[i].edge)
            fail_msg("%s: %d", cases[i].regex, pattern_edge(pattern));
        pattern_close(pattern);
    }
}

static bool is_edge(const char *at)
{
    return ((at[-1] | 32) >= 'a' && (at[-1] | 32) <= 'z') && (*at == ' ' || *at == '\n');
}

/* Both parts of a text have the pieces that they have in the whole, at every edge. */
static void check_cuts(const struct split *split, const char *text)
{
    const size_t n = strlen(text);
    struct text whole = {0};
    assert_int_equal(run(split, text, n, &whole), ST_OK);
    for (size_t at = 1; at < n; at++) {
        struct text parts = {0};
        if (!is_edge(text + at))
            continue;
        assert_int_equal(run(split, text, at, &parts), ST_OK);
        assert_int_equal(run(split, text + at, n - at, &parts), ST_OK);
        if (strcmp(parts.data, whole.data) != 0)
            fail_msg("cut at %zu: %s, not %s", at, parts.data, whole.data);
        text_free(&parts);
    }
    text_free(&whole);
}

TEST(test_cuts)
{
    static const char *const unit[] = {"a",  "Bc", " ", "\n", "  \r\n", "'s",  "1", "12345",  "é",
                                       "中", "́",   ".", "/",  " \t",    "x y", "'", "\u3000", "!?"};
    static const struct {
        const char *first, *second;
        enum split_behavior behavior;
        bool invert;
    } chains[] = {
        {"\\p{N}{1,3}", PATTERN_O200K, SPLIT_ISOLATED, false},
        {"[.,!?]", PATTERN_DEEPSEEK, SPLIT_CONTIGUOUS, false},
        {"\\p{N}", PATTERN_O200K, SPLIT_MERGED_WITH_PREVIOUS, true},
        {" ?\\p{L}+", PATTERN_O200K, SPLIT_MERGED_WITH_NEXT, false},
        {"\\s+(?=\\d)", "\\s", SPLIT_MERGED_WITH_PREVIOUS, false},
        {"\\s{2,}", "\\w+|[^\\w]+", SPLIT_CONTIGUOUS, true},
        {"\\s++$", "\\s", SPLIT_REMOVED, false},
    };
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        struct split *split = split_new();
        add(split, chains[i].first, chains[i].behavior, chains[i].invert);
        add(split, chains[i].second, SPLIT_ISOLATED, false);
        assert_true(split_has_edges(split));
        for (int k = 0; k < 300; k++) {
            struct text text = {0};
            for (int j = 0; j < 12; j++)
                text_add(
                    &text, "%s",
                    unit[rand_below(17, i, (uint64_t)(12 * k + j), sizeof unit / sizeof unit[0])]);
            check_cuts(split, text.data);
            text_free(&text);
        }
        split_close(split);
    }
}

HARNESS_RUN_ALL()
