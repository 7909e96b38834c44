/* sim_incident — losses in the simulator (sim.h), and what must hold of them: an incident takes one
 * restart, however many nodes are lost before a generation finishes a step, and a job is given up
 * only after three losses of one node. */
#ifndef CONVOY_TESTS_SIM_INCIDENT_H
#define CONVOY_TESTS_SIM_INCIDENT_H

#include "cluster/sim_state.h"

/* Counts the losses of each node that node 0 may know: that of its process, and each that it
 * reports. */
static void count_losses(const struct sim *s, struct process *z)
{
    struct incident *own = &z->incident;
    for (int i = 0; i < s->nodes_n; i++) {
        const struct coordinator_node *node = &z->coordinator->nodes[i];
        const bool is_same = message_is_same(own->incarnations[i], node->incarnation),
                   is_gone = node->state == CLUSTER_NODE_LOST && !own->is_lost[i],
                   is_report = is_same && node->losses > own->reported[i];
        own->losses[i] += is_gone + is_report;
        const int64_t step = own->before[i] > node->step ? own->before[i] : node->step;
        if ((is_gone || is_report) && step > own->step[i])
            own->step[i] = step;
        own->before[i] = node->step;
        own->incarnations[i] = node->incarnation;
        own->reported[i] = node->losses;
        own->is_lost[i] = node->state == CLUSTER_NODE_LOST;
    }
}

/* The generation before the event had finished a step: the incident before it is over. */
static void end_incident(const struct sim *s, struct process *z)
{
    struct incident *own = &z->incident;
    own->is_open = false;
    for (int i = 0; i < s->nodes_n; i++) {
        if (own->step[i] + 1 >= z->coordinator->step)
            continue;
        own->losses[i] = 0;
        own->step[i] = -1;
    }
}

/* After each event of node 0's coordinator, and before check_return. */
static void check_incident(struct sim *s, int zero)
{
    struct process *z = &s->processes[zero];
    struct incident *own = &z->incident;
    const struct coordinator *c = z->coordinator;
    if (z->view.is_running && z->view.has_stepped)
        end_incident(s, z);
    count_losses(s, z);
    if (c->generation - own->generation > c->worlds_n - own->worlds_n) {
        /* It adopts the restarts of another coordinator with a later generation. */
        own->is_open = c->worlds_n > 0 && c->budget.counts.losses > 0;
        own->restarts = c->budget.counts.restarts;
    }
    own->generation = c->generation;
    own->worlds_n = c->worlds_n;
    if (c->budget.counts.restarts > own->restarts && c->worlds_n > 0) {
        if (own->is_open)
            violation(s, "an incident took two restarts", c->budget.counts.restarts, c->generation);
        own->is_open = true;
    }
    own->restarts = c->budget.counts.restarts;
    if (!c->is_ended || strstr(c->why, "the same rank was lost three times") == NULL)
        return;
    int64_t most = 0;
    for (int i = 0; i < s->nodes_n; i++)
        most = own->losses[i] > most ? own->losses[i] : most;
    /* Node 0's own: it counts its stalls, and the end of an earlier process, too. */
    if (most < 3 && c->budget.counts.first.n < 3 && c->former_id < 0)
        violation(s, "the job was given up, but no node was lost three times", most, c->worlds_n);
}

#endif
