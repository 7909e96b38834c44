/* tokenizer_json_write — a GGUF file's tokenizer as tokenizer.json is read back as the same
 * tokenizer, and becomes the same lists again; what JSON or GGUF cannot hold is refused.
 * tests/tokenizers compares it with Hugging Face's. */
#include "harness.h"

#include "data/tokenizer/file.h"
#include "data/tokenizer/json_write.h"

#define TOKENS_MAX 300
#define N TOKENIZER_PIECE_NORMAL

struct lists {
    struct tokenizer_piece piece[TOKENS_MAX], merge[8];
    struct tokenizer_gguf gguf;
};

static struct tokenizer_piece piece(const char *text, float score, int type)
{
    return (struct tokenizer_piece){text, strlen(text), score, type};
}

/* pieces — SentencePiece's, with all bytes; some from outside ASCII, quotes and a backslash. */
static void pieces(struct lists *l)
{
    static char bytes[256][8];
    static const char *const text[] = {"\xe2\x96\x81",
                                       "a",
                                       "b",
                                       "\"",
                                       "\\",
                                       "\xc3\xa9",
                                       "ab",
                                       "\xe2\x96\x81"
                                       "a",
                                       "\xe2\x96\x81"
                                       "ab",
                                       "\"\\"};
    size_t n = 0;
    l->piece[n++] = piece("<unk>", 0, TOKENIZER_PIECE_UNKNOWN);
    l->piece[n++] = piece("<s>", 0, TOKENIZER_PIECE_CONTROL);
    l->piece[n++] = piece("</s>", 0, TOKENIZER_PIECE_CONTROL);
    for (int b = 0; b < 256; b++) {
        snprintf(bytes[b], sizeof bytes[b], "<0x%02X>", (unsigned)b);
        l->piece[n++] = piece(bytes[b], 0, TOKENIZER_PIECE_BYTE);
    }
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        l->piece[n++] = piece(text[i], -(float)i, N);
    l->piece[n++] = piece("<tool>", 0, TOKENIZER_PIECE_USER_DEFINED);
    l->gguf = (struct tokenizer_gguf){.name = "lists",
                                      .model = "llama",
                                      .pre = "",
                                      .piece = l->piece,
                                      .n = n,
                                      .has_scores = true,
                                      .begin = 1,
                                      .end = 2,
                                      .adds_space = true};
}

/* byte_level — as GPT-2's; without tokens for most bytes. */
static void byte_level(struct lists *l)
{
    static const char *const text[] = {"<|end|>",
                                       "a",
                                       "b",
                                       "\"",
                                       "\\",
                                       "\xc4\xa0",
                                       "ab",
                                       "\xc4\xa0"
                                       "a",
                                       "\xc4\xa0"
                                       "ab",
                                       "1",
                                       "2",
                                       "12"};
    static const char *const merge[] = {"a b", "\xc4\xa0 a", "\xc4\xa0 ab", "1 2"};
    const size_t n = sizeof text / sizeof *text, merges_n = sizeof merge / sizeof *merge;
    for (size_t i = 0; i < n; i++)
        l->piece[i] = piece(text[i], 0, i == 0 ? TOKENIZER_PIECE_CONTROL : N);
    for (size_t i = 0; i < merges_n; i++)
        l->merge[i] = piece(merge[i], 0, 0);
    l->gguf = (struct tokenizer_gguf){.name = "lists",
                                      .model = "gpt2",
                                      .pre = "gpt-2",
                                      .piece = l->piece,
                                      .n = n,
                                      .merge = l->merge,
                                      .merges_n = merges_n,
                                      .begin = -1,
                                      .end = 0};
}

static void assert_same(const struct tokenizer *a, const struct tokenizer *b, const char *text)
{
    uint32_t x[256], y[256];
    size_t x_n, y_n;
    assert_true(tokenizer_cap(a, strlen(text)) <= 256 && tokenizer_cap(b, strlen(text)) <= 256);
    assert_int_equal(tokenizer_encode(a, text, strlen(text), true, x, &x_n), ST_OK);
    assert_int_equal(tokenizer_encode(b, text, strlen(text), true, y, &y_n), ST_OK);
    assert_int_equal(x_n, y_n);
    assert_memory_equal(x, y, x_n * sizeof *x);
}

