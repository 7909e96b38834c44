/* comm_lift — calls whose buffers lie where a transport cannot reach: carried piece by piece
 * through memory where it can.
 *
 * NCCL moves memory of GPUs only, UCX the host's; where a UCX moves a GPU's as well, collectives go
 * there as they are (comm_ops.h, direct): only all_to_all, and messages between two ranks, whose
 * other end may lie in the host's memory, come here. A piece is copied to this side, moved, and
 * copied back, in two places that are used in turn: while a piece moves, the next one is on its way
 * here and the last one on its way back. The order of sums is each element's own (order.h), so
 * cutting changes no bit. Messages from one rank to another are cut the same way wherever they lie,
 * for the other end may lie elsewhere. All ranks' buffers of one collective lie on the same side.
 * Must not know what carries it out. */
#ifndef CONVOY_COMM_COMM_LIFT_H
#define CONVOY_COMM_COMM_LIFT_H

#include "comm/comm_ops.h"
#include "dev/dev.h"

#define COMM_LIFT_BYTES ((int64_t)4 << 20) /* of a piece */

struct comm_lift;

/* comm_lift_open — dev: apart from the host. to_device: the transport reaches the device's memory,
 * else the host's. */
enum status comm_lift_open(struct dev *dev, bool to_device, struct comm_lift **out);
void comm_lift_close(struct comm_lift *lift); /* accepts NULL */

/* comm_lift_mark — where the stream is now, for the next call that is made or begun; valid until
 * COMM_LIFT_MARKS more have been asked for. One thread asks. */
#define COMM_LIFT_MARKS 300 /* more than calls can be under way */
enum status comm_lift_mark(struct comm_lift *lift, struct stream *s, struct mark **out);

/* comm_lift_await — until the stream has done all it was given; the call under way may end
 * meanwhile (comm_ops_check). */
enum status comm_lift_await(const struct comm_wire *wire, struct stream *s);

/* comm_lift_run — as comm_ops_work, wherever the buffers lie. In the thread that carries calls
 * out. */
enum status comm_lift_run(struct comm_lift *lift, struct comm_wire *wire,
                          const struct comm_call *call);

#endif
