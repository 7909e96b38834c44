/* check_link_rows — the rows of one measured link: latency, bandwidth each way, retransmissions. */
#include "check/check_links.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "check/check_text.h"

/* For both ends; the interface is this one's. */
#define REMEDY_LINK                                                                          \
    "d=%s; ethtool $d | grep Speed; ethtool -S $d | grep -iE 'err|drop|crc'; tc qdisc show " \
    "dev $d # on both nodes; tc qdisc del dev $d root ends a limit; else cable, switch"
#define REMEDY_LATENCY                                                                          \
    "d=%s; tc -s qdisc show dev $d; ip route # on both nodes, and tracepath to the other one: " \
    "a full queue, or a longer way"

static int node_of(const struct check_links_kind *kind, int rank) { return rank / kind->locals; }

/* "node 2 - node 5", "rank 4 > rank 6": way -1 is both. */
static void set_ends(const struct check_links_kind *kind, const struct check_link *link, int way,
                     struct check_row *row)
{
    const struct measure_link_found *f = &link->found;
    const int from = way == 1 ? f->b : f->a, to = way == 1 ? f->a : f->b;
    const int node = node_of(kind, from), peer = node_of(kind, to);
    row->node = node;
    row->peer = kind->is_local ? -1 : peer;
    row->rank = kind->is_local ? from : -1;
    text_format(row->subject, sizeof row->subject, "%s %d %s %s %d",
                kind->is_local ? "rank" : "node", kind->is_local ? from : node,
                way < 0 ? "-" : "->", kind->is_local ? "rank" : "node", kind->is_local ? to : peer);
    if (!kind->is_local && link->suspect >= 0)
        row->suspect = node_of(kind, link->suspect);
}

/* Where it lies: in one link, or in all links of an end. */
static void add_place(const struct check_links_kind *kind, const struct check_link *link,
                      struct check_row *row)
{
    char *end = row->why;
    size_t left = sizeof row->why;
    while (*end != 0)
        end++, left--;
    const char *word = kind->is_local ? "rank" : "node";
    const int culprit = link->suspect;
    if (culprit >= 0)
        text_format(end, left, "; so are all links of %s %d", word,
                    kind->is_local ? culprit : node_of(kind, culprit));
    else
        text_format(end, left, "; measured again alone");
}

static void set_remedy(const struct check_links_kind *kind, const char *format,
                       struct check_row *row)
{
    char device[CHECK_TEXT_WORD];
    check_text_word(device, sizeof device, kind->device[0] ? kind->device : "DEVICE", "DEVICE");
    const char *at = strstr(format, "%s");
    text_format(row->remedy, sizeof row->remedy, "%.*s%s%s", (int)(at - format), format, device,
                at + 2);
}

static struct check_row row_of(const struct check_links_kind *kind, const struct check_link *link,
                               int way, const char *name, const char *unit, double value,
                               enum check_better better, double slack)
{
    struct check_row row = check_row_measured(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, 0, name, unit,
                                              value, better, slack);
    row.verdict = CHECK_VERDICT_PASS; /* the second look decides, not check_judge */
    set_ends(kind, link, way, &row);
    return row;
}

/* Shared memory is as fast as the cores that copy: a process that waits for one is no bad link, and
 * the stage node judges cores and memory. */
static void show_only(const struct check_links_kind *kind, struct check_row *row)
{
    if (!kind->is_host_memory)
        return;
    row->verdict = CHECK_VERDICT_PASS;
    row->slack = NAN;
}

/* Why a suspect passes. */
static void excuse(const struct check_link *link, unsigned flag, struct check_row *row)
{
    const bool is_slow = (link->bad & (CHECK_LINKS_RATE | CHECK_LINKS_RATE_BACK)) != 0;
    if (!((link->flags & flag) != 0 && (link->bad & flag) == 0))
        return;
    text_copy(row->why, sizeof row->why,
              !link->is_tested ? "worse than the others; there was no time to measure it alone, so "
                                 "it is not judged"
              : flag == CHECK_LINKS_LATENCY && is_slow
                  ? "worse than the others, as far as frames wait at its rate: see its bandwidth"
                  : "worse than the others while they were measured too; not so alone, or limited "
                    "by busy cores");
}

