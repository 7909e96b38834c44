/* check_judge — see check_judge.h. */
#include "check/check_judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/quantile.h"
#include "base/text.h"
#include "check/report/host.h"
#include "measure/measure_table.h"

/* ---- limits of known hardware ---- */

#define LIMIT(name, unit, hardware, better, expected, warn, fail, source) \
    {name, unit, hardware, CHECK_BETTER_##better, expected, warn, fail, source},
static const struct check_judge_limit known_limits[] = {
#include "check/check_limits.def"
};
enum { LIMITS = sizeof known_limits / sizeof known_limits[0] };

void check_judge_gpu(const char *device, char *out, size_t cap)
{
    for (int words = 0; words < 2 && strchr(device, ' '); words++)
        device = strchr(device, ' ') + 1;
    const char *end = strstr(device, " sm_");
    text_format(out, cap, "%.*s", end ? (int)(end - device) : (int)strlen(device), device);
}

const struct check_judge_limit *check_judge_limit_at(int i)
{
    return i < LIMITS ? &known_limits[i] : NULL;
}

const struct check_judge_limit *check_judge_limit(const char *name, const char *unit,
                                                  const char *hardware)
{
    for (int i = 0; hardware[0] && i < LIMITS; i++)
        if (!strcmp(known_limits[i].hardware, hardware) && !strcmp(known_limits[i].name, name) &&
            !strcmp(known_limits[i].unit, unit))
            return &known_limits[i];
    return NULL;
}

/* ---- references ---- */

struct check_reference check_judge_peers(struct check_row *const *row, int n, double *values)
{
    struct check_reference peers = {.name = "the median", .value = NAN, .scatter = NAN};
    for (int i = 0; i < n; i++)
        if (isfinite(row[i]->value))
            values[peers.n++] = row[i]->value;
    if (peers.n == 0)
        return peers;
    peers.value = quantile_median(values, peers.n);
    /* The root mean square of the deviations of the better half from the median; 0 for one
     * value. */
    const int half = peers.n / 2;
    const int first = row[0]->better == CHECK_BETTER_HIGHER ? peers.n - half : 0;
    double sum = 0;
    for (int i = first; i < first + half; i++)
        sum += pow(values[i] - peers.value, 2);
    const double better = half > 0 ? sqrt(sum / half) : 0;
    for (int i = 0; i < peers.n; i++)
        values[i] = fabs(values[i] - peers.value);
    peers.scatter = fmax(QUANTILE_SIGMA_OF_MAD * quantile_median(values, peers.n), better);
    return peers;
}

/* ---- verdicts ---- */

/* A worse value than these warns or fails. */
struct limits {
    double warn, fail;
};

/* add_reason — puts a sentence before the stage's text. */
static void add_reason(struct check_row *row, const char *sentence)
{
    char stage[sizeof row->why];
    text_copy(stage, sizeof stage, row->why);
    text_format(row->why, sizeof row->why, "%s%s%s", sentence, stage[0] ? "; " : "", stage);
}

static bool is_worse(const struct check_row *row, double than)
{
    return row->better == CHECK_BETTER_HIGHER ? row->value < than : row->value > than;
}

static void set_verdict(struct check_row *row, struct limits limits)
{
    row->verdict = is_worse(row, limits.fail)   ? CHECK_VERDICT_FAIL
                   : is_worse(row, limits.warn) ? CHECK_VERDICT_WARN
                                                : CHECK_VERDICT_PASS;
    row->limit =
        row->verdict == CHECK_VERDICT_FAIL || isnan(limits.warn) ? limits.fail : limits.warn;
}

/* The formula was fitted to simulated groups of 6 to 128 values. */
double check_judge_outlier(int n) { return 4.4 * (1 + pow(8.8 / n, 1.7)); }

/* limit_of — returns the limit of a value that may be worse than the reference by `share`, or by
 * its slack or the scatter if these are larger. */
static double limit_of(const struct check_row *row, const struct check_reference *ref, double share)
{
    const double slack = isnan(row->slack) || row->slack < 0 ? 0 : row->slack;
    const double scatter = ref->scatter > 0 ? check_judge_outlier(ref->n) * ref->scatter : 0;
    const double margin = fmax(share * fabs(ref->value), fmax(slack, scatter));
    return row->better == CHECK_BETTER_HIGHER ? ref->value - margin : ref->value + margin;
}

/* judge_relative — judges a row by a reference and puts the comparison before its `why`. */
static void judge_relative(struct check_row *row, const struct check_reference *ref)
{
    char value[40], than[40], limit[40], share[40], sentence[256];
    set_verdict(row, (struct limits){ref->n < CHECK_JUDGE_WARN_PEERS
                                         ? NAN
                                         : limit_of(row, ref, CHECK_JUDGE_WARN),
                                     limit_of(row, ref, CHECK_JUDGE_FAIL)});
    /* "21 % worse than " or "120 times " before the reference; a value that passes gets neither. */
    const double base = ref->value;
    const double percent = 100 * fabs(row->value - base) / fabs(base);
    if (row->verdict == CHECK_VERDICT_PASS || !isfinite(percent))
        text_copy(share, sizeof share, "");
    else if (row->value >= 3 * base && base > 0)
        text_format(share, sizeof share, "%.3g times ", row->value / base);
    else
        text_format(share, sizeof share, "%.3g %% worse than ", percent);
    text_format(sentence, sizeof sentence, "%s; %s%s, %s; limit %s",
                measure_table_value(value, sizeof value, row->value, row->unit), share, ref->name,
                measure_table_value(than, sizeof than, ref->value, row->unit),
                measure_table_value(limit, sizeof limit, row->limit, row->unit));
    add_reason(row, sentence);
}

void check_judge_beside(struct check_row *row, const struct check_reference *ref)
{
    struct check_row other = *row;
    judge_relative(&other, ref);
    if (other.verdict > row->verdict)
        *row = other;
}

static void judge_by_peers(struct check_row *row, const struct check_reference *peers)
{
    char value[40], sentence[256];
    if (peers->n >= CHECK_JUDGE_PEERS) {
        judge_relative(row, peers);
        if (row->verdict == CHECK_VERDICT_FAIL && (row->stage == CHECK_STAGE_STATIC))
            row->verdict = CHECK_VERDICT_WARN;
        return;
    }
    row->verdict = CHECK_VERDICT_PASS;
    text_format(sentence, sizeof sentence, "%s; too few peers to compare with (%d of %d)",
                measure_table_value(value, sizeof value, row->value, row->unit), peers->n,
                CHECK_JUDGE_PEERS);
    add_reason(row, sentence);
}

/* judge_row — judges a row by its peers and by a limit of the hardware. That limit is a minimum: a
 * value may meet it and still be worse than its peers. */
static void judge_row(struct check_row *row, const struct check_reference *peers)
{
    const struct check_judge_limit *known = check_judge_limit(row->name, row->unit, row->hardware);
    if (!isfinite(row->value)) {
        /* Values that cannot be compared with a median. */
        const bool is_bad = !isnan(row->value) && is_worse(row, 0);
        row->verdict = is_bad ? CHECK_VERDICT_FAIL : CHECK_VERDICT_SKIPPED;
        if (is_bad)
            add_reason(row, row->better == CHECK_BETTER_HIGHER ? "nothing arrived"
                                                               : "no answer arrived");
        else
            add_reason(row,
                       isnan(row->value) ? "no value was measured" : "too fast to be measured");
        return;
    }
    struct check_row beside_peers = *row;
    judge_by_peers(&beside_peers, peers);
    if (known) {
        char value[40], expected[60] = "", text[40], sentence[256];
        set_verdict(row, (struct limits){known->warn, known->fail});
        measure_table_value(text, sizeof text, known->expected, row->unit);
        if (!isnan(known->expected))
            text_format(expected, sizeof expected, "; expected %s", text);
        text_format(sentence, sizeof sentence, "%s%s; limit of %s %s (%s)",
                    measure_table_value(value, sizeof value, row->value, row->unit), expected,
                    known->hardware, measure_table_value(text, sizeof text, row->limit, row->unit),
                    known->source);
        add_reason(row, sentence);
    }
    if (!known || beside_peers.verdict > row->verdict)
        *row = beside_peers;
}

static int by_name(const void *a, const void *b)
{
    const struct check_row *x = *(struct check_row *const *)a, *y = *(struct check_row *const *)b;
    const int name = strcmp(x->name, y->name), unit = strcmp(x->unit, y->unit);
    return name ? name : unit ? unit : strcmp(x->hardware, y->hardware);
}

#define AGAIN "measure again: convoy check CHECK=full"

static void add_remedy(struct check_row *row, const struct check_hosts *hosts)
{
    const int node = row->suspect >= 0 ? row->suspect : row->node;
    const bool is_link = row->peer >= 0 && row->suspect < 0;
    char out[sizeof row->remedy];
    if (row->verdict == CHECK_VERDICT_WARN || node < 0) {
        text_copy(row->remedy, sizeof row->remedy, AGAIN);
        return;
    }
    check_host_remedy(hosts, node, row->name, out, sizeof out);
    text_format(row->remedy, sizeof row->remedy, "%s%s",
                is_link ? "replace the cable between both, or: " : "", out);
}

void check_judge_remedies(struct check_rows *rows)
{
    struct check_hosts hosts;
    check_host_collect(rows, &hosts);
    for (int i = 0; i < rows->n; i++)
        if (check_row_is_bad(&rows->row[i]) &&
            (!rows->row[i].remedy[0] || (rows->row[i].verdict == CHECK_VERDICT_FAIL &&
                                         strcmp(rows->row[i].remedy, AGAIN) == 0)))
            add_remedy(&rows->row[i], &hosts);
    check_host_free(&hosts);
}

/* slow_core_of — returns a failing row about a slow core at either end of a link; NULL: none. */
static const struct check_row *slow_core_of(const struct check_rows *rows,
                                            const struct check_row *link)
{
    for (int i = 0; i < rows->n; i++)
        if ((rows->row[i].verdict == CHECK_VERDICT_FAIL &&
             (strcmp(rows->row[i].name, "cpu quota") == 0 ||
              strcmp(rows->row[i].name, "core clock") == 0)) &&
            (rows->row[i].node == link->node || rows->row[i].node == link->peer))
            return &rows->row[i];
    return NULL;
}

/* excuse_links — skips slow links of nodes that compute slowly. A slow core sends slowly, so the
 * speed of its node's links does not show the quality of the links. */
static void excuse_links(struct check_rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        struct check_row *row = &rows->row[i];
        const bool is_speed =
            strcmp(row->name, "link bandwidth") == 0 || strcmp(row->name, "link latency") == 0;
        if (row->peer < 0 || !check_row_is_bad(row) || !is_speed)
            continue;
        const struct check_row *core = slow_core_of(rows, row);
        if (!core)
            continue;
        row->verdict = CHECK_VERDICT_SKIPPED;
        row->suspect = -1;
        row->remedy[0] = 0;
        text_format(row->why, sizeof row->why,
                    "slower than other links, but node %d computes slowly (%s): check again when "
                    "that is repaired",
                    core->node, core->name);
    }
}

