/* coordinator_nodes — each node as the coordinator sees it: the extension of its lease, the two
 * signs of its death, the nodes that the job waits for, and the rows of the status page.
 * coordinator.c marks a node as lost: for both signs, a closed connection, or silence. See
 * coordinator_inside.h. Must not know sockets. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/coordinator_inside.h"

/* ---- leases on overloaded hosts ---- */

int64_t coordinator_nodes_lag(const struct coordinator *c, const struct coordinator_node *node)
{
    return loop_lag_worst(&c->lag, c->lag.ticked_ms) + node->lag_ms;
}

int64_t coordinator_nodes_grace(const struct coordinator *c, const struct coordinator_node *node)
{
    int64_t grace_ms = COORDINATOR_GRACE_FACTOR * coordinator_nodes_lag(c, node);
    int64_t most_ms = COORDINATOR_GRACE_FACTOR_MAX * c->config.peer_timeout_ms;
    return grace_ms < most_ms ? grace_ms : most_ms;
}

/* ---- the two signs of a node's death ---- */

struct coordinator_node *coordinator_nodes_note_closed(struct coordinator *c,
                                                       struct coordinator_node *from,
                                                       const struct message_heartbeat *heartbeat,
                                                       int64_t now_ms)
{
    const bool is_new = heartbeat->closed > from->closed;
    from->closed = heartbeat->closed;
    if (!is_new || heartbeat->closed != c->world_generation || !from->is_in_world)
        return NULL;
    ASSERTF(heartbeat->closed_rank >= 0, "rank %d", heartbeat->closed_rank);
    const int at = heartbeat->closed_rank / c->config.workers_n;
    if (at >= c->world_n)
        return NULL;
    /* The process must still be the one in that world. A node that reported the loss of its worker
     * has explained why the connection ended. */
    struct coordinator_node *node = &c->nodes[c->world_ids[at]];
    if (!node->is_in_world || !coordinator_is_present(node) || node == from ||
        node->lost == heartbeat->closed)
        return NULL;
    node->data_closed_ms = now_ms;
    return node;
}

bool coordinator_nodes_is_dead(const struct coordinator_node *node)
{
    return coordinator_is_present(node) && node->disconnected_ms >= 0 &&
           node->data_closed_ms >= 0 &&
           node->disconnected_ms - node->data_closed_ms <= COORDINATOR_DISCONNECTED_MS;
}

/* ---- the nodes that the job waits for, as text ---- */

static bool is_absent_i(const void *nodes, int i)
{
    const struct coordinator_node *node = (const struct coordinator_node *)nodes + i;
    return coordinator_is_absent(node) || node->has_departed;
}

static bool is_unready_i(const void *nodes, int i)
{
    const struct coordinator_node *node = (const struct coordinator_node *)nodes + i;
    return coordinator_is_present(node) && node->ready <= node->used;
}

int coordinator_nodes_absent(const struct coordinator *c, char *out, size_t cap)
{
    return log_queue_list(c->config.nodes_n, is_absent_i, c->nodes, out, cap);
}

void coordinator_nodes_refresh_missing(struct coordinator *c)
{
    char list[MESSAGE_TEXT_MAX - 64];
    if (c->is_missing_known)
        return;
    c->is_missing_known = true;
    c->has_missing_changed = false;
    c->missing[0] = 0;
    if (c->is_running || c->is_ended)
        return;
    int n = coordinator_nodes_absent(c, list, sizeof list);
    if (n > 0)
        text_format(c->missing, sizeof c->missing, "node%s %s (%d of %d missing)", n > 1 ? "s" : "",
                    list, n, c->config.nodes_n);
    else if ((n = log_queue_list(c->config.nodes_n, is_unready_i, c->nodes, list, sizeof list)) > 0)
        text_format(c->missing, sizeof c->missing, "node%s %s to be ready (%d of %d)",
                    n > 1 ? "s" : "", list, n, c->config.nodes_n);
}

/* ---- the status page ---- */

void coordinator_nodes_set_address(struct coordinator *c, int node_id,
                                   struct message_incarnation incarnation, const char *address,
                                   const char *reached)
{
    struct coordinator_node *node = &c->nodes[node_id];
    if (!message_is_same(node->incarnation, incarnation))
        return;
    text_copy(node->address, sizeof node->address, address);
    text_copy(node->reached, sizeof node->reached, reached);
}

void coordinator_nodes_control(const struct coordinator *c, int node_id, char *out, size_t cap)
{
    const struct coordinator_node *node = &c->nodes[node_id];
    out[0] = 0;
    if (node_id == c->config.leader_id && c->config.control)
        text_copy(out, cap, c->config.control);
    else if (node->control_port > 0 && node->address[0] != 0)
        text_format(out, cap, strchr(node->address, ':') ? "[%s]:%d" : "%s:%d", node->address,
                    node->control_port);
}

const struct cluster_node *coordinator_nodes(struct coordinator *c, int64_t now_ms)
{
    for (int i = 0; i < c->config.nodes_n; i++) {
        const struct coordinator_node *node = &c->nodes[i];
        struct cluster_node *row = &c->status_nodes[i];
        row->node_id = i;
        row->state = node->state;
        row->is_outside =
            c->config.min_nodes < c->config.nodes_n && c->worlds_n > 0 && !node->is_in_world;
        text_copy(row->address, sizeof row->address,
                  node->address[0] != 0 ? node->address : node->host);
        text_copy(row->reached, sizeof row->reached, node->reached);
        row->heartbeat_age_seconds = node->state != CLUSTER_NODE_AWAITED
                                         ? (double)(now_ms - node->last_message_ms) / 1e3
                                         : NAN;
        row->machine = node->state == CLUSTER_NODE_JOINED ? node->machine : machine_stats_unknown();
        row->ranks_n = node->ranks_n;
        row->ranks = c->ranks + (size_t)i * (size_t)c->config.workers_n;
    }
    return c->status_nodes;
}
