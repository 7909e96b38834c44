/* check_judge — see check_judge.h. */
#include "check/check_judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "check/check_host.h"
#include "check/check_limits.h"
#include "check/check_peers.h"
#include "check/check_text.h"

/* Worse than these warns, fails. */
struct limits {
    double warn, fail;
};

/* Puts a sentence before what the stage said. */
static void say(struct check_row *row, const char *sentence)
{
    char stage[sizeof row->why];
    text_copy(stage, sizeof stage, row->why);
    text_format(row->why, sizeof row->why, "%s%s%s", sentence, stage[0] ? "; " : "", stage);
}

static bool is_worse(const struct check_row *row, double than)
{
    return row->better == CHECK_BETTER_HIGHER ? row->value < than : row->value > than;
}

/* What a node has, as memory, CPUs, MTU: an unlike node may be unlike on purpose. */
static bool is_inventory(const struct check_row *row) { return row->stage == CHECK_STAGE_STATIC; }

static void decide(struct check_row *row, struct limits limits)
{
    row->verdict = is_worse(row, limits.fail)   ? CHECK_VERDICT_FAIL
                   : is_worse(row, limits.warn) ? CHECK_VERDICT_WARN
                                                : CHECK_VERDICT_PASS;
    if (row->verdict == CHECK_VERDICT_FAIL && is_inventory(row)) {
        row->verdict = CHECK_VERDICT_WARN;
        limits.warn = limits.fail;
    }
    row->limit =
        row->verdict == CHECK_VERDICT_FAIL || isnan(limits.warn) ? limits.fail : limits.warn;
}

/* Values that no median can be compared with. */
static void judge_unusable(struct check_row *row)
{
    const bool is_bad = !isnan(row->value) && is_worse(row, 0);
    row->verdict = is_bad ? CHECK_VERDICT_FAIL : CHECK_VERDICT_SKIPPED;
    if (is_bad)
        say(row, row->better == CHECK_BETTER_HIGHER ? "nothing arrived" : "no answer came");
    else
        say(row, isnan(row->value) ? "no value was measured" : "too fast to be measured");
}

static void judge_absolute(struct check_row *row, const struct check_limit *known)
{
    char value[40], expected[60] = "", text[40], sentence[256];
    decide(row, (struct limits){known->warn, known->fail});
    check_text_value(text, sizeof text, known->expected, row->unit);
    if (!isnan(known->expected))
        text_format(expected, sizeof expected, "; expected %s", text);
    text_format(sentence, sizeof sentence, "%s%s; limit of %s %s (%s)",
                check_text_value(value, sizeof value, row->value, row->unit), expected,
                known->hardware, check_text_value(text, sizeof text, row->limit, row->unit),
                known->source);
    say(row, sentence);
}

/* Fitted to simulated groups of 6 to 128 values. */
double check_judge_outlier(int n) { return 4.4 * (1 + pow(8.8 / n, 1.7)); }

/* A value this far from the median is worse by the share, and means something. */
static double margin(const struct check_row *row, const struct check_peers *peers, double share)
{
    const double slack = isnan(row->slack) || row->slack < 0 ? 0 : row->slack;
    const double scatter = check_judge_outlier(peers->n) * peers->scatter;
    return fmax(share * fabs(peers->median), fmax(slack, scatter));
}

static struct limits limits_of(const struct check_row *row, const struct check_peers *peers)
{
    const double sign = row->better == CHECK_BETTER_HIGHER ? -1 : 1;
    const double fail = peers->median + sign * margin(row, peers, CHECK_JUDGE_FAIL);
    if (peers->n < CHECK_JUDGE_WARN_PEERS)
        return (struct limits){NAN, fail};
    return (struct limits){peers->median + sign * margin(row, peers, CHECK_JUDGE_WARN), fail};
}

/* "21 % worse than " or "120 times " before the median; a value that passes has no such part. */
static void add_share(const struct check_row *row, double median, char *out, size_t cap)
{
    const double share = 100 * fabs(row->value - median) / fabs(median);
    if (row->verdict == CHECK_VERDICT_PASS || !isfinite(share))
        text_copy(out, cap, "");
    else if (row->value >= 3 * median && median > 0)
        text_format(out, cap, "%.3g times ", row->value / median);
    else
        text_format(out, cap, "%.3g %% worse than ", share);
}

