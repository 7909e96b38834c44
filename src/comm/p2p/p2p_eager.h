/* p2p_eager — how a call over p2p begins: each rank sends all others what call it is in, with
 * content when that is eager_max.
 *
 * So a difference is found at once, everybody knows who has not come, and a eager_max call is over
 * after one message each way. Must not know what the content is. */
#ifndef CONVOY_COMM_P2P_EAGER_H
#define CONVOY_COMM_P2P_EAGER_H

#include "comm/core/transport.h"
#include "comm/p2p/p2p.h"

/* bytes of a message before its content: the header, and the alignment of what follows */
#define P2P_EAGER_HEADER_BYTES 64

/* One rank, as this one sees it. */
struct p2p_eager_peer {
    struct p2p_op recv, send;
    bool has_entered;
};

/* Zeroed: none. */
struct p2p_eager {
    struct p2p *p2p;
    int group, n, me;
    const int *world;             /* rank in p2p of each member */
    int64_t eager_max;            /* bytes of content at most */
    struct p2p_eager_peer *peers; /* n */
    char *received,
        *to_send; /* n × (P2P_EAGER_HEADER_BYTES + eager_max) each: what they sent, what I send */
    const struct comm_call *call; /* whose p2p_eager it is */
    int64_t bytes_sent;
};

enum status
p2p_eager_open(struct p2p_eager *m); /* takes memory; the fields above `peers` are set */
void p2p_eager_free(struct p2p_eager *m);

/* The content that rank r brought, or that is to go there. */
static inline char *p2p_eager_received(const struct p2p_eager *m, int r)
{
    return m->received + r * (P2P_EAGER_HEADER_BYTES + m->eager_max) + P2P_EAGER_HEADER_BYTES;
}
static inline char *p2p_eager_to_send(const struct p2p_eager *m, int r)
{
    return m->to_send + r * (P2P_EAGER_HEADER_BYTES + m->eager_max) + P2P_EAGER_HEADER_BYTES;
}

/* p2p_eager_set_call — nobody has come yet. p2p_eager_exchange — expects rank r's message and sends
 * it mine, with the first `bytes` of p2p_eager_to_send. A send only sends, a recv only receives. */
void p2p_eager_set_call(struct p2p_eager *m, const struct comm_call *call);
enum status p2p_eager_exchange(struct p2p_eager *m, int r, enum p2p_tag_class tag_class,
                               int64_t bytes);
/* p2p_eager_begin — both, with all. content: what goes to rank r is at content + r·stride (stride
 * 0: the same for all). */
enum status p2p_eager_begin(struct p2p_eager *m, const struct comm_call *call, const void *content,
                            int64_t stride, int64_t bytes);
/* p2p_eager_check — has rank r come meanwhile, to the same call? ST_BUG when to another. */
enum status p2p_eager_check(struct p2p_eager *m, const struct comm_ctx *ctx, int r);
/* p2p_eager_end — until all have come and what I send has left. */
enum status p2p_eager_end(struct p2p_eager *m, const struct comm_ctx *ctx, struct p2p_wait *wait);

#endif
