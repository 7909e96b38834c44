/* coordinator_roster — see coordinator.h: the nodes as people see them. */
#include <math.h>

#include "meet/coordinator_inside.h"

void coordinator_roster_from(struct coordinator *c, int node_id, struct wire_instance instance,
                             const char *address)
{
    if (wire_is_same(c->slots[node_id].instance, instance))
        text_copy(c->slots[node_id].address, sizeof(c->slots[node_id].address), address);
}

const struct meet_node *coordinator_roster(struct coordinator *c, int64_t now_ms)
{
    for (int i = 0; i < c->config.nodes_n; i++) {
        const struct slot *slot = &c->slots[i];
        struct meet_node *row = &c->roster[i];
        row->node_id = i;
        row->state = slot->state;
        text_copy(row->address, sizeof(row->address),
                  slot->address[0] != 0 ? slot->address : slot->host);
        row->heartbeat_age_seconds =
            slot->state != MEET_NODE_AWAITED ? (double)(now_ms - slot->spoke_ms) / 1e3 : NAN;
        row->ranks_n = slot->ranks_n;
        row->ranks = c->ranks + (size_t)i * (size_t)c->config.workers_n;
    }
    return c->roster;
}
