/* check_row — see check_row.h. */
#include "check/check_row.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static struct check_row make_row(enum check_stage stage, enum check_point point, int node,
                                 const char *name)
{
    struct check_row row = {.stage = stage,
                            .point = point,
                            .node = node,
                            .peer = -1,
                            .suspect = -1,
                            .rank = -1,
                            .value = NAN,
                            .limit = NAN,
                            .slack = NAN};
    text_copy(row.name, sizeof row.name, name);
    return row;
}

struct check_row check_row_found(enum check_stage stage, enum check_point point, int node,
                                 const char *name, enum check_verdict verdict, const char *why, ...)
{
    struct check_row row = make_row(stage, point, node, name);
    va_list args;
    row.verdict = verdict;
    va_start(args, why);
    text_format_v(row.why, sizeof row.why, why, args);
    va_end(args);
    return row;
}

struct check_row check_row_measured(enum check_stage stage, enum check_point point, int node,
                                    const char *name, const char *unit, double value,
                                    enum check_better better, double slack)
{
    struct check_row row = make_row(stage, point, node, name);
    row.verdict = CHECK_VERDICT_MEASURED;
    text_copy(row.unit, sizeof row.unit, unit);
    row.value = value;
    row.better = better;
    row.slack = slack;
    return row;
}

/* ---- members ---- */

/* clang-format off */
#define TEXT_OF(name, text) text,
static const char *const stage_words[] = {CHECK_STAGE_LIST(TEXT_OF)};
static const char *const point_words[] = {CHECK_POINT_LIST(TEXT_OF)};
static const char *const verdict_words[] = {"pass", "skipped", "warn", "fail", "measured"};
static const char *const better_words[] = {"higher", "lower"};

#define FIELD(member, kind, words, words_n, is_short)                            \
    {#member, kind, offsetof(struct check_row, member),                          \
     sizeof ((struct check_row *)0)->member, words, words_n, is_short}
#define WORD(member, is_short)                                                   \
    FIELD(member, CHECK_ROW_WORD, member##_words,                                \
          (int)(sizeof member##_words / sizeof *member##_words), is_short)
#define PLAIN(member, kind, is_short) FIELD(member, CHECK_ROW_##kind, NULL, 0, is_short)
static const struct check_row_field fields[] = {
    WORD(stage, true),            WORD(point, false),
    PLAIN(name, TEXT, true),      PLAIN(subject, TEXT, true),
    PLAIN(node, INDEX, true),     PLAIN(peer, INDEX, true),
    PLAIN(rank, INDEX, false),    PLAIN(suspect, INDEX, false),
    WORD(verdict, true),          PLAIN(value, NUMBER, true),
    PLAIN(limit, NUMBER, false),  PLAIN(slack, NUMBER, false),
    PLAIN(unit, TEXT, true),      WORD(better, false),
    PLAIN(hardware, TEXT, false), PLAIN(why, TEXT, true),
    PLAIN(remedy, TEXT, true)};
/* clang-format on */
_Static_assert(sizeof fields / sizeof *fields == CHECK_ROW_FIELDS, "all members");
_Static_assert(sizeof(enum check_stage) == sizeof(int), "words are read and written as int");

const struct check_row_field *check_row_field(int i) { return &fields[i]; }

const char *check_row_stage(enum check_stage stage) { return stage_words[stage]; }

const char *check_row_point(enum check_point point) { return point_words[point]; }

const char *check_row_verdict(enum check_verdict verdict) { return verdict_words[verdict]; }

bool check_row_is_bad(const struct check_row *row)
{
    return row->verdict == CHECK_VERDICT_WARN || row->verdict == CHECK_VERDICT_FAIL;
}

bool check_row_is_about(const struct check_row *row, int node)
{
    if (node < 0)
        return true;
    return row->suspect >= 0 ? row->suspect == node : row->node == node || row->peer == node;
}

/* ---- many rows ---- */

void check_row_add(struct check_rows *rows, const struct check_row *row)
{
    if (rows->n == rows->cap) {
        rows->cap = rows->cap ? 2 * rows->cap : 64;
        rows->row = memory_resize(rows->row, (size_t)rows->cap, sizeof *rows->row);
    }
    rows->row[rows->n++] = *row;
}

void check_row_free(struct check_rows *rows)
{
    free(rows->row);
    *rows = (struct check_rows){0};
}

enum check_verdict check_row_worst(const struct check_rows *rows, int node)
{
    enum check_verdict worst = CHECK_VERDICT_PASS;
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        if (check_row_is_bad(row) && row->verdict > worst && check_row_is_about(row, node))
            worst = row->verdict;
    }
    return worst;
}

/* ---- rows as bytes: each member in turn, a text with its final 0 ---- */

void check_row_pack(const struct check_row *row, struct text *out)
{
    for (int i = 0; i < CHECK_ROW_FIELDS; i++) {
        const char *from = (const char *)row + fields[i].at;
        const bool is_text = fields[i].kind == CHECK_ROW_TEXT;
        text_add_bytes(out, from, is_text ? strlen(from) + 1 : fields[i].bytes);
    }
}

enum status check_row_pack_all(const struct check_rows *rows, struct text *out)
{
    for (int i = 0; i < rows->n; i++)
        check_row_pack(&rows->row[i], out);
    return out->overflow ? FAIL(ST_RETRY, "out of memory: %d rows of a check", rows->n) : ST_OK;
}

/* Reads a member from the bytes at *at. Returns false if the bytes are invalid. */
static bool unpack_field(const struct check_row_field *field, const char **at, const char *end,
                         struct check_row *row)
{
    const char *from = *at, *zero = memchr(from, 0, (size_t)(end - from));
    size_t n = field->bytes;
    int word = 0;
    if (field->kind == CHECK_ROW_TEXT)
        n = zero ? (size_t)(zero - from) + 1 : SIZE_MAX;
    if (n > field->bytes || n > (size_t)(end - from))
        return false;
    memcpy((char *)row + field->at, from, n);
    *at = from + n;
    if (field->kind == CHECK_ROW_WORD)
        memcpy(&word, from, sizeof word);
    return word >= 0 && (field->kind != CHECK_ROW_WORD || word < field->words_n);
}

enum status check_row_unpack(const void *bytes, size_t n, struct check_rows *rows)
{
    const char *at = bytes, *end = at + n;
    while (at < end) {
        const size_t left = (size_t)(end - at);
        struct check_row row = {0};
        for (int i = 0; i < CHECK_ROW_FIELDS; i++)
            if (!unpack_field(&fields[i], &at, end, &row))
                return FAIL(ST_BUG, "rows of a check: %zu of %zu bytes are not readable", left, n);
        check_row_add(rows, &row);
    }
    return ST_OK;
}
