/* check_node_inside — declarations shared by the files of the node stage, check_node*.c. Must not
 * know other stages. */
#ifndef CONVOY_CHECK_CHECK_NODE_INSIDE_H
#define CONVOY_CHECK_CHECK_NODE_INSIDE_H

#include "check/check.h"
#include "measure/measure_memory.h"
#include "measure/measure_time.h"

/* Rates that all ranks measure at the same time. A CPU has only the first product. */
enum check_node_kind {
    CHECK_NODE_KIND_F32,
    CHECK_NODE_KIND_BF16,
    CHECK_NODE_KIND_F16,
    CHECK_NODE_KIND_COPY,
    CHECK_NODE_KIND_TRIAD,
    CHECK_NODE_KIND_N
};

/* Sizes of the work, the same on all ranks with one kind of device: the side of square matrices, or
 * the elements of each of two fp32 buffers; 0: not measured. */
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
    int64_t limit_ms;  /* milliseconds for one measurement */
    struct measure_timer timer;
    /* two buffers, one after the other; none: memory is not measured */
    struct measure_memory memory;
    struct check_node_sizes sizes;
    struct measure_best rate[CHECK_NODE_KIND_N];
};

/* Adds a row of this rank's device with verdict MEASURED. */
void check_node_add(struct check_node *n, const char *name, const char *unit, double value,
                    double slack, const char *why);
/* Adds a failing row for a fault of this device, and returns ST_OK. A lost rank and a lack of
 * memory stay failures. */
enum status check_node_failed(struct check_node *n, const char *name, enum status st);

/* Finds the sizes at which a slice of work is short, and opens the memory. A quick check leaves out
 * a CPU's memory, because allocating it is slower than copying it. */
enum status check_node_rates_begin(struct check_node *n);
/* Measures all kinds of check_node_kind, on all ranks at the same time, and adds the rows. A rate
 * that is worse than the peers' is measured again while most of them rest, so a short disturbance
 * by another process does not decide. Collective. */
enum status check_node_rates_measure(struct check_node *n);
/* Measures copies between a GPU and the host, and adds the rows. The ranks of a node take turns.
 * Collective. */
enum status check_node_rates_host(struct check_node *n);

/* Measures the cores of this rank's share: the clock of each by itself, and whether each computes
 * the same result. A thread is pinned to one core after the other. Collective. */
enum status check_node_core_measure(struct check_node *n);

/* A CPU quota of a control group (cpu.max, docker's --cpus, limits.cpu of Kubernetes), which makes
 * a node slow although each of its cores is fast. */
struct check_node_quota {
    double cpus; /* number of cores; 0: no quota */
    /* microseconds for which the quota has stopped the group so far; -1: the kernel does not count
     * them */
    int64_t stopped_us;
    int64_t at_ns;
};
/* Reads the quota of this process's groups. root: as in check_config. Public for tests. */
void check_node_quota_begin(const char *root, struct check_node_quota *out);
/* Reads the quota again and adds the row "cpu quota" for this node. threads: all threads of the
 * node's workers that compute at the same time. The verdict is FAIL or WARN by the shares of
 * check_judge: the share of the time for which the quota stopped the node, or will stop it because
 * the threads get less than a core each. Public for tests. */
void check_node_quota_end(const struct check_config *config, const struct check_node_quota *begin,
                          int threads, struct check_rows *rows);

#endif
