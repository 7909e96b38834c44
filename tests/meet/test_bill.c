/* bill: what is written is read the same; cut, swollen and hostile bytes are refused; equal
 * content, equal name. */
#include "harness.h"

#include <string.h>

#include "meet/bill.h"

static void fill(struct bill *bill)
{
    static char a[] = "/data/a \"b\".bin", b[] = "/data/c.bin";
    *bill = (struct bill){.state = BILL_STATE_READY};
    assert_int_equal(
        bill_add(bill, &(struct bill_file){0, 3000000000, 1024, 0xFEDCBA9876543210u, ".bin", a}),
        ST_OK);
    assert_int_equal(bill_add(bill, &(struct bill_file){0, 1026, 1024, 7, ".bin", b}), ST_OK);
    assert_int_equal(bill_add(bill, &(struct bill_file){1, 5, 0, 9, ".json", b}), ST_OK);
    bill->weights[0] = 0.7;
    bill->weights[1] = 1.0 / 3;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct bill bill, again;
    char name[BILL_NAME_MAX], name_again[BILL_NAME_MAX];
    for (int with_paths = 0; with_paths < 2; with_paths++) {
        struct text out = {0};
        fill(&bill);
        bill_write(&out, &bill, with_paths);
        assert_int_equal(bill_read(out.data, out.len, &again), ST_OK);
        assert_int_equal(again.files_n, 3);
        assert_int_equal(again.parts_n, 2);
        assert_true(again.weights[0] == 0.7 && again.weights[1] == 1.0 / 3);
        assert_true(again.files[0].sum == 0xFEDCBA9876543210u && again.files[0].skip == 1024);
        assert_string_equal(again.files[2].suffix, ".json");
        assert_int_equal(bill_bytes(&again), 3000000000 + 1026 + 5);
        if (with_paths)
            assert_string_equal(again.files[0].path, "/data/a \"b\".bin");
        else
            assert_null(again.files[0].path);
        bill_name(&bill, name);
        bill_name(&again, name_again);
        assert_string_equal(name, name_again);
        assert_int_equal(strlen(name), BILL_NAME_MAX - 1);
        text_free(&out);
        bill_free(&bill);
        bill_free(&again);
    }
}

static void other_content_has_another_name(void **state)
{
    (void)state;
    struct bill bill;
    char name[BILL_NAME_MAX], other[BILL_NAME_MAX];
    fill(&bill);
    bill_name(&bill, name);
    bill.files[1].sum++;
    bill_name(&bill, other);
    assert_string_not_equal(name, other);
    bill.files[1].sum--;
    bill.weights[0] = 0.6;
    bill_name(&bill, other);
    assert_string_not_equal(name, other);
    bill.weights[0] = 0.7;
    bill.files[2].part = 0; /* the same files, dealt out otherwise */
    bill_name(&bill, other);
    assert_string_not_equal(name, other);
    bill_free(&bill);
    char text[32];
    assert_string_equal(bill_weight(0.7, text), "0.7");
    assert_string_equal(bill_weight(1.0 / 3, text), "0.3333333333333333");
}

static void cut_bytes_are_refused(void **state)
{
    (void)state;
    struct bill bill;
    struct text out = {0};
    fill(&bill);
    bill_write(&out, &bill, true);
    bill_free(&bill);
    for (size_t n = 0; n < out.len; n++) {
        char *copy = malloc(n + 1); /* of just this size, for the sanitizers */
        memcpy(copy, out.data, n);
        assert_int_equal(bill_read(copy, n, &bill), ST_BAD_DATA);
        assert_int_equal(bill.files_n, 0);
        free(copy);
    }
    text_free(&out);
    status_clear();
}

