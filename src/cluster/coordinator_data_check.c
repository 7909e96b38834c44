/* coordinator_data_check — see coordinator_inside.h. Must not know how data are compared:
 * config.is_same_data does. */
#include <string.h>

#include "cluster/coordinator_inside.h"

/* What this node must match: the first world's address of node 0 (for node 0: of node 1). A new
 * process of node 0 has not seen the first world; there it is a node that has trained already. */
static const struct cluster_address *
find_reference(const struct coordinator *c, const struct coordinator_node *node, int *node_out)
{
    *node_out = node == c->nodes ? 1 : 0;
    if (c->worlds_n > 0)
        return &c->first[*node_out];
    for (int i = 0; i < c->config.nodes_n; i++) {
        const struct coordinator_node *other = &c->nodes[i];
        *node_out = i;
        if (other->generation > 0 && node->generation == 0 && other->ready > other->used)
            return &c->addresses[(size_t)i * (size_t)c->config.workers_n];
    }
    return NULL;
}

static bool refuse_other_data(struct coordinator *c, struct coordinator_node *node)
{
    int node_id = coordinator_node_id(c, node), right_id;
    const struct cluster_address *right = find_reference(c, node, &right_id);
    const struct cluster_address *its =
        &c->addresses[(size_t)node_id * (size_t)c->config.workers_n];
    if (!right ||
        c->config.is_same_data(right, right_id, its, node_id, node->why, sizeof node->why))
        return false;
    node->refused = node->incarnation;
    node->state = CLUSTER_NODE_LOST;
    node->ready = 0;
    node->disconnected_ms = -1;
    log_queue_add(&c->log, true,
                  "refused node %d (%s, pid %lld): %s; the others wait for one with the right data",
                  node_id, node->host, (long long)node->pid, node->why);
    return true;
}

bool coordinator_data_check(struct coordinator *c)
{
    bool is_any = false;
    if (!c->config.is_same_data || c->config.nodes_n == 1 || c->generation == 0 || c->is_running ||
        c->is_ended)
        return false;
    for (int i = 0; i < c->config.nodes_n; i++) {
        struct coordinator_node *node = &c->nodes[i];
        if (coordinator_is_present(node) && node->ready > node->used)
            is_any = refuse_other_data(c, node) || is_any;
    }
    return is_any;
}
