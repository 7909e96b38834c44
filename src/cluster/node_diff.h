/* node_diff — compares the start parameters of two nodes: settings, version, model, number of nodes
 * and workers. Pure. It must not know the meaning of a setting. */
#ifndef CONVOY_CLUSTER_NODE_DIFF_H
#define CONVOY_CLUSTER_NODE_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct node_diff_side {
    int node_id;
    const char *host; /* "": unknown */
    int64_t protocol;
    int nodes_n, workers_n;
    const char *agree_json; /* one flat object, name → text */
};

/* node_diff_is_same — returns true if nothing differs; out is then empty. Otherwise out has a
 * sentence with at most three of the keys that differ, each with both values and both nodes. */
bool node_diff_is_same(const struct node_diff_side *mine, const struct node_diff_side *theirs,
                       char *out, size_t cap);

#endif
