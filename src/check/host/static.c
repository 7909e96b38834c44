/* check_static — see host/static.h. */
#include "check/host/static.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"

#define CAP_IPC_LOCK_BIT 14
/* milliseconds; a driver without persistence mode starts GPUs one by one */
#define GPU_LIMIT_MS_MIN 15000

/* Replaces line ends, because the value in a file may have several lines. */
static void one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            *text = ' ';
}

void check_static_add(struct check_static *s, struct check_row row, const char *subject,
                      const char *remedy)
{
    text_copy(row.subject, sizeof row.subject, subject);
    text_copy(row.remedy, sizeof row.remedy, remedy);
    one_line(row.why);
    one_line(row.subject);
    one_line(row.remedy);
    check_row_add(s->rows, &row);
}

void check_static_measured(struct check_static *s, struct check_row row, double value,
                           const char *unit, const char *subject, const char *remedy)
{
    struct check_row measured = check_row_measured(row.stage, row.point, row.node, row.name, unit,
                                                   value, CHECK_BETTER_HIGHER, 0);
    text_copy(measured.why, sizeof measured.why, row.why);
    check_static_add(s, measured, subject, remedy);
}

const char *check_static_host(const struct check_static *s)
{
    return check_host_name(&s->hosts, s->config->place.node);
}

int check_static_gpus(const struct check_static *s)
{
    int n = 0;
    for (int i = 0; i < s->gpus.gpus_n; i++)
        n += s->gpus.gpu[i].error[0] == 0;
    return n;
}

bool check_static_has_mig(const struct check_static *s)
{
    bool has = false;
    for (int i = 0; i < s->gpus.gpus_n; i++)
        has = has || s->gpus.gpu[i].mig == 1;
    return has;
}

const char *check_static_reset(const struct check_static *s, int i, char *out, size_t cap)
{
    if (s->is_amd)
        text_format(out, cap, "amd-smi reset -g %s --gpureset", s->gpus.gpu[i].bus);
    else
        text_format(out, cap, "nvidia-smi -i %d --gpu-reset", i);
    return out;
}

const char *check_static_drain(const struct check_static *s, char *out, size_t cap,
                               const char *reason)
{
    check_host_remedy(&s->hosts, s->config->place.node, reason, out, cap);
    return out;
}

const char *check_static_flag(const struct check_static *s, const char *host, const char *docker,
                              const char *k8s)
{
    return s->container == CHECK_CONTAINER_NONE     ? host
           : s->container == CHECK_CONTAINER_DOCKER ? docker
                                                    : k8s;
}

/* ---- functions of all checks ---- */

enum check_container check_static_container(const char *root)
{
    char group[4096];
    check_file_read(root, group, sizeof group, "/proc/self/cgroup");
    if (check_file_is(root, "/var/run/secrets/kubernetes.io") || strstr(group, "kubepods"))
        return CHECK_CONTAINER_K8S;
    return check_file_is(root, "/.dockerenv") || check_file_is(root, "/run/.containerenv") ||
                   strstr(group, "/docker/")
               ? CHECK_CONTAINER_DOCKER
               : CHECK_CONTAINER_NONE;
}

/* Returns the scheduler of this process. In a pod the host's name is the name of the pod, unless
 * the pod has the host's network: then eth0, if it exists, is a card. */
static enum check_scheduler scheduler_of(const struct check_static *s)
{
    bool has_own = check_file_is(s->root, "/sys/class/net/eth0") &&
                   !check_file_is(s->root, "/sys/class/net/eth0/device");
    if (s->container == CHECK_CONTAINER_K8S)
        return has_own ? CHECK_SCHEDULER_POD : CHECK_SCHEDULER_KUBERNETES;
    return s->is_slurm ? CHECK_SCHEDULER_SLURM : CHECK_SCHEDULER_NONE;
}

