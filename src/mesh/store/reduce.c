/* store_reduce — gradients of one step: from a unit's backward pass to the sum over the ranks
 * (store.h).
 *
 * Each bucket has a reducer, which is chosen at open:
 *   alone     one rank: nothing is sent; the squares are added while the gradient is in cache
 *   plain     the comm adds f32 numbers
 *   rounded   COMPRESS=bf16: a rounded copy is sent, and the sum is read as f32
 *   quantised grad/compress.h
 *   exact     EXACT=layout: along the tree of virtual shards, if the comm's sums follow another
 *             tree (store/exact.c)
 *   rows      for the embedding: the dense gradient by one of these, then rows of tokens
 *             (sparse_embed.h)
 * If a rank updates only its part, it receives the sum only of that part (reduce-scatter). With
 * `none` the other ranks' parts are gathered during the next forward pass. */
#include "base/assert.h"
#include "mesh/store/inside.h"

struct tensor store_reduce_grad(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return tensor_at(s->grads, s->policy.grads == STORE_BUFFER ? l->buffer_at : l->first);
}

struct tensor store_reduce_own(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return s->policy.grads == STORE_BUFFER ? tensor_at(s->grads_own, l->shard_at)
                                           : tensor_at(store_reduce_grad(s, bucket), l->own.first);
}

/* ---- a bucket in one step ---- */

static enum status begin_reduce(struct store *s, int bucket)
{
    struct store_bucket *p = &s->bucket[bucket];
    if (p->is_reduce_begun)
        return ST_OK;
    p->is_reduce_begun = true;
    return p->reducer->begin(s, bucket);
}

static enum status finish_reduce(struct store *s, int bucket)
{
    struct store_bucket *p = &s->bucket[bucket];
    if (!p->is_reduce_begun || p->is_finished)
        return ST_OK;
    p->is_finished = true;
    TRY(p->reducer->end(s, bucket));
    return s->norm->add(s, bucket, store_reduce_own(s, bucket));
}

enum status store_reduce_finish_all(struct store *s)
{
    for (int bucket = s->layout.buckets_n - 1; bucket >= 0; bucket--) {
        ASSERTF(s->bucket[bucket].is_reduce_begun, "bucket %d has no gradient", bucket);
        TRY(finish_reduce(s, bucket));
    }
    return ST_OK;
}

/* ---- the passes of a step ---- */

enum status store_grad_sync_begin(struct store *s, const int32_t *tokens, int64_t n, bool is_first)
{
    for (int i = 0; i < s->layout.buckets_n; i++)
        s->bucket[i].is_reduce_begun = s->bucket[i].is_finished = false;
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    if (s->norm->reset)
        TRY(s->norm->reset(s));
    return s->embed->begin ? s->embed->begin(s, tokens, n, is_first) : ST_OK;
}

/* fill_padding — Zeroes the elements between the tensors of a bucket in an unsharded buffer. */
static enum status fill_padding(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const struct param_table *t = s->c.table;
    for (int i = 0; i < t->params_n; i++) {
        const struct param *param = &t->param[i];
        int64_t end = i + 1 < t->params_n ? param[1].offset : t->total_elems,
                from = param->offset + param->elems;
        if (param->offset >= l->first && param->offset < l->first + l->elems && from < end)
            TRY(dev_fill(s->c.stream, tensor_at(store_reduce_grad(s, bucket), from - l->first).data,
                         0, (size_t)(end - from) * sizeof(float)));
    }
    return ST_OK;
}

enum status store_prepare_grad(struct store *s, int unit)
{
    int bucket = s->layout.unit_bucket[unit], slot = s->layout.bucket[bucket].slot;
    if (s->policy.grads == STORE_WHOLE || slot < 0)
        return ST_OK;
    if (s->grad_in_slot[slot] == bucket)
        return ST_OK;
    if (s->grad_in_slot[slot] >= 0)
        TRY(finish_reduce(s, s->grad_in_slot[slot]));
    s->grad_in_slot[slot] = bucket;
    return fill_padding(s, bucket); /* the slot held another bucket before */
}

enum status store_post_backward(struct store *s, int unit)
{
    int last = s->layout.unit_bucket[unit];
    if (s->layout.bucket[last].unit_first != unit)
        return ST_OK; /* other units of the bucket follow */
    if (unit == 0 && s->embed->unit_done)
        TRY(s->embed->unit_done(s));
    for (int bucket = last; bucket >= (unit == 0 ? 0 : last); bucket--)
        TRY(begin_reduce(s, bucket));
    return ST_OK;
}

