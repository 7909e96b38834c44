/* check_node_inside — shared by the parts of the node stage, check_node*.c. Must not know other
 * stages. */
#ifndef CONVOY_CHECK_CHECK_NODE_INSIDE_H
#define CONVOY_CHECK_CHECK_NODE_INSIDE_H

#include "check/check.h"
#include "measure/measure_memory.h"
#include "measure/measure_time.h"

/* Rates that all ranks measure at once. A CPU has the first product only. */
enum check_node_kind {
    CHECK_NODE_KIND_F32,
    CHECK_NODE_KIND_BF16,
    CHECK_NODE_KIND_F16,
    CHECK_NODE_KIND_COPY,
    CHECK_NODE_KIND_TRIAD,
    CHECK_NODE_KIND_N
};

/* Sizes of the work, the same on all ranks with one kind of device: the side of square matrices,
 * elements of each of two fp32 buffers; 0: not measured. */
struct check_node_sizes {
    int64_t of[CHECK_NODE_KIND_N];
};

struct check_node {
    const struct check_config *config;
    struct check_rows *rows;
    struct dev_info info;
    bool is_gpu;
    char subject[64];  /* "GPU 3", "worker 1"; "": the node's only worker, on a CPU */
    char hardware[32]; /* NVML's name of a GPU; "": a CPU */
    int64_t limit_ms;  /* for one measurement */
    struct measure_timer timer;
    struct measure_memory memory; /* two buffers, one after the other; none: it is not measured */
    struct check_node_sizes sizes;
    struct measure_best rate[CHECK_NODE_KIND_N];
};

/* Adds a row of this rank's device, MEASURED. */
void check_node_add(struct check_node *n, const char *name, const char *unit, double value,
                    double slack, const char *why);
/* Adds a row that fails for a fault of this device, and returns ST_OK. A lost rank and memory that
 * is short stay failures. */
enum status check_node_failed(struct check_node *n, const char *name, enum status st);

/* Finds the sizes at which a slice of work is short, and opens the memory. A quick check leaves out
 * a CPU's memory, which takes longer to get than to copy. */
enum status check_node_rates_begin(struct check_node *n);
/* Measures all kinds of check_node_kind, on all ranks at once, and adds the rows. A rate that is
 * worse than the peers' is measured again while most of them rest, so a moment of another process
 * is no verdict. Collective. */
enum status check_node_rates_measure(struct check_node *n);
/* Measures copies between a GPU and the host, and adds the rows. The ranks of a node take turns.
 * Collective. */
enum status check_node_rates_host(struct check_node *n);

/* Measures the cores of this rank's share: the clock of each by itself, and whether each computes
 * the same. A thread is pinned to one core after the other. Collective. */
enum status check_node_core_measure(struct check_node *n);

/* A CPU quota of a control group (cpu.max, docker's --cpus, limits.cpu of Kubernetes), which makes
 * a node slow although each of its cores is fast. */
struct check_node_quota {
    double cpus;        /* 0: no quota */
    int64_t stopped_us; /* so far; -1: the kernel does not count it */
    int64_t at_ns;
};
/* Reads the quota of this process's groups (for tests). root: as in check_config. */
void check_node_quota_begin(const char *root, struct check_node_quota *out);
/* Reads it again and adds the row "cpu quota" for this node (for tests). threads: of all workers of
 * the node that compute at once. FAIL and WARN, with the shares of check_judge: for so much of the
 * time the quota stopped the node, or will stop it because it gives the threads less than a core
 * each. */
void check_node_quota_end(const struct check_config *config, const struct check_node_quota *begin,
                          int threads, struct check_rows *rows);

#endif