static void capability_line(void *arg, char *line)
{
    struct check_static *s = arg;
    uint64_t bits = 0;
    if (!text_starts(line, "CapEff:\t"))
        return;
    text_parse_hex(line + 8, (int)strnlen(line + 8, 16), &bits);
    s->is_locked_free = bits >> CAP_IPC_LOCK_BIT & 1;
}

/* Counts the GPUs on the PCI bus: AMD's if DEVICE is hip or there are no others. */
static void count_gpus_pci(struct check_static *s)
{
    struct check_file_names *found = memory_new(1, sizeof *found);
    char vendor[16], class[16];
    check_file_list(s->root, found, "/sys/bus/pci/devices");
    for (int i = 0; i < found->n; i++) {
        check_file_read(s->root, vendor, sizeof vendor, "/sys/bus/pci/devices/%s/vendor",
                        found->name[i]);
        check_file_read(s->root, class, sizeof class, "/sys/bus/pci/devices/%s/class",
                        found->name[i]);
        /* VGA and 3D controllers; the audio device of a graphics card is another function of it */
        s->gpus_pci += strcmp(vendor, "0x10de") == 0 && text_starts(class, "0x030");
    }
    check_gpu_amd_list(s->root, found);
    s->is_amd = found->n > 0 && (s->gpus_pci == 0 || s->config->is_amd);
    s->gpus_pci = s->is_amd ? found->n : s->gpus_pci;
    free(found);
}

static void run_checks(struct check_static *s)
{
    static void (*const checks[])(struct check_static *) = {
        check_gpu_rows,       check_nvlink_rows,   check_xid_rows,         check_infiniband_rows,
        check_interface_rows, check_cpu_rows,      check_host_memory_rows, check_ulimit_rows,
        check_space_rows,     check_container_rows};
    check_file_lines(s->root, "/proc/self/status", 1 << 16, capability_line, s);
    count_gpus_pci(s);
    struct check_file_names *devices = memory_new(1, sizeof *devices);
    check_file_list(s->root, devices, "/sys/class/infiniband");
    s->has_rdma = devices->n > 0;
    free(devices);
    enum status st = check_gpu_list_read(s->root, s->is_amd, s->limit_ms, &s->gpus);
    s->has_nvml = st == ST_OK;
    s->is_nvml_stuck = st == ST_PEER;
    for (int i = 0; i < s->gpus.gpus_n; i++)
        s->is_server = s->is_server || s->gpus.gpu[i].ecc_default == 1;
    if (st != ST_OK) {
        text_copy(s->nvml_reason, sizeof s->nvml_reason, status_message());
        status_clear();
    }
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        checks[i](s);
}

void check_static_run(const struct check_config *config, int64_t budget_ms, struct check_rows *rows)
{
    if (config->place.local != 0)
        return;
    struct check_static *s = memory_new(1, sizeof *s);
    s->config = config;
    s->rows = rows;
    s->root = config->root ? config->root : "";
    s->limit_ms = budget_ms > GPU_LIMIT_MS_MIN ? budget_ms : GPU_LIMIT_MS_MIN;
    char group[4096];
    check_file_read(s->root, group, sizeof group, "/proc/self/cgroup");
    s->container = check_static_container(s->root);
    s->is_slurm = strstr(group, "/slurm") || strstr(group, "slurmstepd") ||
                  (s->config->host && s->config->scheduler == CHECK_SCHEDULER_SLURM);
    /* Set the name of this node. */
    const struct comm_place *place = &config->place;
    s->hosts.host = memory_new((size_t)place->nodes, sizeof *s->hosts.host);
    s->hosts.n = place->nodes;
    struct check_host *host = &s->hosts.host[place->node];
    if (config->host && config->host[0]) {
        host->scheduler = config->scheduler;
        text_copy(host->name, sizeof host->name, config->host);
    } else {
        host->scheduler = scheduler_of(s);
        check_file_read(s->root, host->name, sizeof host->name, "/proc/sys/kernel/hostname");
    }
    run_checks(s);
    check_host_free(&s->hosts);
    free(s);
}
