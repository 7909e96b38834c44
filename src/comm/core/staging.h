/* staging — calls whose buffers lie where a transport cannot reach: carried piece by piece
 * through memory where it can.
 *
 * NCCL moves memory of GPUs only, UCX the host's; where a UCX moves a GPU's as well, collectives go
 * there as they are (transport.h, direct): only all_to_all, and messages between two ranks, whose
 * other end may lie in the host's memory, come here. A piece is copied to this side, moved, and
 * copied back, in two places that are used in turn: while a piece moves, the next one is on its way
 * here and the last one on its way back. The order of sums is each element's own (sum_tree.h), so
 * cutting changes no bit. Messages from one rank to another are cut the same way wherever they lie,
 * for the other end may lie elsewhere. All ranks' buffers of one collective lie on the same side.
 * Must not know what carries it out. */
#ifndef CONVOY_COMM_STAGING_H
#define CONVOY_COMM_STAGING_H

#include "comm/core/transport.h"
#include "dev/dev.h"

#define STAGING_CHUNK_BYTES ((int64_t)4 << 20) /* of a piece */

struct staging;

/* staging_open — dev: apart from the host. to_device: the transport reaches the device's memory,
 * else the host's. */
enum status staging_open(struct dev *dev, bool to_device, struct staging **out);
void staging_close(struct staging *staging); /* accepts NULL */

/* staging_record — where the stream is now, for the next call that is made or begun; valid until
 * STAGING_EVENTS more have been asked for. One thread asks. */
#define STAGING_EVENTS 300 /* more than calls can be under way */
enum status staging_record(struct staging *staging, struct stream *s, struct dev_event **out);

/* staging_sync — until the stream has done all it was given; the call under way may end
 * meanwhile (transport_check). */
enum status staging_sync(const struct comm_ctx *ctx, struct stream *s);

/* staging_run — as transport_dispatch, wherever the buffers lie. In the thread that carries calls
 * out. */
enum status staging_run(struct staging *staging, struct comm_ctx *ctx,
                        const struct comm_call *call);

#endif
