/* meeting — how a call over ucx begins: each rank sends all others what call it is in, with content
 * when that is small.
 *
 * So a difference is found at once, everybody knows who has not come, and a small call is over
 * after one message each way. Must not know what the content is. */
#ifndef CONVOY_COMM_MEETING_H
#define CONVOY_COMM_MEETING_H

#include "comm/comm_ops.h"
#include "comm/ucx.h"

/* bytes of a message before its content: the header, and the alignment of what follows */
#define MEETING_HEAD 64

/* One rank, as this one sees it. */
struct meeting_guest {
    struct ucx_op recv, send;
    bool has_come;
};

/* Zeroed: none. */
struct meeting {
    struct ucx *ucx;
    int group, n, me;
    const int *world;             /* rank in ucx of each member */
    int64_t small;                /* bytes of content at most */
    struct meeting_guest *guests; /* n */
    char *came, *brought; /* n × (MEETING_HEAD + small) each: what they sent, what I send */
    const struct comm_call *call; /* whose meeting it is */
    int64_t bytes_sent;
};

enum status meeting_open(struct meeting *m); /* takes memory; the fields above `guests` are set */
void meeting_free(struct meeting *m);

/* The content that rank r brought, or that is to go there. */
static inline char *meeting_came(const struct meeting *m, int r)
{
    return m->came + r * (MEETING_HEAD + m->small) + MEETING_HEAD;
}
static inline char *meeting_brought(const struct meeting *m, int r)
{
    return m->brought + r * (MEETING_HEAD + m->small) + MEETING_HEAD;
}

/* meeting_call — nobody has come yet. meeting_greet — expects rank r's message and sends it mine,
 * with the first `bytes` of meeting_brought. A send only sends, a recv only receives. */
void meeting_call(struct meeting *m, const struct comm_call *call);
enum status meeting_greet(struct meeting *m, int r, enum ucx_lane lane, int64_t bytes);
/* meeting_begin — both, with all. content: what goes to rank r is at content + r·stride (stride 0:
 * the same for all). */
enum status meeting_begin(struct meeting *m, const struct comm_call *call, const void *content,
                          int64_t stride, int64_t bytes);
/* meeting_look — has rank r come meanwhile, to the same call? ST_BUG when to another. */
enum status meeting_look(struct meeting *m, const struct comm_wire *wire, int r);
/* meeting_end — until all have come and what I send has left. */
enum status meeting_end(struct meeting *m, const struct comm_wire *wire, struct ucx_wait *wait);

#endif
