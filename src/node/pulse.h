/* pulse — a thread of the worker that tells the board, ten times a second, which call of
 * communication the worker is in.
 *
 * So the supervisor, and through it every node, can tell who waits for whom when nothing moves, and
 * a frozen process from a waiting one. Must not know what is communicated. */
#ifndef CONVOY_NODE_PULSE_H
#define CONVOY_NODE_PULSE_H

#include "base/board.h"
#include "comm/comm.h"

struct pulse;

enum status pulse_open(struct board *board, int worker_i, struct pulse **out);
void pulse_close(struct pulse *pulse); /* accepts NULL */
/* pulse_comm — whose calls to tell of from now on; NULL: none, and when this returns the one before
 * is looked at no more. */
void pulse_comm(struct pulse *pulse, const struct comm *comm);

#endif
