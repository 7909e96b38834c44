/* sim_return — nodes that return in the simulator (sim.h), and what must hold of them: a generation
 * finishes a step, or runs for COORDINATOR_RETURN_MS, before a node that returns ends it; after a
 * step such a node does not wait; such a node that cannot load ends only itself. */
#ifndef CONVOY_TESTS_SIM_RETURN_H
#define CONVOY_TESTS_SIM_RETURN_H

#include "cluster/sim_state.h"

/* Returns whether this process finishes the first step of its generation now. A fifth of them do
 * not get that far. */
static bool trains(struct sim *s, int id)
{
    struct process *p = &s->processes[id];
    const int64_t generation = p->member.running;
    if (generation == 0 || p->cut == generation || p->member.stepped == generation ||
        !is_complete(s, p))
        return false;
    if (p->trained != generation || (s->always_steps && p->step_ms == INT64_MAX)) {
        p->trained = generation;
        p->step_ms = !s->has_no_steps && (s->rolls_back || s->always_steps || chance(s, 0.8))
                         ? s->now_ms + (int64_t)draw(s, 3000)
                         : INT64_MAX;
    }
    if (s->now_ms < p->step_ms)
        return false;
    p->step = find_world(s, p->member.coordinator, generation)->step + 1;
    return true;
}

/* Before the coordinator receives a message of a member. */
static void note_step(struct process *zero, const struct message_heartbeat *heartbeat)
{
    const struct coordinator_node *node = &zero->coordinator->nodes[heartbeat->node_id];
    struct view *view = &zero->view;
    if (heartbeat->sequence > node->sequence && node->is_in_world && view->is_running &&
        heartbeat->stepped == view->generation)
        view->has_stepped = true;
}

/* Is the sender of this message, which is no member yet, a node that returns? */
static bool is_return(const struct process *zero, const struct message_heartbeat *heartbeat)
{
    const enum cluster_node_state state = zero->coordinator->nodes[heartbeat->node_id].state;
    return state == CLUSTER_NODE_LOST || state == CLUSTER_NODE_LEFT || heartbeat->generation > 0 ||
           zero->coordinator->former_id >= 0;
}

static bool is_outside(const struct coordinator_node *node)
{
    return node->state == CLUSTER_NODE_JOINED && node->disconnected_ms < 0 &&
           node->ready > node->used && !node->is_in_world;
}

/* A node that is new to the job need not wait for a step. */
static bool has_new_node(const struct sim *s, const struct process *z)
{
    for (int i = 0; i < s->nodes_n; i++)
        if (coordinator_is_present(&z->coordinator->nodes[i]) && !z->view.is_returning[i] &&
            !z->view.is_in_world[i])
            return true;
    return false;
}

/* The generation ended in this event, so that the next one has a node that is back. */
static bool is_included(const struct process *z)
{
    const struct coordinator *c = z->coordinator;
    return z->view.is_running && !(c->is_running && c->generation == z->view.generation) &&
           !c->is_ended && strstr(c->why, "joins the job again") != NULL;
}

/* After each event of node 0's coordinator; is_tick: a tick. */
static void check_return(struct sim *s, int zero, bool is_tick)
{
    struct process *z = &s->processes[zero];
    const struct coordinator *c = z->coordinator;
    struct view *view = &z->view;
    if (is_included(z) && !view->has_stepped && !has_new_node(s, z) &&
        s->now_ms - view->begun_ms < 10000)
        violation(s, "a return ended a generation before its first step", view->generation,
                  s->now_ms - view->begun_ms);
    if (c->world_generation != view->generation) {
        view->generation = c->world_generation;
        view->begun_ms = s->now_ms;
        view->has_stepped = false;
    }
    view->is_running = c->is_running;
    for (int i = 0; i < s->nodes_n; i++) {
        view->is_in_world[i] = c->nodes[i].is_in_world;
        if (is_tick && c->is_running && view->has_stepped && c->left_n == 0 &&
            is_outside(&c->nodes[i]))
            violation(s, "a node waits, although the generation has finished a step", i,
                      view->generation);
    }
}

/* ---- nodes that cannot load ---- */

#define LOAD_ERROR "the disk is full"

/* Returns whether this process ends with an error now, before its workers were ready once: a
 * quarter of the nodes that join a job that has trained. */
static bool cannot_load(struct sim *s, const struct process *p)
{
    const int zero = leader_of(s, (int)(p - s->processes));
    return s->min_nodes < s->nodes_n && !s->has_no_faults && p->node != 0 &&
           p->coordinator == NULL && p->member.ready == 0 && zero >= 0 &&
           s->processes[zero].coordinator->worlds_n > 0 && chance(s, 0.25);
}

/* After a message to node 0's coordinator. A new process of node 0 has had no generation: there the
 * error ends the job, and so the history. */
static void check_load_error(struct sim *s, int zero)
{
    const struct coordinator *c = s->processes[zero].coordinator;
    if (!c->is_ended || strstr(c->why, LOAD_ERROR) == NULL)
        return;
    s->is_budget_spent = true;
    if (c->worlds_n > 0)
        violation(s, "a node that could not load ended the job", c->generation, c->worlds_n);
}

#endif
