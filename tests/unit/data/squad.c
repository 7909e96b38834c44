/* squad — SQuAD documents of both versions: offsets in characters become bytes; errors have
 * their place. */
#include "harness.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/qa/squad.h"

#define FIXTURE "tests/fuzz/qa_squad/v2" /* every kind of answer; a seed of the fuzzer too */

static void quiet(void)
{
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
}

static struct squad *parsed(const char *json)
{
    struct squad *squad = NULL;
    quiet();
    if (squad_parse(json, strlen(json), "test", &squad) != ST_OK)
        fail_msg("%s", status_message());
    return squad;
}

static void refuse(const char *json, const char *word, const char *other)
{
    struct squad *squad = NULL;
    quiet();
    const enum status st = squad_parse(json, strlen(json), "test.json", &squad);
    assert_null(squad);
    if (st != ST_BAD_DATA || strstr(status_message(), word) == NULL ||
        strstr(status_message(), other) == NULL)
        fail_msg("%s: %s \"%s\", expected \"%s\" and \"%s\"", json, status_name(st),
                 status_message(), word, other);
}

/* Every answer of the fixture stands where its text is. */
static void test_fixture(void **state)
{
    char *json;
    size_t n;
    assert_int_equal(file_read(FIXTURE, 1 << 20, &json, &n), ST_OK);
    struct squad *squad = parsed(json);
    free(json);
    assert_int_equal(squad_examples(squad), 13);
    assert_int_equal(squad_paragraphs(squad), 3);
    assert_int_equal(squad_mismatched(squad), 0);
    for (int64_t i = 0; i < 13; i++) {
        const struct squad_example *e = squad_example(squad, i);
        for (int64_t k = 0; k < e->answers_n; k++) {
            const struct squad_answer *a = e->answer + k;
            assert_int_equal(a->end_bytes - a->first_bytes, strlen(a->text));
            assert_memory_equal(e->context + a->first_bytes, a->text, strlen(a->text));
        }
        assert_int_equal(e->is_impossible, e->answers_n == 0);
    }
    assert_string_equal(squad_example(squad, 2)->id, "accent");
    assert_int_equal(squad_example(squad, 2)->answers_n, 2);
    assert_true(squad_example(squad, 9)->is_impossible); /* what is plausible is no answer */
    assert_ptr_equal(squad_example(squad, 0)->context, squad_example(squad, 9)->context);
    assert_string_equal(squad_example(squad, 10)->id, "needle");
    assert_int_equal(squad_example(squad, 10)->paragraph_i, 1);
    squad_close(squad);
    squad_close(NULL);
}

#define HEAD "{\"data\":[{\"paragraphs\":[{\"context\":\"abc\",\"qas\":["
#define TAIL "]}]}]}"
#define GOOD "{\"id\":\"g\",\"question\":\"q\",\"answers\":[{\"text\":\"b\",\"answer_start\":1}]}"
#define BAD \
    "{\"id\":\"bad-id\",\"question\":\"q\",\"answers\":[{\"text\":\"b\",\"answer_start\":2}]}"

static void test_mismatches(void **state)
{
    struct squad *squad = parsed(HEAD GOOD "," GOOD "," GOOD "," GOOD "," GOOD "," GOOD "," GOOD
                                           "," GOOD "," GOOD "," BAD TAIL);
    assert_int_equal(squad_mismatched(squad), 1); /* one in ten */
    assert_int_equal(squad_example(squad, 9)->answer[0].first_bytes, -1);
    squad_close(squad);
    refuse(HEAD GOOD "," GOOD "," BAD TAIL, "1 of 3 questions", "UTF-16");
    refuse(
        HEAD
        "{\"id\":\"i\",\"question\":\"q\",\"answers\":[{\"text\":\"c\",\"answer_start\":99}]}" TAIL,
        "1 of 1", "answer_start");
    refuse(
        HEAD
        "{\"id\":\"i\",\"question\":\"q\",\"answers\":[{\"text\":\"cd\",\"answer_start\":2}]}" TAIL,
        "1 of 1", "answer_start");
    refuse(
        HEAD
        "{\"id\":\"i\",\"question\":\"q\",\"answers\":[{\"text\":\"\",\"answer_start\":0}]}" TAIL,
        "1 of 1", "answer_start");
    refuse(
        HEAD
        "{\"id\":\"i\",\"question\":\"q\",\"answers\":[{\"text\":\"a\",\"answer_start\":-1}]}" TAIL,
        "1 of 1", "answer_start");
}

