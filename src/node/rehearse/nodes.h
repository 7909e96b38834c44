/* rehearse_nodes — runs the nodes of a job as process trees of this executable on this machine:
 * starts them, signals them, reads their boards. Each node is a process group of its own, so a
 * signal reaches all its processes, and Ctrl-C reaches none. All are killed when this process ends,
 * however it ends. Must not know faults. */
#ifndef CONVOY_NODE_REHEARSE_NODES_H
#define CONVOY_NODE_REHEARSE_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/board.h"

#define REHEARSE_NODES_MAX 64
#define REHEARSE_WORDS_MAX 32 /* settings that are added to the user's settings */

struct rehearse_nodes_config {
    int nodes_n;
    int args_n; /* number of the user's words */
    char *const *args;
    int words_n; /* number of added settings, which override the user's */
    const char *const *words;
    /* a network namespace for each node; NULL: all nodes use the namespace of this process */
    const int *namespaces;
    /* the GPUs of each node, as the vendor's variable `visible` lists them; NULL: the nodes see the
     * GPUs of this process */
    const char *const *gpus, *visible;
    /* A node's first process has ended. code: exit code as in a shell; 128 + N for signal N. */
    void (*on_end)(void *arg, int node, int code);
    void *arg;
};

struct rehearse_nodes;
/* rehearse_nodes_open — allocates the nodes. Starts no node yet. */
struct rehearse_nodes *rehearse_nodes_open(const struct rehearse_nodes_config *config);
/* rehearse_nodes_close — kills all running processes and waits for them. Accepts NULL. */
void rehearse_nodes_close(struct rehearse_nodes *nodes);
/* rehearse_nodes_start — starts a node that does not run. ST_RETRY: no process or descriptor is
 * left. */
enum status rehearse_nodes_start(struct rehearse_nodes *nodes, int node);
/* rehearse_nodes_signal — sends a signal to all processes of a node. */
void rehearse_nodes_signal(struct rehearse_nodes *nodes, int node, int signal_n);
/* rehearse_nodes_signal_first — sends a signal only to the first process of a node. */
void rehearse_nodes_signal_first(struct rehearse_nodes *nodes, int node, int signal_n);
/* rehearse_nodes_kill — kills all processes of a node and waits for the first one; on_end is not
 * called. */
void rehearse_nodes_kill(struct rehearse_nodes *nodes, int node);
/* rehearse_nodes_kill_worker — kills one worker of the node: number choice % n of its n workers.
 * Returns false if the node has no worker now. */
bool rehearse_nodes_kill_worker(struct rehearse_nodes *nodes, int node, uint64_t choice);
/* rehearse_nodes_limit_files — prevents all files of the nodes' processes from growing, or allows
 * it again. A write fails then as on a full disk, but with EFBIG. Returns false if the system
 * refused it. */
bool rehearse_nodes_limit_files(struct rehearse_nodes *nodes, bool is_limited);
/* rehearse_nodes_poll — waits for wait_ms, then calls on_end for the nodes that have ended. */
void rehearse_nodes_poll(struct rehearse_nodes *nodes, int wait_ms);
/* rehearse_nodes_board — returns the board of a running node, or of its last process; NULL: it has
 * none yet. */
struct board *rehearse_nodes_board(struct rehearse_nodes *nodes, int node);
/* rehearse_nodes_running — returns the number of nodes whose process runs. */
int rehearse_nodes_running(const struct rehearse_nodes *nodes);

/* A worker's parameters (rehearse_flip.c). */
struct rehearse_replica {
    int rank;
    int64_t pid, elems; /* elems 0: no check would find a change of them */
    uint64_t address;
    bool is_on_device; /* the address is one of a GPU, which only the worker reaches */
};
/* rehearse_flip_refused — returns the reason why no bit can be inverted in a way that the job can
 * attribute to its worker; "": it can be. */
const char *rehearse_flip_refused(const struct rehearse_replica *first, char *out, size_t cap);
/* rehearse_flip — inverts a bit in host memory; `choice` selects worker, element and bit. Returns
 * the worker's rank, and describes the change in out; -1: there is no worker, or it has ended. */
int rehearse_flip(const struct rehearse_replica *replicas, int n, uint64_t choice, char *out,
                  size_t cap);
/* rehearse_flip_text — describes a change for the log. */
void rehearse_flip_text(int rank, const struct bit_flip *flip, char *out, size_t cap);

#endif
