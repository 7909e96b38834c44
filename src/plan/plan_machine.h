/* plan_machine — measures the machine it runs on, for plans: rates of products, attention,
 * memory-bound operations and the optimiser by the device's own operations, what an operation and a
 * step take besides, and the links between workers by comm's own calls.
 *
 * All workers compute at once, as they do in a step, so that what they share (cores, memory) is
 * shared here too. Nothing is fitted to any model. Must not know settings or files. */
#ifndef CONVOY_PLAN_PLAN_MACHINE_H
#define CONVOY_PLAN_PLAN_MACHINE_H

#include "comm/core/comm.h"
#include "dev/dev.h"
#include "plan/plan_cluster.h"

struct plan_machine_config {
    struct comm *comm; /* of all ranks; NULL: one worker */
    struct dev *dev;
    const char *name;             /* of the cluster: "this machine" */
    int64_t budget_ms;            /* about how long it may take; at least 1000 is wanted */
    double disk_bytes_per_second; /* as another measurement found it; 0: unknown */
};

/* plan_machine_measure — collective; all ranks get the same cluster, of the comm's nodes and
 * workers. Memory: at most an eighth of what is free, and with several ranks 256 MiB of comm_alloc,
 * until the comm is closed. */
enum status plan_machine_measure(const struct plan_machine_config *config,
                                 struct plan_cluster *out);

#endif
