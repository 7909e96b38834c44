/* rehearse_net — a network namespace for each node of a rehearsal. A virtual cable connects it to
 * this process's namespace, which forwards between the nodes, so that a cable can be pulled. Needs
 * Linux network namespaces: as root, or with user namespaces. Must not know nodes or faults. */
#ifndef CONVOY_NODE_REHEARSE_NET_H
#define CONVOY_NODE_REHEARSE_NET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define REHEARSE_NET_NODES_MAX 64

struct rehearse_net {
    int nodes_n;
    int namespace_fd[REHEARSE_NET_NODES_MAX];
};

/* rehearse_net_try — checks in a child process whether rehearse_net_open would succeed. */
enum status rehearse_net_try(void);
/* rehearse_net_open — moves this process, which has one thread, into new namespaces permanently: it
 * can then reach only the nodes. ST_RETRY: the system refuses a part of it. */
enum status rehearse_net_open(int nodes_n, struct rehearse_net *out);
/* rehearse_net_close — closes the nodes' namespaces; this process stays in its own. */
void rehearse_net_close(struct rehearse_net *net);
/* rehearse_net_address — returns the address of a node, which all nodes can reach. */
void rehearse_net_address(int node, char *out, size_t cap);
/* rehearse_net_cut — pulls a node's cable, or plugs it in again. */
enum status rehearse_net_cut(int node, bool is_cut);

#endif
