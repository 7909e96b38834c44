/* comm_heartbeat — a thread of the worker that publishes, ten times a second, which collective the
 * worker is in.
 *
 * So every node knows, when nothing moves, which rank waits for which, and whether a process is
 * frozen or waits. Must not know what is communicated. */
#ifndef CONVOY_NODE_COMM_HEARTBEAT_H
#define CONVOY_NODE_COMM_HEARTBEAT_H

#include "base/board.h"
#include "comm/core/comm.h"

struct comm_heartbeat;

enum status comm_heartbeat_open(struct board *board, int worker_i, struct comm_heartbeat **out);
/* comm_heartbeat_close — ends the thread and waits for it. Accepts NULL. */
void comm_heartbeat_close(struct comm_heartbeat *heartbeat);
/* comm_heartbeat_set_comm — publish this communicator's collectives from now on; NULL: none. When
 * it returns, the thread no longer reads the communicator before. */
void comm_heartbeat_set_comm(struct comm_heartbeat *heartbeat, const struct comm *comm);

#endif
