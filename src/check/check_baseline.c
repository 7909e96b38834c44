/* check_baseline — reads a report of a good day again (check_json.c describes it). What compares
 * with it is in check_baseline_compare.c. */
#include "check/check_baseline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "base/text.h"
#include "check/check_report.h"

enum { INDEX_MAX = 1 << 16 }; /* of a node or a rank */

/* A number, or null: NAN. */
static enum status get_number(const cJSON *item, const char *key, double *out)
{
    *out = NAN;
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(item, key)))
        return ST_OK;
    return json_get_f64(item, key, out);
}

/* A node or a rank, or null: -1. */
static enum status get_index(const cJSON *item, const char *key, int *out)
{
    int64_t value = -1;
    if (!cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(item, key)))
        TRY(json_get_i64(item, key, 0, INDEX_MAX, &value));
    *out = (int)value;
    return ST_OK;
}

static enum status get_text(const cJSON *item, const char *key, char *out, size_t cap)
{
    const char *text;
    TRY(json_get_string(item, key, &text));
    if (!text_copy(out, cap, text))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" has %zu bytes, expected at most %zu", key,
                    strlen(text), cap - 1);
    return ST_OK;
}

static const char *stage_of(int i) { return check_row_stage((enum check_stage)i); }
static const char *point_of(int i) { return check_row_point((enum check_point)i); }
static const char *verdict_of(int i) { return check_row_verdict((enum check_verdict)i); }
static const char *better_of(int i) { return i == CHECK_BETTER_HIGHER ? "higher" : "lower"; }

static enum status get_word(const cJSON *item, const char *key, const char *(*word)(int i), int n,
                            int *out)
{
    const char *text;
    TRY(json_get_string(item, key, &text));
    for (*out = 0; *out < n; ++*out)
        if (strcmp(text, word(*out)) == 0)
            return ST_OK;
    return FAIL(ST_BAD_DATA, "JSON key \"%s\" is \"%.64s\", which no report of this schema has",
                key, text);
}

static enum status get_words(const cJSON *item, struct check_row *row)
{
    int stage, point, verdict, better;
    TRY(get_word(item, "stage", stage_of, CHECK_STAGE_N, &stage));
    TRY(get_word(item, "point", point_of, CHECK_POINT_N, &point));
    TRY(get_word(item, "verdict", verdict_of, CHECK_VERDICT_MEASURED, &verdict));
    TRY(get_word(item, "better", better_of, 2, &better));
    row->stage = (enum check_stage)stage;
    row->point = (enum check_point)point;
    row->verdict = (enum check_verdict)verdict;
    row->better = (enum check_better)better;
    return ST_OK;
}

static enum status get_row(const cJSON *item, struct check_row *row)
{
    TRY(get_words(item, row));
    TRY(get_index(item, "node", &row->node));
    TRY(get_index(item, "peer", &row->peer));
    TRY(get_index(item, "rank", &row->rank));
    TRY(get_index(item, "suspect", &row->suspect));
    TRY(get_number(item, "value", &row->value));
    TRY(get_number(item, "limit", &row->limit));
    TRY(get_number(item, "slack", &row->slack));
    TRY(get_text(item, "name", row->name, sizeof row->name));
    TRY(get_text(item, "subject", row->subject, sizeof row->subject));
    TRY(get_text(item, "unit", row->unit, sizeof row->unit));
    TRY(get_text(item, "hardware", row->hardware, sizeof row->hardware));
    TRY(get_text(item, "why", row->why, sizeof row->why));
    return get_text(item, "remedy", row->remedy, sizeof row->remedy);
}

/* Adds where it was to a failure. */
static enum status at_row(enum status st, const char *what, int64_t n)
{
    struct status_saved cause;
    if (st != ST_BAD_DATA)
        return st;
    status_save(&cause);
    return FAIL(st, "%s: row %lld: %s; write it anew with a check of a good day", what,
                (long long)n, cause.message);
}

static enum status read_rows(const struct json_item *item, const char *what,
                             struct check_rows *rows)
{
    struct json_walk walk;
    struct json_item one;
    bool is_end;
    TRY(json_walk_begin(&walk, item->value, item->value_n, '[', what));
    for (;;) {
        cJSON *object = NULL;
        struct check_row row = {0};
        TRY(json_walk_next(&walk, &one, &is_end));
        if (is_end)
            return ST_OK;
        enum status st = json_parse(one.value, one.value_n, "a row", &object);
        if (st == ST_OK)
            st = get_row(object, &row);
        cJSON_Delete(object);
        TRY(at_row(st, what, walk.n));
        TRY(check_rows_add(rows, &row));
    }
}

