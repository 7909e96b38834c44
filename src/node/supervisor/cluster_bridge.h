/* cluster_bridge — connects the board of this node with the cluster: what its workers publish goes
 * to node 0, and what node 0 decides goes on the board.
 *
 *   all workers ready → cluster_ready → a world → the board → a worker or node is lost → abort →
 *   all workers ready again …
 *
 * Only for runs of several ranks, on one node or many. The cluster module decides which node is
 * lost, workers.c which worker. All functions run on the thread of the event loop and do not block.
 * Must not know processes, signals or HTTP. */
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
    const struct mesh *mesh; /* of all ranks, for messages; NULL: it is not said */
    int max_restarts;        /* of the job; -1: it knows none */
    /* what the nodes compare before they connect, as config_map_agreement writes it */
    enum status (*agreement)(const struct conf *conf, struct text *out);
    void (*on_begin)(void *arg); /* a generation begins */
    /* the generation is over; workers return to joining */
    void (*on_abort)(void *arg, const char *why);
    /* node 0: other nodes reach this one at that address; again if it changes */
    void (*on_reached)(void *arg, const char *address);
    /* a stop was requested on another node, so it holds for this one too */
    void (*on_stop)(void *arg, enum board_request request);
    /* called once, last of all; the sentence is in status_message */
    void (*on_end)(void *arg, enum status st);
    void *arg;
};

/* cluster_bridge_open — joins the cluster; on node 0 it may block up to 30 s for its own name. */
enum status cluster_bridge_open(const struct cluster_bridge_config *config,
                                struct cluster_bridge **out);
/* cluster_bridge_end — leave the cluster and close its sockets; cluster_bridge_fill still shows
 * what was known last. Accepts NULL. */
void cluster_bridge_end(struct cluster_bridge *bridge);
/* cluster_bridge_close — accepts NULL; may be called within on_end. */
void cluster_bridge_close(struct cluster_bridge *bridge);
/* cluster_bridge_tick — call several times a second. */
void cluster_bridge_tick(struct cluster_bridge *bridge, int64_t now_ms);

/* cluster_bridge_lost — worker worker_i of this node ended; on_abort follows if it was in a
 * generation. Nothing follows if that generation was over: the worker may be the cause of its end.
 * Call it before the board forgets the worker. */
void cluster_bridge_lost(struct cluster_bridge *bridge, int worker_i, enum status st,
                         const char *why);
/* cluster_bridge_report_machine — how busy this node's machine is, for node 0. */
void cluster_bridge_report_machine(struct cluster_bridge *bridge,
                                   const struct machine_stats *machine);
/* cluster_bridge_stop — a stop was requested on this node. */
void cluster_bridge_stop(struct cluster_bridge *bridge, enum board_request request);
/* cluster_bridge_leave — this node ends with this status; on_end follows. */
void cluster_bridge_leave(struct cluster_bridge *bridge, enum status st, const char *message);

/* cluster_bridge_choose_reached — the address at which other nodes have reached node 0, of nodes[]
 * as node 0 has them; "": there is none. If there are several, one that other hosts reach, and of
 * these the one of most nodes, the lowest NODE_ID's of equals. *is_split_out: other hosts use
 * several. Pure, public for tests. */
struct cluster_node;
const char *cluster_bridge_choose_reached(const struct cluster_node *nodes, int nodes_n,
                                          bool *is_split_out);
bool cluster_bridge_is_running(const struct cluster_bridge *bridge); /* a generation is under way */
/* cluster_bridge_running_nodes — of the generation under way, or the last one; 0: none yet. */
int cluster_bridge_running_nodes(const struct cluster_bridge *bridge);
int64_t cluster_bridge_restarts(const struct cluster_bridge *bridge);
/* cluster_bridge_cause, cluster_bridge_checkpoints — as cluster_cause and cluster_checkpoints. */
const char *cluster_bridge_cause(const struct cluster_bridge *bridge);
void cluster_bridge_checkpoints(struct cluster_bridge *bridge, int64_t n);
void cluster_bridge_fill(void *arg, struct view *view); /* a serve_fill; arg is the bridge */

#endif
