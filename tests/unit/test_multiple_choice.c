/* test_multiple_choice — both formats of multiple-choice questions, and what is refused. */
#include "harness.h"

#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "data/multiple_choice.h"
#include "data/tokenizer_gpt2.h"
#include "data/tokenizer_pieces.h"

#define SEEDS "tests/fuzz/multiple_choice/"
#define WORDS_MAX 1024

static struct tokenizer *tokenizer; /* GPT-2's */

static struct multiple_choice_config config_of(const char *path, int64_t vocab)
{
    return (struct multiple_choice_config){.path = path, .vocab = vocab, .tokenizer = tokenizer};
}

static struct multiple_choice *opened(const char *path)
{
    struct multiple_choice_config config = config_of(path, 50257);
    struct multiple_choice *m;
    if (multiple_choice_open(&config, &m) != ST_OK)
        fail_msg("%s", status_message());
    return m;
}

static void refuse(const void *bytes, size_t n, int64_t vocab, const char *word)
{
    struct multiple_choice_config config = config_of("test", vocab);
    struct multiple_choice *m = NULL;
    enum status st = multiple_choice_parse(bytes, n, &config, &m);
    assert_null(m);
    if (st != ST_BAD_DATA || strstr(status_message(), word) == NULL)
        fail_msg("%s \"%s\", expected \"%s\"", status_name(st), status_message(), word);
}

static void refuse_line(const char *line, const char *word)
{
    refuse(line, strlen(line), 50257, word);
}

static void test_words(void **state)
{
    (void)state;
    struct multiple_choice_question q;
    struct multiple_choice *m = opened(SEEDS "words");
    assert_int_equal(multiple_choice_count(m), 2);
    assert_int_equal(multiple_choice_tokens(m), 6);
    multiple_choice_get(m, 0, &q);
    assert_int_equal(q.label, 2);
    assert_int_equal(q.endings_n, 4);
    assert_int_equal(q.context_n, 3);
    assert_int_equal(q.context[2], 7);
    assert_int_equal(q.ending_n[3], 3);
    assert_int_equal(q.ending[3][2], 10);
    multiple_choice_get(m, 1, &q);
    assert_int_equal(q.label, 0);
    assert_int_equal(q.context[0], 11);
    assert_int_equal(q.ending[3][0], 5);
    multiple_choice_close(m);
}

static void test_lines(void **state)
{
    (void)state;
    struct multiple_choice_question q;
    struct multiple_choice *m = opened(SEEDS "lines");
    assert_int_equal(multiple_choice_count(m), 3);
    multiple_choice_get(m, 0, &q);
    assert_int_equal(q.label, 3);
    assert_int_equal(q.context_n, 9);
    assert_int_equal(q.context[1], 582);   /* " man" */
    assert_int_equal(q.ending[0][0], 318); /* " is" */
    multiple_choice_get(m, 1, &q);
    assert_int_equal(q.label, 1);
    assert_int_equal(q.endings_n, 2);
    multiple_choice_get(m, 2, &q);
    assert_int_equal(q.label, 2);
    multiple_choice_close(m);
}

/* A file cut at any byte, or with any word replaced by 65535, is refused or holds what it says. */
static void test_damaged_words(void **state)
{
    (void)state;
    char *bytes;
    size_t n;
    assert_int_equal(file_read(SEEDS "words", 1 << 16, &bytes, &n), ST_OK);
    for (size_t cut = 4; cut < n; cut++)
        refuse(bytes, cut, 256, "test");
    for (size_t at = 1024; at < n; at += 2) {
        uint8_t damaged[WORDS_MAX * 2];
        assert_true(n <= sizeof damaged);
        memcpy(damaged, bytes, n);
        damaged[at] = damaged[at + 1] = 255;
        if (at != 1024 && memcmp(damaged + at, bytes + at, 2) != 0)
            refuse(damaged, n, 256, "test");
    }
    refuse(bytes, n, 10, "token id 10, and the model knows ids below 10");
    free(bytes);
}

