/* store_call — the collectives of a store on its comms, and what waits for them. Must not know when
 * a bucket is reduced or gathered. */
#include "mesh/store/inside.h"

static struct comm *comm_of(const struct store *s, enum store_group group)
{
    switch (group) {
    case STORE_GROUP_WITHIN:
        return s->within;
    case STORE_GROUP_ACROSS:
        return s->across;
    case STORE_GROUP_ALL:
        return s->c.comm;
    case STORE_GROUP_WORLD:
        break;
    }
    return s->c.world;
}

/* Calls finish in the order in which they began: after the newest is waited for, none is left. */
enum status store_call_track(struct store *s, enum status st, struct comm_ticket ticket)
{
    TRY(st);
    s->newest = ticket;
    s->is_under_way = true;
    return ST_OK;
}

static enum status begin(struct store *s, const struct store_call *call, struct comm_ticket *ticket)
{
    struct comm *comm = comm_of(s, call->group);
    enum status st;
    if (call->kind == STORE_CALL_ALL_REDUCE)
        st = comm_all_reduce_begin(comm, call->out, call->in, call->elems, ticket);
    else if (call->kind == STORE_CALL_REDUCE_SCATTER)
        st = comm_reduce_scatter_begin(comm, call->out, call->in, call->elems, ticket);
    else
        st = comm_all_gather_begin(comm, call->out, call->in, call->elems, ticket);
    return store_call_track(s, st, *ticket);
}

/* ---- quantised gradients ---- */

static enum status reduce(struct store *s, int bucket, struct tensor from, struct tensor all,
                          struct tensor own)
{
    struct comm_ticket *ticket = &s->bucket[bucket].reduce;
    return store_call_track(
        s, grad_compress_begin(s->grad_compress, bucket, from.data, all.data, own.data, ticket),
        *ticket);
}

static enum status gather(struct store *s, int bucket, struct tensor all)
{
    struct comm_ticket *ticket = &s->bucket[bucket].gather;
    return store_call_track(
        s, grad_compress_gather_begin(s->grad_compress, bucket, all.data, ticket), *ticket);
}

/* ---- rows of the embedding ---- */

static enum status rows_ids(struct store *s, const int32_t *tokens, int64_t n)
{
    return store_call_track(s, sparse_embed_begin(s->sparse, tokens, n, &s->sparse_ticket),
                            s->sparse_ticket);
}

static enum status rows_send(struct store *s)
{
    return store_call_track(s, sparse_embed_exchange_begin(s->sparse, &s->sparse_ticket),
                            s->sparse_ticket);
}

static enum status rows_add(struct store *s, struct part_extent part, struct tensor to)
{
    return sparse_embed_add(s->sparse, part, to);
}

/* ---- waiting ---- */

/* Work that the stream has recorded (dev_graph_begin) is launched before the host waits, because
 * the device would idle otherwise. It is launched even if the call has finished already: what is
 * launched together must be the same in each step. */
static enum status wait_for(struct store *s, struct comm_ticket ticket)
{
    if (s->is_under_way && comm_place(s->c.world)->ranks > 1)
        TRY(dev_flush(s->c.stream));
    s->is_under_way = s->is_under_way && ticket.sequence != s->newest.sequence;
    return comm_wait(s->c.world, ticket);
}

/* The host goes on where the device executes the call: `newest` stays under way until it is waited
 * for, or until the store is closed. */
static enum status stream_wait(struct store *s, struct comm_ticket ticket)
{
    return comm_stays_on_device(s->c.world) ? comm_wait_on(s->c.world, ticket, s->c.stream)
                                            : wait_for(s, ticket);
}

/* Compression copies by a stream of its own: the host waits for the work. */
static enum status wait_stream(struct store *s)
{
    return s->grad_compress ? dev_sync(s->c.stream) : comm_wait_stream(s->c.comm, s->c.stream);
}

const struct store_calls store_calls_live = {begin,    reduce,   gather,      rows_ids,   rows_send,
                                             rows_add, wait_for, stream_wait, wait_stream};
