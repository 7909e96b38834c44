/* sim_death — the two signs of a node's death in the simulator (sim.h), and what must hold of them:
 * a node is lost before its grace or its lease ends if, and only if, node 0 has received both. */
#ifndef CONVOY_TESTS_SIM_DEATH_H
#define CONVOY_TESTS_SIM_DEATH_H

#include "cluster/sim_state.h"

/* ---- connections for data ---- */

/* rank_in — with one worker on each node: how many nodes of the world come before this one. */
static int rank_in(const struct world *w, int node)
{
    int rank = 0;
    for (int i = 0; i < node; i++)
        rank += w->origins[i].process >= 0;
    return rank;
}

static void post_closed(struct sim *s, const struct world *w, int from, int to)
{
    struct packet *m = post(s, PACKET_CLOSED, from, to);
    if (m == NULL)
        return;
    m->generation = w->generation;
    m->rank = rank_in(w, s->processes[from].node);
    deliver_in(s, m, 1 + (int64_t)draw(s, chance(s, 0.8) ? 60 : 900));
}

/* The connections for data between this process and the others of its world end; the others find
 * it, and so does this one where its worker lives. */
static void cut_data(struct sim *s, int id, bool has_worker)
{
    struct process *p = &s->processes[id];
    const struct world *w = find_world(s, p->member.coordinator, p->member.running);
    if (w == NULL || p->member.running == 0)
        return;
    p->cut = w->generation;
    for (int i = 0; i < s->nodes_n; i++) {
        const int other = w->origins[i].process;
        if (other < 0 || other == id || !s->processes[other].is_alive)
            continue;
        post_closed(s, w, id, other);
        if (!has_worker)
            continue;
        post_closed(s, w, other, id);
        s->processes[other].cut = w->generation;
    }
}

/* ---- what node 0 receives ---- */

static bool is_holder(const struct process *zero, const struct process *p)
{
    const struct coordinator_node *node = &zero->coordinator->nodes[p->node];
    return message_is_same(node->incarnation, p->member.config.incarnation) &&
           coordinator_is_present(node);
}

/* The process that has this rank in the last world of node 0's coordinator; -1: another process
 * has its NODE_ID by now, or it was lost. */
static int target_of(struct sim *s, const struct process *zero, int64_t generation, int rank)
{
    const struct world *w =
        find_world(s, zero->coordinator->config.incarnation, zero->coordinator->world_generation);
    if (w == NULL || generation != w->generation)
        return -1;
    for (int i = 0; i < s->nodes_n; i++) {
        const int id = w->origins[i].process;
        if (id >= 0 && rank_in(w, i) == rank)
            return is_holder(zero, &s->processes[id]) ? id : -1;
    }
    return -1;
}

static void find_death(struct sign *sign)
{
    sign->is_dead = sign->is_dead || (sign->disconnected_ms >= 0 && sign->reported_ms >= 0 &&
                                      sign->disconnected_ms - sign->reported_ms <= 500);
}

static void note_disconnect(struct sim *s, int zero, int id)
{
    struct process *z = &s->processes[zero];
    struct sign *sign = &z->signs[id];
    if (!is_holder(z, &s->processes[id]) || sign->disconnected_ms >= 0)
        return;
    sign->disconnected_ms = s->now_ms;
    find_death(sign);
}

/* Before the coordinator receives the message of process `id`. */
static void note_message(struct sim *s, int zero, int id, const struct message_heartbeat *heartbeat)
{
    struct process *z = &s->processes[zero];
    struct sign *own = &z->signs[id];
    const bool is_report = heartbeat->closed > own->closed;
    if (!is_holder(z, &s->processes[id])) { /* it joins now, if at all */
        *own = (struct sign){-1, -1, heartbeat->lost, heartbeat->closed, false};
        return;
    }
    own->disconnected_ms = own->reported_ms = -1;
    if (heartbeat->sequence <= z->coordinator->nodes[s->processes[id].node].sequence)
        return;
    own->lost = heartbeat->lost;
    own->closed = heartbeat->closed;
    const int target = is_report ? target_of(s, z, heartbeat->closed, heartbeat->closed_rank) : -1;
    if (target < 0 || target == id || z->signs[target].lost == heartbeat->closed ||
        !z->coordinator->nodes[s->processes[id].node].is_in_world)
        return;
    z->signs[target].reported_ms = s->now_ms;
    find_death(&z->signs[target]);
}

/* ---- what must hold ---- */

/* After each event of node 0's coordinator. */
static void check_losses(struct sim *s, int zero)
{
    struct process *z = &s->processes[zero];
    for (int i = 0; i < s->nodes_n && z->coordinator != NULL; i++) {
        const struct coordinator_node *node = &z->coordinator->nodes[i];
        const enum cluster_node_state before = z->states[i];
        z->states[i] = node->state;
        if (node->incarnation.lo == 0)
            continue;
        const struct sign *sign = &z->signs[node->incarnation.lo - 1];
        const bool was_present = before == CLUSTER_NODE_JOINED || before == CLUSTER_NODE_SUSPECT,
                   is_late =
                       s->now_ms - node->last_leased_ms >= 6000 ||
                       (sign->disconnected_ms >= 0 && s->now_ms - sign->disconnected_ms >= 500);
        if (was_present && node->state == CLUSTER_NODE_LOST && !is_late && !sign->is_dead)
            violation(s, "a node was lost at once without both signs", i, sign->reported_ms);
        if (coordinator_is_present(node) && sign->is_dead)
            violation(s, "both signs of a node's death came, but it is not lost", i,
                      sign->reported_ms);
    }
}

#endif
