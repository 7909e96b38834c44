/* check_skew — how far apart the wall clocks of the nodes are, from the offsets of pairs.
 * Certificates, logs of several nodes and file times need clocks that agree. Pure. */
#ifndef CONVOY_CHECK_CHECK_SKEW_H
#define CONVOY_CHECK_CHECK_SKEW_H

#include "measure/measure_link.h"
#include "check/check_row.h"

#define CHECK_SKEW_WARN_MS 100
#define CHECK_SKEW_FAIL_MS 1000

/* One node's clock. */
struct check_skew {
    bool is_known;
    int64_t ms;      /* ahead of the nodes' median; of two nodes: of node 0 */
    double error_ms; /* the round trips by which it was measured */
};

/* check_skew_find — links: between the first ranks of nodes of `locals` ranks each; those that are
 * not measured are skipped. The offset to node 0 goes along the fastest links, so not every pair is
 * needed. out: nodes. ST_RETRY: out of memory. */
enum status check_skew_find(const struct measure_link_found *links, int n, int nodes, int locals,
                            struct check_skew *out);

/* check_skew_row — the row "clock skew" of this node. root: as CHECK_ROOT. Its remedy is a command
 * of the clock's daemon that the machine has. */
struct check_row check_skew_row(const struct check_skew *skew, const char *root, int node,
                                int nodes);

#endif
