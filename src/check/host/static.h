/* check_static — the second stage of a check: what a node shows without computing anything. The
 * stage asks each of the parts listed here; a part adds rows for one concern.
 *
 * Once per node, by the rank with local number 0. All that is read comes from files below
 * config->root and from check_gpu_list, so a test replaces the machine by a tree. */
#ifndef CONVOY_CHECK_CHECK_STATIC_H
#define CONVOY_CHECK_CHECK_STATIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/check.h"
#include "check/host/file.h"
#include "check/report/host.h"
#include "dev/nvidia/nvml_health.h"

enum check_container { CHECK_CONTAINER_NONE, CHECK_CONTAINER_DOCKER, CHECK_CONTAINER_K8S };

struct check_static {
    const struct check_config *config;
    struct check_rows *rows;
    const char *root;
    int64_t limit_ms;         /* for what may never answer */
    struct check_hosts hosts; /* of the job; only the name of this one is known */
    enum check_container container;
    bool is_slurm;       /* this process belongs to a Slurm job */
    bool has_rdma;       /* the node has InfiniBand or RoCE devices */
    bool has_nvml;       /* gpus is what NVML reports */
    bool is_server;      /* a GPU made for computing: its maker ships it with ECC on */
    bool is_locked_free; /* may lock memory without a limit: CAP_IPC_LOCK */
    int gpus_pci; /* NVIDIA's GPUs on the PCI bus, also those that a container is not given */
    struct nvml_health gpus;
    char nvml_reason[192]; /* has_nvml false: why */
    bool is_nvml_stuck;    /* NVML did not answer */
};

/* The parts. Each reads s and adds rows. */
void check_gpu_rows(struct check_static *s);    /* count, driver, health of each */
void check_nvlink_rows(struct check_static *s); /* NVLink and fabric manager */
void check_xid_rows(struct check_static *s);    /* the kernel's log */
void check_infiniband_rows(struct check_static *s);
void check_interface_rows(struct check_static *s);   /* network interfaces */
void check_cpu_rows(struct check_static *s);         /* CPUs, governor, NUMA */
void check_host_memory_rows(struct check_static *s); /* memory, swap, hugepages, /dev/shm */
void check_ulimit_rows(struct check_static *s);      /* memlock, open files, processes */
void check_space_rows(struct check_static *s);       /* the disk of checkpoints */
void check_container_rows(struct check_static *s);   /* container, Slurm */

/* check_static_container — what this process runs in. */
enum check_container check_static_container(const char *root);
/* check_static_add — a row of this node about `subject`; remedy: what mends it, "" for a row that
 * needs nothing. */
void check_static_add(struct check_static *s, struct check_row row, const char *subject,
                      const char *remedy);
/* check_static_measured — adds a row that the peers judge, more being better; why: what belongs to
 * the value. remedy: for a node that has less than its peers. */
void check_static_measured(struct check_static *s, struct check_row row, double value,
                           const char *unit, const char *subject, const char *remedy);
/* check_static_found — the row itself, with its reason like printf's. */
#define check_static_found(s, point, name, verdict, ...) \
    check_row_found(CHECK_STAGE_STATIC, point, (s)->config->place.node, name, verdict, __VA_ARGS__)
/* check_static_host — the name of this node, for remedies. */
const char *check_static_host(const struct check_static *s);
/* check_static_gpus — how many GPUs NVML gives to this process. check_static_has_mig — is one of
 * them divided into instances (MIG), which schedulers count in place of GPUs? */
int check_static_gpus(const struct check_static *s);
bool check_static_has_mig(const struct check_static *s);
/* check_static_drain — the command that takes this node out of service. Returns out. */
const char *check_static_drain(const struct check_static *s, char *out, size_t cap,
                               const char *reason);
/* check_static_flag — the first for a machine, else the one for Docker or Kubernetes. */
const char *check_static_flag(const struct check_static *s, const char *host, const char *docker,
                              const char *k8s);

/* check_gpu_list — the GPUs of a node as NVIDIA's library reports them, read with a time limit: on
 * a GPU in trouble the driver may never answer.
 *
 * With a root, the library, which only knows the machine, is replaced by the file "/nvml.txt" below
 * it. It has a line `key value` for each field of struct nvml_health_gpu; before the first line
 * `gpu ADDRESS` they are of all GPUs, after it of that one. A `gpu` line may come again. Further
 * keys: `driver VERSION`, `error TEXT` (NVML gave no handle), `refused TEXT` (NVML does not start),
 * `hangs`. Must not know which value is good. */

/* check_gpu_list_read — ST_NO_DEVICE: there is no such library, or it does not start. ST_PEER: no
 * answer within limit_ms; the thread that asked is left behind. */
enum status check_gpu_list_read(const char *root, int64_t limit_ms, struct nvml_health *out);

/* check_netdev — what the kernel tells of a network interface: from /sys/class/net, or where that
 * shows another network namespace than this process has (nsenter, some containers), by ioctl. Must
 * not judge. */

#define CHECK_NETDEV_NAME 40
#define CHECK_NETDEV_LOOPBACK 772 /* type */

struct check_netdev {
    char name[CHECK_NETDEV_NAME], state[16], duplex[16];
    int64_t type, speed_mbps, mtu, errors, packets; /* CHECK_FILE_NONE: not known */
    bool is_up, is_physical;
};

/* check_netdev_has_files — are the interfaces below root those of this process? root: a folder that
 * stands for the machine, which always is right, or "". */
bool check_netdev_has_files(const char *root);
/* check_netdev_list, _read — has_files: of the function above. */
void check_netdev_list(const char *root, bool has_files, struct check_file_names *out);
void check_netdev_read(const char *root, bool has_files, const char *name,
                       struct check_netdev *out);
/* check_netdev_of_address — the interface of this process that has an IPv4 or IPv6 address, given
 * as a number. false: none has, or it is no number, and out is "". */
bool check_netdev_of_address(const char *address, char *out, size_t cap);

#endif
