/* check_skew — computes the differences between the wall clocks of the nodes from the offsets of
 * pairs. */
#include "check/links/links.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/quantile.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"

/* by_latency — orders links by their round trip. */
static int by_latency(const void *a, const void *b)
{
    const struct measure_link_found *x = *(const struct measure_link_found *const *)a,
                                    *y = *(const struct measure_link_found *const *)b;
    return (x->best_us > y->best_us) - (x->best_us < y->best_us);
}

/* reach_one — computes the clock of one more node from the fastest link between a known and an
 * unknown node. */
static bool reach_one(const struct measure_link_found *const *order, int n, int locals,
                      struct check_skew *out)
{
    for (int i = 0; i < n; i++) {
        struct check_skew *a = &out[order[i]->a / locals], *b = &out[order[i]->b / locals];
        if (a->is_known == b->is_known)
            continue;
        const struct check_skew *from = a->is_known ? a : b;
        struct check_skew *to = a->is_known ? b : a;
        to->is_known = true;
        to->ms = from->ms + (a->is_known && to == b ? order[i]->offset_ms : -order[i]->offset_ms);
        to->error_ms = from->error_ms + order[i]->best_us * 1e-3;
        return true;
    }
    return false;
}

void check_skew_find(const struct measure_link_found *links, int n, int nodes, int locals,
                     struct check_skew *out)
{
    const struct measure_link_found **order = memory_new((size_t)(n + 1), sizeof *order);
    int used = 0;
    for (int i = 0; i < n; i++)
        if (links[i].pings > 0)
            order[used++] = &links[i];
    qsort(order, (size_t)used, sizeof *order, by_latency);
    for (int i = 0; i < nodes; i++)
        out[i] = (struct check_skew){.is_known = i == 0};
    while (reach_one(order, used, locals, out))
        continue;
    free(order);
    /* Subtract the median, so that one wrong clock is the only one with a large difference. */
    double *all = memory_new((size_t)nodes, sizeof *all);
    int known = 0;
    for (int i = 0; i < nodes; i++)
        if (out[i].is_known)
            all[known++] = (double)out[i].ms;
    quantile_sort(all, known);
    const int64_t median = nodes > 2 ? (int64_t)quantile_of(all, known, 0.5) : 0;
    free(all);
    for (int i = 0; i < nodes; i++)
        out[i].ms -= median;
}

static bool has_program(const char *root, const char *name)
{
    return check_file_is(root, "/usr/bin/%s", name) || check_file_is(root, "/usr/sbin/%s", name);
}

/* remedy_of — returns the remedy. A container has the clock of its machine, but not the machine's
 * programs. */
static const char *remedy_of(const char *root)
{
    if (check_static_container(root) != CHECK_CONTAINER_NONE)
        return "chronyc makestep && chronyc tracking # on the machine, not in the container; "
               "without chrony: timedatectl set-ntp true";
    if (has_program(root, "chronyc"))
        return "chronyc makestep && chronyc tracking";
    if (check_file_is(root, "/run/systemd/system") && has_program(root, "timedatectl"))
        return "timedatectl set-ntp false && timedatectl set-ntp true; timedatectl timesync-status";
    if (has_program(root, "ntpd"))
        return "ntpd -gq # stop its service first, and start it again";
    return "apt-get install -y chrony || dnf install -y chrony; chronyc makestep";
}

struct check_row check_skew_row(const struct check_skew *skew, const char *root, int node,
                                int nodes)
{
    if (!skew->is_known)
        return check_row_found(CHECK_STAGE_PAIRS, CHECK_POINT_HOST, node, "clock skew",
                               CHECK_VERDICT_SKIPPED, "no link of this node was measured in time");
    const int64_t off = skew->ms < 0 ? -skew->ms : skew->ms;
    const char *side = skew->ms < 0 ? "behind" : "ahead of";
    struct check_row row =
        check_row_found(CHECK_STAGE_PAIRS, CHECK_POINT_HOST, node, "clock skew",
                        (off > CHECK_SKEW_FAIL_MS   ? CHECK_VERDICT_FAIL
                         : off > CHECK_SKEW_WARN_MS ? CHECK_VERDICT_WARN
                                                    : CHECK_VERDICT_PASS),
                        "%lld ms %s %s (within %.1f ms)", (long long)off, side,
                        nodes > 2 ? "the median of the nodes" : "node 0", skew->error_ms + 1);
    text_copy(row.unit, sizeof row.unit, "ms");
    row.value = (double)off;
    row.limit = off > CHECK_SKEW_FAIL_MS ? CHECK_SKEW_FAIL_MS : CHECK_SKEW_WARN_MS;
    row.better = CHECK_BETTER_LOWER;
    if (nodes == 2 && row.verdict != CHECK_VERDICT_PASS)
        row.peer = 0; /* either clock may be the wrong one */
    if (row.verdict != CHECK_VERDICT_PASS)
        text_copy(row.remedy, sizeof row.remedy, remedy_of(root));
    return row;
}
