/* comm_eager — the eager protocol of MPI (Gropp, Lusk, Doss and Skjellum, "A high-performance,
 * portable implementation of the MPI message passing interface standard", Parallel Computing 22,
 * 1996) for whole calls: short content travels with the envelope.
 *
 *   1. Each rank sends every other rank a header that describes the call, then the content if
 *      that is short.
 *   2. It waits for the headers of all ranks.
 *
 * So ranks in different calls fail immediately, and each rank can report the ranks that have not
 * entered. A small call is over after one message each way. Must not interpret the content. */
#ifndef CONVOY_COMM_EAGER_H
#define CONVOY_COMM_EAGER_H

#include "comm/core/transport.h"
#include "comm/message/messenger.h"

/* bytes before the content: the header, padded so that the content is aligned */
#define COMM_EAGER_HEADER_BYTES 64

/* The first bytes of a message. */
struct comm_eager_header {
    struct comm_header call;
    /* star.c: no content follows, but a later message brings it; ranks that have entered, one bit
     * each */
    uint32_t is_status, entered;
};
_Static_assert(sizeof(struct comm_eager_header) <= COMM_EAGER_HEADER_BYTES, "it fits");

/* One peer in the call in progress. */
struct comm_eager_peer {
    struct message_op recv, send, status;
    bool has_entered;
};

/* Zeroed: none. */
struct comm_eager {
    struct messenger *messenger;
    int group, n, me;
    const int *root_rank;          /* each member's rank in the root */
    int64_t eager_max;             /* bytes of content, at most */
    struct comm_eager_peer *peers; /* n */
    char *received, *to_send;      /* n × (COMM_EAGER_HEADER_BYTES + eager_max) each */
    const struct comm_call *call;  /* the call in progress */
    bool is_leaf;                  /* star.c: no status has come yet */
    int64_t bytes_sent;
};

/* comm_eager_open — allocates; the fields above `peers` are set. */
enum status comm_eager_open(struct comm_eager *eager);
/* comm_eager_free — frees the memory and zeroes the struct. Accepts a zeroed struct. */
void comm_eager_free(struct comm_eager *eager);

/* Returns the content received from rank r. */
static inline char *comm_eager_received(const struct comm_eager *eager, int r)
{
    return eager->received + r * (COMM_EAGER_HEADER_BYTES + eager->eager_max) +
           COMM_EAGER_HEADER_BYTES;
}
/* Returns the content to send to rank r. */
static inline char *comm_eager_to_send(const struct comm_eager *eager, int r)
{
    return eager->to_send + r * (COMM_EAGER_HEADER_BYTES + eager->eager_max) +
           COMM_EAGER_HEADER_BYTES;
}

/* comm_eager_set_call — starts a new call: no peer has entered it. */
void comm_eager_set_call(struct comm_eager *eager, const struct comm_call *call);
/* comm_eager_exchange — posts the receive of rank r's header and sends it this rank's, with the
 * first `bytes` of comm_eager_to_send. A COMM_CALL_SEND only sends, a COMM_CALL_RECV only
 * receives. */
enum status comm_eager_exchange(struct comm_eager *eager, int r, enum message_tag_class tag_class,
                                int64_t bytes);
/* comm_eager_recv — posts the receive of rank r's message. */
enum status comm_eager_recv(struct comm_eager *eager, int r, enum message_tag_class tag_class);
/* comm_eager_write_header — writes the header of comm_eager_to_send(eager, slot): this rank's call;
 * in a status (entered not NULL) also the ranks that have entered. */
void comm_eager_write_header(struct comm_eager *eager, int slot, const uint32_t *entered);
/* comm_eager_send — sends that slot to rank r: its header and `bytes` of content. */
enum status comm_eager_send(struct comm_eager *eager, struct message_op *op, int slot, int r,
                            int64_t bytes);
/* comm_eager_begin — does _set_call, then _exchange with every rank. The content for rank r is at
 * content + r·stride (stride 0: the same for all). */
enum status comm_eager_begin(struct comm_eager *eager, const struct comm_call *call,
                             const void *content, int64_t stride, int64_t bytes);
/* comm_eager_check — notes whether rank r has entered. ST_BUG: it is in another call. */
enum status comm_eager_check(struct comm_eager *eager, const struct comm_ctx *ctx, int r);
/* comm_eager_end — waits until all ranks have entered and the headers of this rank have left. */
enum status comm_eager_end(struct comm_eager *eager, const struct comm_ctx *ctx,
                           struct message_wait *wait);

#endif
