/* multiple_choice — both formats of multiple-choice questions, and what is refused. */
#include "harness.h"

#include "data/qa/multiple_choice.h"
#include "data/tokenizer/gpt2.h"
#include "data/tokenizer/pieces.h"

#define SEEDS "tests/fuzz/qa_multiple_choice/"
#define WORDS_MAX 1024

static struct tokenizer *tokenizer; /* GPT-2's */

static int open_tokenizer(void **state) { return tokenizer_gpt2_open(&tokenizer) != ST_OK; }

static int close_tokenizer(void **state)
{
    tokenizer_close(tokenizer);
    return 0;
}

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

TEST(test_open) { assert_int_equal(tokenizer_gpt2_open(&tokenizer), ST_OK); }

TEST(test_words)
{
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

TEST(test_lines)
{
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
TEST(test_damaged_words)
{
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
    refuse(bytes, n, 10, "token id 10, but the model has only ids below 10");
    free(bytes);
}

#define GOOD_LINE "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0}\n"

/* refuse_second — the message names the file once and the second line. */
static void refuse_second(const char *line, const char *word)
{
    char text[512];
    text_format(text, sizeof text, GOOD_LINE "%s", line);
    refuse_line(text, word);
    assert_int_equal(strncmp(status_message(), "test: line 2", 12), 0);
    assert_null(strstr(status_message() + 1, "test:"));
}

TEST(test_refused_lines)
{
    refuse_line("", "no questions");
    refuse_line("\n \n", "no questions");
    refuse_line("{\"ctx\": \"a\"", "line 1");
    refuse_line("[1, 2]", "line 1");
    refuse_second("{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 0}",
                  "has 1 ending, expected 2");
    refuse_second("{\"ctx\": \"a\", \"endings\": [], \"label\": 0}", "0 endings");
    refuse_second("{\"ctx\": \"\", \"endings\": [\"b\", \"c\"], \"label\": 0}", "empty context");
    refuse_second("{\"ctx\": \"a\", \"endings\": [\"b\", \"\"], \"label\": 0}", "empty");
    refuse_second("{\"ctx\": \"a\", \"endings\": [\"b\", 3], \"label\": 0}", "no text");
    refuse_second("{\"endings\": [\"b\", \"c\"], \"label\": 0}", "lacks \"ctx\"");
    refuse_second("{\"ctx\": \"a\", \"endings\": \"b\", \"label\": 0}", "lacks");
    refuse_second("{\"ctx\": \"a\", \"label\": 0}", "or \"endings\"");
    refuse_second("x", "not JSON");
    refuse_second("{\"ctx\": \"a\xff\", \"endings\": [\"b\", \"c\"], \"label\": 0}",
                  "not UTF-8 at");
    refuse_second("{\"ctx\": \"\\ud800\", \"endings\": [\"b\", \"c\"], \"label\": 0}", "not JSON");
    refuse_second("{\"ctx\": \"a\\u0000\", \"endings\": [\"b\", \"c\"], \"label\": 0}", "\\u0000");
}

/* A label that is missing, of another kind, or beyond the endings is shown as it stands there. */
TEST(test_refused_labels)
{
    static const char *const label[][2] = {
        {"2", "has the label 2, expected 0 to 1"},
        {"\"Z\"", "has the label 25, expected 0 to 1"},
        {"-1", "has the label -1, expected the number"},
        {"-7", "has the label -7, expected 0 to 1"},
        {"0.5", "has the label 0.5, expected the number"},
        {"1e300", "has the label 1e+300, expected the number"},
        {"true", "has the label true, expected the number"},
        {"\"one\"", "has the label \"one\", expected the number"},
        {"[0]", "has the label [0], expected the number"},
    };
    char line[128];
    refuse_second("{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"]}", "lacks \"label\"");
    for (size_t i = 0; i < sizeof label / sizeof *label; i++) {
        text_format(line, sizeof line,
                    "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": %s}", label[i][0]);
        refuse_second(line, label[i][1]);
    }
}

/* A line of more than 1 MiB, and an ending that would not fit the buffer. */
TEST(test_huge_lines)
{
    enum { BYTES = (1 << 20) + 100 };
    char *text = malloc(BYTES);
    const int begin_n = (int)strlen(GOOD_LINE);
    assert_non_null(text);
    memset(text, 'a', BYTES);
    memcpy(text, GOOD_LINE, (size_t)begin_n);
    refuse(text, BYTES, 50257, "line 2 has more than 1 MiB");
    int head_n =
        snprintf(text + begin_n, 64, "{\"ctx\": \"a\", \"label\": 0, \"endings\": [\"b\", \"");
    text[begin_n + head_n] = 'a';
    memcpy(text + begin_n + head_n + 20000, "\"]}", 3);
    refuse(text, (size_t)(begin_n + head_n) + 20003, 50257,
           "line 2 has an ending of more than 16,383");
    free(text);
}

TEST(test_order_mark)
{
    static const char text[] = "\xef\xbb\xbf" GOOD_LINE GOOD_LINE;
    struct multiple_choice_config config = config_of("test", 50257);
    struct multiple_choice *m;
    assert_int_equal(multiple_choice_parse((const uint8_t *)text, sizeof text - 1, &config, &m),
                     ST_OK);
    assert_int_equal(multiple_choice_count(m), 2);
    multiple_choice_close(m);
}

TEST(test_is)
{
    assert_true(multiple_choice_is(SEEDS "words"));
    assert_true(multiple_choice_is(SEEDS "lines"));
    assert_false(multiple_choice_is("tests/golden/lm/tokens.bin"));
    assert_false(multiple_choice_is("Makefile"));
    assert_false(multiple_choice_is("tests"));
    assert_false(multiple_choice_is("no/such/file"));
}

static bool is_choice(const char *text)
{
    char path[600];
    text_format(path, sizeof path, "%s/choice.jsonl", harness_tmpdir());
    assert_int_equal(file_replace(path, text, strlen(text)), ST_OK);
    return multiple_choice_is(path);
}

TEST(test_is_after_blank_lines)
{
    assert_true(is_choice("\n \t\r\n{\"endings\": []}\n"));
    assert_true(is_choice("\r\n{\"endings\": []}"));
    assert_false(is_choice("\n\nx\n{\"endings\": []}\n"));
    assert_false(is_choice("\n \n"));
    assert_false(is_choice(" \n "));
    assert_true(is_choice("\xef\xbb\xbf{\"endings\": []}\n"));
    assert_false(is_choice("\xef\xbb\xbf"));
}

/* Without endings a line is taken for a question if it cannot be a text: its error says what is
 * missing. */
TEST(test_is_without_endings)
{
    assert_true(is_choice("{\"ctx\": \"a\", \"label\": 0}\n"));
    assert_true(is_choice("{\"question\": \"a\", \"choices\": {\"text\": [\"b\", \"c\"]}}\n"));
    assert_false(is_choice("{\"text\": \"a\", \"question\": \"b\"}\n"));
    assert_false(is_choice("{\"text\": \"a\"}\n"));
    assert_false(is_choice("{\"label\": 0}\n"));
}

/* Ids of GPT-2's tokenizer mean other texts to another. */
TEST(test_other_tokenizer)
{
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
TEST(test_no_tokenizer)
{
    struct multiple_choice_config config = config_of(SEEDS "lines", 50256);
    struct multiple_choice *m = NULL;
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
}

HARNESS_RUN_ALL_WITH(open_tokenizer, close_tokenizer)
