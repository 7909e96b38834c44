/* cluster_bridge — connects the board of this node with the cluster: forwards the reports of its
 * workers to node 0, and writes the decisions of node 0 to the board.
 *
 *   all workers ready → cluster_ready → a world → the board → a worker or node is lost → abort →
 *   all workers ready again …
 *
 * Only for runs of several ranks, on one node or many. The cluster module decides which node is
 * lost, workers.c decides which worker is. All functions run on the thread of the event loop and do
 * not block. Must not know processes, signals or HTTP. */
#ifndef CONVOY_NODE_CLUSTER_BRIDGE_H
#define CONVOY_NODE_CLUSTER_BRIDGE_H

#include "conf/conf.h"
#include "node/supervisor/workers.h"
#include "serve/view.h"

struct event_base;
struct cluster_bridge;

struct cluster_bridge_config {
    const struct conf *conf;
    struct board *board;
    struct event_base *loop;
    const struct workers *workers;
    const struct mesh *mesh; /* mesh of all ranks, for messages; NULL: messages do not mention it */
    int max_restarts;        /* restart budget of the job; -1: unknown here */
    /* writes the settings that the nodes compare before they connect, like config_map_agreement */
    enum status (*agreement)(const struct conf *conf, struct text *out);
    void (*on_begin)(void *arg); /* a generation begins */
    /* the generation is over; the workers join again */
    void (*on_abort)(void *arg, const char *why);
    /* node 0 only: other nodes reach this one at that address; called again if it changes */
    void (*on_reached)(void *arg, const char *address);
    /* a stop was requested on another node and applies to this one too */
    void (*on_stop)(void *arg, enum board_request request);
    /* called once, as the last call; the message is in status_message */
    void (*on_end)(void *arg, enum status st);
    void *arg;
};

/* cluster_bridge_open — joins the cluster. On node 0 it may block up to 30 s until its own name can
 * be resolved. */
enum status cluster_bridge_open(const struct cluster_bridge_config *config,
                                struct cluster_bridge **out);
/* cluster_bridge_end — leaves the cluster and closes its sockets. cluster_bridge_fill still shows
 * the last state. Accepts NULL. */
void cluster_bridge_end(struct cluster_bridge *bridge);
/* cluster_bridge_close — frees the bridge. Accepts NULL; may be called inside on_end. */
void cluster_bridge_close(struct cluster_bridge *bridge);
/* cluster_bridge_tick — sends and logs periodic reports. Call it several times a second. */
void cluster_bridge_tick(struct cluster_bridge *bridge, int64_t now_ms);

/* cluster_bridge_lost — reports that worker worker_i of this node ended. on_abort follows if the
 * worker was in a generation. Nothing follows if that generation was over: the worker may be the
 * cause of its end. Call it before the worker's entry on the board is cleared. */
void cluster_bridge_lost(struct cluster_bridge *bridge, int worker_i, enum status st,
                         const char *why);
/* cluster_bridge_report_machine — sends the load of this node's machine to node 0. */
void cluster_bridge_report_machine(struct cluster_bridge *bridge,
                                   const struct machine_stats *machine);
/* cluster_bridge_stop — reports that a stop was requested on this node. */
void cluster_bridge_stop(struct cluster_bridge *bridge, enum board_request request);
/* cluster_bridge_leave — reports that this node ends with this status; on_end follows. */
void cluster_bridge_leave(struct cluster_bridge *bridge, enum status st, const char *message);

struct cluster_node;
/* cluster_bridge_choose_reached — chooses, from node 0's nodes[], the address at which other nodes
 * have reached node 0; "": there is none. It prefers an address that other hosts can reach, then
 * the address that most nodes use, then the lowest NODE_ID. *is_split_out: other hosts use several
 * addresses. Pure; public for tests. */
const char *cluster_bridge_choose_reached(const struct cluster_node *nodes, int nodes_n,
                                          bool *is_split_out);
/* cluster_bridge_has_all — node 0: returns true if all nodes have joined. */
bool cluster_bridge_has_all(struct cluster_bridge *bridge);
/* cluster_bridge_is_running — returns true if a generation is in progress. */
bool cluster_bridge_is_running(const struct cluster_bridge *bridge);
/* cluster_bridge_leads — returns true if this node has the coordinator of the job. */
bool cluster_bridge_leads(const struct cluster_bridge *bridge);
/* cluster_bridge_running_nodes — returns the number of nodes in the current generation, or in the
 * last one; 0: none yet. */
int cluster_bridge_running_nodes(const struct cluster_bridge *bridge);
/* cluster_bridge_restarts — returns the restarts of the job so far. */
int64_t cluster_bridge_restarts(const struct cluster_bridge *bridge);
/* cluster_bridge_cause — returns the result of cluster_cause. */
const char *cluster_bridge_cause(const struct cluster_bridge *bridge, int *rank_out);
/* cluster_bridge_checkpoints — calls cluster_checkpoints; no effect after the cluster has ended. */
void cluster_bridge_checkpoints(struct cluster_bridge *bridge, int64_t n);
void cluster_bridge_fill(void *arg, struct view *view); /* a serve_fill; arg is the bridge */

#endif
