/* accord — is what two nodes were told the same? Key by key, so that a difference can be named.
 * Pure. Must not know what the settings mean. */
#ifndef CONVOY_CLUSTER_ACCORD_H
#define CONVOY_CLUSTER_ACCORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct accord_side {
    int node_id;
    const char *host; /* "" not said */
    int64_t protocol;
    int nodes_n, workers_n;
    const char *agree_json; /* one flat object, name → text */
};

/* accord_is_same — else a sentence with the keys that differ (at most three), both values and both
 * nodes. */
bool accord_is_same(const struct accord_side *mine, const struct accord_side *theirs, char *out,
                    size_t cap);

#endif
