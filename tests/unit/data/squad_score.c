/* squad_score — every case of tests/golden/squad_score.jsonl, made by a second
 * implementation of the definition; and bytes that are not text. */
#include "data/qa/squad.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "harness.h"

#define GOLD_MAX 8

static struct squad_score_text text_of(const char *s)
{
    return (struct squad_score_text){s, strlen(s)};
}

static bool differs(const cJSON *row, const char *key, enum squad_score_rules rules,
                    const char *answer, const struct squad_score_text *gold, size_t gold_n)
{
    const cJSON *want;
    struct squad_score got;
    assert_int_equal(json_get_array(row, key, &want), ST_OK);
    assert_int_equal(squad_score_answer(rules, text_of(answer), gold, gold_n, &got), ST_OK);
    double exact = cJSON_GetArrayItem(want, 0)->valuedouble,
           f1 = cJSON_GetArrayItem(want, 1)->valuedouble;
    if (got.exact == exact && got.f1 == f1)
        return false;
    print_message("# %s of \"%s\": exact %g f1 %.17g, expected %g %.17g\n", key, answer, got.exact,
                  got.f1, exact, f1);
    return true;
}

static int check_line(const char *line, size_t n)
{
    cJSON *row;
    const cJSON *golds;
    const char *answer, *normal;
    struct squad_score_text gold[GOLD_MAX];
    struct text mine = {0};
    int wrong = 0;
    if (memmem(line, n, "\\u0000", 6) != NULL)
        return 0;
    assert_int_equal(json_parse(line, n, "case", &row), ST_OK);
    assert_int_equal(json_get_string(row, "answer", &answer), ST_OK);
    assert_int_equal(json_get_string(row, "normal", &normal), ST_OK);
    assert_int_equal(json_get_array(row, "gold", &golds), ST_OK);
    size_t gold_n = (size_t)cJSON_GetArraySize(golds);
    assert_true(gold_n <= GOLD_MAX);
    for (size_t i = 0; i < gold_n; i++)
        gold[i] = text_of(cJSON_GetArrayItem(golds, (int)i)->valuestring);
    wrong += differs(row, "v1", SQUAD_SCORE_RULES_V1, answer, gold, gold_n);
    wrong += differs(row, "v2", SQUAD_SCORE_RULES_V2, answer, gold, gold_n);
    assert_int_equal(squad_score_normalise(text_of(answer), &mine), ST_OK);
    if (strcmp(mine.data ? mine.data : "", normal) != 0) {
        print_message("# \"%s\" becomes \"%s\", expected \"%s\"\n", answer,
                      mine.data ? mine.data : "", normal);
        wrong++;
    }
    text_free(&mine);
    cJSON_Delete(row);
    return wrong;
}

static void test_cases(void **state)
{
    struct file_map map = {0};
    int cases = 0, wrong = 0;
    assert_int_equal(file_map_open("tests/golden/squad_score.jsonl", &map), ST_OK);
    const char *at = (const char *)map.data, *end = at + map.bytes;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        assert_non_null(line_end);
        wrong += check_line(at, (size_t)(line_end - at));
        cases++;
        at = line_end + 1;
    }
    file_map_close(&map);
    print_message("# %d cases, %d differences\n", cases, wrong);
    assert_true(cases > 700);
    assert_int_equal(wrong, 0);
}

static void test_zero_inside(void **state)
{
    struct squad_score got;
    const struct squad_score_text gold = {"\0", 1};
    assert_int_equal(squad_score_answer(SQUAD_SCORE_RULES_V2, (struct squad_score_text){"\0a\0", 3},
                                        &gold, 1, &got),
                     ST_OK);
    /* one word of two: the article is gone */
    assert_true(got.exact == 0 && fabs(got.f1 - 2.0 / 3) < 1e-12);
    assert_int_equal(squad_score_answer(SQUAD_SCORE_RULES_V2, gold, &gold, 1, &got), ST_OK);
    assert_true(got.exact == 1 && got.f1 == 1);
}

/* Any bytes: no crash, and a text always equals itself. */
static void test_no_text(void **state)
{
    const struct squad_score_text row[] = {{"\xFF\xFE", 2},     {"\xC3", 1},
                                           {"\xE2\x82", 2},     {"\xF4\x90\x80\x80", 4},
                                           {"\xED\xA0\x80", 3}, {"x\x80y", 3}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct squad_score got;
        assert_int_equal(squad_score_answer(SQUAD_SCORE_RULES_V1, row[i], &row[i], 1, &got), ST_OK);
        assert_true(got.exact == 1 && got.f1 == 1);
    }
}

static void test_long(void **state)
{
    size_t n = 1 << 20;
    char *bytes = malloc(n);
    struct squad_score got;
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = i % 7 == 0 ? ' ' : (char)('b' + i % 11);
    const struct squad_score_text whole = {bytes, n}, half = {bytes, n / 2};
    assert_int_equal(squad_score_answer(SQUAD_SCORE_RULES_V1, half, &whole, 1, &got), ST_OK);
    assert_float_equal(got.f1, 2.0 / 3, 1e-4);
    assert_true(got.exact == 0);
    free(bytes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_cases),
    cmocka_unit_test(test_zero_inside),
    cmocka_unit_test(test_no_text),
    cmocka_unit_test(test_long),
};
HARNESS_MAIN(tests)
