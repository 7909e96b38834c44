/* check_static — the second stage of a check: properties of a node that need no computation. The
 * stage calls each of the checks listed here; a check adds rows for one subject.
 *
 * It runs once per node, on the rank with local number 0. All its inputs come from files below
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
    int64_t limit_ms;         /* limit in milliseconds for calls that may never return */
    struct check_hosts hosts; /* nodes of the job; only the name of this node is set */
    enum check_container container;
    bool is_slurm; /* this process belongs to a Slurm job */
    bool has_rdma; /* the node has InfiniBand or RoCE devices */
    bool is_amd;   /* the GPUs are AMD's: KFD and amdgpu stand for NVML and NVIDIA's driver */
    bool has_nvml; /* NVML, or KFD, has filled gpus */
    /* the node has a GPU made for computing: its manufacturer ships it with ECC on */
    bool is_server;
    bool is_locked_free; /* this process may lock memory without a limit: CAP_IPC_LOCK */
    int gpus_pci;        /* GPUs on the PCI bus, including GPUs that a container cannot use */
    struct nvml_health gpus;
    char nvml_reason[192]; /* reason if has_nvml is false */
    bool is_nvml_stuck;    /* NVML, or amdgpu, did not answer */
};

/* The checks. Each reads s and adds rows. */
void check_gpu_rows(struct check_static *s);    /* number, driver, health of each GPU */
void check_nvlink_rows(struct check_static *s); /* NVLink or XGMI, fabric manager */
void check_xid_rows(struct check_static *s);    /* the kernel's log */
/* check_infiniband_rows — adds rows about the ports of InfiniBand and RoCE devices. */
void check_infiniband_rows(struct check_static *s);
void check_interface_rows(struct check_static *s);   /* network interfaces */
void check_cpu_rows(struct check_static *s);         /* CPUs, governor, NUMA */
void check_host_memory_rows(struct check_static *s); /* memory, swap, hugepages, /dev/shm */
void check_ulimit_rows(struct check_static *s);      /* memlock, open files, processes */
void check_space_rows(struct check_static *s);       /* the disk of checkpoints */
void check_container_rows(struct check_static *s);   /* container, Slurm */

/* check_static_container — returns the kind of container in which this process runs. */
enum check_container check_static_container(const char *root);
/* check_static_add — adds a row of this node about `subject`. remedy: a command that repairs it; ""
 * if nothing is to be done. */
void check_static_add(struct check_static *s, struct check_row row, const char *subject,
                      const char *remedy);
/* check_static_measured — adds a row that the peers judge; more is better. The row's why describes
 * the value. remedy: for a node that has less than its peers. */
void check_static_measured(struct check_static *s, struct check_row row, double value,
                           const char *unit, const char *subject, const char *remedy);
/* check_static_found — returns a row with its reason formatted like printf's. */
#define check_static_found(s, point, name, verdict, ...) \
    check_row_found(CHECK_STAGE_STATIC, point, (s)->config->place.node, name, verdict, __VA_ARGS__)
/* check_static_host — returns the name of this node, for remedies. */
const char *check_static_host(const struct check_static *s);
/* check_static_gpus — returns the number of GPUs that NVML or KFD shows to this process. */
int check_static_gpus(const struct check_static *s);
/* check_static_has_mig — returns true if any of them is divided into instances (MIG), which
 * schedulers count in place of GPUs. */
bool check_static_has_mig(const struct check_static *s);
/* check_static_reset — writes the command that resets GPU i. Returns out. */
const char *check_static_reset(const struct check_static *s, int i, char *out, size_t cap);
/* check_static_drain — writes the command that takes this node out of service. Returns out. */
const char *check_static_drain(const struct check_static *s, char *out, size_t cap,
                               const char *reason);
/* check_static_flag — returns `host` on a machine, else the text for Docker or Kubernetes. */
const char *check_static_flag(const struct check_static *s, const char *host, const char *docker,
                              const char *k8s);

/* check_gpu_list — the GPUs of a node as NVIDIA's library reports them, read with a time limit,
 * because the driver may never answer if a GPU is in trouble.
 *
 * With a root, the file "/nvml.txt" below it replaces the library, which can only read the machine.
 * The file has a line `key value` for each field of struct nvml_health_gpu. Lines before the first
 * line `gpu ADDRESS` are for all GPUs, lines after it for that GPU. A `gpu` line may come again.
 * Further keys: `driver VERSION`, `error TEXT` (NVML returned no handle), `refused TEXT` (NVML does
 * not start), `hangs`. Must not know which value is good. */

/* check_gpu_list_read — reads NVIDIA's GPUs, or AMD's (check_gpu_amd_read). ST_NO_DEVICE: there is
 * no such library, or it does not start. ST_PEER: there was no answer within limit_ms; the waiting
 * thread is abandoned. */
enum status check_gpu_list_read(const char *root, bool is_amd, int64_t limit_ms,
                                struct nvml_health *out);

/* check_gpu_amd_list — lists the PCI addresses of AMD's accelerators. */
void check_gpu_amd_list(const char *root, struct check_file_names *out);
/* check_gpu_amd_read — reads the GPUs of the driver amdgpu that KFD shows, in HIP's order, into an
 * empty out; a GCD of an MI250 is a GPU. ST_NO_DEVICE: it shows none. */
enum status check_gpu_amd_read(const char *root, struct nvml_health *out);

/* check_netdev — the kernel's data about a network interface, read from /sys/class/net. If that
 * shows another network namespace than this process has (nsenter, some containers), they are read
 * by ioctl. Must not judge. */

#define CHECK_NETDEV_NAME 40
#define CHECK_NETDEV_LOOPBACK 772 /* value of type */

struct check_netdev {
    char name[CHECK_NETDEV_NAME], state[16], duplex[16];
    int64_t type, speed_mbps, mtu, errors, packets; /* CHECK_FILE_NONE: unknown */
    bool is_up, is_physical;
};

/* check_netdev_has_files — returns true if the files below root show the interfaces of this
 * process. root: a folder that replaces the machine, which is always right, or "". */
bool check_netdev_has_files(const char *root);
/* check_netdev_list — lists the names of interfaces. has_files: the result of
 * check_netdev_has_files. */
void check_netdev_list(const char *root, bool has_files, struct check_file_names *out);
/* check_netdev_read — reads one interface. has_files: the result of check_netdev_has_files. */
void check_netdev_read(const char *root, bool has_files, const char *name,
                       struct check_netdev *out);
/* check_netdev_of_address — returns the interface of this process that has a numeric IPv4 or IPv6
 * address. Returns false with out "" if none has it, or it is not numeric. */
bool check_netdev_of_address(const char *address, char *out, size_t cap);

#endif
