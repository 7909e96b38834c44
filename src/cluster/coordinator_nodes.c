/* coordinator_nodes — the nodes for the status page; see coordinator.h. */
#include <math.h>

#include "cluster/coordinator_inside.h"

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
