/* check_node — stage 2: the performance of this node by itself. Measures products, memory, copies
 * between host and GPU, every core and the disk of checkpoints, and checks whether a CPU quota
 * slows the node down.
 *
 * Measurements at the same time or in turn. All ranks measure products and memory at the same time,
 * because training uses them at the same time. The relevant rate of a worker is its rate while the
 * others compute, and the relevant clock of a GPU is its clock while all of them are hot. Ranks of
 * a node take turns for copies between host and GPU, which share the host's memory and switches and
 * would hide a slow link among fast ones. Each core is measured by itself. One rank of a node
 * measures the disk, on all nodes at the same time, because a shared disk has to bear that; a disk
 * that seems slow is measured again while the others rest.
 *
 * A failure here becomes a row; the stage goes on with the remaining measurements. */
#include "check/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "check/node/disk.h"
#include "check/check_judge.h"
#include "check/node/inside.h"
#include "check/host/static.h"
#include "dev/cuda/cuda.h"
#include "measure/measure_ranks.h"

/* shares of the stage's budget: for the measurements, and for the search for sizes */
#define SHARES 16
#define SLICES_MIN 8
/* multiple of the limit, so that a thread that gets little of its core also ends */
#define PATIENCE 8

/* report_progress — reports the share `done` of the stage. Returns ST_OK, or the failure that ends
 * the check. */
static enum status report_progress(const struct check_node *n, double done)
{
    const struct check_config *config = n->config;
    return config->progress ? config->progress(config->arg, CHECK_STAGE_NODE, done) : ST_OK;
}

enum status check_node_failed(struct check_node *n, const char *name, enum status st)
{
    if (st == ST_PEER || st == ST_RETRY)
        return st;
    struct check_row row =
        check_row_found(CHECK_STAGE_NODE, CHECK_POINT_HOST, n->config->place.node, name,
                        CHECK_VERDICT_FAIL, "cannot be measured: %s", status_message());
    row.rank = n->config->place.rank;
    text_copy(row.subject, sizeof row.subject, n->subject);
    status_clear();
    check_row_add(n->rows, &row);
    return ST_OK;
}

void check_node_add(struct check_node *n, const char *name, const char *unit, double value,
                    double slack, const char *why)
{
    struct check_row row =
        check_row_measured(CHECK_STAGE_NODE, CHECK_POINT_HOST, n->config->place.node, name, unit,
                           value, CHECK_BETTER_HIGHER, slack);
    row.rank = n->config->place.rank;
    text_copy(row.subject, sizeof row.subject, n->subject);
    text_copy(row.hardware, sizeof row.hardware, n->hardware);
    text_copy(row.why, sizeof row.why, why);
    if (n->is_gpu)
        text_format(row.remedy, sizeof row.remedy,
                    dev_cuda_chosen() == DEV_GPU_HIP
                        ? "amd-smi metric -g %s --clock --temperature"
                        : "nvidia-smi -i %s -q -d PERFORMANCE,CLOCK,TEMPERATURE",
                    n->info.bus);
    check_row_add(n->rows, &row);
}

/* ---- a quota of CPU time ---- */

void check_node_quota_begin(const char *root, struct check_node_quota *out)
{
    char proc[FILE_PATH_MAX], sys[FILE_PATH_MAX];
    *out = (struct check_node_quota){.stopped_us = -1, .at_ns = clock_ns()};
    if (!text_format(proc, sizeof proc, "%s/proc/self/cgroup", root) ||
        !text_format(sys, sizeof sys, "%s/sys/fs/cgroup", root))
        return;
    out->cpus = cgroup_quota(proc, sys);
    out->stopped_us = cgroup_stopped_us(proc, sys);
}

/* stopped_share — returns the share of the time for which threads were stopped. The kernel adds the
 * time of all CPUs. */
static double stopped_share(const struct check_node_quota *begin,
                            const struct check_node_quota *end, int threads)
{
    double us = (double)(end->at_ns - begin->at_ns) * 1e-3 * threads;
    if (begin->stopped_us < 0 || end->stopped_us <= begin->stopped_us || us <= 0)
        return 0;
    return fmin(1, (double)(end->stopped_us - begin->stopped_us) / us);
}

static struct check_row quota_row(const char *root, int node, const struct check_node_quota *begin,
                                  const struct check_node_quota *end, int threads)
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
    if (verdict != CHECK_VERDICT_PASS) {
        const enum check_container container = check_static_container(root);
        if (container == CHECK_CONTAINER_K8S)
            text_format(row.remedy, sizeof row.remedy, "resources: {limits: {cpu: \"%d\"}}",
                        threads);
        else if (container == CHECK_CONTAINER_DOCKER)
            text_format(row.remedy, sizeof row.remedy, "docker update --cpus %d CONTAINER",
                        threads);
        else
            text_format(
                row.remedy, sizeof row.remedy,
                "cat /proc/self/cgroup; systemctl set-property UNIT CPUQuota=%d%% # of its unit",
                100 * threads);
    }
    return row;
}

