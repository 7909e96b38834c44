/* coordinator_world — which nodes a generation has, and when it may begin; see
 * coordinator_inside.h. Must not know sockets. */
#include <string.h>

#include "base/assert.h"
#include "cluster/coordinator_inside.h"

static bool is_ready(const struct coordinator_node *node)
{
    return node->state == CLUSTER_NODE_JOINED && node->disconnected_ms < 0 &&
           node->ready > node->used;
}

bool coordinator_world_may_lose(const struct coordinator *c, const struct coordinator_node *node)
{
    return c->config.min_nodes < c->config.nodes_n && node != coordinator_leader(c);
}

/* Returns true if this coordinator has replaced another one, whose node this is, or whose last
 * world had no process of this node that may still live. */
static bool is_new_to_successor(const struct coordinator *c, const struct coordinator_node *node)
{
    if (c->former_id < 0)
        return false;
    if (coordinator_node_id(c, node) == c->former_id && coordinator_is_absent(node))
        return true;
    const struct succession_process *process =
        succession_find_process(succession_newest(c->past), coordinator_node_id(c, node));
    return !process || process->has_ended ||
           (coordinator_is_present(node) &&
            !message_is_same(process->incarnation, node->incarnation));
}

/* Returns true if a generation may begin without this node: it is absent, or it is back and still
 * loads. A node that was in the last generation is waited for: it starts a worker again, and holds
 * a part of the state. */
static bool may_begin_without(const struct coordinator *c, const struct coordinator_node *node,
                              int64_t now_ms)
{
    if (!coordinator_world_may_lose(c, node))
        return false;
    if (node->has_departed)
        return true;
    if (coordinator_is_absent(node)) {
        /* The wait for an absent node is over. A new process of node 0 cannot tell which nodes are
         * alive until they have had time to find it. */
        if (c->generation == 0)
            return now_ms - c->waiting_ms >= c->config.join_timeout_ms;
        return c->worlds_n > 0 || node->state == CLUSTER_NODE_LOST ||
               is_new_to_successor(c, node) || now_ms - c->opened_ms >= c->config.peer_timeout_ms;
    }
    return coordinator_is_present(node) && !node->is_in_world &&
           (c->worlds_n > 0 || is_new_to_successor(c, node)) && node->ready <= node->used;
}

/* Returns true if the process is a ready member. */
static bool is_ready_process(const void *arg, const struct succession_process *process)
{
    const struct coordinator *c = arg;
    const struct coordinator_node *node = &c->nodes[process->node_id];
    return is_ready(node) && message_is_same(node->incarnation, process->incarnation);
}

/* Returns true if the ready nodes may form a world, although other coordinators may live
 * (succession.h). */
static bool is_permitted(const struct coordinator *c)
{
    if (!c->past)
        return true;
    bool is_whole = true;
    for (int i = 0; i < c->config.nodes_n && is_whole; i++)
        is_whole = is_ready(&c->nodes[i]);
    /* The job has trained, but no member has been in a world: those that were may live. */
    if (c->past->n == 0 && c->generation > 0 && !is_whole)
        return false;
    return c->past->n < SUCCESSION_WORLDS_MAX &&
           succession_permits(c->past, c->config.incarnation, is_ready_process, c, is_whole);
}

/* Begins with the node that was not ready the last time: while that node is waited for, a message
 * of any other node costs the same for any number of nodes. */
bool coordinator_world_is_ready(struct coordinator *c, int64_t now_ms)
{
    int ready_n = 0;
    for (int i = 0; i < c->config.nodes_n; i++) {
        const struct coordinator_node *node = &c->nodes[c->unready_id];
        if (!is_ready(node) && !may_begin_without(c, node, now_ms))
            return false;
        c->unready_id = (c->unready_id + 1) % c->config.nodes_n;
    }
    for (int i = 0; i < c->config.nodes_n; i++)
        ready_n += is_ready(&c->nodes[i]);
    return ready_n >= c->config.min_nodes && is_permitted(c);
}

bool coordinator_world_is_enough(const struct coordinator *c)
{
    int n = 0;
    for (int i = 0; i < c->config.nodes_n; i++)
        n += coordinator_is_present(&c->nodes[i]);
    return coordinator_is_present(coordinator_leader(c)) && n >= c->config.min_nodes &&
           (c->is_running || is_permitted(c));
}