static void add_latency(const struct check_links_kind *kind, const struct check_link *link,
                        struct check_rows *rows)
{
    /* The measuring that the row reports. Of a link that is not late, the one that went better. */
    const bool is_late = (link->bad & CHECK_LINKS_LATENCY) != 0;
    const struct measure_link_found *f =
        link->is_tested && (is_late || link->again.best_us < link->found.best_us) ? &link->again
                                                                                  : &link->found;
    const struct check_links_norm *norm = link->is_tested ? &kind->alone : &kind->norm;
    struct check_row row =
        row_of(kind, link, -1, kind->is_local ? "local latency" : "link latency", "us", f->best_us,
               CHECK_BETTER_LOWER, fmax(kind->norm.slack_us, 2 * kind->norm.best_us));
    text_format(row.why, sizeof row.why, "%s: best %.1f us, p50 %.1f, p99 %.1f of %d round trips",
                kind->transport, f->best_us, f->p50_us, f->p99_us, f->pings);
    show_only(kind, &row);
    excuse(link, CHECK_LINKS_LATENCY, &row);
    if (link->bad & CHECK_LINKS_LATENCY) {
        row.verdict = CHECK_VERDICT_FAIL;
        row.limit = norm->best_us + fmax(norm->slack_us, 0.2 * norm->best_us);
        text_format(row.why, sizeof row.why, "%.0f us at best over %s, other links %.0f us",
                    f->best_us, kind->transport, norm->best_us);
        add_place(kind, link, &row);
        set_remedy(kind, REMEDY_LATENCY, &row);
    }
    check_row_add(rows, &row);
}

static void add_rate(const struct check_links_kind *kind, const struct check_link *link, int way,
                     struct check_rows *rows)
{
    const unsigned flag = CHECK_LINKS_RATE << way;
    const struct measure_link_way *w = &link->again.way[way];
    const struct check_links_norm *norm = w->bulk_bytes > 0 ? &kind->alone : &kind->norm;
    if (w->bulk_bytes == 0 || ((link->bad & flag) == 0 && w->rate < link->found.way[way].rate))
        w = &link->found.way[way];
    if (w->bulk_bytes == 0) {
        /* A way for which the stage had no time. */
        struct check_row row =
            check_row_found(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, 0,
                            kind->is_local ? "local bandwidth" : "link bandwidth",
                            CHECK_VERDICT_SKIPPED, "not measured: the time of this stage was over");
        set_ends(kind, link, way, &row);
        check_row_add(rows, &row);
        return;
    }
    struct check_row row =
        row_of(kind, link, way, kind->is_local ? "local bandwidth" : "link bandwidth", "GB/s",
               w->rate, CHECK_BETTER_HIGHER, fmax(kind->norm.rate_slack, 0.6 * kind->norm.rate));
    text_format(row.why, sizeof row.why, "%s: the best slice of %.0f MB in all", kind->transport,
                (double)w->bulk_bytes * 1e-6);
    show_only(kind, &row);
    excuse(link, flag, &row);
    if (link->bad & flag) {
        row.verdict = CHECK_VERDICT_FAIL;
        row.limit = check_links_rate_limit(norm);
        text_format(row.why, sizeof row.why, "%.3f GB/s at best over %s, other links %.3f GB/s",
                    w->rate, kind->transport, norm->rate);
        add_place(kind, link, &row);
        set_remedy(kind, REMEDY_LINK, &row);
    }
    check_row_add(rows, &row);
}

void check_link_rows_add(const struct check_links_kind *kind, const struct check_link *link,
                         struct check_rows *rows)
{
    if (link->found.pings == 0)
        return;
    add_latency(kind, link, rows);
    for (int way = 0; way < 2; way++) {
        add_rate(kind, link, way, rows);
        /* Retransmissions. */
        const struct measure_link_found *f = link->is_tested ? &link->again : &link->found;
        const struct measure_link_way *w = &f->way[way];
        if (kind->is_local || !f->knows_segments || w->segments <= 0)
            continue;
        const double share = (double)w->resent / (double)w->segments;
        struct check_row row = row_of(kind, link, way, "link retransmissions", "%", 100 * share,
                                      CHECK_BETTER_LOWER, 0);
        row.verdict = CHECK_VERDICT_PASS;
        row.limit = 0.3;
        text_format(row.why, sizeof row.why,
                    "%lld of %lld segments sent again while the link was idle",
                    (long long)w->resent, (long long)w->segments);
        if (link->bad & CHECK_LINKS_LOSS << way) {
            row.verdict = CHECK_VERDICT_FAIL;
            add_place(kind, link, &row);
            set_remedy(kind, REMEDY_LINK, &row);
        }
        check_row_add(rows, &row);
    }
}