void check_node_quota_end(const struct check_config *config, const struct check_node_quota *begin,
                          int threads, struct check_rows *rows)
{
    struct check_node_quota end;
    const int node = config->place.node;
    struct check_row row = check_row_found(CHECK_STAGE_NODE, CHECK_POINT_SCHEDULING, node,
                                           "cpu quota", CHECK_VERDICT_PASS, "there is none");
    check_node_quota_begin(config->root, &end);
    if (end.cpus > 0)
        row = quota_row(config->root ? config->root : "", node, begin, &end, threads);
    row.rank = config->place.rank;
    check_row_add(rows, &row);
}

/* ---- sizes, the same on all ranks ---- */

/* Message between ranks: a rank's kind of device and its sizes. */
struct offer {
    char device[64];
    struct check_node_sizes sizes;
};

/* ---- the stage ---- */

static enum status measure_node(struct check_node *n)
{
    TRY(check_node_rates_begin(n));
    /* Use the same sizes on all ranks with one kind of device; otherwise rates could not be
     * compared. */
    const int ranks = n->config->comm ? n->config->place.ranks : 1;
    struct offer own = {.sizes = n->sizes}, *all = memory_new((size_t)ranks, sizeof *all);
    text_copy(own.device, sizeof own.device, n->is_gpu ? n->hardware : "cpu");
    enum status st = measure_ranks_gather(n->config->comm, &own, sizeof own, all);
    for (int i = 0; st == ST_OK && i < ranks; i++)
        if (strcmp(all[i].device, own.device) == 0) {
            for (int kind = 0; kind < CHECK_NODE_KIND_N; kind++)
                if (n->sizes.of[kind] > 0 && all[i].sizes.of[kind] > 0 &&
                    all[i].sizes.of[kind] < n->sizes.of[kind])
                    n->sizes.of[kind] = all[i].sizes.of[kind];
        }
    free(all);
    TRY(st);
    TRY(report_progress(n, 0.2));
    TRY(check_node_rates_measure(n));
    TRY(report_progress(n, 0.7));
    TRY(check_node_rates_host(n));
    TRY(check_node_core_measure(n));
    TRY(report_progress(n, 0.9));
    static const int64_t mib[] = {2, 32, 256};
    TRY(check_disk(n->config, mib[n->config->depth] << 20, 4 * n->limit_ms, n->rows));
    return report_progress(n, 1);
}

/* node_threads — returns the number of threads of all workers of the node, at most its cores. */
static int node_threads(const struct check_node *n)
{
    int cores = thread_pool_cores(), threads = n->info.threads_n * n->config->place.locals;
    return threads < cores ? threads : cores;
}

enum status check_node_run(const struct check_config *config, int64_t budget_ms,
                           struct check_rows *rows)
{
    struct check_node n = {
        .config = config, .rows = rows, .timer = {.slices_min = SLICES_MIN, .patience = PATIENCE}};
    struct check_node_quota quota;
    check_node_quota_begin(config->root, &quota);
    const struct comm_place *place = &n.config->place;
    dev_info(n.config->dev, &n.info);
    n.is_gpu = n.info.kind == DEV_KIND_GPU;
    n.timer.threads_n = n.is_gpu ? 0 : n.info.threads_n;
    if (n.is_gpu)
        check_judge_gpu(n.info.name, n.hardware, sizeof n.hardware);
    if (n.is_gpu)
        text_format(n.subject, sizeof n.subject, "GPU %d", place->local);
    else if (place->locals > 1)
        text_format(n.subject, sizeof n.subject, "worker %d", place->local);
    static const int64_t most_ms[] = {5, 100, 1000};
    n.limit_ms = budget_ms / SHARES;
    if (n.limit_ms > most_ms[n.config->depth])
        n.limit_ms = most_ms[n.config->depth];
    if (n.limit_ms < 1)
        n.limit_ms = 1;
    TRY(dev_make_current(config->dev));
    TRY(dev_stream_open(config->dev, &n.timer.stream));
    enum status st = measure_node(&n);
    measure_memory_close(&n.memory);
    dev_stream_close(n.timer.stream);
    TRY(st);
    if (config->place.local == 0)
        check_node_quota_end(config, &quota, node_threads(&n), rows);
    return ST_OK;
}
