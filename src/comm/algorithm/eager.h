/* p2p_eager — how a call between nodes begins: each rank sends every other rank a header that names
 * the call, with the content behind it if that is short (eager).
 *
 * So ranks in different calls fail at once, and every rank knows which ranks have entered. A small
 * call is over after one message each way. Must not know what the content is. */
#ifndef CONVOY_COMM_P2P_EAGER_H
#define CONVOY_COMM_P2P_EAGER_H

#include "comm/core/transport.h"
#include "comm/message/message.h"

/* bytes before the content: the header, padded so that the content is aligned */
#define P2P_EAGER_HEADER_BYTES 64

/* What a message begins with. */
struct p2p_eager_header {
    struct comm_header call;
    /* p2p_star.c: no content follows, but a message with it will; ranks that have entered, a bit of
     * each */
    uint32_t is_status, entered;
};
_Static_assert(sizeof(struct p2p_eager_header) <= P2P_EAGER_HEADER_BYTES, "it fits");

/* One peer in the call under way. */
struct p2p_eager_peer {
    struct p2p_op recv, send, status;
    bool has_entered;
};

/* Zeroed: none. */
struct p2p_eager {
    struct p2p *p2p;
    int group, n, me;
    const int *p2p_rank;          /* p2p's rank of each member */
    int64_t eager_max;            /* bytes of content, at most */
    struct p2p_eager_peer *peers; /* n */
    char *received, *to_send;     /* n × (P2P_EAGER_HEADER_BYTES + eager_max) each */
    const struct comm_call *call; /* the call under way */
    bool is_leaf;                 /* p2p_star.c: no status has come yet */
    int64_t bytes_sent;
};

/* p2p_eager_open — allocates; the fields above `peers` are set. */
enum status p2p_eager_open(struct p2p_eager *eager);
void p2p_eager_free(struct p2p_eager *eager);

/* The content received from rank r, and the content to send to it. */
static inline char *p2p_eager_received(const struct p2p_eager *eager, int r)
{
    return eager->received + r * (P2P_EAGER_HEADER_BYTES + eager->eager_max) +
           P2P_EAGER_HEADER_BYTES;
}
static inline char *p2p_eager_to_send(const struct p2p_eager *eager, int r)
{
    return eager->to_send + r * (P2P_EAGER_HEADER_BYTES + eager->eager_max) +
           P2P_EAGER_HEADER_BYTES;
}

/* p2p_eager_set_call — a new call: no peer has entered it.
 * p2p_eager_exchange — posts the receive of rank r's header and sends it this rank's, with the
 * first `bytes` of p2p_eager_to_send. A COMM_CALL_SEND only sends, a COMM_CALL_RECV only
 * receives. */
void p2p_eager_set_call(struct p2p_eager *eager, const struct comm_call *call);
enum status p2p_eager_exchange(struct p2p_eager *eager, int r, enum p2p_tag_class tag_class,
                               int64_t bytes);
/* p2p_eager_recv — posts the receive of rank r's message.
 * p2p_eager_write_header — writes the header of p2p_eager_to_send(eager, slot): this rank's call;
 * of a status (entered not NULL) the ranks that have entered.
 * p2p_eager_send — sends that slot to rank r: its header and `bytes` of content. */
enum status p2p_eager_recv(struct p2p_eager *eager, int r, enum p2p_tag_class tag_class);
void p2p_eager_write_header(struct p2p_eager *eager, int slot, const uint32_t *entered);
enum status p2p_eager_send(struct p2p_eager *eager, struct p2p_op *op, int slot, int r,
                           int64_t bytes);
/* p2p_eager_begin — _set_call, then _exchange with every rank. The content for rank r is at
 * content + r·stride (stride 0: the same for all). */
enum status p2p_eager_begin(struct p2p_eager *eager, const struct comm_call *call,
                            const void *content, int64_t stride, int64_t bytes);
/* p2p_eager_check — notes whether rank r has entered. ST_BUG: it is in another call. */
enum status p2p_eager_check(struct p2p_eager *eager, const struct comm_ctx *ctx, int r);
/* p2p_eager_end — waits until all ranks have entered and the headers of this rank have left. */
enum status p2p_eager_end(struct p2p_eager *eager, const struct comm_ctx *ctx,
                          struct p2p_wait *wait);

#endif