static void judge_relative(struct check_row *row, const struct check_peers *peers)
{
    char value[40], median[40], limit[40], share[40], sentence[256];
    check_text_value(value, sizeof value, row->value, row->unit);
    if (peers->n < CHECK_JUDGE_PEERS) {
        row->verdict = CHECK_VERDICT_PASS;
        text_format(sentence, sizeof sentence, "%s; too few peers to compare with (%d of %d)",
                    value, peers->n, CHECK_JUDGE_PEERS);
        say(row, sentence);
        return;
    }
    decide(row, limits_of(row, peers));
    add_share(row, peers->median, share, sizeof share);
    text_format(sentence, sizeof sentence, "%s; %sthe median of %d %s, %s; limit %s", value, share,
                peers->n, row->peer >= 0 ? "nodes" : "peers",
                check_text_value(median, sizeof median, peers->median, row->unit),
                check_text_value(limit, sizeof limit, row->limit, row->unit));
    say(row, sentence);
}

static bool is_bad(const struct check_row *row)
{
    return row->verdict == CHECK_VERDICT_WARN || row->verdict == CHECK_VERDICT_FAIL;
}

/* A limit of the hardware is a minimum: a value may keep it and still be worse than its peers. */
static void judge_row(struct check_row *row, const struct check_peers *peers)
{
    const struct check_limit *known = check_limits_find(row->name, row->unit, row->hardware);
    if (!isfinite(row->value)) {
        judge_unusable(row);
        return;
    }
    struct check_row beside_peers = *row;
    judge_relative(&beside_peers, peers);
    if (known)
        judge_absolute(row, known);
    if (!known || beside_peers.verdict > row->verdict)
        *row = beside_peers;
}

/* The value of the peers, in a remedy that sets it: "ip link set eth0 mtu N". */
static void fill_in(struct check_row *row, double median)
{
    char remedy[sizeof row->remedy];
    const char *at = strstr(row->remedy, " N ");
    if (at == NULL || !isfinite(median))
        return;
    text_copy(remedy, sizeof remedy, row->remedy);
    text_format(row->remedy, sizeof row->remedy, "%.*s %.0f %s", (int)(at - row->remedy), remedy,
                median, remedy + (at - row->remedy) + 3);
}

/* The measured rows of one name, unit and hardware. */
static enum status judge_group(struct check_row *const *row, int n)
{
    struct check_peers peers;
    TRY(check_peers_of(row, n, &peers));
    for (int i = 0; i < n; i++) {
        judge_row(row[i], &peers);
        fill_in(row[i], peers.median);
    }
    return ST_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct check_row *x = *(struct check_row *const *)a, *y = *(struct check_row *const *)b;
    const int name = strcmp(x->name, y->name), unit = strcmp(x->unit, y->unit);
    return name ? name : unit ? unit : strcmp(x->hardware, y->hardware);
}

/* Calls for each run of equal names, units and hardware. */
static enum status each_group(struct check_row **row, int n,
                              enum status (*call)(struct check_row *const *row, int n))
{
    qsort(row, (size_t)n, sizeof(struct check_row *), by_name);
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && by_name(&row[first], &row[end]) == 0;)
            end++;
        TRY(call(row + first, end - first));
    }
    return ST_OK;
}

/* The links of a node, by name. */
struct links {
    int all, bad;
};

/* Are most links of `a` bad, and fewer of `b`'s? One bad link of one is no sign. */
static bool is_suspect(struct links a, struct links b)
{
    return a.bad >= 2 && 2 * a.bad > a.all && (int64_t)a.bad * b.all > (int64_t)b.bad * a.all;
}

static void suspect(struct check_row *row, int node, struct links links)
{
    char note[80], why[sizeof row->why];
    row->suspect = node;
    text_format(note, sizeof note, "%d of %d links of node %d are bad", links.bad, links.all, node);
    text_copy(why, sizeof why, row->why);
    row->why[0] = 0;
    text_format(row->why, sizeof row->why, "%s; %s", note, why);
}

static void count_links(struct check_row *const *row, int n, struct links *node)
{
    for (int i = 0; i < n; i++) {
        const int ends[] = {row[i]->node, row[i]->peer};
        for (int e = 0; e < 2; e++) {
            node[ends[e]].all += row[i]->verdict != CHECK_VERDICT_SKIPPED;
            node[ends[e]].bad += is_bad(row[i]);
        }
    }
}

