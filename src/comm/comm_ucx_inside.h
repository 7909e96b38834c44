/* comm_ucx_inside — what comm_ucx.c and comm_ucx_pair.c share. Only they include it. */
#ifndef CONVOY_COMM_COMM_UCX_INSIDE_H
#define CONVOY_COMM_COMM_UCX_INSIDE_H

#include "comm/comm_direct.h"
#include "comm/comm_ops.h"
#include "comm/comm_rows.h"
#include "comm/flow.h"
#include "comm/meeting.h"

/* What one worker has of UCX, shared by all comms made from one. */
struct comm_ucx_root {
    struct ucx *ucx;
    int group_next;
    char name[80];
};

struct comm_ucx {
    struct comm_ucx_root *root;
    bool owns_root;
    bool was_asked; /* the watch ended a wait, not the wire */
    int n, me;
    int *world; /* rank in ucx of each member */
    int64_t small, whole;
    const void **sources;       /* n: scratch */
    struct order_extent *parts; /* n: of the call under way */
    struct meeting meeting;
    struct flow flow;
    struct comm_rows rows;     /* several workers on each node */
    struct comm_direct direct; /* a GPU's memory, where UCX moves it; else zeroed */
};

/* comm_ucx_wait — how the call under way waits. comm_ucx_finish — the end of every entry: after a
 * failure nothing is under way any more, and who is to blame is said. */
struct ucx_wait comm_ucx_wait(struct comm_wire *wire);
enum status comm_ucx_finish(struct comm_wire *wire, enum status st);

/* comm_ucx_pair_send, comm_ucx_pair_recv — entries of the table. */
enum status comm_ucx_pair_send(struct comm_wire *wire, const struct comm_call *call);
enum status comm_ucx_pair_recv(struct comm_wire *wire, const struct comm_call *call);

#endif
