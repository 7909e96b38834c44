/* tokenizer_tiktoken — GPT-2's vocabulary as a tiktoken file gives the built-in tokenizer's
 * ids; damage is refused with the line. tests/tokenizers compares cl100k_base with tiktoken. */
#include "harness.h"

#include "data/tokenizer/file.h"
#include "data/tokenizer/gpt2.h"

#define TOKENS 50256

/* gpt2_file — a line for each token but the last; line `changed` (from 0) is another. */
static struct text gpt2_file(const char *end, int64_t changed, const char *line)
{
    struct text t = {.limit = 8 << 20};
    struct tokenizer *gpt2;
    assert_int_equal(tokenizer_gpt2_open(&gpt2), ST_OK);
    for (uint32_t id = 0; id < TOKENS; id++) {
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(gpt2, id, &n);
        if (id == changed) {
            text_add(&t, "%s%s", line, end);
            continue;
        }
        static const char digit[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for (size_t i = 0; i < n; i += 3) {
            const uint32_t v = (uint32_t)bytes[i] << 16 |
                               (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (i + 2 < n ? bytes[i + 2] : 0);
            const char four[4] = {digit[v >> 18], digit[v >> 12 & 63],
                                  i + 1 < n ? digit[v >> 6 & 63] : '=',
                                  i + 2 < n ? digit[v & 63] : '='};
            text_add_bytes(&t, four, 4);
        }
        text_add(&t, " %u%s", id, end);
    }
    tokenizer_close(gpt2);
    assert_false(t.overflow);
    return t;
}

static void assert_same(const struct tokenizer *a, const struct tokenizer *b, const char *text)
{
    uint32_t x[512], y[512];
    size_t x_n, y_n;
    assert_int_equal(tokenizer_encode(a, text, strlen(text), true, x, &x_n), ST_OK);
    assert_int_equal(tokenizer_encode(b, text, strlen(text), true, y, &y_n), ST_OK);
    assert_int_equal(x_n, y_n);
    assert_memory_equal(x, y, x_n * sizeof *x);
}

TEST(test_gpt2)
{
    static const char *const ends[] = {"\n", "\r\n"};
    static const char *const text[] = {"", "Hello, world! 12345  it's\n\n", "\xff\xfe\x80",
                                       "na\xc3\xafve \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80"};
    struct tokenizer *gpt2, *read;
    assert_int_equal(tokenizer_gpt2_open(&gpt2), ST_OK);
    for (int e = 0; e < 2; e++) {
        struct text t = gpt2_file(ends[e], -1, NULL);
        assert_true(tokenizer_tiktoken_is(t.data, t.len));
        assert_int_equal(tokenizer_tiktoken_open(t.data, t.len, "file", &read), ST_OK);
        assert_int_equal(tokenizer_end(read), tokenizer_end(gpt2));
        for (size_t i = 0; i < sizeof text / sizeof *text; i++)
            assert_same(gpt2, read, text[i]);
        tokenizer_close(read);
        text_free(&t);
    }
    tokenizer_close(gpt2);
}

TEST(test_damaged)
{
    static const struct {
        int64_t at;
        const char *line, *says;
    } row[] = {{4, "JQ== 3", "rank 3, or its token, is there twice"},   /* a rank twice */
               {4, "IQ== 4", "rank 4, or its token, is there twice"},   /* a token twice */
               {4, "JQ== 50256", "is over 50255"},                      /* beyond the kind */
               {4, "JQ== 99999999999999999999", "line 5: not a token"}, /* no rank has it */
               {4, "JQ== -1", "line 5: not a token"},
               {4, "JQ== 4 4", "line 5: not a token"},
               {4, "JQ==", "line 5: not a token"},
               {4, "J=Q= 4", "line 5: not a token"},
               {4, "JQ 4", "line 5: not a token"},
               {4, "J*== 4", "line 5: not a token"},
               {4, " 4", "line 5: not a token"},                         /* an empty token */
               {4, "enp6enp6enp6enp6 4", "has no token for byte 0x25"}}; /* '%' is gone */
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct text t = gpt2_file("\n", row[i].at, row[i].line);
        struct tokenizer *read = NULL;
        assert_int_equal(tokenizer_tiktoken_open(t.data, t.len, "file", &read), ST_BAD_DATA);
        if (!strstr(status_message(), row[i].says))
            fail_msg("%s: %s", row[i].line, status_message());
        text_free(&t);
    }
}

TEST(test_cut)
{
    struct text t = gpt2_file("\n", -1, NULL);
    struct tokenizer *read;
    static const size_t cuts[] = {0, 1, 2, 8, 9, 100000};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_int_equal(tokenizer_tiktoken_open(t.data, cuts[i], "cut", &read), ST_BAD_DATA);
        assert_non_null(strstr(status_message(), "tokens, and such files do not hold the pattern"));
    }
    t.data[t.len - 3] = ' '; /* "… 5025", within the last line */
    assert_int_equal(tokenizer_tiktoken_open(t.data, t.len - 2, "cut", &read), ST_BAD_DATA);
    text_free(&t);
}

TEST(test_is)
{
    static const char *const no[] = {"", "IQ==", "IQ== 1\n", "IQ== x\n", "{\"a\": 0}", "=== 0\n"};
    assert_true(tokenizer_tiktoken_is("IQ== 0\n", 7));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(tokenizer_tiktoken_is(no[i], strlen(no[i])));
}

HARNESS_RUN_ALL()
