/* check_cpu — the CPUs that a node's workers may use, their frequency limits, and the memory near
 * them. */
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"

/* share of a CPU's highest frequency; a CPU with a lower limit counts as limited */
#define FREQUENCY_SHARE 0.9
#define MEMORY_SHARE 0.8 /* share of the memory of another NUMA node */

/* ---- number ---- */

/* "0-3,8,10-11" → 7; 0: not such a list */
static int count_list(const char *text)
{
    char copy[1024], *rest = copy, *range;
    int n = 0;
    int64_t first, last;
    text_copy(copy, sizeof copy, text);
    while ((range = strsep(&rest, ",")) != NULL) {
        char *dash = strchr(range, '-');
        if (dash)
            *dash++ = 0;
        if (text_parse_i64(range, 0, 1 << 20, &first) != TEXT_OK ||
            text_parse_i64(dash ? dash : range, first, 1 << 20, &last) != TEXT_OK)
            return 0;
        n += (int)(last - first) + 1;
    }
    return n;
}

static void allowed_line(void *arg, char *line)
{
    const char *key = "Cpus_allowed_list:\t";
    if (text_starts(line, key))
        *(int *)arg = count_list(line + strlen(key));
}

static void too_few(struct check_static *s, double cpus, const char *remedy)
{
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_HOST, "cpus", CHECK_VERDICT_WARN,
                                        "%g CPUs for %d workers with a GPU", cpus,
                                        s->config->gpus_used),
                     "", remedy);
}

static void add_count(struct check_static *s)
{
    char proc[FILE_PATH_MAX], sys[FILE_PATH_MAX];
    int allowed = 0;
    double quota = 0;
    if (text_format(proc, sizeof proc, "%s/proc/self/cgroup", s->root) &&
        text_format(sys, sizeof sys, "%s/sys/fs/cgroup", s->root))
        quota = cgroup_quota(proc, sys);
    const char *whole = "taskset -pc $$ # give the job all cores (Slurm: --exclusive)";
    check_file_lines(s->root, "/proc/self/status", 1 << 16, allowed_line, &allowed);
    if (allowed == 0)
        return;
    if (quota > 0 && quota < s->config->gpus_used)
        too_few(s, quota,
                check_static_flag(s, "raise cpu.max of its control group",
                                  "docker run --cpus=<cores>",
                                  "resources: {limits: {cpu: <cores>}}"));
    else if (allowed < s->config->gpus_used)
        too_few(s, allowed, whole);
    else
        check_static_measured(s,
                              check_static_found(s, CHECK_POINT_HOST, "cpus",
                                                 CHECK_VERDICT_MEASURED,
                                                 "CPUs that this process may run on"),
                              allowed, "", "", whole);
}

/* ---- frequency ---- */

struct speed {
    int cpus, slow, capped;
    int64_t can; /* kHz: highest frequency of the limited CPUs */
    char governor[24], driver[24];
};

static void read_speed(struct check_static *s, const char *cpu, struct speed *out)
{
    char governor[24];
    const char *dir = "/sys/devices/system/cpu";
    if (!check_file_read(s->root, governor, sizeof governor, "%s/%s/cpufreq/scaling_governor", dir,
                         cpu))
        return;
    check_file_read(s->root, out->driver, sizeof out->driver, "%s/%s/cpufreq/scaling_driver", dir,
                    cpu);
    int64_t limit = check_file_number(s->root, "%s/%s/cpufreq/scaling_max_freq", dir, cpu);
    int64_t can = check_file_number(s->root, "%s/%s/cpufreq/cpuinfo_max_freq", dir, cpu);
    out->cpus++;
    if (limit > 0 && can > 0 && (double)limit < FREQUENCY_SHARE * (double)can) {
        out->capped++;
        out->can = can > out->can ? can : out->can;
    }
    /* a server's GPUs would wait until the CPU wakes up */
    if (strcmp(governor, "powersave") == 0 &&
        (s->is_server ||
         !(text_starts(out->driver, "intel_pstate") || text_starts(out->driver, "amd-pstate-epp") ||
           text_starts(out->driver, "amd_pstate_epp")))) {
        out->slow++;
        text_copy(out->governor, sizeof out->governor, governor);
    }
}

