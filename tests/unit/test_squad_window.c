/* test_squad_window — samples of questions: labels and cuts agree with the answers byte for
 * byte, windows cover the context, a real file decodes back. */
#include "harness.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/tokenizer/gpt2.h"
#include "data/qa/squad_window.h"

#define FIXTURE "tests/fuzz/qa_squad/v2"
#define REAL_FILE "../shared/data/shakespeare_squad.json"
enum { T_MAX = 1024 };

static struct squad *opened(const char *path)
{
    struct squad *squad = NULL;
    char *json;
    size_t n;
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    assert_int_equal(file_read(path, 1 << 24, &json, &n), ST_OK);
    if (squad_parse(json, n, path, &squad) != ST_OK)
        fail_msg("%s", status_message());
    free(json);
    return squad;
}

static struct squad_window_config config_of(int64_t seq, int64_t stride)
{
    return (struct squad_window_config){
        .seq_tokens = seq, .stride_tokens = stride, .vocab = TOKENIZER_GPT2_VOCAB};
}

static struct squad_window_set *cut(const struct squad *squad, int64_t seq, int64_t stride)
{
    struct squad_window_set *set = NULL;
    const struct squad_window_config config = config_of(seq, stride);
    if (squad_window_open(squad, &config, &set) != ST_OK)
        fail_msg("%s", status_message());
    return set;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The bytes of the tokens [start, end], decoded from the sample itself. */
static size_t decode(const struct tokenizer *gpt2, const int32_t *tokens, int32_t start,
                     int32_t end, char *out)
{
    size_t n = 0;
    for (int32_t t = start; t <= end; t++) {
        size_t bytes;
        const uint8_t *b = tokenizer_bytes(gpt2, (uint32_t)tokens[t], &bytes);
        memcpy(out + n, b, bytes);
        n += bytes;
    }
    return n;
}

/* One labelled window: the decoded tokens hold the answer at its place, and no token too many; the
 * cut is what the tokens say, without space at its ends. Returns 1 when the answer's ends are also
 * the tokens'. */
static int check_label(const struct squad_window_set *set, int64_t i, const struct squad_example *e,
                       const struct tokenizer *gpt2, const int32_t *tokens)
{
    static char text[1 << 16];
    const struct squad_window *w = squad_window_get(set, i);
    const struct squad_answer *a = e->answer;
    int64_t first, end;
    const size_t head = decode(gpt2, tokens, w->start, w->start, text),
                 tail = decode(gpt2, tokens, w->end, w->end, text);
    const size_t n = decode(gpt2, tokens, w->start, w->end, text), want = strlen(a->text);
    bool any = false;
    /* begins in the first token, ends in the last */
    for (size_t p = 0; p < head && p + want <= n; p++)
        any |= p + want > n - tail && memcmp(text + p, a->text, want) == 0;
    assert_true(any);
    squad_window_cut(set, i, w->start, w->end, &first, &end);
    assert_true(first <= a->first_bytes || is_space(e->context[a->first_bytes]));
    assert_true(end >= a->end_bytes || is_space(e->context[a->end_bytes - 1]));
    return end - first == (int64_t)strlen(a->text) &&
           memcmp(e->context + first, a->text, strlen(a->text)) == 0;
}

static void check_sample(const struct squad_window_set *set, int64_t i, int64_t seq,
                         int32_t *tokens)
{
    static uint8_t mask[T_MAX];
    const struct squad_window *w = squad_window_get(set, i);
    squad_window_fill(set, i, tokens, mask);
    assert_int_equal(tokens[w->context_at - 1], TOKENIZER_GPT2_END);
    for (int64_t t = 0; t < seq; t++) {
        assert_int_equal(mask[t], t < w->context_at + w->context_n);
        assert_in_range(tokens[t], 0, TOKENIZER_GPT2_VOCAB - 1);
        if (!mask[t])
            assert_int_equal(tokens[t], TOKENIZER_GPT2_END);
    }
}

/* Of every example: windows overlap and cover the context; the answer is in one of them at least,
 * if it fits. */
static void check_all(const char *path, int64_t seq, int64_t stride, int64_t *answered_out,
                      int64_t *exact_out)
{
    static int32_t tokens[T_MAX];
    struct tokenizer *gpt2;
    struct squad *squad = opened(path);
    struct squad_window_set *set = cut(squad, seq, stride);
    assert_int_equal(tokenizer_gpt2_open(&gpt2), ST_OK);
    int64_t at = 0;
    *answered_out = *exact_out = 0;
    for (int64_t e = 0; e < squad_examples(squad); e++) {
        const struct squad_example *example = squad_example(squad, e);
        int labelled = 0, exact = 0;
        int64_t covered = 0;
        for (; at < squad_window_count(set) && squad_window_get(set, at)->example_i == e; at++) {
            const struct squad_window *w = squad_window_get(set, at);
            assert_true(w->context_first <= covered && w->context_at + w->context_n <= seq);
            covered = w->context_first + w->context_n;
            check_sample(set, at, seq, tokens);
            if (w->start == 0) {
                assert_int_equal(w->end, 0);
                continue;
            }
            assert_in_range(w->start, w->context_at, w->end);
            assert_in_range(w->end, w->start, w->context_at + w->context_n - 1);
            labelled++;
            exact |= check_label(set, at, example, gpt2, tokens);
        }
        assert_true(!example->is_impossible || labelled == 0);
        *answered_out += labelled > 0;
        *exact_out += exact;
    }
    assert_int_equal(at, squad_window_count(set));
    tokenizer_close(gpt2);
    squad_window_close(set);
    squad_close(squad);
}

static void test_fixture(void **state)
{
    int64_t answered, exact;
    check_all(FIXTURE, 512, 128, &answered, &exact);
    assert_int_equal(answered, 11);
    assert_int_equal(exact, 10); /* but "LOUCES", whose ends lie within tokens */
    for (int64_t seq = SQUAD_WINDOW_SEQ_MIN; seq < 160; seq += 7)
        for (int64_t stride = 1; stride < 40; stride += 6)
            check_all(FIXTURE, seq, stride, &answered, &exact);
}

/* All 1,200 examples of the file: every answer is labelled, and its tokens cut by offsets hold
 * exactly its text. */
static void test_real_file(void **state)
{
    int64_t answered, exact;
    if (!file_exists(REAL_FILE))
        HARNESS_SKIP("no %s here", REAL_FILE);
    check_all(REAL_FILE, 512, 128, &answered, &exact);
    assert_int_equal(answered, 1200);
    assert_int_equal(exact, 1200);
    print_message("# %lld of 1200 answers decode back, %lld exactly by tokens alone\n",
                  (long long)answered, (long long)exact);
    check_all(REAL_FILE, 64, 16, &answered, &exact);
    assert_int_equal(answered, 1200);
}

static void test_conventions(void **state)
{
    const char *json = "{\"data\":[{\"paragraphs\":[{\"context\":\"Hello, "
                       "world!\",\"qas\":[{\"id\":\"1\",\"question\":\"Hello\",\"answers\":[{"
                       "\"text\":\"world\",\"answer_start\":7}]},{\"id\":\"2\",\"question\":"
                       "\"Hello\",\"answers\":[],\"is_impossible\":true}]}]}]}";
    struct squad *squad;
    int32_t tokens[8];
    uint8_t mask[8];
    int64_t first, end;
    assert_int_equal(squad_parse(json, strlen(json), "test", &squad), ST_OK);
    struct squad_window_set *set = cut(squad, 8, 128);
    assert_int_equal(squad_window_count(set), 2);
    const struct squad_window *w = squad_window_get(set, 0);
    squad_window_fill(set, 0, tokens, mask);
    assert_memory_equal(tokens,
                        ((int32_t[]){15496, TOKENIZER_GPT2_END, 15496, 11, 995, 0,
                                     TOKENIZER_GPT2_END, TOKENIZER_GPT2_END}),
                        sizeof tokens);
    assert_memory_equal(mask, ((uint8_t[]){1, 1, 1, 1, 1, 1, 0, 0}), sizeof mask);
    assert_int_equal(w->context_at, 2);
    assert_int_equal(w->start, 4);
    assert_int_equal(w->end, 4);
    squad_window_cut(set, 0, 4, 4, &first, &end); /* the token is " world" */
    assert_int_equal(first, 7);
    assert_int_equal(end, 12);
    squad_window_cut(set, 0, 2, 5, &first, &end);
    assert_int_equal(first, 0);
    assert_int_equal(end, 13);
    assert_int_equal(squad_window_get(set, 1)->start, 0); /* no answer */
    assert_int_equal(squad_window_get(set, 1)->end, 0);
    const uint64_t fingerprint = squad_window_fingerprint(set);
    squad_window_close(set);
    set = cut(squad, 9, 128);
    assert_true(squad_window_fingerprint(set) != fingerprint);
    squad_window_close(set);
    squad_window_close(NULL);
    squad_close(squad);
}

/* A question whose answer does not stand in its place: label T, or left out of training. */
static void test_unusable(void **state)
{
    char json[4096];
    size_t n = 0;
    struct squad *squad;
    n += (size_t)snprintf(json, sizeof json,
                          "{\"data\":[{\"paragraphs\":[{\"context\":\"a b c\",\"qas\":[");
    for (int i = 0; i < 10; i++)
        n += (size_t)snprintf(json + n, sizeof json - n,
                              "%s{\"id\":\"%d\",\"question\":\"q\",\"answers\":[{\"text\":\"b\","
                              "\"answer_start\":%d}]}",
                              i > 0 ? "," : "", i, i == 3 ? 1 : 2);
    snprintf(json + n, sizeof json - n, "]}]}]}");
    assert_int_equal(squad_parse(json, strlen(json), "test", &squad), ST_OK);
    struct squad_window_set *set = cut(squad, 8, 4);
    assert_int_equal(squad_window_count(set), 10);
    assert_int_equal(squad_window_get(set, 3)->start, 8);
    assert_int_equal(squad_window_get(set, 3)->end, 8);
    squad_window_close(set);
    struct squad_window_config config = config_of(8, 4);
    config.is_training = true;
    assert_int_equal(squad_window_open(squad, &config, &set), ST_OK);
    assert_int_equal(squad_window_count(set), 9);
    assert_int_equal(squad_window_get(set, 3)->example_i, 4);
    squad_window_close(set);
    squad_close(squad);
}

static bool stop(void *arg, int64_t done, int64_t total)
{
    return (void)arg, (void)done, (void)total, false;
}

static void test_refusals(void **state)
{
    struct squad *squad = opened(FIXTURE);
    struct squad_window_set *set = NULL;
    struct squad_window_config config = config_of(7, 4);
    assert_int_equal(squad_window_open(squad, &config, &set), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "SEQ_LEN=7"));
    config = config_of(INT32_MAX, 4);
    assert_int_equal(squad_window_open(squad, &config, &set), ST_BAD_SETTING);
    config = config_of(64, 0);
    assert_int_equal(squad_window_open(squad, &config, &set), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "DOC_STRIDE"));
    config = config_of(64, 4);
    config.vocab = 50256;
    assert_int_equal(squad_window_open(squad, &config, &set), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "VOCAB=50257"));
    config = config_of(64, 4);
    config.progress = stop;
    assert_int_equal(squad_window_open(squad, &config, &set), ST_RETRY);
    assert_null(set);
    squad_close(squad);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_fixture),     cmocka_unit_test(test_real_file),
    cmocka_unit_test(test_conventions), cmocka_unit_test(test_unusable),
    cmocka_unit_test(test_refusals),
};
HARNESS_MAIN(tests)
