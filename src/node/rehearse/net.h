/* rehearse_net — a network namespace for each node of a rehearsal, with a cable to this process's,
 * which forwards between them, so that a cable can be pulled. Needs Linux network namespaces: as
 * root, or with user namespaces for others. Must not know nodes or faults. */
#ifndef CONVOY_NODE_REHEARSE_NET_H
#define CONVOY_NODE_REHEARSE_NET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define REHEARSE_NET_NODES_MAX 16

struct rehearse_net {
    int nodes_n;
    int namespace_fd[REHEARSE_NET_NODES_MAX];
};

/* rehearse_net_try — in a process of its own: whether rehearse_net_open would succeed. */
enum status rehearse_net_try(void);
/* rehearse_net_open — moves this process, which has one thread, into new namespaces for good: it
 * reaches the nodes and nothing else. ST_RETRY: the system refuses a part of it. */
enum status rehearse_net_open(int nodes_n, struct rehearse_net *out);
void rehearse_net_close(struct rehearse_net *net);
/* rehearse_net_address — of a node, for all nodes. */
void rehearse_net_address(int node, char *out, size_t cap);
/* rehearse_net_cut — pulls a node's cable, or puts it in again. */
enum status rehearse_net_cut(int node, bool is_cut);

#endif