static int nodes_of(struct check_row *const *row, int n)
{
    int nodes = 0;
    for (int i = 0; i < n; i++)
        nodes = row[i]->node >= nodes ? row[i]->node + 1 : nodes;
    for (int i = 0; i < n; i++)
        nodes = row[i]->peer >= nodes ? row[i]->peer + 1 : nodes;
    return nodes;
}

/* A bad port makes all links of its node bad; the nodes at their other ends are not to blame. */
static enum status find_suspects(struct check_row *const *row, int n)
{
    struct links *node = calloc((size_t)nodes_of(row, n), sizeof *node);
    if (!node)
        return FAIL(ST_RETRY, "out of memory: %d links of a check; use a machine with more", n);
    count_links(row, n, node);
    for (int i = 0; i < n; i++) {
        const int a = row[i]->node, b = row[i]->peer;
        if (!is_bad(row[i]) || row[i]->suspect >= 0)
            continue;
        if (is_suspect(node[a], node[b]))
            suspect(row[i], a, node[a]);
        else if (is_suspect(node[b], node[a]))
            suspect(row[i], b, node[b]);
    }
    free(node);
    return ST_OK;
}

#define AGAIN "measure again: convoy check CHECK=full"

/* A failing row needs more than the remedy of a warning, which is to measure again. */
static bool lacks_remedy(const struct check_row *row)
{
    return !row->remedy[0] ||
           (row->verdict == CHECK_VERDICT_FAIL && strcmp(row->remedy, AGAIN) == 0);
}

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

enum status check_judge_remedies(struct check_rows *rows)
{
    struct check_hosts hosts;
    TRY(check_host_collect(rows, &hosts));
    for (int i = 0; i < rows->n; i++)
        if (is_bad(&rows->row[i]) && lacks_remedy(&rows->row[i]))
            add_remedy(&rows->row[i], &hosts);
    check_host_free(&hosts);
    return ST_OK;
}

static bool is_measured(const struct check_row *row)
{
    return row->verdict == CHECK_VERDICT_MEASURED;
}

static bool is_link(const struct check_row *row) { return row->node >= 0 && row->peer >= 0; }

static int pick(const struct check_rows *rows, bool (*has)(const struct check_row *row),
                struct check_row **out)
{
    int n = 0;
    for (int i = 0; i < rows->n; i++)
        if (has(&rows->row[i]))
            out[n++] = &rows->row[i];
    return n;
}

static bool is_slow_core(const struct check_row *row)
{
    return row->verdict == CHECK_VERDICT_FAIL &&
           (strcmp(row->name, "cpu quota") == 0 || strcmp(row->name, "core clock") == 0);
}

/* The slow core of either end; NULL: none. */
static const struct check_row *slow_core_of(const struct check_rows *rows,
                                            const struct check_row *link)
{
    for (int i = 0; i < rows->n; i++)
        if (is_slow_core(&rows->row[i]) &&
            (rows->row[i].node == link->node || rows->row[i].node == link->peer))
            return &rows->row[i];
    return NULL;
}

/* A core that computes slowly sends slowly: what its node's links reach says nothing of them. */
static void excuse_links(struct check_rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        struct check_row *row = &rows->row[i];
        const bool is_speed =
            strcmp(row->name, "link bandwidth") == 0 || strcmp(row->name, "link latency") == 0;
        if (!is_link(row) || !is_bad(row) || !is_speed)
            continue;
        const struct check_row *core = slow_core_of(rows, row);
        if (!core)
            continue;
        row->verdict = CHECK_VERDICT_SKIPPED;
        row->suspect = -1;
        row->remedy[0] = 0;
        text_format(row->why, sizeof row->why,
                    "slower than other links, but node %d computes slowly (%s): check again when "
                    "that is mended",
                    core->node, core->name);
    }
}

enum status check_judge(struct check_rows *rows)
{
    if (rows->n == 0)
        return ST_OK;
    struct check_row **list = malloc(sizeof(struct check_row *) * (size_t)rows->n);
    if (!list)
        return FAIL(ST_RETRY, "out of memory: %d rows of a check; use a machine with more",
                    rows->n);
    enum status st = each_group(list, pick(rows, is_measured, list), judge_group);
    if (st == ST_OK)
        st = each_group(list, pick(rows, is_link, list), find_suspects);
    free(list);
    TRY(st);
    excuse_links(rows);
    return check_judge_remedies(rows);
}