static void assert_back(const struct lists *l)
{
    static const char *const text[] = {
        "",      "a",  " ab ab", "\"\\\"\\\\", "\xc3\xa9\xe4\xb8\xad",
        "ab  a", "12", "x ab y", "\n",         "12ab"};
    struct text json = {.data = NULL}, config = {.data = NULL};
    struct tokenizer *direct, *written;
    char end[64];
    assert_int_equal(tokenizer_gguf_open(&l->gguf, &direct), ST_OK);
    assert_int_equal(tokenizer_json_write(&l->gguf, &json), ST_OK);
    assert_int_equal(tokenizer_json_write_config(&l->gguf, 77, &config), ST_OK);
    assert_non_null(strstr(config.data, "\"model_max_length\": 77"));
    assert_int_equal(tokenizer_json_end(config.data, config.len, "config", end, sizeof end), ST_OK);
    assert_int_equal(tokenizer_json_open(json.data, json.len, "written", end, &written), ST_OK);
    assert_int_equal(tokenizer_end(written), tokenizer_end(direct));
    assert_int_equal(tokenizer_begin(written), tokenizer_begin(direct));
    assert_int_equal(tokenizer_vocab(written), tokenizer_vocab(direct));
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        assert_same(direct, written, text[i]);
    tokenizer_close(direct);
    tokenizer_close(written);
    text_free(&json);
    text_free(&config);
}

TEST(test_back)
{
    static const char *const pre[] = {"gpt-2",       "smollm", "llama-bpe", "qwen2",
                                      "deepseek-v3", "gpt-4o", "tekken",    "bloom"};
    struct lists l;
    pieces(&l);
    assert_back(&l);
    l.gguf.adds_space = false;
    assert_back(&l);
    /* User-defined pieces are found inside a text. */
    struct text json = {.data = NULL};
    struct tokenizer *direct, *written;
    assert_int_equal(tokenizer_gguf_open(&l.gguf, &direct), ST_OK);
    assert_int_equal(tokenizer_json_write(&l.gguf, &json), ST_OK);
    assert_int_equal(tokenizer_json_open(json.data, json.len, "written", "</s>", &written), ST_OK);
    assert_same(direct, written, "x<tool>ab y");
    tokenizer_close(direct);
    tokenizer_close(written);
    text_free(&json);
    byte_level(&l);
    for (size_t i = 0; i < sizeof pre / sizeof *pre; i++) {
        l.gguf.pre = pre[i];
        assert_back(&l);
    }
}

/* assert_lists — a tokenizer of n pieces becomes the lists that it was made of, with three unused
 * pieces after them, and these become the same tokenizer. has_types: all types are known. */
static void assert_lists(const struct lists *l, const struct tokenizer *from, bool has_types)
{
    static const char *const text[] = {"", " ab ab", "\"\\", "\xc3\xa9\xe4\xb8\xad", "12ab  a"};
    const size_t n = l->gguf.n;
    struct tokenizer_gguf_lists made;
    struct tokenizer *again;
    assert_int_equal(tokenizer_gguf_of(from, n + 3, &made), ST_OK);
    assert_string_equal(made.gguf.model, l->gguf.model);
    assert_int_equal(made.gguf.n, n + 3);
    assert_int_equal(made.gguf.merges_n, l->gguf.merges_n);
    assert_int_equal(made.gguf.begin, l->gguf.begin);
    assert_int_equal(made.gguf.end, l->gguf.end);
    assert_int_equal(made.gguf.adds_space, l->gguf.adds_space);
    for (size_t i = 0; i < n + l->gguf.merges_n; i++) {
        const struct tokenizer_piece *want = i < n ? l->piece + i : l->merge + i - n;
        const struct tokenizer_piece *have = made.piece + (i < n ? i : i + 3);
        if (have->n != want->n || memcmp(have->text, want->text, want->n) != 0)
            fail_msg("piece %zu is %.*s, expected %.*s", i, (int)have->n, have->text, (int)want->n,
                     want->text);
        if (i < n && has_types && have->type != want->type)
            fail_msg("piece %zu has type %d, expected %d", i, have->type, want->type);
        if (i > 0 && i < n && l->gguf.has_scores && want->type == N && want->n > 3)
            assert_true(have->score < 1);
    }
    assert_int_equal(made.piece[n + 2].type, TOKENIZER_PIECE_UNUSED);
    assert_memory_equal(made.piece[n + 2].text, "[PAD", 4);
    assert_int_equal(tokenizer_gguf_open(&made.gguf, &again), ST_OK);
    assert_int_equal(tokenizer_end(again), tokenizer_end(from));
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        assert_same(from, again, text[i]);
    tokenizer_close(again);
    tokenizer_gguf_free(&made);
    tokenizer_gguf_free(&made);
    assert_int_equal(tokenizer_gguf_of(from, n - 1, &made), ST_BAD_DATA);
    assert_null(made.piece);
}

