/* check_suspects — see check_suspects.h. */
#include "check/check_suspects.h"

#include <math.h>

#define SLOWER_MAX 4 /* links of these that are slow, and no outliers */

struct view {
    struct check_link_rows_link *links;
    int n;
    const struct check_link_rows_kind *kind;
};

static bool is_listed(const struct check_suspects *again, int link)
{
    for (int i = 0; i < again->n; i++)
        if (again->link[i] == link)
            return true;
    return false;
}

static void list_suspect(struct check_suspects *again, int link, unsigned flags)
{
    again->open[again->n] = flags;
    again->link[again->n++] = link;
    again->suspects = again->n;
}

/* The worst one that is not listed yet; -1: none. */
static int worst_of(const struct view *v, const struct check_suspects *again)
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

/* The slowest one that is not listed yet; -1: none is slower than it should be. */
static int slowest_of(const struct view *v, const struct check_suspects *again, unsigned *flags_out)
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

static void list_suspects(const struct view *v, int max, struct check_suspects *again)
{
    unsigned flags = 0;
    for (int i; again->n < max && (i = worst_of(v, again)) >= 0;)
        list_suspect(again, i, v->links[i].flags);
    for (int k = 0, i; k < SLOWER_MAX && again->n < max && (i = slowest_of(v, again, &flags)) >= 0;
         k++) {
        v->links[i].flags |= flags;
        list_suspect(again, i, v->links[i].flags);
    }
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

static void remove_suspect(struct check_suspects *again, int job)
{
    again->n = --again->suspects;
    for (int i = job; i < again->n; i++) {
        again->link[i] = again->link[i + 1];
        again->open[i] = again->open[i + 1];
    }
}

/* Without a link that looks normal nothing is bad. Where nearly all links are suspects, as of four
 * nodes on a busy machine, the least bad of these are taken for normal: half of all, at most. */
static void spare_references(const struct view *v, struct check_suspects *again)
{
    const int want = v->n / 2 < CHECK_SUSPECTS_NORMAL ? v->n / 2 : CHECK_SUSPECTS_NORMAL;
    while (v->kind->norm.n >= 3 && count_normal(v) < want && again->suspects > 0) {
        int least = 0;
        for (int job = 1; job < again->suspects; job++)
            if (severity_of(v, again->link[job]) < severity_of(v, again->link[least]))
                least = job;
        v->links[again->link[least]].flags = 0;
        remove_suspect(again, least);
    }
}

static double distance(const struct view *v, int i)
{
    const struct measure_link_found *f = &v->links[i].found;
    return fabs(f->way[0].rate - v->kind->norm.rate) + fabs(f->way[1].rate - v->kind->norm.rate) +
           1e-9 * i;
}

/* The links nearest to the norm. */
static void list_references(const struct view *v, struct check_suspects *again)
{
    double last = -1;
    for (int k = 0; k < CHECK_SUSPECTS_NORMAL; k++) {
        int best = -1;
        for (int i = 0; i < v->n; i++)
            if (v->links[i].flags == 0 && distance(v, i) > last &&
                (best < 0 || distance(v, i) < distance(v, best)))
                best = i;
        if (best < 0)
            return;
        last = distance(v, best);
        again->link[again->n++] = best;
    }
}

void check_suspects_list(struct check_link_rows_link *links, int n,
                         const struct check_link_rows_kind *kind, int max,
                         struct check_suspects *out)
{
    const struct view v = {links, n, kind};
    *out = (struct check_suspects){0};
    list_suspects(&v, max, out);
    spare_references(&v, out);
    if (out->suspects > 0)
        list_references(&v, out);
}
