/* check_links — see links/links.h. */
#include "check/links/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/quantile.h"

#define WORSE 0.20  /* share by which a value is worse; the limit of check_judge for FAIL */
#define OUTLIER 3.5 /* multiple of the scatter */
/* share; if slices and measurements differ by no more, the link itself limits the rate */
#define STEADY 0.10
#define JITTER_MAX_US 1000 /* most jitter of a busy machine; a longer delay is no jitter */
#define FRAME_BYTES 1500   /* bytes of an Ethernet frame */
#define LOSS_MIN 3         /* least number of retransmissions of a faulty link */
#define LOSS_SHARE 0.003   /* least share of segments that a faulty link sends again */

/* scatter_of — returns the median of the distances from the norm, as a standard deviation. */
static double scatter_of(const double *values, int n, double norm, double *distances)
{
    for (int i = 0; i < n; i++)
        distances[i] = fabs(values[i] - norm);
    quantile_sort(distances, n);
    return QUANTILE_SIGMA_OF_MAD * quantile_of(distances, n, 0.5);
}

/* norm_of — sorts the values from the best one on, and returns their norm and their scatter about
 * it. `values` has room for n further values. The scatter is the smaller one of the better
 * half and of all values: if many links are bad, they scatter; if bytes wait in buffers, some links
 * seem far better than they are. */
static double norm_of(double *values, int n, double quantile, bool is_higher_better,
                      double *scatter_out)
{
    quantile_sort(values, n);
    for (int i = 0; i < n / 2 && is_higher_better; i++) {
        double swap = values[i];
        values[i] = values[n - 1 - i];
        values[n - 1 - i] = swap;
    }
    const double norm = values[(int)(quantile * (n - 1))];
    *scatter_out = fmin(scatter_of(values, (n + 1) / 2, norm, values + n),
                        scatter_of(values, n, norm, values + n));
    return norm;
}

static double resent_share(const struct measure_link_way *way)
{
    return way->bulk_segments > 0 ? (double)way->bulk_resent / (double)way->bulk_segments : 0;
}

static bool is_measured(const struct measure_link_found *link) { return link->pings > 0; }

/* norm_of_latency — returns the norm of a latency over all links, and the difference to it that is
 * not significant. */
static double norm_of_latency(const struct measure_link_found *links, int n, double quantile,
                              double (*get)(const struct measure_link_found *), double *values,
                              double *slack_out)
{
    double scatter;
    int used = 0;
    for (int i = 0; i < n; i++)
        if (is_measured(&links[i]))
            values[used++] = get(&links[i]);
    const double norm = norm_of(values, used, quantile, false, &scatter);
    *slack_out = OUTLIER * scatter;
    return norm;
}

static double get_best(const struct measure_link_found *link) { return link->best_us; }
static double get_early(const struct measure_link_found *link) { return link->early_us; }
static double get_pings(const struct measure_link_found *link) { return link->pings; }
static double get_jitter(const struct measure_link_found *link)
{
    return link->p50_us - link->best_us;
}

void check_links_norm(const struct measure_link_found *links, int n, double quantile,
                      double floor_us, struct check_links_norm *out)
{
    *out = (struct check_links_norm){.slack_us = floor_us};
    bool is_any = false;
    for (int i = 0; i < n; i++)
        is_any = is_any || is_measured(&links[i]);
    if (!is_any)
        return;
    double *values = memory_new(4 * (size_t)n, sizeof *values);
    double best, early, unused;
    for (int i = 0; i < n; i++)
        out->n += is_measured(&links[i]);
    const double jitter = norm_of_latency(links, n, quantile, get_jitter, values, &unused);
    const double least = fmax(floor_us, fmin(2 * jitter, JITTER_MAX_US));
    out->floor_us = floor_us;
    out->best_us = norm_of_latency(links, n, quantile, get_best, values, &best);
    out->best_most_us = out->n > 0 ? values[out->n - 1 - out->n / 10] : 0;
    out->early_us = norm_of_latency(links, n, quantile, get_early, values, &early);
    out->slack_us = fmax(least, best);
    out->early_slack_us = fmax(least, early);
    out->pings = (int)norm_of_latency(links, n, 0.5, get_pings, values, &unused);
    double scatter;
    int used = 0;
    for (int i = 0; i < 2 * n; i++)
        if (links[i / 2].way[i % 2].bulk_bytes > 0)
            values[used++] = links[i / 2].way[i % 2].rate;
    if (used > 0) {
        out->rate = norm_of(values, used, quantile, true, &scatter);
        out->rate_slack = OUTLIER * scatter;
        out->rate_least = values[used - 1 - used / 10];
        for (int i = used = 0; i < 2 * n; i++)
            if (links[i / 2].way[i % 2].bulk_bytes > 0)
                values[used++] = resent_share(&links[i / 2].way[i % 2]);
        out->bulk_resent = norm_of(values, used, quantile, false, &scatter);
    }
    free(values);
}