static void test_refused_lines(void **state)
{
    (void)state;
    refuse_line("", "no questions");
    refuse_line("\n \n", "no questions");
    refuse_line("{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"]}", "label -1");
    refuse_line("{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 2}", "expected 0 to 1");
    refuse_line("{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0.5}", "label -1");
    refuse_line("{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 0}", "1 endings");
    refuse_line("{\"ctx\": \"a\", \"endings\": [], \"label\": 0}", "0 endings");
    refuse_line("{\"ctx\": \"\", \"endings\": [\"b\", \"c\"], \"label\": 0}", "empty context");
    refuse_line("{\"ctx\": \"a\", \"endings\": [\"b\", \"\"], \"label\": 0}", "empty");
    refuse_line("{\"ctx\": \"a\", \"endings\": [\"b\", 3], \"label\": 0}", "no text");
    refuse_line("{\"endings\": [\"b\", \"c\"], \"label\": 0}", "lacks \"ctx\"");
    refuse_line("{\"ctx\": \"a\", \"endings\": \"b\", \"label\": 0}", "lacks");
    refuse_line("{\"ctx\": \"a\"", "line 1");
    refuse_line("[1, 2]", "line 1");
    refuse_line("{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0}\nx", "line 2");
}

/* The first of the tests; test_is closes it. */
static void test_open(void **state)
{
    (void)state;
    assert_int_equal(tokenizer_gpt2_open(&tokenizer), ST_OK);
}

static void test_is(void **state)
{
    (void)state;
    assert_true(multiple_choice_is(SEEDS "words"));
    assert_true(multiple_choice_is(SEEDS "lines"));
    assert_false(multiple_choice_is("tests/golden/lm/tokens.bin"));
    assert_false(multiple_choice_is("Makefile"));
    assert_false(multiple_choice_is("tests"));
    assert_false(multiple_choice_is("no/such/file"));
    tokenizer_close(tokenizer);
}

static bool is_choice(const char *text)
{
    char path[600];
    text_format(path, sizeof path, "%s/choice.jsonl", harness_tmpdir());
    assert_int_equal(file_replace(path, text, strlen(text)), ST_OK);
    return multiple_choice_is(path);
}

static void test_is_after_blank_lines(void **state)
{
    (void)state;
    assert_true(is_choice("\n \t\r\n{\"endings\": []}\n"));
    assert_true(is_choice("\r\n{\"endings\": []}"));
    assert_false(is_choice("\n\nx\n{\"endings\": []}\n"));
    assert_false(is_choice("\n \n"));
    assert_false(is_choice(" \n "));
}

/* Ids of GPT-2's tokenizer mean other texts to another. */
static void test_other_tokenizer(void **state)
{
    (void)state;
    static const struct tokenizer_piece piece[] = {{"<unk>", 5, 0, TOKENIZER_PIECE_UNKNOWN},
                                                   {"a", 1, -1, TOKENIZER_PIECE_NORMAL}};
    const struct tokenizer_pieces pieces = {
        .name = "pieces", .piece = piece, .n = 2, .begin = -1, .end = -1};
    struct multiple_choice_config config = config_of(SEEDS "words", 50257);
    struct tokenizer *other;
    struct multiple_choice *m = NULL;
    assert_int_equal(tokenizer_pieces_open(&pieces, &other), ST_OK);
    config.tokenizer = other;
    assert_int_equal(multiple_choice_open(&config, &m), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "GPT-2's tokenizer, but the model's is pieces"));
    assert_null(m);
    tokenizer_close(other);
}

/* A model without a tokenizer of its own: its texts get GPT-2's, or are refused. */
static void test_no_tokenizer(void **state)
{
    (void)state;
    struct multiple_choice_config config = config_of(SEEDS "lines", 50256);
    struct multiple_choice *m = NULL;
    assert_int_equal(tokenizer_gpt2_open(&tokenizer), ST_OK);
    config.tokenizer = tokenizer;
    config.model = "llama-toy";
    assert_int_equal(multiple_choice_open(&config, &m), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "llama-toy has no tokenizer of its own"));
    config.path = SEEDS "words";
    assert_int_equal(multiple_choice_open(&config, &m), ST_OK);
    multiple_choice_close(m);
    config.path = SEEDS "lines";
    config.vocab = 50257;
    assert_int_equal(multiple_choice_open(&config, &m), ST_OK);
    multiple_choice_close(m);
    tokenizer_close(tokenizer);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_open),
    cmocka_unit_test(test_words),
    cmocka_unit_test(test_lines),
    cmocka_unit_test(test_damaged_words),
    cmocka_unit_test(test_refused_lines),
    cmocka_unit_test(test_is),
    cmocka_unit_test(test_is_after_blank_lines),
    cmocka_unit_test(test_other_tokenizer),
    cmocka_unit_test(test_no_tokenizer),
};
HARNESS_MAIN(tests)
