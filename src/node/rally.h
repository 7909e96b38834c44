/* rally — this node's part in the meeting of all: what its workers say on the board goes to the
 * other nodes, and what the nodes decide goes on the board.
 *
 *   all workers ready → meet_ready → a world → the board → (somebody is lost) → abort → all ready
 *   again …
 *
 * Only for runs of several ranks, be they on one node. Which node is dead is decided in meet, which
 * worker in crew. Must not know processes, signals or HTTP. */
#ifndef CONVOY_NODE_RALLY_H
#define CONVOY_NODE_RALLY_H

#include "conf/conf.h"
#include "node/crew.h"
#include "serve/view.h"

struct event_base;
struct rally;

struct rally_config {
    const struct conf *conf;
    struct board *board;
    struct event_base *loop;
    const struct crew *crew;
    void (*on_abort)(void *arg, const char *why); /* workers return to joining */
    /* another node was asked to stop: so is this one */
    void (*on_stop)(void *arg, enum board_request request);
    /* last of all, once; the sentence is in status_message */
    void (*on_end)(void *arg, enum status st);
    void *arg;
};

enum status rally_open(const struct rally_config *config, struct rally **out);
/* rally_end — the meeting is closed, with its sockets; rally_fill goes on showing what was known
 * last. Accepts NULL. */
void rally_end(struct rally *rally);
void rally_close(struct rally *rally);                /* accepts NULL; also within on_end */
void rally_tick(struct rally *rally, int64_t now_ms); /* several times a second */

/* rally_lost — a worker of this node ended; on_abort follows if it was in a generation. */
void rally_lost(struct rally *rally, enum status st, const char *why);
void rally_stop(struct rally *rally, enum board_request request);           /* asked here */
void rally_leave(struct rally *rally, enum status st, const char *message); /* on_end follows */

bool rally_is_running(const struct rally *rally); /* a generation is under way */
int64_t rally_restarts(const struct rally *rally);
void rally_fill(void *arg, struct view *view); /* a serve_fill: arg is the rally */

#endif
