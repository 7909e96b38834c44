/* check_pack — see check_pack.h. A row is its numbers, then its six texts, each with a 0 behind
 * it. */
#include "check/check_pack.h"

#include <string.h>

/* The numbers of a row. */
struct numbers {
    double value, limit, slack;
    int32_t node, peer, suspect, rank;
    uint8_t stage, point, verdict, better;
};

void check_pack_row(const struct check_row *row, struct text *out)
{
    const char *texts[] = {row->name,     row->subject, row->unit,
                           row->hardware, row->why,     row->remedy};
    struct numbers numbers;
    memset(&numbers, 0, sizeof numbers); /* also what lies between its members */
    numbers.value = row->value, numbers.limit = row->limit, numbers.slack = row->slack;
    numbers.node = row->node, numbers.peer = row->peer;
    numbers.suspect = row->suspect, numbers.rank = row->rank;
    numbers.stage = (uint8_t)row->stage, numbers.point = (uint8_t)row->point;
    numbers.verdict = (uint8_t)row->verdict, numbers.better = (uint8_t)row->better;
    text_add_bytes(out, &numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        text_add_bytes(out, texts[i], strlen(texts[i]) + 1);
}

enum status check_pack(const struct check_rows *rows, struct text *out)
{
    for (int i = 0; i < rows->n; i++)
        check_pack_row(&rows->row[i], out);
    return out->overflow ? FAIL(ST_RETRY, "out of memory: %d rows of a check", rows->n) : ST_OK;
}

/* take_text — moves a text of at most cap bytes to out; false: it does not end, or is longer. */
static bool take_text(const char **at, const char *end, char *out, size_t cap)
{
    const char *zero = memchr(*at, 0, (size_t)(end - *at));
    if (!zero || (size_t)(zero - *at) >= cap)
        return false;
    memcpy(out, *at, (size_t)(zero - *at) + 1);
    *at = zero + 1;
    return true;
}

static bool take_texts(const char **at, const char *end, struct check_row *row)
{
    return take_text(at, end, row->name, sizeof row->name) &&
           take_text(at, end, row->subject, sizeof row->subject) &&
           take_text(at, end, row->unit, sizeof row->unit) &&
           take_text(at, end, row->hardware, sizeof row->hardware) &&
           take_text(at, end, row->why, sizeof row->why) &&
           take_text(at, end, row->remedy, sizeof row->remedy);
}

/* take_row — false: the bytes are not those of a row. */
static bool take_row(const char **at, const char *end, struct check_row *row)
{
    struct numbers numbers;
    if ((size_t)(end - *at) < sizeof numbers)
        return false;
    memcpy(&numbers, *at, sizeof numbers);
    *at += sizeof numbers;
    *row = (struct check_row){.stage = (enum check_stage)numbers.stage,
                              .point = (enum check_point)numbers.point,
                              .verdict = (enum check_verdict)numbers.verdict,
                              .better = (enum check_better)numbers.better,
                              .node = numbers.node,
                              .peer = numbers.peer,
                              .suspect = numbers.suspect,
                              .rank = numbers.rank,
                              .value = numbers.value,
                              .limit = numbers.limit,
                              .slack = numbers.slack};
    return numbers.stage < CHECK_STAGE_N && numbers.point < CHECK_POINT_N &&
           numbers.verdict <= CHECK_VERDICT_MEASURED && numbers.better <= CHECK_BETTER_LOWER &&
           take_texts(at, end, row);
}

enum status check_pack_read(const void *bytes, size_t n, struct check_rows *rows)
{
    const char *at = bytes, *end = at + n;
    struct check_row row;
    while (at < end) {
        if (!take_row(&at, end, &row))
            return FAIL(ST_BUG, "rows of a check: %zu of %zu bytes are not readable",
                        (size_t)(end - at), n);
        TRY(check_rows_add(rows, &row));
    }
    return ST_OK;
}
