/* check_row — see check_row.h. */
#include "check/check_row.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

static struct check_row blank(enum check_stage stage, enum check_point point, int node,
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
    struct check_row row = blank(stage, point, node, name);
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
    struct check_row row = blank(stage, point, node, name);
    row.verdict = CHECK_VERDICT_MEASURED;
    text_copy(row.unit, sizeof row.unit, unit);
    row.value = value;
    row.better = better;
    row.slack = slack;
    return row;
}

/* clang-format off */
#define TEXT(name, text) text,
static const char *const stage_names[] = {CHECK_STAGE_LIST(TEXT)};
static const char *const point_names[] = {CHECK_POINT_LIST(TEXT)};
/* clang-format on */

const char *check_row_stage(enum check_stage stage) { return stage_names[stage]; }

const char *check_row_point(enum check_point point) { return point_names[point]; }

const char *check_row_verdict(enum check_verdict verdict)
{
    static const char *const names[] = {"pass", "skipped", "warn", "fail", "measured"};
    return names[verdict];
}

bool check_row_is_about(const struct check_row *row, int node)
{
    if (node < 0)
        return true;
    return row->suspect >= 0 ? row->suspect == node : row->node == node || row->peer == node;
}