void check_judge(struct check_rows *rows)
{
    if (rows->n == 0)
        return;
    struct check_row **row = memory_new((size_t)rows->n, sizeof(struct check_row *));
    double *values = memory_new((size_t)rows->n, sizeof *values);
    int n = 0;
    for (int i = 0; i < rows->n; i++)
        if (rows->row[i].verdict == CHECK_VERDICT_MEASURED)
            row[n++] = &rows->row[i];
    qsort(row, (size_t)n, sizeof(struct check_row *), by_name);
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && by_name(&row[first], &row[end]) == 0;)
            end++;
        /* Judge the measured rows of one name, unit and hardware. */
        struct check_reference peers = check_judge_peers(row + first, end - first, values);
        char name[40];
        text_format(name, sizeof name, "the median of %d peers", peers.n);
        peers.name = name;
        for (int i = first; i < end; i++) {
            judge_row(row[i], &peers);
            /* Insert the value of the peers into a remedy that sets it: "ip link set eth0 mtu
             * N". */
            char remedy[sizeof row[i]->remedy];
            const char *at = strstr(row[i]->remedy, " N ");
            if (at != NULL && isfinite(peers.value)) {
                text_copy(remedy, sizeof remedy, row[i]->remedy);
                text_format(row[i]->remedy, sizeof row[i]->remedy, "%.*s %.0f %s",
                            (int)(at - row[i]->remedy), remedy, peers.value,
                            remedy + (at - row[i]->remedy) + 3);
            }
        }
    }
    free(row);
    free(values);
    excuse_links(rows);
    check_judge_remedies(rows);
}