static void test_refusals(void **state)
{
    refuse("", "not JSON", "test.json");
    refuse("[]", "not a SQuAD file", "data");
    refuse("{}", "not a SQuAD file", "data");
    refuse("{\"data\":{}}", "not a SQuAD file", "array");
    refuse("{\"data\":[]}", "no questions", "qas");
    refuse("{\"data\":[7]}", "data[0]", "paragraphs");
    refuse("{\"data\":[{\"paragraphs\":[{}]}]}", "data[0].paragraphs[0]", "context");
    refuse("{\"data\":[{\"paragraphs\":[{\"context\":\"\"}]}]}", "data[0].paragraphs[0]", "qas");
    refuse(HEAD "7" TAIL, "data[0].paragraphs[0].qas[0]", "id");
    refuse(HEAD GOOD ",{\"id\":\"x\"}" TAIL, "qas[1]", "question");
    refuse(HEAD "{\"id\":\"x\",\"question\":\"q\"}" TAIL, "qas[0]", "answers");
    refuse(HEAD "{\"id\":7,\"question\":\"q\",\"answers\":[]}" TAIL, "qas[0]", "id");
    refuse(HEAD "{\"id\":\"x\",\"question\":\"q\",\"answers\":[{}]}" TAIL, "qas[0]", "text");
    refuse(HEAD "{\"id\":\"x\",\"question\":\"q\",\"answers\":[{\"text\":\"a\"}]}" TAIL, "qas[0]",
           "answer_start");
    refuse(HEAD "{\"id\":\"x\",\"question\":\"q\",\"answers\":[{\"text\":\"a\",\"answer_start\":0."
                "5}]}" TAIL,
           "qas[0]", "whole");
    refuse(HEAD "{\"id\":\"x\",\"question\":\"q\",\"answers\":[],\"is_impossible\":1}" TAIL,
           "is_impossible", "true or false");
    refuse("{\"data\":[{\"paragraphs\":[{\"context\":\"\xff\",\"qas\":[]}]}]}", "UTF-8",
           "test.json");
}

/* Cut at every byte: refused, never taken as whole. */
static void test_cut(void **state)
{
    char *json;
    size_t n;
    struct squad *squad = NULL;
    quiet();
    assert_int_equal(file_read(FIXTURE, 1 << 20, &json, &n), ST_OK);
    for (size_t k = 0; k < n; k++)
        assert_int_equal(squad_parse(json, k, "cut", &squad), ST_BAD_DATA);
    free(json);
}

static void put(const char *path, const char *json)
{
    assert_int_equal(file_replace(path, json, strlen(json)), ST_OK);
}

static void test_files(void **state)
{
    char a[FILE_PATH_MAX], b[FILE_PATH_MAX];
    struct squad *squad = NULL;
    quiet();
    text_format(a, sizeof a, "%s/a.json", harness_tmpdir());
    text_format(b, sizeof b, "%s/b.json", harness_tmpdir());
    put(a, HEAD GOOD TAIL);
    put(b, HEAD GOOD "," GOOD TAIL);
    struct data_file_config config = {.data = harness_tmpdir()};
    assert_int_equal(squad_open(&config, &squad), ST_OK);
    assert_int_equal(squad_examples(squad), 3);
    assert_int_equal(squad_paragraphs(squad), 2);
    assert_int_equal(squad_example(squad, 1)->paragraph_i, 1);
    assert_int_equal(squad_example(squad, 2)->paragraph_i, 1);
    assert_int_equal(squad_example(squad, 2)->answer[0].first_bytes, 1);
    squad_close(squad);
    squad = NULL;
    text_format(b, sizeof b, "%s/b.txt", harness_tmpdir());
    put(b, "text");
    assert_int_equal(squad_open(&config, &squad), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "b.txt"));
    config.data = "/nowhere/x.json";
    assert_int_equal(squad_open(&config, &squad), ST_NO_INPUT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_fixture),  cmocka_unit_test(test_mismatches),
    cmocka_unit_test(test_refusals), cmocka_unit_test(test_cut),
    cmocka_unit_test(test_files),
};
HARNESS_MAIN(tests)
