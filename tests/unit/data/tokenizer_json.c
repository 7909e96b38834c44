/* tokenizer_json — a small tokenizer.json is read; what is damaged or not known is refused
 * with its name. tests/tokenizers compares ids with the package tokenizers. */
#include "harness.h"

#include "base/rand.h"
#include "data/tokenizer/file.h"

#define MARK "\xe2\x96\x81"
#define NORMAL                                                                                  \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":" \
    "\"" MARK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK    \
    "\"}]}"
#define ADDED "\"added_tokens\":[{\"id\":4,\"content\":\"<s>\"},{\"id\":5,\"content\":\"</s>\"}]"
#define POST                                                                                     \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":" \
    "\"<s>\"}}]}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<unk>\":3,\"" MARK "\":6,\"" MARK "ab\":7}"
#define MERGES "\"merges\":[\"a b\",[\"" MARK "\",\"ab\"]]"
#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true," VOCAB "," MERGES "}"

static enum status opened(const char *text, struct tokenizer **out)
{
    return tokenizer_json_open(text, strlen(text), "t.json", "", out);
}

TEST(test_small)
{
    struct tokenizer *tokenizer;
    uint32_t ids[64];
    size_t n;
    assert_int_equal(opened("{" NORMAL "," ADDED "," POST "," MODEL "}", &tokenizer), ST_OK);
    assert_int_equal(tokenizer_vocab(tokenizer), 8);
    assert_int_equal(tokenizer_end(tokenizer), 5);
    assert_int_equal(tokenizer_prompt(tokenizer, "ab ab", 5, ids, &n), ST_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(ids, ((uint32_t[]){4, 7, 7}), 12);
    assert_int_equal(tokenizer_encode(tokenizer, "abxyz</s>b", 10, true, ids, &n), ST_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(ids, ((uint32_t[]){7, 3, 5, 6, 1}), 20);
    assert_string_equal(tokenizer_name(tokenizer), "t.json");
    tokenizer_close(tokenizer);
}

#define BYTES(unknown, fuses)                                                            \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{" \
    "\"type\":\"BPE\",\"fuse_unk\":" fuses ",\"unk_token\":" unknown                     \
    ",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<unk>\":3},"                                 \
    "\"merges\":[\"a b\"]}}"

/* Bytes without a token are left out before anything merges, or become the unknown token, as the
 * package tokenizers does (0.23.3). SmolLM2's vocabulary lacks 21 bytes. */
TEST(test_missing_bytes)
{
    static const struct {
        const char *text;
        size_t n;
        uint32_t ids[8];
    } cases[] = {{BYTES("null", "true"), 2, {2, 0}},
                 {BYTES("\"<unk>\"", "false"), 8, {0, 3, 3, 1, 3, 3, 3, 0}},
                 {BYTES("\"<unk>\"", "true"), 6, {0, 3, 1, 3, 3, 0}}};
    for (size_t i = 0; i < 3; i++) {
        struct tokenizer *tokenizer;
        uint32_t ids[64];
        size_t n;
        assert_int_equal(opened(cases[i].text, &tokenizer), ST_OK);
        assert_int_equal(tokenizer_encode(tokenizer,
                                          "a\xc3\xa9"
                                          "b\x04 xa",
                                          8, true, ids, &n),
                         ST_OK);
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(ids, cases[i].ids, n * sizeof *ids);
        tokenizer_close(tokenizer);
    }
}

#define PATTERN(regex, behavior)                                             \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
    "\"},\"behavior\":\"" behavior "\"}," MODEL "}"

static void check_ids(const struct tokenizer *tokenizer, const char *text, const uint32_t *want,
                      size_t want_n)
{
    uint32_t ids[64];
    size_t n;
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), true, ids, &n), ST_OK);
    if (n != want_n || memcmp(ids, want, n * sizeof *ids) != 0)
        fail_msg("%s: %zu ids, the first %u", text, n, n > 0 ? ids[0] : 0);
}
#define CHECK_IDS(text, ...)                              \
    check_ids(tokenizer, text, (uint32_t[]){__VA_ARGS__}, \
              sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* Patterns, and a model without dropout. */
TEST(test_pattern)
{
    struct tokenizer *tokenizer;
    assert_int_equal(opened(PATTERN("b", "MergedWithNext"), &tokenizer), ST_OK);
    CHECK_IDS("abbab", 0, 1, 1, 0, 1);
    tokenizer_close(tokenizer);
    assert_int_equal(opened(PATTERN("(a+)+$", "Isolated"), &tokenizer), ST_OK);
    uint32_t ids[64];
    size_t n;
    assert_int_equal(
        tokenizer_encode(tokenizer, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 36, true, ids, &n),
        ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "t.json: its pattern (a+)+$ needs too many steps"));
    status_clear();
    assert_int_equal(tokenizer_cut(tokenizer, "aa bb", 5), 0);
    tokenizer_close(tokenizer);
    assert_int_equal(opened("{\"model\":{\"dropout\":0.0," VOCAB "," MERGES "}}", &tokenizer),
                     ST_OK);
    tokenizer_close(tokenizer);
}

