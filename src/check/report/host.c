/* check_host — see report/host.h. */
#include "check/report/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* Names of rows, by scheduler: the row's name shows which scheduler uses the node's name. */
static const char *const row_names[] = {"host", "slurm node", "kubernetes node", "kubernetes pod"};
enum { SCHEDULERS = sizeof row_names / sizeof row_names[0] };

struct check_row check_host_row(int node, enum check_scheduler scheduler, const char *name)
{
    struct check_row row =
        check_row_found(CHECK_STAGE_AGREEMENT, CHECK_POINT_WORKERS, node, row_names[scheduler],
                        CHECK_VERDICT_PASS, "node %d is %.64s", node, name);
    text_copy(row.subject, sizeof row.subject, name);
    return row;
}

/* Returns the scheduler of a row; SCHEDULERS: the row has no name of a node. */
static int scheduler_of(const struct check_row *row)
{
    int s = 0;
    while (s < SCHEDULERS && strcmp(row->name, row_names[s]) != 0)
        s++;
    return row->stage == CHECK_STAGE_AGREEMENT && row->node >= 0 && row->subject[0] ? s
                                                                                    : SCHEDULERS;
}

static int by_name(const void *a, const void *b)
{
    const struct check_host *x = *(struct check_host *const *)a,
                            *y = *(struct check_host *const *)b;
    return strcmp(x->name, y->name);
}

void check_host_collect(const struct check_rows *rows, struct check_hosts *out)
{
    *out = (struct check_hosts){0};
    int nodes = 0;
    for (int i = 0; i < rows->n; i++)
        if (scheduler_of(&rows->row[i]) < SCHEDULERS && rows->row[i].node >= nodes)
            nodes = rows->row[i].node + 1;
    if (nodes == 0)
        return;
    out->host = memory_new((size_t)nodes, sizeof *out->host);
    out->n = nodes;
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        const int scheduler = scheduler_of(row);
        if (scheduler == SCHEDULERS)
            continue;
        struct check_host *host = &out->host[row->node];
        host->scheduler = (enum check_scheduler)scheduler;
        text_copy(host->name, sizeof host->name, row->subject);
    }
    const struct check_host **sorted = memory_new((size_t)out->n, sizeof *sorted);
    for (int i = 0; i < out->n; i++)
        sorted[i] = &out->host[i];
    qsort(sorted, (size_t)out->n, sizeof(struct check_host *), by_name);
    for (int i = 1; i < out->n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            out->is_ambiguous = true;
    free(sorted);
}

void check_host_free(struct check_hosts *hosts)
{
    free(hosts->host);
    *hosts = (struct check_hosts){0};
}

const char *check_host_name(const struct check_hosts *hosts, int node)
{
    return node >= 0 && node < hosts->n ? hosts->host[node].name : "";
}

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/* Returns true if the name means the same with and without quotes in any shell. */
static bool is_plain(const char *name)
{
    return name[0] && name[0] != '-' && name[strspn(name, plain)] == 0;
}

static void leave_out(const struct check_hosts *hosts, int node, char *out, size_t cap)
{
    const char *name = check_host_name(hosts, node);
    if (hosts->n > 1)
        text_format(out, cap, "repair node %d%s%s, or start only the others: N_NODES=%d", node,
                    is_plain(name) ? ", " : "", is_plain(name) ? name : "", hosts->n - 1);
    else
        text_format(out, cap, "repair this machine, then measure: convoy check CHECK=full");
}

void check_host_remedy(const struct check_hosts *hosts, int node, const char *reason, char *out,
                       size_t cap)
{
    const char *name = check_host_name(hosts, node);
    char said[41];
    text_copy(said, sizeof said, reason);
    for (char *c = said; *c; c++)
        if (*c != ' ' && !strchr(plain, *c))
            *c = '_';
    switch (is_plain(name) ? hosts->host[node].scheduler : CHECK_SCHEDULER_NONE) {
    case CHECK_SCHEDULER_SLURM:
        text_format(out, cap, "scontrol update NodeName=%s State=DRAIN Reason=\"convoy check: %s\"",
                    name, said);
        return;
    case CHECK_SCHEDULER_KUBERNETES:
        text_format(out, cap, "kubectl cordon %s", name);
        return;
    case CHECK_SCHEDULER_POD:
        text_format(out, cap, "kubectl cordon $(kubectl get pod %s -o jsonpath={.spec.nodeName})",
                    name);
        return;
    case CHECK_SCHEDULER_NONE:
        leave_out(hosts, node, out, cap);
        return;
    }
}
