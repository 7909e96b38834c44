/* check_baseline — reads an earlier report of a good day (report/report.c describes it), and
 * compares today's rows with it. */
#include "check/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "base/memory.h"
#include "base/text.h"
#include "check/report/host.h"
#include "check/check_judge.h"

enum { INDEX_MAX = 1 << 16 }; /* largest number of a node or a rank */

static enum status get_word(const cJSON *item, const struct check_row_field *field, int *out)
{
    const char *text;
    TRY(json_get_string(item, field->name, &text));
    for (*out = 0; *out < field->words_n; ++*out)
        if (strcmp(text, field->words[*out]) == 0)
            return ST_OK;
    return FAIL(ST_BAD_DATA, "JSON key \"%s\" is \"%.64s\", which no report of this schema has",
                field->name, text);
}

/* Reads a member of a row; an index or a number may be null. */
static enum status get_field(const cJSON *item, const struct check_row_field *field,
                             struct check_row *row)
{
    char *to = (char *)row + field->at;
    const bool is_null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(item, field->name));
    const char *text;
    double number = NAN;
    int64_t index = -1;
    int word = -1;
    switch (field->kind) {
    case CHECK_ROW_WORD:
        TRY(get_word(item, field, &word));
        memcpy(to, &word, sizeof word);
        return ST_OK;
    case CHECK_ROW_INDEX:
        if (!is_null)
            TRY(json_get_i64(item, field->name, 0, INDEX_MAX, &index));
        word = (int)index;
        memcpy(to, &word, sizeof word);
        return ST_OK;
    case CHECK_ROW_NUMBER:
        if (!is_null)
            TRY(json_get_f64(item, field->name, &number));
        memcpy(to, &number, sizeof number);
        return ST_OK;
    case CHECK_ROW_TEXT:
        TRY(json_get_string(item, field->name, &text));
        return text_copy(to, field->bytes, text)
                   ? ST_OK
                   : FAIL(ST_BAD_DATA, "JSON key \"%s\" has %zu bytes, expected at most %zu",
                          field->name, strlen(text), field->bytes - 1);
    }
    return ST_BUG;
}

static enum status get_row(const cJSON *item, struct check_row *row)
{
    for (int i = 0; i < CHECK_ROW_FIELDS; i++)
        TRY(get_field(item, check_row_field(i), row));
    return row->verdict != CHECK_VERDICT_MEASURED
               ? ST_OK
               : FAIL(ST_BAD_DATA, "JSON key \"verdict\" is \"measured\": the check did not end");
}

/* Adds the position in the report to a failure. */
static enum status at_row(enum status st, const char *what, int64_t n)
{
    struct status_saved cause;
    if (st != ST_BAD_DATA)
        return st;
    status_save(&cause);
    return FAIL(st, "%s: row %lld: %s; write it again with a check of a good day", what,
                (long long)n, cause.message);
}

/* The members that a report must have, apart from its rows. */
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
        return FAIL(ST_BAD_DATA, "%s has \"rows\" twice, so it is not a report of `convoy check`",
                    what);
    head->has_rows = true;
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
        check_row_add(rows, &row);
    }
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
        if (is_end) {
            if (!head->is_ours || !head->has_rows || head->started < 0 || head->nodes < 0)
                return FAIL(ST_BAD_DATA,
                            "%s is not a report of `convoy check`; write one with REPORT=FILE.json",
                            what);
            if (head->schema != CHECK_REPORT_SCHEMA)
                return FAIL(ST_BAD_DATA,
                            "%s is a report of schema %lld, and this version reads schema %d; "
                            "write it again",
                            what, (long long)head->schema, CHECK_REPORT_SCHEMA);
            return ST_OK;
        }
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
        check_row_free(&rows);
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
    check_row_free(&baseline->rows);
    *baseline = (struct check_baseline){0};
}

/* ---- lookup of the baseline's rows ---- */

/* A row of the baseline with the number that its node has today. */
struct old {
    const struct check_row *row;
    int node, peer;
};

static int compare_rows(const struct old *x, const struct old *y)
{
    const int orders[] = {strcmp(x->row->name, y->row->name),
                          strcmp(x->row->unit, y->row->unit),
                          x->node - y->node,
                          x->peer - y->peer,
                          x->row->rank - y->row->rank,
                          strcmp(x->row->subject, y->row->subject)};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        if (orders[i])
            return orders[i];
    return 0;
}

static int compare_old(const void *a, const void *b) { return compare_rows(a, b); }

