/* staging — copies between host and device around a transport that reaches only one of them. Must
 * not know which transport runs the call.
 *
 * NCCL moves only GPU memory; HOST moves only host memory. (If UCX moves GPU memory too, most
 * collectives go to transport_ops.gpu_direct instead. all_to_all, send and recv still come here:
 * the other end may lie in host memory.)
 *
 * A call is cut into chunks. Each chunk is copied to the transport's side, moved, and copied back.
 * Two chunk buffers alternate: while one chunk is moved, the next is copied in and the previous is
 * copied out. Chunking changes no bit, because sum.h fixes the order for each element. send and
 * recv are chunked the same way in either memory, because the other end may be staged. */
#ifndef CONVOY_COMM_STAGING_H
#define CONVOY_COMM_STAGING_H

#include "comm/core/transport.h"
#include "dev/dev.h"

#define STAGING_CHUNK_BYTES ((int64_t)4 << 20)

struct staging;

/* staging_open — allocates the chunk buffers. dev: a discrete device. to_device: the transport
 * reaches device memory; false: host memory. */
enum status staging_open(struct dev *dev, bool to_device, struct staging **out);
void staging_close(struct staging *staging); /* accepts NULL */

#define STAGING_EVENTS 300 /* more than there can be calls in the queue */
/* staging_record — records an event at the stream's current end, for the next call. The event is
 * valid until STAGING_EVENTS more have been recorded. One thread at a time. */
enum status staging_record(struct staging *staging, struct stream *s, struct dev_event **out);

/* staging_sync — waits until the stream is idle, or the call in progress ends (transport_check). */
enum status staging_sync(const struct comm_ctx *ctx, struct stream *s);

/* staging_is_direct — returns true if the transport reaches the call's buffers: no copy is
 * needed. */
bool staging_is_direct(const struct staging *staging, const struct comm_call *call);

/* staging_run — does transport_dispatch for buffers in either memory. Runs on the thread that
 * executes the call. */
enum status staging_run(struct staging *staging, struct comm_ctx *ctx,
                        const struct comm_call *call);

#endif