static void hostile_bytes_are_refused(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "null",
        "[]",
        "{}",
        "\"ready\"",
        "{\"state\":\"ready\"}",
        "{\"state\":\"gone\",\"why\":\"\",\"weights\":[],\"files\":[]}",
        /* ready, and nothing */
        "{\"state\":\"ready\",\"why\":\"\",\"weights\":[],\"files\":[]}",
        /* a weight of no part */
        "{\"state\":\"none\",\"why\":\"\",\"weights\":[1],\"files\":[]}",
        "{\"state\":\"none\",\"why\":1,\"weights\":[],\"files\":[]}",
#define FILES(f) "{\"state\":\"ready\",\"why\":\"\",\"weights\":[0],\"files\":[" f "]}"
#define ONE(part, bytes, skip, sum, suffix)                                   \
    "{\"part\":" part ",\"bytes\":" bytes ",\"skip\":" skip ",\"sum\":\"" sum \
    "\",\"suffix\":\"" suffix "\"}"
        FILES(ONE("1", "5", "0", "0000000000000009", ".bin")), /* begins with part 1 */
        FILES(ONE("-1", "5", "0", "0000000000000009", ".bin")),
        FILES(ONE("64", "5", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "0", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "-5", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "1e300", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "5", "6", "0000000000000009", ".bin")),
        FILES(ONE("0", "5.5", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "5", "0", "9", ".bin")),
        FILES(ONE("0", "5", "0", "00000000000000090", ".bin")),
        FILES(ONE("0", "5", "0", "000000000000000G", ".bin")),
        FILES(ONE("0", "5", "0", "0000000000000009", "/../x")),
        FILES(ONE("0", "5", "0", "0000000000000009", "./x")),
        FILES(ONE("0", "5", "0", "0000000000000009", "..")),
        FILES(ONE("0", "5", "0", "0000000000000009", "")),
        FILES(ONE("0", "5", "0", "0000000000000009", ".farfartoolong")),
        FILES(ONE("0", "5", "0", "0000000000000009",
                  ".b\\u0000in")), /* cJSON ends the string: ".b" is fine, see below */
        FILES("{\"part\":0}"),
        FILES("[]"),
        FILES("7"),
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct bill bill;
        enum status st = bill_read(bodies[i], strlen(bodies[i]), &bill);
        if (st == ST_OK) /* whatever is taken is harmless */
            assert_string_equal(bill.files[0].suffix, ".b");
        else
            assert_int_equal(st, ST_BAD_DATA);
        bill_free(&bill);
    }
    status_clear();
}

static void too_many_files_are_refused(void **state)
{
    (void)state;
    struct bill bill = {.state = BILL_STATE_READY};
    const struct bill_file file = {0, 5, 0, 1, ".bin", NULL};
    for (int i = 0; i < BILL_FILES_MAX; i++)
        assert_int_equal(bill_add(&bill, &file), ST_OK);
    assert_int_equal(bill_add(&bill, &file), ST_BAD_DATA);
    assert_int_equal(bill_add(&bill, &(struct bill_file){BILL_PARTS_MAX, 5, 0, 1, ".bin", NULL}),
                     ST_BAD_DATA);
    bill_free(&bill);
    status_clear();
}

static void asks_are_read(void **state)
{
    (void)state;
    struct bill_ask ask = {.kind = 1,
                           .node_id = 7,
                           .name = "0123456789abcdef0123456789abcdef",
                           .file_i = 3,
                           .first = 99};
    struct bill_ask again;
    struct text out = {0};
    bill_write_ask(&out, &ask);
    assert_int_equal(bill_read_ask(out.data, out.len, &again), ST_OK);
    assert_memory_equal(&ask, &again, sizeof(ask));
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(bill_read_ask(out.data, n, &again), ST_BAD_DATA);
    text_free(&out);
    static const char *const bodies[] = {
        "{}",
        "{\"kind\":2,\"node_id\":1}",
        "{\"kind\":0,\"node_id\":-1}",
        "{\"kind\":0,\"node_id\":1,\"name\":\"../../etc/passwd\",\"file\":0,\"first\":0}",
        "{\"kind\":0,\"node_id\":1,\"name\":\"0123456789abcdef0123456789abcdef\",\"file\":-1,"
        "\"first\":0}",
        "{\"kind\":0,\"node_id\":1,\"name\":\"0123456789abcdef0123456789abcdef\",\"file\":0,"
        "\"first\":-1}"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        assert_int_equal(bill_read_ask(bodies[i], strlen(bodies[i]), &again), ST_BAD_DATA);
    assert_int_equal(bill_read_ask("{\"kind\":0,\"node_id\":1}", 22, &again), ST_OK);
    assert_true(again.is_for_bill);
    status_clear();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_written_is_read),    cmocka_unit_test(other_content_has_another_name),
    cmocka_unit_test(cut_bytes_are_refused),      cmocka_unit_test(hostile_bytes_are_refused),
    cmocka_unit_test(too_many_files_are_refused), cmocka_unit_test(asks_are_read),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
