/* comm_heartbeat — a thread of the worker that publishes ten times a second in which collective the
 * worker is.
 *
 * If training stops moving, every node can see from it which rank waits for which, and whether a
 * process is frozen or waits. Must not know what is communicated. */
#ifndef CONVOY_NODE_COMM_HEARTBEAT_H
#define CONVOY_NODE_COMM_HEARTBEAT_H

#include "base/board.h"
#include "comm/core/comm.h"

struct comm_heartbeat;

/* comm_heartbeat_open — starts the thread that publishes the heartbeat on the board, which must
 * outlive it. It publishes no collective until comm_heartbeat_set_comm. */
enum status comm_heartbeat_open(struct board *board, int worker_i, struct comm_heartbeat **out);
/* comm_heartbeat_close — ends the thread and waits for it. Accepts NULL. */
void comm_heartbeat_close(struct comm_heartbeat *heartbeat);
/* comm_heartbeat_set_comm — publishes the collectives of this communicator from now on; NULL: of
 * none. After it returns, the thread no longer reads the previous communicator. */
void comm_heartbeat_set_comm(struct comm_heartbeat *heartbeat, const struct comm *comm);

#endif