/* assert_both — both the tokenizer of the lists and its tokenizer.json become the lists. */
static void assert_both(const struct lists *l)
{
    struct text json = {.data = NULL};
    struct tokenizer *direct, *written;
    assert_int_equal(tokenizer_gguf_open(&l->gguf, &direct), ST_OK);
    assert_int_equal(tokenizer_json_write(&l->gguf, &json), ST_OK);
    assert_int_equal(tokenizer_json_open(json.data, json.len, "written",
                                         l->gguf.end == 0 ? "<|end|>" : "</s>", &written),
                     ST_OK);
    assert_lists(l, direct, true);
    assert_lists(l, written, true);
    tokenizer_close(direct);
    tokenizer_close(written);
    text_free(&json);
}

TEST(test_lists)
{
    static const char *const pre[] = {"gpt-2",     "smollm",      "llama-bpe", "dbrx",   "qwen2",
                                      "stablelm2", "deepseek-v3", "gpt-4o",    "tekken", "bloom"};
    struct lists l;
    pieces(&l);
    assert_both(&l);
    byte_level(&l);
    for (size_t i = 0; i < sizeof pre / sizeof *pre; i++) {
        struct tokenizer_gguf_lists made;
        struct tokenizer *direct;
        l.gguf.pre = pre[i];
        assert_both(&l);
        assert_int_equal(tokenizer_gguf_open(&l.gguf, &direct), ST_OK);
        assert_int_equal(tokenizer_gguf_of(direct, l.gguf.n, &made), ST_OK);
        assert_string_equal(made.gguf.pre, pre[i]);
        tokenizer_gguf_free(&made);
        tokenizer_close(direct);
    }
}

/* Steps before ByteLevel in published files. */
static const struct {
    const char *pre;
    bool ignores_merges;
    const char *steps;
} published[] = {
    {"deepseek-v3", false,
     "{\"type\": \"Split\", \"pattern\": {\"Regex\": \""
     "\\\\p{N}{1,3}"
     "\"}, \"behavior\": \"Isolated\", \"invert\": false},"
     "{\"type\": \"Split\", \"pattern\": {\"Regex\": \""
     "[一-龥぀-ゟ゠-ヿ]+"
     "\"}, \"behavior\": \"Isolated\", \"invert\": false},"
     "{\"type\": \"Split\", \"pattern\": {\"Regex\": \""
     "[!\\\"#$%&'()*+,\\\\-./"
     ":;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?"
     "[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
     "\"}, \"behavior\": \"Isolated\", \"invert\": false},"},
    {"gpt-4o", false,
     "{\"type\": \"Split\", \"pattern\": {\"Regex\": \""
     "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*"
     "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}"
     "\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"
     "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\\\p{N}{1,3}"
     "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
     "\"}, \"behavior\": \"Isolated\", \"invert\": false},"},
    {"gpt-4o", false,
     "{\"type\": \"Split\", \"pattern\": {\"Regex\": \""
     "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*"
     "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}"
     "\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"
     "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\\\p{N}{1,3}"
     "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
     "\"}, \"behavior\": \"Removed\", \"invert\": true},"},
    {"tekken", true,
     "{\"type\": \"Split\", \"pattern\": {\"Regex\": \""
     "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*"
     "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}"
     "\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"
     "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*|\\\\p{N}"
     "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
     "\"}, \"behavior\": \"Isolated\", \"invert\": false},"},
    {"bloom", false,
     "{\"type\": \"Split\", \"pattern\": {\"Regex\": \""
     " ?[^(\\\\s|[.,!?…。，、।۔،])]+"
     "\"}, \"behavior\": \"Isolated\", \"invert\": false},"}};

static void published_json(struct text *out, size_t i, const char *steps)
{
    text_add(out,
             "{\"model\": {\"type\": \"BPE\", \"ignore_merges\": %s, \"vocab\": {\"a\": 0}, "
             "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [%s "
             "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}}",
             published[i].ignores_merges ? "true" : "false", steps);
}

/* The pattern of a published file gets its name; with another character it gets none. */
TEST(test_published)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct tokenizer_gguf_lists made;
        struct tokenizer *tokenizer;
        struct text json = {.data = NULL}, other = {.data = NULL};
        published_json(&json, i, published[i].steps);
        assert_int_equal(tokenizer_json_open(json.data, json.len, "json", "", &tokenizer), ST_OK);
        assert_int_equal(tokenizer_gguf_of(tokenizer, 9, &made), ST_OK);
        assert_string_equal(made.gguf.pre, published[i].pre);
        tokenizer_gguf_free(&made);
        tokenizer_close(tokenizer);
        char *steps = strdup(published[i].steps);
        char *last = strrchr(steps, '+');
        *last = '*';
        published_json(&other, i, steps);
        assert_int_equal(tokenizer_json_open(other.data, other.len, "json", "", &tokenizer), ST_OK);
        assert_int_equal(tokenizer_gguf_of(tokenizer, 9, &made), ST_BAD_DATA);
        harness_assert_message("other rules for texts than GPT-2");
        tokenizer_close(tokenizer);
        free(steps);
        text_free(&json);
        text_free(&other);
    }
}

