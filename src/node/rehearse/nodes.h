/* rehearse_nodes — the nodes of a job as process trees of this executable on this machine: starts
 * them, signals them, reads their log lines. Each node is a process group of its own, so a signal
 * reaches all its processes, and Ctrl-C none. All are killed when this process ends, however it
 * ends. Must not know faults, or what the lines mean. */
#ifndef CONVOY_NODE_REHEARSE_NODES_H
#define CONVOY_NODE_REHEARSE_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

#define REHEARSE_NODES_MAX 16
#define REHEARSE_WORDS_MAX 32 /* settings added to those of the user */

struct rehearse_nodes_config {
    int nodes_n;
    int args_n; /* words of the user */
    char *const *args;
    int words_n; /* settings added to them, which win */
    const char *const *words;
    const int *namespaces; /* a network namespace for each node; NULL: that of this process */
    /* a complete line of a node's log, without its line end */
    void (*on_line)(void *arg, int node, const char *line, size_t n);
    /* a node's first process has ended; code: as a shell shows it, 128 + N for a signal */
    void (*on_end)(void *arg, int node, int code);
    void *arg;
};

struct rehearse_nodes;
/* rehearse_nodes_open — starts no node yet. */
struct rehearse_nodes *rehearse_nodes_open(const struct rehearse_nodes_config *config);
/* rehearse_nodes_close — kills what still runs and waits for it; accepts NULL. */
void rehearse_nodes_close(struct rehearse_nodes *nodes);
/* rehearse_nodes_start — a node that does not run. ST_RETRY: no process or descriptor is left. */
enum status rehearse_nodes_start(struct rehearse_nodes *nodes, int node);
/* rehearse_nodes_signal — to all processes of a node; to the first one alone. */
void rehearse_nodes_signal(struct rehearse_nodes *nodes, int node, int signal_n);
void rehearse_nodes_signal_first(struct rehearse_nodes *nodes, int node, int signal_n);
/* rehearse_nodes_kill — kills all processes of a node and waits for the first one; on_end is not
 * called. */
void rehearse_nodes_kill(struct rehearse_nodes *nodes, int node);
/* rehearse_nodes_kill_worker — kills the worker whose number is choice modulo their number. False:
 * the node has none now. */
bool rehearse_nodes_kill_worker(struct rehearse_nodes *nodes, int node, uint64_t choice);
/* rehearse_nodes_limit_files — whether no file of the nodes' processes can grow: a write fails then
 * as on a full disk, but with EFBIG. False: the system has refused it. */
bool rehearse_nodes_limit_files(struct rehearse_nodes *nodes, bool is_limited);
/* rehearse_nodes_poll — waits at most that long, and calls on_line and on_end. */
void rehearse_nodes_poll(struct rehearse_nodes *nodes, int wait_ms);
int rehearse_nodes_running(const struct rehearse_nodes *nodes);

#endif