bool coordinator_world_is_done(const struct coordinator *c)
{
    bool is_done = c->config.min_nodes < c->config.nodes_n && c->is_running;
    for (int i = 0; i < c->config.nodes_n && is_done; i++)
        is_done = !c->nodes[i].is_in_world || c->nodes[i].state == CLUSTER_NODE_LEFT;
    return is_done;
}

bool coordinator_world_can_include(const struct coordinator *c, const struct coordinator_node *node,
                                   int64_t now_ms)
{
    if (!c->is_running || c->left_n > 0 || c->stop != 0 || node->is_in_world || !is_ready(node))
        return false;
    return !node->is_returning || c->has_stepped ||
           now_ms - c->world_begun_ms >= COORDINATOR_RETURN_MS;
}

const struct coordinator_node *coordinator_world_find_outside(const struct coordinator *c,
                                                              int64_t now_ms)
{
    for (int i = 0; i < c->config.nodes_n; i++)
        if (coordinator_world_can_include(c, &c->nodes[i], now_ms))
            return &c->nodes[i];
    return NULL;
}

/* Adds the world, whose generation is the next one, to the list of worlds. */
static void add_to_past(struct coordinator *c)
{
    c->past_world = (struct succession_world){
        .generation = c->generation + 1, .coordinator = c->config.incarnation, .n = c->world_n};
    for (int i = 0; i < c->world_n; i++) {
        struct succession_process *process = &c->past_world.processes[i];
        process->node_id = c->world_ids[i];
        process->incarnation = c->nodes[process->node_id].incarnation;
        coordinator_nodes_control(c, process->node_id, c->controls[i], sizeof c->controls[i]);
    }
    const bool is_added = succession_add(c->past, &c->past_world);
    ASSERTF(is_added, "%d worlds", c->past->n); /* is_permitted */
}

void coordinator_world_form(struct coordinator *c, int64_t now_ms)
{
    const size_t n = (size_t)c->config.workers_n;
    ASSERT(!c->is_running && !c->is_ended && c->stop == 0);
    c->world_begun_ms = now_ms;
    c->has_stepped = false;
    c->step = -1;
    c->world_n = 0;
    for (int i = 0; i < c->config.nodes_n; i++) {
        struct coordinator_node *node = &c->nodes[i];
        node->is_in_world = is_ready(node);
        if (!node->is_in_world)
            continue;
        ASSERTF(node->ready > node->used, "node %d: readiness %lld was used", i,
                (long long)node->ready);
        node->used = node->ready;
        memcpy(c->world + (size_t)c->world_n * n, c->addresses + (size_t)i * n,
               n * sizeof *c->world);
        c->world_ids[c->world_n++] = i;
    }
    if (c->past)
        add_to_past(c);
}

static bool is_in_world_i(const void *nodes, int i)
{
    return ((const struct coordinator_node *)nodes + i)->is_in_world;
}

void coordinator_world_describe(const struct coordinator *c, char *out, size_t cap)
{
    char list[256];
    if (c->world_n == c->config.nodes_n) {
        text_format(out, cap, "%d node%s", c->world_n, c->world_n > 1 ? "s" : "");
        return;
    }
    log_queue_list(c->config.nodes_n, is_in_world_i, c->nodes, list, sizeof list);
    text_format(out, cap, "%d of %d nodes (%s)", c->world_n, c->config.nodes_n, list);
}

bool coordinator_world(const struct coordinator *c, int node_id,
                       struct message_incarnation incarnation, int64_t generation,
                       struct cluster_world *out)
{
    if (node_id < 0 || node_id >= c->config.nodes_n ||
        !message_is_same(c->nodes[node_id].incarnation, incarnation) ||
        !coordinator_is_present(&c->nodes[node_id]) || !c->nodes[node_id].is_in_world ||
        !c->is_running || generation != c->generation)
        return false;
    *out = (struct cluster_world){.generation = c->generation,
                                  .ranks_n = c->world_n * c->config.workers_n,
                                  .nodes_n = c->world_n,
                                  .addresses = c->world,
                                  .node_ids = c->world_ids,
                                  .past = c->past ? &c->past_world : NULL,
                                  .controls = (const char(*)[CLUSTER_CONTROL_MAX])c->controls};
    return true;
}
