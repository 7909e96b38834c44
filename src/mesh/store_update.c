/* store_update — whole tensors for an update that cannot be made part by part (store.h). Must not
 * know what the update does.
 *
 * What travels lies where the bucket's gradient lay: it has been reduced and its squares are added,
 * so nothing reads it any more, and no memory is needed. */
#include "mesh/store_inside.h"

static bool is_sharded(const struct store *s) { return s->policy.moments == STORE_SHARD; }

/* run — a call, and the stream waits for it. */
static enum status run(struct store *s, const struct store_call *call)
{
    struct comm_ticket ticket;
    TRY(store_comm_wait_stream(s));
    TRY(store_call_begin(s, call, &ticket));
    return store_stream_wait(s, ticket);
}

enum status store_update_gather(struct store *s, int bucket, struct store_update_whole *out)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    *out = (struct store_update_whole){store_grad_whole(s, bucket), l->first, s->rank, s->ranks};
    if (!is_sharded(s))
        return ST_OK;
    return run(s, &(struct store_call){STORE_CALL_ALL_GATHER, STORE_GROUP_WITHIN, bucket, out->g,
                                       store_grad_own(s, bucket), l->elems});
}

/* Where each rank holds all moments, the sum is needed everywhere; with groups, each group's part
 * of it is then added up over the groups. */
enum status store_update_scatter(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const struct tensor all = store_grad_whole(s, bucket), own = store_grad_own(s, bucket);
    if (!is_sharded(s) && s->ranks == 1)
        return ST_OK;
    if (!is_sharded(s))
        return run(s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_ALL, bucket, all, all,
                                           l->elems});
    TRY(run(s, &(struct store_call){STORE_CALL_REDUCE_SCATTER, STORE_GROUP_WITHIN, bucket, own, all,
                                    l->elems}));
    if (!store_is_hybrid(s))
        return ST_OK;
    return run(s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_ACROSS, bucket, own, own,
                                       l->own.elems});
}

/* Every number is one rank's, and zero on the others: their sum is exact, in any order. */
enum status store_update_neurons(struct store *s)
{
    const int64_t n = store_moments_neurons_n(s);
    if (n == 0 || s->ranks == 1)
        return ST_OK;
    return run(s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_ALL, -1, s->neurons,
                                       s->neurons, n});
}
