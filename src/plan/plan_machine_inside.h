/* plan_machine_inside — what the files of plan_machine share: plan_machine.c (the order, what a
 * step takes besides), plan_machine_time.c (how times are taken), plan_machine_device.c
 * (operations), plan_machine_link.c (calls). */
#ifndef CONVOY_PLAN_PLAN_MACHINE_INSIDE_H
#define CONVOY_PLAN_PLAN_MACHINE_INSIDE_H

#include "plan/plan_machine.h"
#include "plan/plan_ops.h"

struct plan_machine {
    const struct plan_machine_config *config;
    struct plan_cluster *cluster;
    struct dev_info info;
    struct stream *stream;
    enum dtype dtype; /* of activations: what trains fastest on the device */
    char *memory;     /* of the device */
    int64_t bytes;
    char *shared; /* of comm_alloc, several ranks */
    int64_t shared_bytes;
    double slice; /* seconds of one measurement */
    int ranks, rank;
    bool shares_cores; /* the workers of a node have more threads than there are cores */
};

/* plan_machine_time — seconds of one run of `work`: of the rank that takes longest, while all ranks
 * run theirs at once. Runs are begun one after another, and the device is waited for at the end.
 * _time_largest: the greatest value of all ranks. Both collective. */
typedef enum status (*plan_machine_work)(const struct plan_machine *m, const void *args);
enum status plan_machine_time(const struct plan_machine *m, plan_machine_work work,
                              const void *args, double *seconds_out);
enum status plan_machine_time_largest(const struct plan_machine *m, double *value);
int plan_machine_time_by_value(const void *a, const void *b); /* doubles, for qsort */

/* plan_machine_device — peaks, shares, operation_us. plan_machine_link — inside, across and
 * overlap_cost; the device is measured. */
enum status plan_machine_device(struct plan_machine *m);
enum status plan_machine_link(struct plan_machine *m);
/* Called in one file, and for tests:
 * plan_machine_link_fit — the link with which calls like this one take these times: n sizes from
 * the smallest on, at least 2. The least time is the latency; a rate is at most four times the
 * memory's, and a share one that a file may hold, however disturbed a time is. */
void plan_machine_link_fit(struct plan_cluster *cluster, struct plan_link *link,
                           const struct plan_call *like, const double *bytes, const double *seconds,
                           int n);
/* plan_machine_link_overlap — overlap_cost of n tries, which are put in order: their median. False:
 * they differ too much to be a measurement, and what is given is at most 1. */
bool plan_machine_link_overlap(double *part, int n, double *out);

#endif