#define FLAGS(flags) "{\"id\":9,\"content\":\"<m>\"," flags "}"
/* White space next to an added token belongs to it, or a word next to it forbids it. */
TEST(test_flags)
{
    struct tokenizer *tokenizer;
    assert_int_equal(
        opened("{\"added_tokens\":[" FLAGS("\"lstrip\":true") "]," MODEL "}", &tokenizer), ST_OK);
    CHECK_IDS("a \u00a0\n<m> b", 0, 9, 3, 1);
    CHECK_IDS(" <m>", 9);
    assert_int_equal(tokenizer_cut(tokenizer, "ab <m>", 6), 2);
    tokenizer_close(tokenizer);
    assert_int_equal(
        opened("{\"added_tokens\":[" FLAGS("\"rstrip\":true") "]," MODEL "}", &tokenizer), ST_OK);
    CHECK_IDS("a <m>\u3000 b", 0, 3, 9, 1);
    CHECK_IDS("<m> <m> ", 9, 9);
    tokenizer_close(tokenizer);
    assert_int_equal(
        opened("{\"added_tokens\":[" FLAGS("\"single_word\":true") "]," MODEL "}", &tokenizer),
        ST_OK);
    CHECK_IDS("<m>a", 3, 0);
    CHECK_IDS("b<m>", 1, 3);
    CHECK_IDS("a.<m> ", 0, 3, 9, 3);
    tokenizer_close(tokenizer);
    assert_int_equal(opened("{\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":["
                            "{\"id\":9,\"content\":\"AB\",\"normalized\":true}]," MODEL "}",
                            &tokenizer),
                     ST_OK);
    CHECK_IDS("aBa", 9, 0);
    tokenizer_close(tokenizer);
}

#define CUT_TOKENS                                                                                \
    "\"added_tokens\":[{\"id\":9,\"content\":\"<m>\",\"lstrip\":true},{\"id\":10,\"content\":\"<" \
    "r>\","                                                                                       \
    "\"rstrip\":true},{\"id\":11,\"content\":\"<w>\",\"single_word\":true},{\"id\":12,"           \
    "\"content\":\" <x>"                                                                          \
    "\",\"single_word\":true,\"rstrip\":true},{\"id\":13,\"content\":\"mask\",\"rstrip\":true}]"
/* A text that is cut has the ids of the whole, with added tokens of every kind at the cut. */
TEST(test_cuts)
{
    static const char *const files[] = {
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+|[^\\\\w\\\\s]+|"
        "\\\\s+\"},"
        "\"behavior\":\"Isolated\"}," CUT_TOKENS "," MODEL "}",
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"},{"
        "\"type\":"
        "\"NFKC\"}]},\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}," CUT_TOKENS "," MODEL "}",
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," CUT_TOKENS
        "," MODEL "}",
    };
    static const char *const unit[] = {"a",      "b",   "ab",  " ",    "\n",  "\u00a0",
                                       "<m>",    "<r>", "<w>", " <x>", "AB",  "é",
                                       "\ufb01", ".",   "1",   "mask", " ab", "  "};
    for (size_t f = 0; f < 3; f++) {
        struct tokenizer *tokenizer;
        int cuts = 0;
        if (opened(files[f], &tokenizer) != ST_OK)
            fail_msg("%zu: %s", f, status_message());
        for (uint64_t k = 0; k < 4000; k++) {
            struct text text = {0};
            uint32_t whole[512], parts[512];
            size_t whole_n, first_n, second_n;
            for (uint64_t j = 0; j < 12; j++)
                text_add(&text, "%s", unit[rand_below(18, k, j, sizeof unit / sizeof unit[0])]);
            const size_t cut = tokenizer_cut(tokenizer, text.data, text.len);
            assert_true(cut < text.len);
            cuts += cut > 0;
            assert_int_equal(
                tokenizer_encode(tokenizer, text.data, text.len, true, whole, &whole_n), ST_OK);
            assert_int_equal(tokenizer_encode(tokenizer, text.data, cut, true, parts, &first_n),
                             ST_OK);
            assert_int_equal(tokenizer_encode(tokenizer, text.data + cut, text.len - cut, cut == 0,
                                              parts + first_n, &second_n),
                             ST_OK);
            if (first_n + second_n != whole_n || memcmp(parts, whole, whole_n * sizeof *whole) != 0)
                fail_msg("%zu: %s, cut at %zu: other ids", f, text.data, cut);
            text_free(&text);
        }
        print_message("# %d of 4000 texts cut\n", cuts);
        assert_true(cuts > 400);
        tokenizer_close(tokenizer);
    }
}

TEST(test_refusals)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "an object"},
        {"[]", "an object"},
        {"{}", "no \"model\""},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[],\"merges\":[]}}", "\"Unigram\""},
        {"{\"model\":{\"vocab\":{},\"merges\":[]}}", "0 tokens"},
        {"{" MODEL "," MODEL "}", "twice"},
        {"{\"model\":{" VOCAB "," VOCAB "," MERGES "}}", "twice"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "twice"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "twice"},
        {"{\"model\":{\"vocab\":{\"a\":4194000},\"merges\":[]}}", "ids up to"},
        {"{\"model\":{\"vocab\":{\"a\":99999999999},\"merges\":[]}}", "is not in 0"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "is not in 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", "merge 0"},
        {"{\"model\":{\"vocab\":{\"\\ud8\":0},\"merges\":[]}}", "not a string"},
        {"{\"model\":{\"dropout\":0.1," VOCAB "," MERGES "}}", "dropout"},
        {"{\"model\":{\"byte_fallback\":true," VOCAB "," MERGES "}}", "<0x00>"},
        {"{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}", "\"UnicodeScripts\""},
        {"{\"normalizer\":{\"type\":\"Nmt\"}," MODEL "}", "\"Nmt\""},
        {PATTERN("x(+", "Isolated"), "nothing to repeat, at byte 3"},
        {PATTERN("x", "Sideways"), "\"Split\" x"},
        {PATTERN("", "Isolated"), "\"Split\""},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"y\"}"
         "," MODEL "}",
         "matches nothing"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},\"content\":\""
         "0123456789012345678901234567890123456789012345678901234567890123456789\"}," MODEL "}",
         "64 times"},
        {"{" NORMAL ",\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"lstrip\":true,\"normalized\":"
         "true}]," MODEL "}",
         "strips spaces"},
        {"{\"normalizer\":{\"type\":\"Strip\"},\"added_tokens\":[{\"id\":1,\"content\":\" \","
         "\"normalized\":true}]," MODEL "}",
         "is nothing in normalised text"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"\"}]," MODEL "}", "not a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer;
        assert_int_equal(opened(cases[i].text, &tokenizer), ST_BAD_DATA);
        if (strstr(status_message(), cases[i].why) == NULL)
            fail_msg("case %zu: %s", i, status_message());
        status_clear();
    }
}

