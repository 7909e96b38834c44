/* store_params — from the masters, which are kept and updated, to the compute copy, which passes
 * read.
 *
 * - f32, masters whole: the compute copy is the masters; nothing is done here.
 * - 16 bits, masters whole: a bucket is rounded, on the stream, at its first use after a change,
 *   unless the update wrote the compute copy with the masters (store_params_update_copy).
 * - Masters sharded: a bucket of the compute copy is gathered from the shards of all ranks. With 16
 *   bits each rank first rounds its shard into its range of the compute copy. Each element is
 *   rounded by itself, so the bits are the same as after rounding whole masters.
 *
 * A range of the compute copy is written again only after the gathers that read or write it: the
 * gather of the bucket itself, and the gathers of the other buckets of its slot. It must not know
 * why a bucket changed. */
#include <string.h>

#include "base/assert.h"
#include "mesh/store/inside.h"
#include "mesh/store/state.h"

/* Returns the whole bucket, as passes read it. */
static struct tensor compute_copy_of(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return tensor_at(s->compute_copy, s->policy.params == STORE_BUFFER ? l->buffer_at : l->first);
}

struct tensor store_params_shard(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return tensor_at(s->params,
                     s->policy.masters == STORE_SHARD ? l->shard_at : l->first + l->own.first);
}

void store_params_invalidate(struct store *s)
{
    for (int i = 0; i < s->layout.buckets_n; i++)
        s->bucket[i].is_current = false;
}

enum status store_params_begin_write(struct store *s, int array)
{
    TRY(store_drain(s));
    s->writes++;
    if (array == 0)
        store_params_invalidate(s);
    return ST_OK;
}

int64_t store_params_writes(const struct store *s) { return s->writes; }

enum status store_params_drain(struct store *s, int bucket)
{
    struct store_bucket *p = &s->bucket[bucket];
    if (!p->is_gathering)
        return ST_OK;
    p->is_gathering = false;
    TRY(s->calls->stream_wait(s, p->gather));
    if (!p->is_update_due)
        return ST_OK;
    p->is_update_due = false;
    TRY(p->reducer->gather_end(s, bucket));
    TRY(s->c.update(s->c.update_arg, bucket));
    p->is_behind = false;
    p->is_current = p->is_copy_updated;
    p->is_copy_updated = false;
    return ST_OK;
}

struct tensor store_params_update_copy(struct store *s, int bucket)
{
    struct store_bucket *p = &s->bucket[bucket];
    bool is_shard = s->policy.masters == STORE_SHARD;
    if (s->c.settings.dtype == DTYPE_F32 || s->policy.params == STORE_BUFFER || p->is_gathering ||
        (!is_shard && !p->is_current))
        return (struct tensor){0};
    p->is_copy_updated = true;
    return tensor_at(compute_copy_of(s, bucket), is_shard ? s->layout.bucket[bucket].own.first : 0);
}

static enum status begin_gather(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    struct store_bucket *p = &s->bucket[bucket];
    struct tensor all = compute_copy_of(s, bucket), own = store_params_shard(s, bucket);
    /* Waits until no gather reads or writes the range of a bucket in the compute copy. */
    int slot = s->layout.bucket[bucket].slot;
    TRY(store_params_drain(s, bucket));
    for (int i = 0; s->policy.params == STORE_BUFFER && slot >= 0 && i < s->layout.buckets_n; i++) {
        if (s->layout.bucket[i].slot != slot)
            continue;
        TRY(store_params_drain(s, i));
        s->bucket[i].is_current = false;
    }
    if (all.dtype != own.dtype) {
        own = tensor_at(all, l->own.first);
        if (!p->is_copy_updated)
            TRY(store_cast(s, own, store_params_shard(s, bucket), l->own.elems));
        p->is_copy_updated = false;
    }
    const struct store_call call = {
        STORE_CALL_ALL_GATHER, STORE_GROUP_WITHIN, bucket, all, own, l->elems};
    TRY(s->calls->wait_stream(s));
    TRY(s->calls->begin(s, &call, &p->gather));
    p->is_current = p->is_gathering = true;
    return ST_OK;
}

enum status store_params_prefetch(struct store *s, int bucket)
{
    return s->policy.masters == STORE_SHARD && !s->bucket[bucket].is_current
               ? begin_gather(s, bucket)
               : ST_OK;
}

enum status store_params_make_ready(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    TRY(store_params_prefetch(s, bucket));
    TRY(store_params_drain(s, bucket));
    if (s->bucket[bucket].is_current || !store_has_copy(s))
        return ST_OK;
    s->bucket[bucket].is_current = true;
    return store_cast(s, compute_copy_of(s, bucket), tensor_at(s->params, l->first), l->elems);
}

/* With STORE_GATHER_UPDATED the bucket is sent during the next forward pass. */
enum status store_params_after_update(struct store *s, int bucket)
{
    struct store_bucket *p = &s->bucket[bucket];
    p->is_current = p->is_behind = false;
    if (s->policy.gather == STORE_GATHER_UPDATED)
        return begin_gather(s, bucket);
    p->is_current = p->is_copy_updated;
    p->is_copy_updated = false;
    return ST_OK;
}

/* ---- FAULT=flip ---- */

/* first_own — finds the first element of a tensor that this rank updates; false: it has none. */
static bool first_own(const struct store *s, int *param_out, int *bucket_out, int64_t *at_out)
{
    for (int i = 0; i < s->c.table->params_n; i++)
        for (int bucket = 0; bucket < s->layout.buckets_n; bucket++) {
            const struct layout_bucket *l = &s->layout.bucket[bucket];
            const struct param *param = &s->c.table->param[i];
            int64_t own = l->first + l->own.first, end = own + l->own.elems;
            *at_out = param->offset > own ? param->offset : own;
            *param_out = i;
            *bucket_out = bucket;
            if (*at_out < end && *at_out < param->offset + param->elems)
                return true;
        }
    return false;
}

enum status store_params_flip(struct store *s, int bit, struct store_flip *out)
{
    int param, bucket;
    int64_t at;
    uint32_t word;
    *out = (struct store_flip){.name = ""};
    if (!first_own(s, &param, &bucket, &at))
        return ST_OK;
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    *out = (struct store_flip){s->c.table->param[param].name, at - s->c.table->param[param].offset,
                               0, 0};
    struct tensor master = tensor_at(store_params_shard(s, bucket), at - l->first - l->own.first);
    TRY(store_drain(s));
    TRY(dev_copy(s->c.stream, &out->before, master.data, sizeof out->before));
    TRY(dev_sync(s->c.stream));
    memcpy(&word, &out->before, sizeof word);
    word ^= UINT32_C(1) << bit;
    memcpy(&out->after, &word, sizeof word);
    if (s->policy.masters == STORE_WHOLE)
        return state_write(&s->own, 0, at, 1, &out->after);
    TRY(dev_copy(s->c.stream, master.data, &out->after, sizeof out->after));
    return dev_sync(s->c.stream);
}