/* ---- the first look ---- */

static bool is_late(double us, double norm_us, double slack_us)
{
    return us > (1 + WORSE) * norm_us && us - norm_us > slack_us;
}

unsigned check_links_suspect(const struct measure_link_found *link,
                             const struct check_links_norm *norm)
{
    unsigned flags = 0;
    if (!is_measured(link))
        return 0;
    if (norm->n >= 3 && is_late(link->best_us, norm->best_us, norm->slack_us))
        flags |= CHECK_LINKS_LATENCY;
    for (int way = 0; way < 2; way++) {
        const struct measure_link_way *w = &link->way[way];
        if (norm->n >= 3 && w->bulk_bytes > 0 && w->rate < check_links_rate_limit(norm))
            flags |= CHECK_LINKS_RATE << way;
        if (link->knows_segments &&
            (w->resent > 0 || (w->bulk_resent > 2 && resent_share(w) > 0.002 &&
                               resent_share(w) > 3 * norm->bulk_resent)))
            flags |= CHECK_LINKS_LOSS << way;
    }
    return flags;
}

unsigned check_links_slower(const struct measure_link_found *link,
                            const struct check_links_norm *norm, double *share_out)
{
    unsigned flags = 0;
    *share_out = 1;
    for (int way = 0; way < 2 && norm->n >= 3 && norm->rate > 0; way++) {
        const struct measure_link_way *w = &link->way[way];
        const double share = w->rate / norm->rate;
        if (w->bulk_bytes == 0 || share >= 1 - WORSE)
            continue;
        flags |= CHECK_LINKS_RATE << way;
        *share_out = fmin(*share_out, share);
    }
    return flags;
}

double check_links_severity(const struct measure_link_found *link,
                            const struct check_links_norm *norm)
{
    double worst = norm->best_us > 0 ? link->best_us / norm->best_us : 1;
    for (int way = 0; way < 2; way++) {
        const struct measure_link_way *w = &link->way[way];
        if (w->rate > 0)
            worst = fmax(worst, norm->rate / w->rate);
        if (w->segments > 0) /* 1 % counts like ten times the latency */
            worst = fmax(worst, 1000.0 * (double)w->resent / (double)w->segments);
    }
    return worst;
}

/* ---- the second look ---- */

void check_links_merge(struct measure_link_found *best, const struct measure_link_found *more)
{
    if (!is_measured(best)) {
        *best = *more;
        return;
    }
    if (!is_measured(more))
        return;
    if (more->best_us < best->best_us)
        best->offset_ms = more->offset_ms;
    best->pings += more->pings;
    best->best_us = fmin(best->best_us, more->best_us);
    best->early_us = fmin(best->early_us, more->early_us);
    best->net_us = fmin(best->net_us, more->net_us);
    best->p50_us = fmin(best->p50_us, more->p50_us);
    best->p99_us = fmin(best->p99_us, more->p99_us);
    for (int way = 0; way < 2; way++) {
        struct measure_link_way *b = &best->way[way];
        const struct measure_link_way *m = &more->way[way];
        b->bulk_bytes += m->bulk_bytes;
        b->segments += m->segments;
        b->resent += m->resent;
        b->bulk_segments += m->bulk_segments;
        b->bulk_resent += m->bulk_resent;
        b->second = fmax(b->second, fmin(b->rate, m->rate));
        if (m->rate <= b->rate)
            continue;
        b->rate = m->rate;
        b->rate_max = m->rate_max;
        b->spread = m->spread;
    }
}

double check_links_rate_limit(const struct check_links_norm *norm)
{
    return fmax(fmin((1 - WORSE) * norm->rate, norm->rate - norm->rate_slack),
                norm->rate_least / 2);
}

