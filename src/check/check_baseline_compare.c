/* check_baseline_compare — today's rows beside those of a baseline; see check_baseline.h. */
#include "check/check_baseline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "check/check_host.h"
#include "check/check_judge.h"
#include "measure/measure_table.h"

/* A row of the baseline with today's number of its node. */
struct old {
    const struct check_row *row;
    int node, peer;
};

static int by_place(const struct old *x, const struct old *y)
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

static int compare_old(const void *a, const void *b) { return by_place(a, b); }

/* ---- nodes by their names ---- */

enum { NODE_GONE = -2 }; /* a node of the baseline that is not here today */

struct name {
    const char *name;
    int node;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->name, ((const struct name *)b)->name);
}

static int sort_names(const struct check_hosts *hosts, struct name *name)
{
    int n = 0;
    for (int node = 0; node < hosts->n; node++)
        if (hosts->host[node].name[0])
            name[n++] = (struct name){hosts->host[node].name, node};
    qsort(name, (size_t)n, sizeof *name, by_name);
    return n;
}

/* today[node of the baseline]; returns how many names are in both. */
static int match_names(const struct check_hosts *old, const struct name *name, int n, int *today)
{
    int matched = 0;
    for (int node = 0; node < old->n; node++) {
        const struct name key = {old->host[node].name, 0};
        const struct name *found = bsearch(&key, name, (size_t)n, sizeof *name, by_name);
        today[node] = found ? found->node : NODE_GONE;
        matched += found != NULL;
    }
    return matched;
}

/* today_out: today's number of each of the old nodes; NULL: all have the number that they had. */
static enum status match(const struct check_hosts *old, const struct check_hosts *now,
                         int **today_out)
{
    struct name *name = malloc(sizeof *name * (size_t)(now->n + 1));
    int *today = malloc(sizeof *today * (size_t)(old->n + 1));
    *today_out = NULL;
    if (!name || !today) {
        free(name);
        free(today);
        return FAIL(ST_RETRY, "out of memory: names of %d nodes; use a machine with more", now->n);
    }
    if (match_names(old, name, sort_names(now, name), today) > 0)
        *today_out = today;
    else
        free(today);
    free(name);
    return ST_OK;
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

/* Measured rows of the baseline, sorted; returns their number. */
static int collect(const struct check_rows *rows, const int *today, int n, struct old *old)
{
    int count = 0;
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        if (is_measured(row))
            old[count++] =
                (struct old){row, today_of(today, n, row->node), today_of(today, n, row->peer)};
    }
    qsort(old, (size_t)count, sizeof *old, compare_old);
    return count;
}

static double limit_of(const struct check_row *row, double before, double share)
{
    const double slack = row->slack > 0 ? row->slack : 0;
    const double margin = fmax(share * fabs(before), slack);
    return row->better == CHECK_BETTER_HIGHER ? before - margin : before + margin;
}

static bool is_worse(const struct check_row *row, double than)
{
    return row->better == CHECK_BETTER_HIGHER ? row->value < than : row->value > than;
}

static void blame(struct check_row *row, enum check_verdict verdict, double before, double limit,
                  const char *day)
{
    char why[sizeof row->why], value[40], old[40], least[40];
    text_copy(why, sizeof why, row->why);
    row->verdict = verdict;
    row->limit = limit;
    text_format(row->why, sizeof row->why, "%s; the baseline of %.10s has %s; limit %s; %s",
                measure_table_value(value, sizeof value, row->value, row->unit), day,
                measure_table_value(old, sizeof old, before, row->unit),
                measure_table_value(least, sizeof least, limit, row->unit), why);
}

static void compare_row(struct check_row *row, double before, const char *day)
{
    const double warn = limit_of(row, before, CHECK_JUDGE_WARN);
    const double fail = limit_of(row, before, CHECK_JUDGE_FAIL);
    if (row->verdict != CHECK_VERDICT_FAIL && is_worse(row, fail))
        blame(row, CHECK_VERDICT_FAIL, before, fail, day);
    else if (row->verdict == CHECK_VERDICT_PASS && is_worse(row, warn))
        blame(row, CHECK_VERDICT_WARN, before, warn, day);
}

/* A link may have been measured from its other end. NULL: not in the baseline. */
static const struct old *find(const struct check_row *row, const struct old *old, int n)
{
    const struct old key = {row, row->node, row->peer}, back = {row, row->peer, row->node};
    const struct old *found = bsearch(&key, old, (size_t)n, sizeof *old, compare_old);
    return found || row->peer < 0 ? found
                                  : bsearch(&back, old, (size_t)n, sizeof *old, compare_old);
}

static int compare_all(struct check_rows *rows, const struct old *old, int n, int64_t started)
{
    char day[32];
    int compared = 0;
    clock_iso(day, sizeof day, started * 1000);
    for (int i = 0; i < rows->n; i++) {
        struct check_row *row = &rows->row[i];
        const struct old *found = is_measured(row) ? find(row, old, n) : NULL;
        if (!found)
            continue;
        compared++;
        compare_row(row, found->row->value, day);
    }
    return compared;
}

static enum status find_nodes(const struct check_rows *rows, const struct check_baseline *baseline,
                              int **today_out, int *n_out)
{
    struct check_hosts old = {0}, now = {0};
    TRY(check_host_collect(&baseline->rows, &old));
    enum status st = check_host_collect(rows, &now);
    if (st == ST_OK)
        st = match(&old, &now, today_out);
    *n_out = old.n;
    check_host_free(&old);
    check_host_free(&now);
    return st;
}

enum status check_baseline_compare(struct check_rows *rows, const struct check_baseline *baseline,
                                   int *compared_out)
{
    int *today = NULL, n = 0;
    TRY(find_nodes(rows, baseline, &today, &n));
    struct old *old = malloc(sizeof *old * (size_t)(baseline->rows.n + 1));
    if (!old) {
        free(today);
        return FAIL(ST_RETRY, "out of memory: %d rows of a baseline; use a machine with more",
                    baseline->rows.n);
    }
    const int known = collect(&baseline->rows, today, n, old);
    *compared_out = compare_all(rows, old, known, baseline->started);
    free(old);
    free(today);
    return check_judge_remedies(rows);
}
