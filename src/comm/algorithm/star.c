/* comm_star — flat-tree reduce and broadcast (linear; Pješivac-Grbović et al., "Performance
 * analysis of MPI collective operations", Cluster Computing 10, 2007): a small sum or a barrier of
 * ranks that share cores.
 *
 *   1. All ranks send to one, the root.
 *   2. The root adds (nodes.c),
 *   3. and sends the result to all.
 *
 * If n ranks share fewer cores, every message costs the others processor time: 2(n-1) messages are
 * quicker than the n(n-1) of eager.h, although a call then needs two turns. The messages have the
 * form of eager.h. Only the root receives from all. While it waits, it sends a status to each rank
 * that has entered: the ranks that have entered. So each rank can report the missing ranks. Must
 * not know the meaning of the data. */
#include "comm/algorithm/nodes.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

/* ns between two statuses of a root that waits: much longer than a call, much shorter than a
 * deadline */
#define STATUS_NS ((int64_t)50000000)

static bool is_root(const struct comm_eager *eager) { return eager->me == COMM_STAR_ROOT; }

/* Sends the set of ranks that have entered, and this rank's call, to these ranks. A rank that has
 * not entered would have to keep one status per STATUS_NS until it does. */
static enum status send_statuses(struct comm_eager *eager)
{
    uint32_t entered = 0;
    for (int r = 0; r < eager->n; r++)
        entered |= (uint32_t)eager->peers[r].has_entered << r;
    for (int r = 0; r < eager->n; r++) {
        struct comm_eager_peer *peer = &eager->peers[r];
        if (r == eager->me || !peer->has_entered || !messenger_is_done(&peer->status))
            continue;
        comm_eager_write_header(eager, r, &entered);
        TRY(comm_eager_send(eager, &peer->status, r, r, 0));
    }
    return ST_OK;
}

/* Checks all headers. A rank in another call fails this one: it and the others receive this rank's
 * call before the connections end. */
static enum status check_all(struct comm_eager *eager, const struct comm_ctx *ctx, int *missing_out)
{
    *missing_out = 0;
    for (int r = 0; r < eager->n; r++) {
        enum status st = comm_eager_check(eager, ctx, r);
        if (st != ST_OK) {
            struct status_saved saved;
            status_save(&saved);
            (void)send_statuses(eager);
            status_restore(&saved);
            return st;
        }
        *missing_out += !eager->peers[r].has_entered;
    }
    return ST_OK;
}

enum status comm_star_gather(struct comm_eager *eager, const struct comm_ctx *ctx,
                             const struct comm_call *call, const void *content, int64_t bytes,
                             struct message_wait *wait)
{
    ASSERTF(eager->n <= COMM_STAR_RANKS_MAX, "%d ranks", eager->n);
    comm_eager_set_call(eager, call);
    if (is_root(eager)) { /* 1. */
        for (int r = 1; r < eager->n; r++)
            TRY(comm_eager_recv(eager, r, MESSAGE_TAG_HEADER));
        int64_t sent_ns = ctx->call->entered_ns;
        for (;;) {
            int missing;
            TRY(check_all(eager, ctx, &missing));
            if (missing == 0)
                return ST_OK;
            TRY(messenger_progress(eager->messenger, wait));
            const int64_t now_ns = wait->idle_ns != 0 ? clock_ns() : sent_ns;
            if (now_ns - sent_ns < STATUS_NS)
                continue;
            sent_ns = now_ns;
            TRY(send_statuses(eager));
        }
    }
    eager->is_leaf = true; /* 1. */
    if (bytes > 0)
        memcpy(comm_eager_to_send(eager, COMM_STAR_ROOT), content, (size_t)bytes);
    return comm_eager_exchange(eager, COMM_STAR_ROOT, MESSAGE_TAG_HEADER, bytes);
}

/* ---- 3. from the root ---- */

static enum status await_op(struct comm_eager *eager, const struct message_op *op,
                            struct message_wait *wait)
{
    while (!messenger_is_done(op))
        TRY(messenger_progress(eager->messenger, wait));
    return ST_OK;
}

static enum status send_result(struct comm_eager *eager, int64_t bytes, struct message_wait *wait)
{
    comm_eager_write_header(eager, eager->me, NULL);
    for (int r = 0; r < eager->n; r++)
        if (r != eager->me)
            TRY(comm_eager_send(eager, &eager->peers[r].send, eager->me, r, bytes));
    for (int r = 0; r < eager->n; r++) {
        if (r == eager->me)
            continue;
        TRY(await_op(eager, &eager->peers[r].send, wait));
        TRY(await_op(eager, &eager->peers[r].status, wait));
    }
    return ST_OK;
}

static enum status await_result(struct comm_eager *eager, const struct comm_ctx *ctx,
                                struct message_wait *wait)
{
    struct comm_eager_peer *root = &eager->peers[COMM_STAR_ROOT];
    for (bool is_result = false; !is_result;) {
        TRY(await_op(eager, &root->recv, wait));
        /* This is a message of the root. After a status another one follows; its receive has ended
         * already if that message has arrived. */
        struct comm_eager_header header;
        memcpy(&header, comm_eager_received(eager, COMM_STAR_ROOT) - COMM_EAGER_HEADER_BYTES,
               sizeof(header));
        TRY(transport_check_header(ctx, COMM_STAR_ROOT, &header.call));
        for (int r = 0; r < eager->n; r++)
            eager->peers[r].has_entered =
                !header.is_status || r == eager->me || (header.entered >> r & 1) != 0;
        eager->peers[COMM_STAR_ROOT].has_entered = true;
        eager->is_leaf = false; /* the root has sent the ranks that have entered */
        is_result = !header.is_status;
        TRY(header.is_status ? comm_eager_recv(eager, COMM_STAR_ROOT, MESSAGE_TAG_HEADER) : ST_OK);
    }
    return await_op(eager, &root->send, wait);
}

enum status comm_star_scatter(struct comm_eager *eager, const struct comm_ctx *ctx, int64_t bytes,
                              struct message_wait *wait)
{
    return is_root(eager) ? send_result(eager, bytes, wait) : await_result(eager, ctx, wait);
}