/* refuse_lists — a tokenizer.json for which GGUF has no form. */
static void refuse_lists(const char *json, const char *says)
{
    struct tokenizer_gguf_lists made;
    struct tokenizer *tokenizer;
    assert_int_equal(tokenizer_json_open(json, strlen(json), "json", "", &tokenizer), ST_OK);
    assert_int_equal(tokenizer_gguf_of(tokenizer, 99, &made), ST_BAD_DATA);
    harness_assert_message(says);
    tokenizer_close(tokenizer);
}

TEST(test_lists_refused)
{
    refuse_lists("{\"model\": {\"type\": \"BPE\", \"ignore_merges\": true, \"vocab\": {\"a\": 0}, "
                 "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                 "\"add_prefix_space\": false}}",
                 "json has other rules for texts than GPT-2");
    refuse_lists("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, "
                 "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}}",
                 "other rules for texts");
    refuse_lists("{\"normalizer\": {\"type\": \"Lowercase\"}, \"model\": {\"type\": \"BPE\", "
                 "\"vocab\": {\"a\": 0}, \"merges\": []}, \"pre_tokenizer\": {\"type\": "
                 "\"ByteLevel\", \"add_prefix_space\": false}}",
                 "other rules for texts");
    refuse_lists("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, "
                 "\"merges\": [\"a b\"]}, \"added_tokens\": [{\"id\": 2, \"content\": \"ab\", "
                 "\"special\": true}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                 "\"add_prefix_space\": false}}",
                 "merges of added tokens");
    refuse_lists("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, "
                 "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", "
                 "\"prepend_scheme\": \"first\", \"split\": false}}",
                 "SentencePiece's with bytes");
}

/* Pieces whose merges have an order that no scores have, or that lack a merge. */
TEST(test_scores_refused)
{
    static const char *const bad[][2] = {
        {"\"merges\": [\"b c\", \"a b\", \"ab c\", \"c a\", \"a bc\"]", "an order that no scores"},
        {"\"merges\": [\"b c\", \"a b\", \"ab c\", \"c a\"]", "pieces that no merge makes"}};
    for (size_t i = 0; i < 2; i++) {
        struct text json = {.data = NULL};
        text_add(&json,
                 "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                 "\"content\": \"\xe2\x96\x81\"}, \"model\": {\"type\": \"BPE\", "
                 "\"byte_fallback\": true, \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"bc\": 3, "
                 "\"ab\": 4, \"abc\": 5, \"ca\": 6");
        for (unsigned b = 0; b < 256; b++)
            text_add(&json, ", \"<0x%02X>\": %u", b, b + 7);
        text_add(&json, "}, %s}}", bad[i][0]);
        struct tokenizer_gguf_lists made;
        struct tokenizer *tokenizer;
        assert_int_equal(tokenizer_json_open(json.data, json.len, "json", "", &tokenizer), ST_OK);
        assert_int_equal(tokenizer_gguf_of(tokenizer, 300, &made), ST_BAD_DATA);
        harness_assert_message(bad[i][1]);
        tokenizer_close(tokenizer);
        text_free(&json);
    }
}

static void refuse(struct lists *l, const char *says)
{
    struct text json = {.data = NULL};
    assert_int_equal(tokenizer_json_write(&l->gguf, &json), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), says));
    text_free(&json);
}

TEST(test_refused)
{
    static char huge[9000];
    struct lists l;
    byte_level(&l);
    l.gguf.pre = "viking";
    refuse(&l, "pattern \"viking\" is not supported");
    byte_level(&l);
    l.piece[3].text = "a";
    refuse(&l, "tokens 1 and 3 have the same text");
    byte_level(&l);
    l.piece[0].text = "\xff\xfe<end>";
    refuse(&l, "cannot be written as JSON");
    byte_level(&l);
    l.piece[0] = (struct tokenizer_piece){"a\0b", 3, 0, TOKENIZER_PIECE_CONTROL};
    refuse(&l, "cannot be written as JSON");
    byte_level(&l);
    memset(huge, 'x', sizeof huge);
    l.piece[0] = (struct tokenizer_piece){huge, sizeof huge, 0, TOKENIZER_PIECE_CONTROL};
    refuse(&l, "9000 bytes cannot be written");
}

HARNESS_RUN_ALL()
