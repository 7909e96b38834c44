/* coordinator_missing — the nodes that a job waits for, as text; see coordinator_inside.h. */
#include "cluster/coordinator_inside.h"

static bool is_absent_i(const void *nodes, int i)
{
    return coordinator_is_absent((const struct coordinator_node *)nodes + i);
}

static bool is_unready_i(const void *nodes, int i)
{
    const struct coordinator_node *node = (const struct coordinator_node *)nodes + i;
    return coordinator_is_present(node) && node->ready <= node->used;
}

int coordinator_missing_absent(const struct coordinator *c, char *out, size_t cap)
{
    return log_queue_list(c->config.nodes_n, is_absent_i, c->nodes, out, cap);
}

static void describe(const struct coordinator *c, char *out, size_t cap)
{
    char list[MESSAGE_TEXT_MAX - 64];
    out[0] = 0;
    if (c->is_running || c->is_ended)
        return;
    int n = coordinator_missing_absent(c, list, sizeof list);
    if (n > 0)
        text_format(out, cap, "node%s %s (%d of %d missing)", n > 1 ? "s" : "", list, n,
                    c->config.nodes_n);
    else if ((n = log_queue_list(c->config.nodes_n, is_unready_i, c->nodes, list, sizeof list)) > 0)
        text_format(out, cap, "node%s %s to be ready (%d of %d)", n > 1 ? "s" : "", list, n,
                    c->config.nodes_n);
}

void coordinator_missing_refresh(struct coordinator *c)
{
    if (c->is_missing_known)
        return;
    describe(c, c->missing, sizeof c->missing);
    c->is_missing_known = true;
    c->has_missing_changed = false;
}