/* Deep nesting where a value is passed over, and where it is parsed. */
TEST(test_deep)
{
    enum { DEEP = 1000000 };
    struct tokenizer *tokenizer;
    struct text text = {.limit = 8 << 20};
    text_add(&text, "{\"normalizer\":");
    for (int i = 0; i < DEEP; i++)
        text_add_bytes(&text, "[", 1);
    for (int i = 0; i < DEEP; i++)
        text_add_bytes(&text, "]", 1);
    text_add(&text, "," MODEL "}");
    assert_false(text.overflow);
    assert_int_equal(opened(text.data, &tokenizer), ST_BAD_DATA);
    text_free(&text);
}

TEST(test_end)
{
    char end[16];
    static const char text[] = "{\"eos_token\":\"</s>\"}",
                      object[] = "{\"eos_token\":{\"content\":\"x\"}}";
    assert_int_equal(tokenizer_json_end(text, sizeof text - 1, "c", end, sizeof end), ST_OK);
    assert_string_equal(end, "</s>");
    assert_int_equal(tokenizer_json_end(object, sizeof object - 1, "c", end, sizeof end), ST_OK);
    assert_string_equal(end, "x");
    assert_int_equal(tokenizer_json_end("{}", 2, "c", end, sizeof end), ST_OK);
    assert_string_equal(end, "");
    assert_int_equal(tokenizer_json_end("{", 1, "c", end, sizeof end), ST_BAD_DATA);
}

HARNESS_RUN_ALL()
