/* rehearse_nodes — the nodes of a job as process trees of this executable on this machine: starts
 * them, signals them, reads their boards. Each node is a process group of its own, so a signal
 * reaches all its processes, and Ctrl-C none. All are killed when this process ends, however it
 * ends. Must not know faults. */
#ifndef CONVOY_NODE_REHEARSE_NODES_H
#define CONVOY_NODE_REHEARSE_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/board.h"

#define REHEARSE_NODES_MAX 64
#define REHEARSE_WORDS_MAX 32 /* settings added to those of the user */

struct rehearse_nodes_config {
    int nodes_n;
    int args_n; /* words of the user */
    char *const *args;
    int words_n; /* settings added to them, which win */
    const char *const *words;
    const int *namespaces; /* a network namespace for each node; NULL: that of this process */
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
/* rehearse_nodes_poll — waits that long, then calls on_end of the nodes that have ended. */
void rehearse_nodes_poll(struct rehearse_nodes *nodes, int wait_ms);
/* rehearse_nodes_board — of a node that runs, or of its last process; NULL: it has none yet. */
struct board *rehearse_nodes_board(struct rehearse_nodes *nodes, int node);
int rehearse_nodes_running(const struct rehearse_nodes *nodes);

/* A worker's parameters (rehearse_flip.c). */
struct rehearse_replica {
    int rank;
    int64_t pid, elems; /* elems 0: no change of them would be found */
    uint64_t address;
};
/* Returns why no bit can be inverted whose worker would be named; "": one can be. */
const char *rehearse_flip_refused(const struct rehearse_replica *first, char *out, size_t cap);
/* Inverts a bit: worker, element and bit by choice. Returns the worker's rank, and in out what was
 * done; -1: there is no worker, or it has ended. */
int rehearse_flip(const struct rehearse_replica *replicas, int n, uint64_t choice, char *out,
                  size_t cap);

#endif
