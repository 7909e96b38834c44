/* coordinator_data_check — see coordinator_inside.h. Must not know how data are compared:
 * config.is_same_data does. */
#include <string.h>

#include "cluster/coordinator_inside.h"

static const struct cluster_address *address_of(const struct coordinator *c, int node_id)
{
    return &c->addresses[(size_t)node_id * (size_t)c->config.workers_n];
}

/* A node that has trained already, and is ready: what a new process of node 0 compares with, since
 * it has not seen the first world. */
static bool is_reference(const struct coordinator_node *node)
{
    return node->generation > 0 && node->ready > node->used;
}

/* What this node must match: the first world's address of node 0 (for node 0: of node 1), or the
 * reference, which only nodes that have not trained yet are compared with. NULL: nothing yet. */
static const struct cluster_address *
find_reference(const struct coordinator *c, const struct coordinator_node *node, int *node_out)
{
    *node_out = node == c->nodes ? 1 : 0;
    if (c->worlds_n > 0)
        return &c->first[*node_out];
    *node_out = c->reference_id;
    bool is_compared = node->generation == 0 && is_reference(&c->nodes[c->reference_id]);
    return is_compared ? address_of(c, c->reference_id) : NULL;
}

static bool refuse_other_data(struct coordinator *c, struct coordinator_node *node)
{
    int node_id = coordinator_node_id(c, node), right_id;
    const struct cluster_address *right = find_reference(c, node, &right_id);
    if (!right || c->config.is_same_data(right, right_id, address_of(c, node_id), node_id,
                                         node->why, sizeof node->why))
        return false;
    node->refused = node->incarnation;
    node->state = CLUSTER_NODE_LOST;
    node->ready = 0;
    node->disconnected_ms = node->data_closed_ms = -1;
    log_queue_add(&c->log, true,
                  "refused node %d (%s, pid %lld): %s; the others wait for one with the right data",
                  node_id, node->host, (long long)node->pid, node->why);
    return true;
}

/* The first reference has come: the nodes that were ready before it are compared now. */
static bool check_all(struct coordinator *c)
{
    bool is_any = false;
    for (int i = 0; i < c->config.nodes_n; i++) {
        struct coordinator_node *node = &c->nodes[i];
        if (coordinator_is_present(node) && node->ready > node->used)
            is_any = refuse_other_data(c, node) || is_any;
    }
    return is_any;
}

bool coordinator_data_check(struct coordinator *c, struct coordinator_node *node)
{
    if (!c->config.is_same_data || c->config.nodes_n == 1 || c->generation == 0 ||
        (c->is_running && node->is_in_world) || c->is_ended)
        return false;
    if (c->worlds_n > 0 || !is_reference(node) || is_reference(&c->nodes[c->reference_id]))
        return refuse_other_data(c, node);
    c->reference_id = coordinator_node_id(c, node);
    return check_all(c);
}