/* is_steady — returns true if a rate is a property of the link. If two measurements differ in the
 * end, one of them was disturbed and a third one might be near the better one, so they decide
 * nothing. */
static bool is_steady(const struct measure_link_way *way, bool is_last)
{
    const bool repeats = !is_last || way->second == 0 || way->second > (1 - STEADY) * way->rate;
    return way->spread < STEADY && repeats;
}

/* is_slow — returns true if the way is slow. In the end, a rate that normal links also had at times
 * decides nothing: their ends shared a core then, or its memory. */
static bool is_slow(const struct measure_link_way *way, const struct check_links_norm *norm,
                    bool is_last)
{
    const double limit = is_last
                             ? fmin(check_links_rate_limit(norm), (1 - WORSE) * norm->rate_least)
                             : check_links_rate_limit(norm);
    return way->rate < limit && (way->rate_max < limit || is_steady(way, is_last));
}

/* is_late_alone — returns true if the link is also late without the waits for a core, with the
 * number of pings of the normal links, and in the end later than any single measurement of those.
 * explained_us: the share that its rate explains. */
static bool is_late_alone(const struct measure_link_found *link,
                          const struct check_links_norm *norm, double explained_us, bool is_last)
{
    return is_late(link->best_us, norm->best_us, fmax(norm->slack_us, explained_us)) &&
           (!is_last || link->best_us > (1 + WORSE) * norm->best_most_us) &&
           is_late(link->net_us, norm->best_us, fmax(norm->floor_us, explained_us)) &&
           (2 * link->pings >= norm->pings ||
            is_late(link->early_us, norm->early_us, fmax(norm->early_slack_us, explained_us)));
}

/* frames_us — returns the time for two frames on a slow link; 0: the link is not slow. */
static double frames_us(const struct measure_link_found *link, unsigned slow)
{
    double us = 0;
    for (int way = 0; way < 2; way++)
        if (slow & CHECK_LINKS_RATE << way)
            us = fmax(us, 2 * FRAME_BYTES / link->way[way].rate * 1e-3);
    return us;
}

unsigned check_links_confirm(const struct measure_link_found *link, unsigned flags,
                             const struct check_links_norm *alone, bool is_last)
{
    unsigned bad = 0;
    for (int way = 0; way < 2; way++) {
        const struct measure_link_way *w = &link->way[way];
        if ((flags & CHECK_LINKS_RATE << way) && alone->n > 0 && w->bulk_bytes > 0 &&
            is_slow(w, alone, is_last))
            bad |= CHECK_LINKS_RATE << way;
        if ((flags & CHECK_LINKS_LOSS << way) &&
            (w->resent >= LOSS_MIN && (double)w->resent > LOSS_SHARE * (double)w->segments))
            bad |= CHECK_LINKS_LOSS << way;
    }
    if ((flags & CHECK_LINKS_LATENCY) && alone->n > 0 &&
        is_late_alone(link, alone, frames_us(link, bad), is_last))
        bad |= CHECK_LINKS_LATENCY;
    return bad;
}

/* ---- links and nodes ---- */

/* Numbers of an end's links: measured, bad, and cleared. */
struct count {
    int measured, bad, cleared;
};

static struct count count_end(const struct check_link *links, int n, int end)
{
    struct count count = {0};
    for (int i = 0; i < n; i++) {
        const struct check_link *link = &links[i];
        const bool is_known = link->flags == 0 || link->is_tested;
        if (!is_known || (link->found.a != end && link->found.b != end))
            continue;
        count.measured++;
        count.bad += link->bad != 0;
        count.cleared += link->bad == 0 && link->flags != 0;
    }
    return count;
}

static bool is_culprit(struct count mine, struct count other)
{
    return mine.bad >= 2 && mine.cleared == 0 && 2 * mine.bad > mine.measured &&
           mine.bad * other.measured > other.bad * mine.measured;
}

void check_links_blame(struct check_link *links, int n)
{
    for (int i = 0; i < n; i++) {
        struct check_link *link = &links[i];
        link->suspect = -1;
        if (link->bad == 0)
            continue;
        const struct count a = count_end(links, n, link->found.a),
                           b = count_end(links, n, link->found.b);
        if (is_culprit(a, b))
            link->suspect = link->found.a;
        else if (is_culprit(b, a))
            link->suspect = link->found.b;
    }
}

