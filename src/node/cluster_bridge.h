/* cluster_bridge — this node's part in the meeting of all: what its workers say on the board goes
 * to the other nodes, and what the nodes decide goes on the board.
 *
 *   all workers ready → cluster_ready → a world → the board → (somebody is lost) → abort → all
 *   ready
 *   again …
 *
 * Only for runs of several ranks, be they on one node. Which node is dead is decided in meet, which
 * worker in workers. Must not know processes, signals or HTTP. */
#ifndef CONVOY_NODE_CLUSTER_BRIDGE_H
#define CONVOY_NODE_CLUSTER_BRIDGE_H

#include "conf/conf.h"
#include "node/workers.h"
#include "serve/view.h"

struct event_base;
struct cluster_bridge;

struct cluster_bridge_config {
    const struct conf *conf;
    struct board *board;
    struct event_base *loop;
    const struct workers *workers;
    void (*on_abort)(void *arg, const char *why); /* workers return to joining */
    /* another node was asked to stop: so is this one */
    void (*on_stop)(void *arg, enum board_request request);
    /* last of all, once; the sentence is in status_message */
    void (*on_end)(void *arg, enum status st);
    void *arg;
};

enum status cluster_bridge_open(const struct cluster_bridge_config *config,
                                struct cluster_bridge **out);
/* cluster_bridge_end — the meeting is closed, with its sockets; cluster_bridge_fill goes on showing
 * what was known last. Accepts NULL. */
void cluster_bridge_end(struct cluster_bridge *bridge);
void cluster_bridge_close(struct cluster_bridge *bridge); /* accepts NULL; also within on_end */
/* several times a second */
void cluster_bridge_tick(struct cluster_bridge *bridge, int64_t now_ms);

/* cluster_bridge_lost — a worker of this node ended; on_abort follows if it was in a generation. */
void cluster_bridge_lost(struct cluster_bridge *bridge, enum status st, const char *why);
/* asked here */
void cluster_bridge_stop(struct cluster_bridge *bridge, enum board_request request);
/* on_end follows */
void cluster_bridge_leave(struct cluster_bridge *bridge, enum status st, const char *message);

bool cluster_bridge_is_running(const struct cluster_bridge *bridge); /* a generation is under way */
int64_t cluster_bridge_restarts(const struct cluster_bridge *bridge);
void cluster_bridge_fill(void *arg, struct view *view); /* a serve_fill: arg is the bridge */

#endif
