/* coordinator_alike — see coordinator_inside.h. Must not know what makes addresses alike: the
 * workers' affair. */
#include <string.h>

#include "meet/coordinator_inside.h"

/* What this slot is held against: the first world's, else, where node 0 is a new one, a node that
 * has trained before. */
static const struct meet_address *find_right(const struct coordinator *c, const struct slot *slot,
                                             int *node_out)
{
    *node_out = slot == c->slots ? 1 : 0;
    if (c->worlds_n > 0)
        return &c->first[*node_out];
    for (int i = 0; i < c->config.nodes_n; i++) {
        const struct slot *other = &c->slots[i];
        *node_out = i;
        if (other->generation > 0 && slot->generation == 0 && other->ready > other->used)
            return &c->addresses[(size_t)i * (size_t)c->config.workers_n];
    }
    return NULL;
}

static bool refuse_unlike(struct coordinator *c, struct slot *slot)
{
    int node_id = (int)(slot - c->slots), right_id;
    const struct meet_address *right = find_right(c, slot, &right_id);
    const struct meet_address *its = &c->addresses[(size_t)node_id * (size_t)c->config.workers_n];
    if (right == NULL ||
        c->config.is_alike(right, right_id, its, node_id, slot->why, sizeof(slot->why)))
        return false;
    slot->refused = slot->instance;
    slot->state = MEET_NODE_LOST;
    slot->ready = 0;
    slot->closed_ms = -1;
    notes_add(&c->notes, true,
              "refused node %d (%s, pid %lld): %s; the others wait for a right one", node_id,
              slot->host, (long long)slot->pid, slot->why);
    return true;
}

bool coordinator_alike(struct coordinator *c)
{
    bool is_any = false;
    if (c->config.is_alike == NULL || c->config.nodes_n == 1 || c->generation == 0 ||
        c->is_running || c->is_ended)
        return false;
    for (int i = 0; i < c->config.nodes_n; i++) {
        struct slot *slot = &c->slots[i];
        bool is_here = slot->state == MEET_NODE_JOINED || slot->state == MEET_NODE_SUSPECT;
        if (is_here && slot->ready > slot->used)
            is_any = refuse_unlike(c, slot) || is_any;
    }
    return is_any;
}
