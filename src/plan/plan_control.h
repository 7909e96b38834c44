/* plan_control — what the control plane of a job takes of node 0 beside its workers: its supervisor
 * answers a heartbeat of each node every second. Pure. */
#ifndef CONVOY_PLAN_PLAN_CONTROL_H
#define CONVOY_PLAN_PLAN_CONTROL_H

#include <stdint.h>

/* from so many nodes on it is more than a few MiB, and a plan names it */
#define PLAN_CONTROL_NODES_SHOWN 64

struct plan_control {
    int64_t bytes; /* of memory */
    double cores;  /* of processor time */
};

/* plan_control — lines through the measurements of `make bench-control` with 64 to 4,096 nodes
 * (docs/benchmarks.md, "Node 0 as a function of the number of nodes"), on one core of a server. */
struct plan_control plan_control(int nodes, int locals);

#endif
