/* store_call — begins the collectives of a store: on its comms, or, of a store that is only
 * counted, by telling store_dry of them. Must not know when a bucket is reduced or gathered. */
#include "mesh/store/dry.h"
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

enum status store_call_begin(struct store *s, const struct store_call *call,
                             struct comm_ticket *ticket)
{
    struct comm *comm = comm_of(s, call->group);
    enum status st;
    if (s->dry)
        return store_dry_call(s, call);
    if (call->kind == STORE_CALL_ALL_REDUCE)
        st = comm_all_reduce_begin(comm, call->out, call->in, call->elems, ticket);
    else if (call->kind == STORE_CALL_REDUCE_SCATTER)
        st = comm_reduce_scatter_begin(comm, call->out, call->in, call->elems, ticket);
    else
        st = comm_all_gather_begin(comm, call->out, call->in, call->elems, ticket);
    return store_track(s, st, *ticket);
}

/* ---- compressed gradients ---- */

enum status store_call_reduce_compressed(struct store *s, int bucket, struct tensor from,
                                         struct tensor to_all, struct tensor to_own)
{
    struct store_bucket *p = &s->bucket[bucket];
    if (s->dry)
        return store_dry_compressed(s, bucket, true, to_all.data != NULL);
    return store_track(s,
                       grad_compress_begin(s->grad_compress, bucket, from.data, to_all.data,
                                           to_own.data, &p->reduce),
                       p->reduce);
}

enum status store_call_gather_compressed(struct store *s, int bucket, struct tensor to_all)
{
    struct store_bucket *p = &s->bucket[bucket];
    if (s->dry)
        return store_dry_compressed(s, bucket, false, true);
    return store_track(
        s, grad_compress_gather_begin(s->grad_compress, bucket, to_all.data, &p->gather),
        p->gather);
}

/* ---- rows of the embedding ---- */

enum status store_call_sparse_ids(struct store *s, const int32_t *tokens, int64_t n)
{
    if (s->dry)
        return store_dry_sparse_ids(s);
    return store_track(s, sparse_embed_begin(s->sparse, tokens, n, &s->sparse_ticket),
                       s->sparse_ticket);
}

enum status store_call_sparse_rows(struct store *s)
{
    if (s->dry)
        return store_dry_sparse_rows(s);
    return store_track(s, sparse_embed_exchange_begin(s->sparse, &s->sparse_ticket),
                       s->sparse_ticket);
}

enum status store_call_sparse_add(struct store *s, struct part_extent part, struct tensor to)
{
    return s->dry ? store_dry_sparse_add(s, part, to) : sparse_embed_add(s->sparse, part, to);
}