/* ---- nodes by their names ---- */

enum { NODE_GONE = -2 }; /* a node of the baseline that does not exist today */

struct name {
    const char *name;
    int node;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->name, ((const struct name *)b)->name);
}

/* Returns the number that each node of the baseline has today; NULL: all have the same number as
 * before. *n_out: number of nodes in the baseline. The caller frees the result. */
static int *match_nodes(const struct check_rows *old_rows, const struct check_rows *rows,
                        int *n_out)
{
    struct check_hosts old, now;
    check_host_collect(old_rows, &old);
    check_host_collect(rows, &now);
    struct name *name = memory_new((size_t)now.n, sizeof *name);
    int *today = memory_new((size_t)old.n, sizeof *today);
    int names = 0, matched = 0;
    for (int node = 0; node < now.n; node++)
        if (now.host[node].name[0])
            name[names++] = (struct name){now.host[node].name, node};
    qsort(name, (size_t)names, sizeof *name, by_name);
    for (int node = 0; node < old.n; node++) {
        const struct name key = {old.host[node].name, 0};
        const struct name *found = bsearch(&key, name, (size_t)names, sizeof *name, by_name);
        today[node] = found ? found->node : NODE_GONE;
        matched += found != NULL;
    }
    *n_out = old.n;
    free(name);
    check_host_free(&old);
    check_host_free(&now);
    if (matched > 0)
        return today;
    free(today);
    return NULL;
}

static int today_of(const int *today, int n, int node)
{
    return !today || node < 0 ? node : node < n ? today[node] : NODE_GONE;
}

/* ---- the comparison ---- */

static bool is_measured(const struct check_row *row)
{
    return !isnan(row->slack) && isfinite(row->value) && row->verdict != CHECK_VERDICT_SKIPPED;
}

/* Returns the row of the baseline for a row of today; NULL: there is none. A link may have been
 * measured from its other end. */
static const struct old *find_row(const struct check_row *row, const struct old *old, int n)
{
    const struct old key = {row, row->node, row->peer}, back = {row, row->peer, row->node};
    const struct old *found = bsearch(&key, old, (size_t)n, sizeof *old, compare_old);
    return found || row->peer < 0 ? found
                                  : bsearch(&back, old, (size_t)n, sizeof *old, compare_old);
}

int check_baseline_compare(struct check_rows *rows, const struct check_baseline *baseline)
{
    int n, known = 0, compared = 0;
    int *today = match_nodes(&baseline->rows, rows, &n);
    /* The measured rows of the baseline, sorted. */
    struct old *old = memory_new((size_t)baseline->rows.n, sizeof *old);
    for (int i = 0; i < baseline->rows.n; i++) {
        const struct check_row *row = &baseline->rows.row[i];
        if (is_measured(row))
            old[known++] =
                (struct old){row, today_of(today, n, row->node), today_of(today, n, row->peer)};
    }
    qsort(old, (size_t)known, sizeof *old, compare_old);
    char day[32], name[48];
    clock_iso(day, sizeof day, baseline->started * 1000);
    text_format(name, sizeof name, "the baseline of %.10s", day);
    for (int i = 0; i < rows->n; i++) {
        struct check_row *row = &rows->row[i];
        const struct old *found = is_measured(row) ? find_row(row, old, known) : NULL;
        if (!found)
            continue;
        const struct check_reference ref = {
            .name = name, .value = found->row->value, .n = CHECK_JUDGE_WARN_PEERS};
        compared++;
        check_judge_beside(row, &ref);
    }
    free(old);
    free(today);
    check_judge_remedies(rows);
    return compared;
}

#ifdef FUZZ
#include "base/assert.h"

/* Fuzz entry: a report from any bytes. The rows that were read are written and read again, and must
 * be the same. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct check_baseline first = {0}, again = {0};
    struct check_report_about about = {.version = "fuzz", .depth = "quick"};
    struct text out = {0};
    if (check_baseline_parse((const char *)data, size, "fuzz", &first) != ST_OK)
        return 0;
    about.started = first.started;
    about.nodes = first.nodes;
    ASSERT(check_report_json(&first.rows, &about, &out) == ST_OK);
    ASSERT(check_baseline_parse(out.data, out.len, "again", &again) == ST_OK);
    ASSERT(again.rows.n == first.rows.n && again.started == first.started);
    (void)check_baseline_compare(&again.rows, &first);
    text_free(&out);
    check_baseline_free(&first);
    check_baseline_free(&again);
    return 0;
}
#endif