/* ---- NUMA nodes ---- */

struct numa {
    int nodes;
    int64_t most, least; /* memory in bytes of the NUMA nodes that have CPUs */
    int least_node;
};

static void read_numa(const struct check_static *s, const char *name, struct numa *out)
{
    char text[4096];
    int64_t number;
    if (text_parse_i64(name + strlen("node"), 0, 4095, &number) != TEXT_OK ||
        !check_file_read(s->root, text, sizeof text, "/sys/devices/system/node/%s/cpulist", name) ||
        text[0] == 0)
        return;
    check_file_read(s->root, text, sizeof text, "/sys/devices/system/node/%s/meminfo", name);
    int64_t bytes = memory_row(text, "MemTotal");
    out->nodes++;
    if (bytes > out->most)
        out->most = bytes;
    if (bytes >= 0 && (out->least < 0 || bytes < out->least)) {
        out->least = bytes;
        out->least_node = (int)number;
    }
}

static void add_numa(struct check_static *s)
{
    struct check_file_names *found = memory_new(1, sizeof *found);
    struct numa numa = {.least = -1};
    check_file_list_with(s->root, "node", found, "/sys/devices/system/node");
    for (int i = 0; i < found->n; i++)
        read_numa(s, found->name[i], &numa);
    free(found);
    if (numa.nodes == 0)
        return;
    bool is_moving = numa.nodes > 1 && s->is_server &&
                     check_file_number(s->root, "/proc/sys/kernel/numa_balancing") > 0;
    if (numa.least >= 0 && (double)numa.least < MEMORY_SHARE * (double)numa.most) {
        char subject[64], least[24], most[24], remedy[192];
        text_format(subject, sizeof subject, "NUMA node %d", numa.least_node);
        check_static_drain(s, remedy, sizeof remedy, "a memory module is missing");
        check_static_add(
            s,
            check_static_found(s, CHECK_POINT_HOST, "numa", CHECK_VERDICT_WARN,
                               "it has %s of memory, another node %s: a module is missing?",
                               text_format_bytes(least, sizeof least, (double)numa.least),
                               text_format_bytes(most, sizeof most, (double)numa.most)),
            subject, remedy);
        return;
    }
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_HOST, "numa",
                                        is_moving ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
                                        "%d NUMA nodes%s", numa.nodes,
                                        is_moving ? "; the kernel moves pages between them "
                                                    "(numa_balancing), which stalls GPU jobs"
                                                  : ""),
                     "", is_moving ? "sysctl kernel.numa_balancing=0" : "");
}

void check_cpu_rows(struct check_static *s)
{
    add_count(s);
    /* Read the frequency governors. */
    struct check_file_names *found = memory_new(1, sizeof *found);
    struct speed speed = {0};
    check_file_list_with(s->root, "cpu", found, "/sys/devices/system/cpu");
    for (int i = 0; i < found->n; i++)
        read_speed(s, found->name[i], &speed);
    free(found);
    bool is_bad = speed.slow > 0 || speed.capped > 0;
    char remedy[96] = "";
    if (speed.slow > 0)
        text_copy(remedy, sizeof remedy, "cpupower frequency-set -g performance");
    else if (speed.capped > 0)
        text_format(remedy, sizeof remedy, "cpupower frequency-set -u %lld", (long long)speed.can);
    check_static_add(
        s,
        speed.cpus == 0
            ? check_static_found(s, CHECK_POINT_HOST, "cpu governor", CHECK_VERDICT_SKIPPED,
                                 "no cpufreq: the hypervisor or the firmware decides")
            : check_static_found(s, CHECK_POINT_HOST, "cpu governor",
                                 is_bad ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
                                 "%d of %d CPUs save power (%s), %d have a lowered frequency limit",
                                 speed.slow, speed.cpus,
                                 speed.governor[0] ? speed.governor : speed.driver, speed.capped),
        "", remedy);
    add_numa(s);
}