enum status store_embedding_grad_ready(void *store)
{
    struct store *s = store;
    return s->embed->head_done ? s->embed->head_done(s) : ST_OK;
}

/* ---- one rank ---- */

static enum status do_nothing(struct store *s, int bucket)
{
    (void)s, (void)bucket;
    return ST_OK;
}

static const struct store_reducer alone = {finish_reduce, do_nothing, do_nothing, do_nothing};

/* ---- sums by the comm ---- */

/* sent_grads — Returns the data of a bucket that are sent and replaced by the sum: its gradient or
 * the rounded copy. */
static struct tensor sent_grads(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const struct tensor all = store_rounds_grads(s) ? s->grads_rounded : s->grads;
    return tensor_at(all, s->policy.grads == STORE_BUFFER ? l->buffer_at : l->first);
}

static struct tensor sent_own(const struct store *s, int bucket)
{
    return store_rounds_grads(s)
               ? tensor_at(sent_grads(s, bucket), s->layout.bucket[bucket].own.first)
               : store_reduce_own(s, bucket);
}

/* A part is summed in its group, then over the groups. Parts may be empty, but every rank makes the
 * same calls, so that all ranks number them alike. */
static enum status plain_begin(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    struct store_bucket *p = &s->bucket[bucket];
    const struct tensor all = sent_grads(s, bucket), own = sent_own(s, bucket);
    const struct store_call
        sum = {STORE_CALL_ALL_REDUCE, STORE_GROUP_ALL, bucket, all, all, l->elems},
        scatter = {STORE_CALL_REDUCE_SCATTER, STORE_GROUP_WITHIN, bucket, own, all, l->elems},
        across = {STORE_CALL_ALL_REDUCE, STORE_GROUP_ACROSS, bucket, own, own, l->own.elems};
    TRY(s->calls->wait_stream(s));
    if (!p->is_own_only)
        return s->calls->begin(s, &sum, &p->reduce);
    TRY(s->calls->begin(s, &scatter, &p->reduce));
    return store_is_hybrid(s) ? s->calls->begin(s, &across, &p->reduce) : ST_OK;
}

static enum status plain_gather(struct store *s, int bucket)
{
    const struct store_call call = {
        STORE_CALL_ALL_GATHER, STORE_GROUP_ALL,     bucket,
        sent_grads(s, bucket), sent_own(s, bucket), s->layout.bucket[bucket].elems};
    TRY(s->calls->wait_stream(s));
    return s->calls->begin(s, &call, &s->bucket[bucket].gather);
}

static enum status wait_for_sum(struct store *s, int bucket)
{
    return s->calls->stream_wait(s, s->bucket[bucket].reduce);
}

static const struct store_reducer plain = {plain_begin, wait_for_sum, plain_gather, do_nothing};

/* ---- rounded numbers ---- */

static enum status widen_all(struct store *s, int bucket)
{
    return store_cast(s, store_reduce_grad(s, bucket), sent_grads(s, bucket),
                      s->layout.bucket[bucket].elems);
}

static enum status rounded_begin(struct store *s, int bucket)
{
    TRY(store_cast(s, sent_grads(s, bucket), store_reduce_grad(s, bucket),
                   s->layout.bucket[bucket].elems));
    return plain_begin(s, bucket);
}

static enum status rounded_end(struct store *s, int bucket)
{
    TRY(wait_for_sum(s, bucket));
    return s->bucket[bucket].is_own_only
               ? store_cast(s, store_reduce_own(s, bucket), sent_own(s, bucket),
                            s->layout.bucket[bucket].own.elems)
               : widen_all(s, bucket);
}

static const struct store_reducer rounded = {rounded_begin, rounded_end, plain_gather, widen_all};

/* ---- sums of our own ---- */

/* sum_to — Returns the memory of a whole bucket's sum; no data if this rank gets only its part. */
static struct tensor sum_to(const struct store *s, int bucket)
{
    return s->bucket[bucket].is_own_only ? (struct tensor){0} : store_reduce_grad(s, bucket);
}

static enum status quantised_begin(struct store *s, int bucket)
{
    TRY(s->calls->wait_stream(s));
    return s->calls->reduce_compressed(s, bucket, store_reduce_grad(s, bucket), sum_to(s, bucket),
                                       store_reduce_own(s, bucket));
}

static enum status quantised_gather(struct store *s, int bucket)
{
    TRY(s->calls->wait_stream(s));
    return s->calls->gather_compressed(s, bucket, store_reduce_grad(s, bucket));
}

static const struct store_reducer quantised = {quantised_begin, wait_for_sum, quantised_gather,
                                               do_nothing};

