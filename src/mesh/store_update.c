/* store_update — whole tensors for an update that cannot be made part by part (store.h). Must not
 * know what the update does.
 *
 * What travels lies where the bucket's gradient lay: it has been reduced and its squares are added,
 * so nothing reads it any more, and no memory is needed. */
#include "mesh/store_inside.h"

static bool is_shared(const struct store *s) { return s->policy.moments == STORE_SHARD; }

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
    *out = (struct store_update_whole){store_grad_whole(s, bucket), l->first, 0, 1};
    if (!is_shared(s))
        return ST_OK;
    out->rank = s->layout.rank;
    out->ranks = s->layout.ranks;
    return run(s, &(struct store_call){STORE_CALL_ALL_GATHER, STORE_GROUP_WITHIN, bucket, out->g,
                                       store_grad_own(s, bucket), l->elems});
}

enum status store_update_scatter(struct store *s, int bucket)
{
    if (!is_shared(s))
        return ST_OK;
    return run(s, &(struct store_call){STORE_CALL_REDUCE_SCATTER, STORE_GROUP_WITHIN, bucket,
                                       store_grad_own(s, bucket), store_grad_whole(s, bucket),
                                       s->layout.bucket[bucket].elems});
}