/* ---- which links are measured again ---- */

#define SLOWER_MAX 4 /* most links that are slow without being outliers */

struct view {
    struct check_link *links;
    int n;
    const struct check_links_kind *kind;
};

static bool is_listed(const struct check_links_again *again, int link)
{
    for (int i = 0; i < again->n; i++)
        if (again->link[i] == link)
            return true;
    return false;
}

static void list_suspect(struct check_links_again *again, int link, unsigned flags)
{
    again->open[again->n] = flags;
    again->link[again->n++] = link;
    again->suspects = again->n;
}

/* worst_of — returns the worst link that is not listed yet; -1: none. */
static int worst_of(const struct view *v, const struct check_links_again *again)
{
    int worst = -1;
    double most = 0;
    for (int i = 0; i < v->n; i++) {
        const double severity = check_links_severity(&v->links[i].found, &v->kind->norm);
        if (v->links[i].flags == 0 || is_listed(again, i) || severity <= most)
            continue;
        most = severity;
        worst = i;
    }
    return worst;
}

/* slowest_of — returns the slowest link that is not listed yet; -1: no further link is too slow. */
static int slowest_of(const struct view *v, const struct check_links_again *again,
                      unsigned *flags_out)
{
    int slowest = -1;
    double least = 1, share;
    for (int i = 0; i < v->n; i++) {
        const unsigned flags = check_links_slower(&v->links[i].found, &v->kind->norm, &share);
        if (v->kind->is_host_memory || flags == 0 || is_listed(again, i) || share >= least)
            continue;
        least = share;
        slowest = i;
        *flags_out = flags;
    }
    return slowest;
}

static int count_normal(const struct view *v)
{
    int n = 0;
    for (int i = 0; i < v->n; i++)
        n += v->links[i].flags == 0;
    return n;
}

static double severity_of(const struct view *v, int link)
{
    return check_links_severity(&v->links[link].found, &v->kind->norm);
}

static double compute_distance(const struct view *v, int i)
{
    const struct measure_link_found *f = &v->links[i].found;
    return fabs(f->way[0].rate - v->kind->norm.rate) + fabs(f->way[1].rate - v->kind->norm.rate) +
           1e-9 * i;
}

/* list_references — lists the links nearest to the norm. */
static void list_references(const struct view *v, struct check_links_again *again)
{
    double last = -1;
    for (int k = 0; k < CHECK_LINKS_AGAIN_NORMAL; k++) {
        int best = -1;
        for (int i = 0; i < v->n; i++)
            if (v->links[i].flags == 0 && compute_distance(v, i) > last &&
                (best < 0 || compute_distance(v, i) < compute_distance(v, best)))
                best = i;
        if (best < 0)
            return;
        last = compute_distance(v, best);
        again->link[again->n++] = best;
    }
}

void check_links_list(struct check_link *links, int n, const struct check_links_kind *kind, int max,
                      struct check_links_again *out)
{
    const struct view v = {links, n, kind};
    *out = (struct check_links_again){0};
    unsigned flags = 0;
    for (int i; out->n < max && (i = worst_of(&v, out)) >= 0;)
        list_suspect(out, i, v.links[i].flags);
    for (int k = 0, i; k < SLOWER_MAX && out->n < max && (i = slowest_of(&v, out, &flags)) >= 0;
         k++) {
        v.links[i].flags |= flags;
        list_suspect(out, i, v.links[i].flags);
    }
    /* Without a normal link no link can be bad. If nearly all links are suspects, for example of
     * four nodes on a busy machine, the least bad ones are regarded as normal: at most half of all
     * links. */
    const int want = v.n / 2 < CHECK_LINKS_AGAIN_NORMAL ? v.n / 2 : CHECK_LINKS_AGAIN_NORMAL;
    while (v.kind->norm.n >= 3 && count_normal(&v) < want && out->suspects > 0) {
        int least = 0;
        for (int job = 1; job < out->suspects; job++)
            if (severity_of(&v, out->link[job]) < severity_of(&v, out->link[least]))
                least = job;
        v.links[out->link[least]].flags = 0;
        out->n = --out->suspects;
        for (int i = least; i < out->n; i++) {
            out->link[i] = out->link[i + 1];
            out->open[i] = out->open[i + 1];
        }
    }
    if (out->suspects > 0)
        list_references(&v, out);
}
