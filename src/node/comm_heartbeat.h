/* comm_heartbeat — a thread of the worker that tells the board, ten times a second, which call of
 * communication the worker is in.
 *
 * So the supervisor, and through it every node, can tell who waits for whom when nothing moves, and
 * a frozen process from a waiting one. Must not know what is communicated. */
#ifndef CONVOY_NODE_COMM_HEARTBEAT_H
#define CONVOY_NODE_COMM_HEARTBEAT_H

#include "base/board.h"
#include "comm/core/comm.h"

struct comm_heartbeat;

enum status comm_heartbeat_open(struct board *board, int worker_i, struct comm_heartbeat **out);
void comm_heartbeat_close(struct comm_heartbeat *heartbeat); /* accepts NULL */
/* comm_heartbeat_set_comm — whose calls to tell of from now on; NULL: none, and when this returns
 * the one before is looked at no more. */
void comm_heartbeat_set_comm(struct comm_heartbeat *heartbeat, const struct comm *comm);

#endif
