/* coordinator_death — the two signs of a node's death; see coordinator_inside.h. Must not know
 * sockets. */
#include "cluster/coordinator_inside.h"

void coordinator_death_note_message(struct coordinator_node *node) { node->data_closed_ms = -1; }

/* The node that has this rank in the last world, if its process is still the one of that world. */
static struct coordinator_node *node_of(struct coordinator *c, int rank)
{
    const int at = rank / c->config.workers_n;
    if (at >= c->world_n)
        return NULL;
    struct coordinator_node *node = &c->nodes[c->world_ids[at]];
    return node->is_in_world && coordinator_is_present(node) ? node : NULL;
}

struct coordinator_node *coordinator_death_note_closed(struct coordinator *c,
                                                       struct coordinator_node *from,
                                                       const struct message_heartbeat *heartbeat,
                                                       int64_t now_ms)
{
    const bool is_new = heartbeat->closed > from->closed;
    from->closed = heartbeat->closed;
    if (!is_new || heartbeat->closed != c->world_generation || !from->is_in_world)
        return NULL;
    struct coordinator_node *node = node_of(c, heartbeat->closed_rank);
    /* A node that reported the loss of its worker explained why the connection ended. */
    if (!node || node == from || node->lost == heartbeat->closed)
        return NULL;
    node->data_closed_ms = now_ms;
    return node;
}

bool coordinator_death_is_certain(const struct coordinator_node *node)
{
    return coordinator_is_present(node) && node->disconnected_ms >= 0 &&
           node->data_closed_ms >= 0 &&
           node->disconnected_ms - node->data_closed_ms <= COORDINATOR_DISCONNECTED_MS;
}