static enum status exact_begin(struct store *s, int bucket)
{
    TRY(s->calls->wait_stream(s));
    return s->calls->reduce_exact(s, bucket, sum_to(s, bucket), store_reduce_own(s, bucket));
}

static const struct store_reducer exact = {exact_begin, wait_for_sum, plain_gather, do_nothing};

/* ---- rows of the embedding ---- */

/* add_rows — Adds the rows that lie in the elements of the reduced gradient that this rank has. */
static enum status add_rows(struct store *s, int bucket)
{
    const struct part_extent all = {.elems = s->c.table->param[0].elems};
    const bool is_own_only = s->bucket[bucket].is_own_only;
    TRY(s->calls->stream_wait(s, s->sparse_ticket));
    return s->calls->sparse_add(s, is_own_only ? s->layout.bucket[bucket].own : all,
                                is_own_only ? store_reduce_own(s, bucket)
                                            : store_reduce_grad(s, bucket));
}

static enum status rows_begin(struct store *s, int bucket) { return s->dense->begin(s, bucket); }

static enum status rows_end(struct store *s, int bucket)
{
    TRY(s->dense->end(s, bucket));
    return add_rows(s, bucket);
}

static enum status send_ids(struct store *s, const int32_t *tokens, int64_t n, bool is_first)
{
    (void)is_first;
    return s->calls->sparse_ids(s, tokens, n);
}

static enum status send_rows(struct store *s) { return s->calls->sparse_rows(s); }
static enum status begin_embed(struct store *s) { return begin_reduce(s, 0); }

/* No head adds to the gradient, and this pass writes rows: the sum of earlier passes is complete,
 * and zero if there were none. */
static enum status ids_and_sum_begin(struct store *s, const int32_t *tokens, int64_t n,
                                     bool is_first)
{
    TRY(send_ids(s, tokens, n, is_first));
    if (is_first)
        TRY(dev_fill(s->c.stream, store_reduce_grad(s, 0).data, 0,
                     (size_t)s->layout.bucket[0].elems * sizeof(float)));
    return begin_reduce(s, 0);
}

/* No dense gradient goes into the embedding (TASK=qa): it is zero before the rows are added. */
static enum status ids_and_zero_begin(struct store *s, const int32_t *tokens, int64_t n,
                                      bool is_first)
{
    if (s->policy.grads == STORE_BUFFER)
        TRY(dev_fill(s->c.stream, store_reduce_own(s, 0).data, 0,
                     (size_t)s->layout.bucket[0].own.elems * sizeof(float)));
    return send_ids(s, tokens, n, is_first);
}

/* Rows with a dense gradient, and only rows; neither is deferred (store_update). */
static const struct store_reducer rows = {rows_begin, rows_end, do_nothing, do_nothing},
                                  rows_only = {do_nothing, add_rows, do_nothing, do_nothing};

/* embed_tied: the head's gradient is dense. */
static const struct store_embed_steps embed_dense = {NULL, NULL, NULL},
                                      embed_tied = {send_ids, begin_embed, send_rows},
                                      embed_added = {ids_and_sum_begin, NULL, send_rows},
                                      embed_rows_only = {ids_and_zero_begin, NULL, send_rows};

bool store_embed_is_reducing(const struct store *s)
{
    return s->embed == &embed_added && s->bucket[0].is_reduce_begun;
}

/* ---- the choice ---- */

void store_reduce_choose(struct store *s)
{
    const bool is_added = s->c.table->param[0].grad_is_added,
               is_only = is_added && !s->c.accumulates;
    s->dense = s->is_alone                  ? &alone
               : store_memory_compresses(s) ? &quantised
               : s->has_tree                ? &exact
               : store_rounds_grads(s)      ? &rounded
                                            : &plain;
    s->embed = !s->is_sparse ? &embed_dense
               : is_only     ? &embed_rows_only
               : is_added    ? &embed_added
                             : &embed_tied;
    s->norm = s->c.shards > 0 ? &store_norm_blocks
              : s->has_groups ? &store_norm_groups
                              : &store_norm_group;
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const bool has_rows = s->is_sparse && i == 0;
        struct store_bucket *p = &s->bucket[i];
        p->reducer = !has_rows ? s->dense : is_only ? &rows_only : &rows;
        /* Not with rows: the embedding is the largest bucket, its reduction starts first and the
         * next pass reads it first. So its dense gradient is all-reduced during the backward pass,
         * and every rank adds all rows to all of it. */
        p->is_deferred = s->policy.gather == STORE_GATHER_GRADS && !has_rows;
        p->is_own_only = s->policy.moments == STORE_SHARD || p->is_deferred;
    }
}
