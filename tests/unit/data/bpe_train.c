/* bpe_train — merges of small texts worked out by hand, and of random ones by counting all
 * pairs anew before each merge. tests/tokenizers compares with Hugging Face's trainer. */
#include "harness.h"

#include "base/rand.h"
#include "data/tokenizer/bpe.h"

#define TOKENS_MAX 600
#define WORDS_MAX 400

static struct bpe_train *trained(const char *text, uint32_t vocab)
{
    struct bpe_train *train;
    assert_int_equal(bpe_train_open(PRETOKEN_KIND_GPT2, &train), ST_OK);
    assert_int_equal(bpe_train_add(train, (const uint8_t *)text, strlen(text)), ST_OK);
    assert_int_equal(bpe_train_run(train, vocab, NULL, NULL), ST_OK);
    return train;
}

/* The new tokens, each behind a '|'. */
static void check(const char *text, uint32_t vocab, const char *want)
{
    char got[4096] = "";
    size_t n, len = 0;
    struct bpe_train *train = trained(text, vocab);
    for (uint32_t id = 256; id < bpe_train_tokens(train); id++) {
        const uint8_t *bytes = bpe_train_bytes(train, id, &n);
        len += (size_t)snprintf(got + len, sizeof got - len, "|%.*s", (int)n, (const char *)bytes);
    }
    assert_string_equal(got, want);
    bpe_train_close(train);
}

static void test_by_hand(void **state)
{
    check("", 300, "");
    check("a b c d", 300, "");           /* no pair twice */
    check("ab ab ab", 300, "|ab| ab");   /* "ab" thrice, " ab" twice */
    check("aaaa aaaa", 300, "|aa|aaaa"); /* " aaaa" and "aaaa": each pair once or twice */
    check("abab abab", 300, "|ab|abab");
    check("the then them", 258, "|he|the");         /* he: 3, th: 3; 'h' is below 't' */
    check("the then them", 257, "|he");             /* as many as asked for */
    check("xy zy xy zy xy", 300, "|xy|zy| xy| zy"); /* ' ' is behind the letters */
}

static void test_ids_of_bytes(void **state)
{
    size_t n;
    struct bpe_train *train = trained("", 256);
    assert_int_equal(bpe_train_tokens(train), 256);
    assert_int_equal(bpe_train_bytes(train, 0, &n)[0], '!'); /* as GPT-2's */
    assert_int_equal(bpe_train_bytes(train, 220, &n)[0], ' ');
    bpe_train_close(train);
}

static void test_long_words_are_left_out(void **state)
{
    char text[600];
    int64_t bytes, tokens;
    memset(text, '=', 599);
    text[599] = 0;
    struct bpe_train *train = trained(text, 300);
    assert_int_equal(bpe_train_tokens(train), 256);
    bpe_train_size(train, &bytes, &tokens);
    assert_int_equal(bytes, 0);
    bpe_train_close(train);
}

static bool stop_at_once(void *arg, uint32_t tokens)
{
    (void)arg;
    return tokens == 0;
}

static void test_progress_stops(void **state)
{
    static char text[1 << 20];
    struct bpe_train *train;
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = (char)('a' + rand_u32(1, RAND_STREAM(TEST, 0), i) % 26);
    for (size_t i = 7; i + 1 < sizeof text; i += 8)
        text[i] = ' ';
    assert_int_equal(bpe_train_open(PRETOKEN_KIND_GPT2, &train), ST_OK);
    assert_int_equal(bpe_train_add(train, (const uint8_t *)text, sizeof text - 1), ST_OK);
    assert_int_equal(bpe_train_run(train, 5000, stop_at_once, NULL), ST_RETRY);
    bpe_train_close(train);
}

/* ---- the plain truth ---- */

struct truth {
    uint32_t word[WORDS_MAX][16];
    size_t len[WORDS_MAX];
    size_t words_n;
    struct bpe_train_merge merge[TOKENS_MAX];
    size_t merges_n;
    char token[TOKENS_MAX][64]; /* texts; in these tests bytes are letters and ' ' */
    uint32_t tokens_n;
};

