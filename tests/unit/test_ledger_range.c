/* test_ledger_range — whose steps they are: generations that were superseded do not count, and
 * those with the same provenance are one. */
#include "harness.h"

#include <stdlib.h>

#include "base/text.h"
#include "format/ledger_range.h"

static struct text book;
static uint64_t hash;
static struct ledger_range *range;

static int setup(void **state)
{
    (void)state;
    range = calloc(1, sizeof *range);
    return range == NULL;
}

static int teardown(void **state)
{
    (void)state;
    free(range);
    text_free(&book);
    return 0;
}

static void begin(int64_t generation, int64_t after, uint64_t data, const char *provenance)
{
    char line[LEDGER_LINE_MAX];
    ledger_write_start(&(struct ledger_start){generation, after, 0, data, .epoch = 0}, &hash, line);
    text_add(&book, "%s", line);
    assert_true(ledger_write_provenance(generation, provenance, &hash, line));
    text_add(&book, "%s", line);
}

/* makers_of — how many made steps from+1 to `to`. */
static int makers_of(int64_t from, int64_t to)
{
    assert_int_equal(ledger_range_bytes(book.data, book.len, from, to, range), ST_OK);
    return range->makers_n;
}

static void test_makers(void **state)
{
    (void)state;
    begin(1, 0, 7, "{\"a\":1}");
    begin(2, 40, 7, "{\"a\":1}"); /* the same */
    begin(3, 60, 7, "{\"a\":2}");
    begin(4, 50, 7, "{\"a\":3}"); /* the third's steps are done again */
    begin(5, 80, 0xfedcba9876543210, "{\"a\":3}");
    assert_int_equal(makers_of(0, 50), 1);
    assert_string_equal(range->maker[0].provenance, "{\"a\":1}");
    assert_int_equal(range->maker[0].generation, 1);
    assert_int_equal(makers_of(45, 70), 2);
    assert_int_equal(range->maker[1].after, 50);
    assert_string_equal(range->maker[1].provenance, "{\"a\":3}");
    assert_int_equal(makers_of(50, 80), 1);
    assert_int_equal(range->maker[0].generation, 4);
    assert_int_equal(makers_of(0, 90), 3);
    assert_true(range->maker[2].data == 0xfedcba9876543210);
    assert_int_equal(makers_of(80, 90), 1);
}

static void test_begins_late(void **state)
{
    (void)state;
    text_free(&book);
    begin(1, 30, 7, "{}");
    assert_int_equal(makers_of(10, 40), 0);
    assert_int_equal(makers_of(30, 40), 1);
    text_free(&book);
    text_add(&book, "{\"after\"\n");
    assert_int_equal(ledger_range_bytes(book.data, book.len, 0, 9, range), ST_BAD_DATA);
}

static void test_too_many(void **state)
{
    char json[32];
    (void)state;
    text_free(&book);
    for (int i = 0; i <= LEDGER_RANGE_MAKERS_MAX; i++) {
        text_format(json, sizeof json, "{\"a\":%d}", i);
        begin(i + 1, i, 7, json);
    }
    assert_int_equal(makers_of(0, LEDGER_RANGE_MAKERS_MAX), LEDGER_RANGE_MAKERS_MAX);
    assert_int_equal(ledger_range_bytes(book.data, book.len, 0, 99, range), ST_BAD_DATA);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_makers, setup, teardown),
    cmocka_unit_test_setup_teardown(test_begins_late, setup, teardown),
    cmocka_unit_test_setup_teardown(test_too_many, setup, teardown),
};
HARNESS_MAIN(tests)
