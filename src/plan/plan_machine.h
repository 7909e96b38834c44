/* plan_machine — measures the machine it runs on, for plans: rates of products, attention,
 * memory-bound operations and the optimiser by the device's own operations, the additional time of
 * an operation and of a step, and the links between workers by comm's own calls.
 *
 * All workers compute at the same time, as they do in a step, so that shared resources (cores,
 * memory) are shared here too. Nothing is fitted to any model. Must not know settings or files. */
#ifndef CONVOY_PLAN_PLAN_MACHINE_H
#define CONVOY_PLAN_PLAN_MACHINE_H

#include "comm/core/comm.h"
#include "dev/dev.h"
#include "measure/measure_memory.h"
#include "measure/measure_time.h"
#include "plan/plan_cluster.h"
#include "plan/plan_ops.h"

struct plan_machine_config {
    struct comm *comm; /* a comm of all ranks; NULL: one worker */
    struct dev *dev;
    const char *name; /* name of the cluster: "this machine" */
    /* approximate time of the measurement; at least 1000 is recommended */
    int64_t budget_ms;
    double disk_bytes_per_second; /* result of another measurement; 0: unknown */
};

/* plan_machine_measure — measures; collective; all ranks get the same cluster, with the comm's
 * nodes and workers. Memory: at most an eighth of the free memory, and with several ranks 256 MiB
 * of comm_alloc, until the comm is closed. */
enum status plan_machine_measure(const struct plan_machine_config *config,
                                 struct plan_cluster *out);

/* ---- for plan_machine.c (the order, calls, and the additional time of a step) and
 * plan_machine_device.c (operations) only ---- */

struct plan_machine {
    const struct plan_machine_config *config;
    struct plan_cluster *cluster;
    struct dev_info info;
    struct measure_memory memory; /* open while the device is measured */
    struct measure_timer timer;
    enum dtype dtype; /* type of activations: the device's fastest type for training */
    char *shared;     /* memory of comm_alloc, if there are several ranks */
    int64_t shared_bytes;
    double slice; /* seconds of one measurement */
    int ranks;
    bool shares_cores; /* the workers of a node have more threads than there are cores */
};

/* plan_machine_time — sets *seconds_out to the time of one run (measure_time_together).
 * Collective. */
enum status plan_machine_time(const struct plan_machine *m, measure_work *work, void *arg,
                              double *seconds_out);

/* plan_machine_device — measures peaks, shares and operation_us. */
enum status plan_machine_device(struct plan_machine *m);

/* plan_machine_link_fit — finds the link with which calls like this one need these times (for
 * tests): n sizes from the smallest on, at least 2. The least time is the latency; a rate is at
 * most four times the memory's, and a share stays in the range of a file, even if a time was
 * disturbed. */
void plan_machine_link_fit(struct plan_cluster *cluster, struct plan_link *link,
                           const struct plan_call *like, const double *bytes, const double *seconds,
                           int n);
/* plan_machine_link_overlap — sorts n trials of overlap_cost and sets *out to their median (for
 * tests). false: they differ too much to be a measurement, and *out is at most 1. */
bool plan_machine_link_overlap(double *ratio, int n, double *out);

#endif
