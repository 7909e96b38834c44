/* tokenizer_json — a small tokenizer.json is read; what is damaged or not known is refused
 * with its name. tests/tokenizers compares ids with the package tokenizers. */
#include "harness.h"

#include "base/text.h"
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

static void test_small(void **state)
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
static void test_missing_bytes(void **state)
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

static void test_refusals(void **state)
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
        {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," MODEL "}", "\"Whitespace\""},
        {"{\"normalizer\":{\"type\":\"NFKC\"}," MODEL "}", "\"NFKC\""},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"x+\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\","
         "\"add_prefix_space\":false,\"use_regex\":false}]}," MODEL "}",
         "x+"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"lstrip\":true}]," MODEL "}", "lstrip"},
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
static void test_deep(void **state)
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

static void test_end(void **state)
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_small), cmocka_unit_test(test_missing_bytes),
    cmocka_unit_test(test_refusals), cmocka_unit_test(test_deep), cmocka_unit_test(test_end)};
HARNESS_MAIN(tests)
