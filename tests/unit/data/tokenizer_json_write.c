/* tokenizer_json_write — a GGUF file's tokenizer as tokenizer.json is read back as the same
 * tokenizer; what JSON cannot hold is refused. tests/tokenizers compares it with Hugging Face's. */
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
    static const char *const pre[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
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
    l.gguf.pre = "tekken";
    refuse(&l, "pattern \"tekken\" is not supported");
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
