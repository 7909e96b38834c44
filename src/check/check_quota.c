/* check_quota — see check_quota.h. */
#include "check/check_quota.h"

#include <math.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "check/check_judge.h"
#include "check/check_static.h"

void check_quota_begin(const char *root, struct check_quota *out)
{
    char proc[FILE_PATH_MAX], sys[FILE_PATH_MAX];
    *out = (struct check_quota){.stopped_us = -1, .at_ns = clock_ns()};
    if (!text_format(proc, sizeof proc, "%s/proc/self/cgroup", root) ||
        !text_format(sys, sizeof sys, "%s/sys/fs/cgroup", root))
        return;
    out->cpus = cgroup_quota(proc, sys);
    out->stopped_us = cgroup_stopped_us(proc, sys);
}

/* The share of the time for which threads stood still. The kernel adds up over CPUs. */
static double stopped_share(const struct check_quota *begin, const struct check_quota *end,
                            int threads)
{
    double us = (double)(end->at_ns - begin->at_ns) * 1e-3 * threads;
    if (begin->stopped_us < 0 || end->stopped_us <= begin->stopped_us || us <= 0)
        return 0;
    return fmin(1, (double)(end->stopped_us - begin->stopped_us) / us);
}

static void set_remedy(const char *root, int threads, struct check_row *row)
{
    const enum check_container container = check_static_container(root);
    if (container == CHECK_CONTAINER_K8S)
        text_format(row->remedy, sizeof row->remedy, "resources: {limits: {cpu: \"%d\"}}", threads);
    else if (container == CHECK_CONTAINER_DOCKER)
        text_format(row->remedy, sizeof row->remedy, "docker update --cpus %d CONTAINER", threads);
    else
        text_format(
            row->remedy, sizeof row->remedy,
            "cat /proc/self/cgroup; systemctl set-property UNIT CPUQuota=%d%% # of its unit",
            100 * threads);
}

static struct check_row quota_row(const char *root, int node, const struct check_quota *begin,
                                  const struct check_quota *end, int threads)
{
    const double held = stopped_share(begin, end, threads),
                 lacks = end->cpus < threads ? 1 - end->cpus / threads : 0,
                 worst = fmax(held, lacks);
    enum check_verdict verdict = worst >= CHECK_JUDGE_FAIL   ? CHECK_VERDICT_FAIL
                                 : worst >= CHECK_JUDGE_WARN ? CHECK_VERDICT_WARN
                                                             : CHECK_VERDICT_PASS;
    struct check_row row =
        check_row_found(CHECK_STAGE_NODE, CHECK_POINT_SCHEDULING, node, "cpu quota", verdict,
                        "a CPU quota of %.2f cores for %d threads stops this node for %.0f %% of "
                        "the time; it was stopped for %.0f %% of this check",
                        end->cpus, threads, 100 * worst, 100 * held);
    text_copy(row.unit, sizeof row.unit, "cores");
    row.value = end->cpus;
    if (verdict != CHECK_VERDICT_PASS)
        set_remedy(root, threads, &row);
    return row;
}

enum status check_quota_end(const struct check_config *config, const struct check_quota *begin,
                            int threads, struct check_rows *rows)
{
    struct check_quota end;
    const int node = config->place.node;
    struct check_row row = check_row_found(CHECK_STAGE_NODE, CHECK_POINT_SCHEDULING, node,
                                           "cpu quota", CHECK_VERDICT_PASS, "there is none");
    check_quota_begin(config->root, &end);
    if (end.cpus > 0)
        row = quota_row(config->root ? config->root : "", node, begin, &end, threads);
    row.rank = config->place.rank;
    return check_rows_add(rows, &row);
}