static uint32_t token_of(struct truth *t, const char *text)
{
    for (uint32_t id = 0; id < t->tokens_n; id++)
        if (strcmp(t->token[id], text) == 0)
            return id;
    strcpy(t->token[t->tokens_n], text);
    return t->tokens_n++;
}

static void truth_begin(struct truth *t, const struct bpe_train *train, const char *text)
{
    size_t n;
    for (uint32_t id = 0; id < 256; id++)
        snprintf(t->token[id], 64, "%c", bpe_train_bytes(train, id, &n)[0]);
    t->tokens_n = 256;
    for (const char *p = text; *p != 0;) {
        size_t len = 1;
        while (p[len] != 0 && p[len] != ' ')
            len++;
        for (size_t i = 0; i < len; i++)
            t->word[t->words_n][i] = token_of(t, (char[]){p[i], 0});
        t->len[t->words_n++] = len;
        p += len;
    }
}

static int best_pair(const struct truth *t, struct bpe_train_merge *best)
{
    static int count[TOKENS_MAX][TOKENS_MAX];
    int most = 1;
    memset(count, 0, sizeof count);
    for (size_t w = 0; w < t->words_n; w++)
        for (size_t i = 0; i + 1 < t->len[w]; i++)
            count[t->word[w][i]][t->word[w][i + 1]]++;
    for (uint32_t a = 0; a < t->tokens_n; a++)
        for (uint32_t b = 0; b < t->tokens_n; b++)
            if (count[a][b] > most) {
                most = count[a][b];
                *best = (struct bpe_train_merge){a, b};
            }
    return most;
}

static void truth_run(struct truth *t, uint32_t vocab)
{
    struct bpe_train_merge best = {0, 0};
    char both[128];
    while (t->tokens_n < vocab && best_pair(t, &best) > 1) {
        snprintf(both, sizeof both, "%s%s", t->token[best.left], t->token[best.right]);
        uint32_t made = token_of(t, both);
        for (size_t w = 0; w < t->words_n; w++) {
            size_t kept = 0;
            for (size_t i = 0; i < t->len[w]; kept++) {
                const bool is_pair = i + 1 < t->len[w] && t->word[w][i] == best.left &&
                                     t->word[w][i + 1] == best.right;
                t->word[w][kept] = is_pair ? made : t->word[w][i];
                i += is_pair ? 2 : 1;
            }
            t->len[w] = kept;
        }
        t->merge[t->merges_n++] = best;
    }
}

/* Words of few letters, so that pairs overlap, repeat and tie. */
static void random_text(uint64_t seed, char *out, size_t words, unsigned letters)
{
    uint64_t at = 0;
    for (size_t w = 0; w < words; w++) {
        const size_t len = 1 + rand_u32(seed, RAND_STREAM(TEST, 1), at++) % 8;
        *out++ = ' ';
        for (size_t i = 0; i < len; i++)
            *out++ = (char)('a' + rand_u32(seed, RAND_STREAM(TEST, 1), at++) % letters);
    }
    *out = 0;
}

static void test_as_counted_anew(void **state)
{
    char text[WORDS_MAX * 10];
    for (uint64_t seed = 0; seed < 24; seed++) {
        struct truth *t = calloc(1, sizeof *t);
        size_t n;
        random_text(seed, text, 20 + 2 * seed, 1 + (unsigned)(seed % 5));
        struct bpe_train *train = trained(text, 256 + 24);
        const struct bpe_train_merge *got = bpe_train_merges(train, &n);
        truth_begin(t, train, text);
        truth_run(t, 256 + 24);
        assert_int_equal(n, t->merges_n);
        assert_memory_equal(got, t->merge, n * sizeof *got);
        bpe_train_close(train);
        free(t);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_by_hand), cmocka_unit_test(test_ids_of_bytes),
    cmocka_unit_test(test_progress_stops), cmocka_unit_test(test_long_words_are_left_out),
    cmocka_unit_test(test_as_counted_anew)};
HARNESS_MAIN(tests)