/* What a report must have beside its rows. */
struct head {
    int64_t schema, started, nodes;
    bool is_ours, has_rows;
};

static enum status read_number(const struct json_item *item, const char *what, int64_t *out)
{
    cJSON *value = NULL;
    TRY(json_parse(item->value, item->value_n, what, &value));
    enum status st = json_item_i64(value, what, 0, (int64_t)1 << 40, out);
    cJSON_Delete(value);
    return st;
}

static enum status read_item(const struct json_item *item, const char *what, struct head *head,
                             struct check_rows *rows)
{
    static const char program[] = "\"convoy check\"";
    if (json_walk_is(item, "schema"))
        return read_number(item, "schema", &head->schema);
    if (json_walk_is(item, "started"))
        return read_number(item, "started", &head->started);
    if (json_walk_is(item, "nodes"))
        return read_number(item, "nodes", &head->nodes);
    if (json_walk_is(item, "program"))
        head->is_ours =
            item->value_n == sizeof program - 1 && memcmp(item->value, program, item->value_n) == 0;
    if (!json_walk_is(item, "rows"))
        return ST_OK;
    if (head->has_rows)
        return FAIL(ST_BAD_DATA, "%s: \"rows\" is there twice; not a report of ours", what);
    head->has_rows = true;
    return read_rows(item, what, rows);
}

static enum status check_head(const struct head *head, const char *what)
{
    if (!head->is_ours || !head->has_rows || head->started < 0 || head->nodes < 0)
        return FAIL(ST_BAD_DATA,
                    "%s is not a report of `convoy check`; write one with REPORT=FILE.json", what);
    if (head->schema != CHECK_REPORT_SCHEMA)
        return FAIL(ST_BAD_DATA,
                    "%s is a report of schema %lld, and this version reads %d; write it anew", what,
                    (long long)head->schema, CHECK_REPORT_SCHEMA);
    return ST_OK;
}

static enum status read_report(const char *bytes, size_t n, const char *what, struct head *head,
                               struct check_rows *rows)
{
    struct json_walk walk;
    struct json_item item;
    bool is_end = false;
    TRY(json_walk_begin(&walk, bytes, n, '{', what));
    for (;;) {
        TRY(json_walk_next(&walk, &item, &is_end));
        if (is_end)
            return check_head(head, what);
        TRY(read_item(&item, what, head, rows));
    }
}

enum status check_baseline_parse(const char *bytes, size_t n, const char *what,
                                 struct check_baseline *out)
{
    struct head head = {.schema = -1, .started = -1, .nodes = -1};
    struct check_rows rows = {0};
    enum status st = read_report(bytes, n, what, &head, &rows);
    if (st != ST_OK) {
        check_rows_free(&rows);
        return st;
    }
    *out = (struct check_baseline){
        .rows = rows, .started = head.started, .nodes = (int)(head.nodes & INT32_MAX)};
    return ST_OK;
}

enum status check_baseline_read(const char *path, struct check_baseline *out)
{
    char *bytes = NULL;
    size_t n = 0;
    TRY(file_read(path, CHECK_BASELINE_BYTES_MAX, &bytes, &n));
    enum status st = check_baseline_parse(bytes, n, path, out);
    free(bytes);
    return st;
}

void check_baseline_free(struct check_baseline *baseline)
{
    check_rows_free(&baseline->rows);
    *baseline = (struct check_baseline){0};
}

#ifdef FUZZ
#include "base/assert.h"

/* Any bytes; what was read is written and read again, and is the same. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct check_baseline first = {0}, again = {0};
    struct check_report_about about = {.version = "fuzz", .depth = "quick"};
    struct text out = {0};
    int compared;
    if (check_baseline_parse((const char *)data, size, "fuzz", &first) != ST_OK)
        return 0;
    about.started = first.started;
    about.nodes = first.nodes;
    ASSERT(check_json_write(&first.rows, &about, &out) == ST_OK);
    ASSERT(check_baseline_parse(out.data, out.len, "again", &again) == ST_OK);
    ASSERT(again.rows.n == first.rows.n && again.started == first.started);
    ASSERT(check_baseline_compare(&again.rows, &first, &compared) == ST_OK);
    text_free(&out);
    check_baseline_free(&first);
    check_baseline_free(&again);
    return 0;
}
#endif
