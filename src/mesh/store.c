/* store — memory, the life of gradients, the update (store.h). Parameters on their way to passes
 * are in store_params.c, the whole state by ranges in store_state.c. */
#include "mesh/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/assert.h"
#include "mesh/store_inside.h"

/* ---- memory ---- */

static enum status take(struct store *s, int64_t elems, enum dtype dtype, bool is_comm,
                        struct tensor *out)
{
    size_t bytes = (size_t)elems * dtype_bytes(dtype);
    void *data = NULL;
    ASSERT(s->memory_n < STORE_ALLOCS_MAX);
    if (is_comm)
        TRY(comm_alloc(s->c.comm, (int64_t)bytes, &data));
    else
        TRY(dev_alloc(s->c.dev, bytes, &data));
    s->memory[s->memory_n].data = data;
    s->memory[s->memory_n].bytes = bytes;
    s->memory[s->memory_n++].is_comm = is_comm;
    *out = (struct tensor){data, dtype};
    if (s->c.heartbeat)
        s->c.heartbeat(s->c.heartbeat_arg);
    return ST_OK;
}

static bool uses_sparse(const struct store *s)
{
    const struct param *row = &s->c.table->param[0];
    return s->c.has_grads && !s->is_discrete &&
           sparse_embed_is_worth(s->layout.ranks, row->dim[0], s->c.pass_tokens);
}

static int64_t sparse_elems(const struct store *s)
{
    const struct param *row = &s->c.table->param[0];
    return uses_sparse(s) ? sparse_embed_buffer_elems(s->layout.ranks, row->dim[0], row->dim[1],
                                                      s->c.pass_tokens)
                          : 0;
}

/* What each purpose needs, from the layout alone. */
static struct store_memory plan(const struct store *s)
{
    const struct store_config *c = &s->c;
    int64_t whole = c->table->total_elems, local = s->layout.shard_elems,
            buffer = s->layout.buffer_elems;
    int64_t each = (int64_t)sizeof(float);
    struct store_memory m = {.params = (s->params_sharded ? local : whole) * each};
    if (s->has_compute_copy)
        m.unsharded = (s->params_buffered ? buffer : whole) * (int64_t)dtype_bytes(c->dtype);
    if (!c->has_grads)
        return m;
    m.grads = (s->grads_buffered ? local : whole) * each;
    m.unsharded += ((s->grads_buffered ? buffer : 0) + sparse_elems(s)) * each;
    m.moments = c->moments * (s->has_parts ? local : whole) * each;
    return m;
}

static enum status open_sparse(struct store *s, float *buffer)
{
    const struct param *row = &s->c.table->param[0];
    return sparse_embed_open(&(struct sparse_embed_config){.comm = s->c.comm,
                                                           .rows_n = row->dim[0],
                                                           .row_elems = row->dim[1],
                                                           .tokens_max = s->c.pass_tokens,
                                                           .buffer = buffer},
                             &s->sparse);
}

/* The gradients' memory is one: a pass whose embedding's rows lie beside the table finds them by an
 * offset. */
static enum status take_grads(struct store *s)
{
    int64_t elems = s->grads_buffered ? s->layout.buffer_elems : s->c.table->total_elems;
    TRY(take(s, elems + sparse_elems(s), DTYPE_F32, !s->is_alone, &s->grads));
    if (s->grads_buffered)
        TRY(take(s, s->layout.shard_elems, DTYPE_F32, !s->is_alone, &s->grads_own));
    if (uses_sparse(s))
        TRY(open_sparse(s, (float *)s->grads.data + elems));
    for (int i = 0; i < s->c.moments; i++)
        TRY(take(s, s->has_parts ? s->layout.shard_elems : s->c.table->total_elems, DTYPE_F32,
                 false, &s->moment[i]));
    return take(s, s->layout.buckets_n, DTYPE_F64, false, &s->norms);
}

static enum status take_all(struct store *s)
{
    int64_t whole = s->c.table->total_elems, buffer = s->layout.buffer_elems;
    /* masters themselves; else what is made of them */
    bool is_gathered = s->has_parts && s->c.dtype == DTYPE_F32;
    TRY(take(s, s->params_sharded ? s->layout.shard_elems : whole, DTYPE_F32, is_gathered,
             &s->params));
    s->compute_copy = s->params;
    if (s->has_compute_copy)
        TRY(take(s, s->params_buffered ? buffer : whole, s->c.dtype, s->has_parts,
                 &s->compute_copy));
    return s->c.has_grads ? take_grads(s) : ST_OK;
}

static void check_taken(const struct store *s)
{
    int64_t bytes = 0, planned = store_memory_bytes(s);
    for (int i = 0; i < s->memory_n; i++)
        if (s->memory[i].data != s->norms.data)
            bytes += (int64_t)s->memory[i].bytes;
    ASSERTF(bytes == planned, "planned %lld taken %lld", (long long)planned, (long long)bytes);
}

/* grad_compress_of — what compresses gradients; NULL buckets: out of memory. The buckets are the
 * caller's to free. */
static struct grad_compress_config grad_compress_of(const struct store *s)
{
    int n = s->layout.buckets_n;
    int64_t *elems = calloc((size_t)n, sizeof *elems);
    for (int i = 0; elems && i < n; i++)
        elems[i] = s->layout.bucket[i].elems;
    return (struct grad_compress_config){.comm = s->c.comm,
                                         .dev = s->c.dev,
                                         .kind = s->c.compress,
                                         .deferred_first = !s->defers_update ? n
                                                           : uses_sparse(s)  ? 1
                                                                             : 0,
                                         .buckets_n = n,
                                         .bucket_elems = elems};
}

static bool compresses_grads(const struct store *s)
{
    return s->c.compress != GRAD_COMPRESS_KIND_NONE && s->c.has_grads && !s->is_alone;
}

static enum status no_buckets(const struct store *s)
{
    return FAIL(ST_RETRY, "out of memory: %d buckets of the model", s->layout.buckets_n);
}

static enum status open_grad_compress(struct store *s)
{
    struct grad_compress_config config = grad_compress_of(s);
    enum status st =
        config.bucket_elems ? grad_compress_open(&config, &s->grad_compress) : no_buckets(s);
    free((void *)(uintptr_t)config.bucket_elems);
    TRY(st);
    s->taken.residuals = grad_compress_bytes(s->grad_compress);
    return ST_OK;
}

/* set_shape — what is held whole and what in parts, from the configuration and the layout alone. */
static void set_shape(struct store *s, bool is_discrete)
{
    const struct store_config *c = &s->c;
    s->is_discrete = is_discrete;
    s->is_alone = s->layout.ranks == 1;
    s->has_parts = !s->is_alone && c->shard != LAYOUT_SHARD_NONE;
    s->defers_update = !s->is_alone && !s->has_parts;
    s->params_buffered = !s->is_alone && c->shard == LAYOUT_SHARD_FULL;
    s->params_sharded = s->params_buffered || (s->has_parts && c->dtype != DTYPE_F32);
    s->has_compute_copy = s->params_buffered || c->dtype != DTYPE_F32;
    s->grads_buffered = !s->is_alone && c->shard >= LAYOUT_SHARD_GRADIENTS && !c->is_accumulated;
}

enum status store_plan(const struct store_config *config, int rank, int ranks, bool is_discrete,
                       struct store_memory *out)
{
    struct store s = {.c = *config};
    enum status st = ST_OK;
    TRY(layout_init(config->table, ranks, rank, config->bucket_elems_min, &s.layout));
    set_shape(&s, is_discrete);
    *out = plan(&s);
    if (compresses_grads(&s)) {
        struct grad_compress_config grad_compress = grad_compress_of(&s);
        st = grad_compress.bucket_elems ? ST_OK : no_buckets(&s);
        if (st == ST_OK)
            out->residuals = grad_compress_plan(&grad_compress, rank, ranks, is_discrete);
        free((void *)(uintptr_t)grad_compress.bucket_elems);
    }
    layout_free(&s.layout);
    return st;
}

static enum status open_all(struct store *s)
{
    const struct store_config *c = &s->c;
    const struct comm_place *place = comm_place(c->comm);
    TRY(layout_init(c->table, place->ranks, place->rank, c->bucket_elems_min, &s->layout));
    set_shape(s, dev_is_discrete(c->dev));
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    s->taken = plan(s);
    s->bucket = calloc((size_t)s->layout.buckets_n, sizeof *s->bucket);
    s->sums = calloc((size_t)s->layout.buckets_n + STORE_EXTRAS_MAX, sizeof *s->sums);
    s->embed_params = calloc((size_t)c->table->params_n, sizeof *s->embed_params);
    if (!s->bucket || !s->sums || !s->embed_params)
        return no_buckets(s);
    TRY(take_all(s));
    check_taken(s);
    return compresses_grads(s) ? open_grad_compress(s) : ST_OK;
}

enum status store_open(const struct store_config *config, struct store **out)
{
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return FAIL(ST_RETRY, "out of memory: a store of %zu bytes; use a machine with more memory",
                    sizeof *s);
    s->c = *config;
    enum status st = open_all(s);
    if (st == ST_OK)
        *out = s;
    else
        store_close(s);
    return st;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    if (s->is_under_way) /* after a failure: it fails as well, but the memory is not ours before */
        (void)comm_wait(s->c.comm, s->newest);
    for (int i = 0; i < s->memory_n; i++)
        if (!s->memory[i].is_comm)
            dev_free(s->c.dev, s->memory[i].data, s->memory[i].bytes);
    sparse_embed_close(s->sparse);
    grad_compress_close(s->grad_compress);
    layout_free(&s->layout);
    free(s->bucket);
    free(s->sums);
    free(s->embed_params);
    free(s);
}

struct store_memory store_memory(const struct store *s) { return s->taken; }

int64_t store_memory_bytes(const struct store *s)
{
    const struct store_memory *m = &s->taken;
    return m->params + m->grads + m->moments + m->unsharded + m->residuals;
}

const struct layout *store_layout(const struct store *s) { return &s->layout; }

void store_bind(const struct store *s, struct pass *p)
{
    p->table = s->params_buffered ? &s->layout.buffer_table : s->c.table;
    p->grad_table = s->grads_buffered ? &s->layout.buffer_table : s->c.table;
    p->params = s->compute_copy;
    p->grads = s->grads;
}

/* ---- waiting ---- */

/* Calls are carried out in the order of beginning: when the newest is waited for, none is under
 * way. */
enum status store_track(struct store *s, enum status st, struct comm_ticket ticket)
{
    TRY(st);
    s->newest = ticket;
    s->is_under_way = true;
    return ST_OK;
}

/* What the device has gathered (dev_graph_begin) begins before the host waits for others: else it
 * would stand still. Not asked is whether the call happens to be done: what begins together must be
 * the same in each step. */
enum status store_wait(struct store *s, struct comm_ticket ticket)
{
    if (s->is_under_way && !s->is_alone)
        TRY(dev_flush(s->c.stream));
    int64_t begin = clock_ns();
    s->is_under_way = s->is_under_way && ticket.sequence != s->newest.sequence;
    enum status st = comm_wait(s->c.comm, ticket);
    s->wait_ns += clock_ns() - begin;
    return st;
}

enum status store_comm_wait_stream(struct store *s)
{
    return s->grad_compress ? dev_sync(s->c.stream) : comm_wait_stream(s->c.comm, s->c.stream);
}

void store_times(struct store *s, double *comm_ms_out, double *wait_ms_out)
{
    struct comm_times times;
    comm_times(s->c.comm, &times);
    *comm_ms_out = times.busy_ms;
    *wait_ms_out = (double)s->wait_ns * 1e-6;
    s->wait_ns = 0;
}

enum status store_sum_begin(struct store *s, double *values, int n, struct comm_ticket *ticket)
{
    struct tensor all = {values, DTYPE_F64};
    return store_track(s, comm_all_reduce_begin(s->c.comm, all, all, n, ticket), *ticket);
}

/* ---- parameters ---- */

enum status store_unshard(struct store *s, int unit, int direction)
{
    int last = s->layout.unit_bucket[unit], next = last + direction;
    for (int bucket = unit == 0 ? 0 : last; bucket <= last; bucket++)
        TRY(store_params_ready(s, bucket));
    bool is_next = direction != 0 && next < s->layout.buckets_n && next > s->layout.unit_bucket[0];
    return is_next ? store_params_prefetch(s, next) : ST_OK;
}

/* ---- gradients ---- */

/* The whole bucket, as the passes left it. */
static struct tensor grad_of(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return tensor_at(s->grads, s->grads_buffered ? l->buffer_at : l->first);
}

/* This rank's part of it, reduced. */
static struct tensor grad_own(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return s->grads_buffered ? tensor_at(s->grads_own, l->shard_at)
                             : tensor_at(grad_of(s, bucket), l->own.first);
}

/* The embedding is the largest bucket, begun first, and needed first in the next pass: it comes
 * whole beside the backward pass, and its token rows, which everybody has, are added by all to all
 * of it. */
static bool defers_update(const struct store *s, int bucket)
{
    return s->defers_update && !(s->sparse && bucket == 0);
}

/* Nothing but token rows goes into this rank's embedding: then its table is zero everywhere, and no
 * message. */
static bool is_embedding_sparse_only(const struct store *s)
{
    return s->sparse && s->c.table->param[0].grad_is_added && !s->c.is_accumulated;
}

static enum status reduce(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    struct store_bucket *p = &s->bucket[bucket];
    struct tensor from = grad_of(s, bucket);
    if (p->is_reduce_begun)
        return ST_OK;
    p->is_reduce_begun = true;
    if (s->is_alone || (bucket == 0 && is_embedding_sparse_only(s)))
        return ST_OK;
    p->is_reducing = true;
    TRY(store_comm_wait_stream(s));
    enum status st;
    if (s->grad_compress)
        st = grad_compress_begin(s->grad_compress, bucket, from.data,
                                 s->has_parts || defers_update(s, bucket) ? NULL : from.data,
                                 grad_own(s, bucket).data, &p->reduce);
    else if (s->has_parts || defers_update(s, bucket))
        st = comm_reduce_scatter_begin(s->c.comm, grad_own(s, bucket), from, l->elems, &p->reduce);
    else
        st = comm_all_reduce_begin(s->c.comm, from, from, l->elems, &p->reduce);
    return store_track(s, st, p->reduce);
}

/* The token rows that belong to what this rank keeps of the embedding. */
static void add_sparse(struct store *s)
{
    const struct layout_bucket *l = &s->layout.bucket[0];
    int64_t elems = s->c.table->param[0].elems;
    if (s->has_parts || defers_update(s, 0))
        sparse_embed_add(s->sparse, l->own, grad_own(s, 0).data);
    else
        sparse_embed_add(s->sparse, (struct part_extent){.elems = elems}, grad_of(s, 0).data);
}

static enum status finish(struct store *s, int bucket)
{
    struct store_bucket *p = &s->bucket[bucket];
    if (!p->is_reduce_begun || p->is_finished)
        return ST_OK;
    p->is_finished = true;
    if (p->is_reducing) {
        p->is_reducing = false;
        TRY(store_wait(s, p->reduce));
    }
    if (bucket == 0 && s->sparse) {
        TRY(store_wait(s, s->sparse_ticket));
        add_sparse(s);
    }
    return dev_op(s->c.dev)->sumsq(s->c.stream,
                                   &(struct sumsq){.out = tensor_at(s->norms, bucket),
                                                   .x = grad_own(s, bucket),
                                                   .n = s->layout.bucket[bucket].own.elems});
}

enum status store_grad_sync_begin(struct store *s, const int32_t *tokens, int64_t n)
{
    for (int i = 0; i < s->layout.buckets_n; i++)
        s->bucket[i].is_reduce_begun = s->bucket[i].is_reducing = s->bucket[i].is_finished = false;
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    if (!s->sparse)
        return ST_OK;
    if (is_embedding_sparse_only(s) && s->grads_buffered)
        TRY(dev_fill(s->c.stream, grad_own(s, 0).data, 0,
                     (size_t)s->layout.bucket[0].own.elems * sizeof(float)));
    return store_track(s, sparse_embed_begin(s->sparse, tokens, n, &s->sparse_ticket),
                       s->sparse_ticket);
}

/* What lies between the tensors of a bucket is zero, whatever the slot held before. */
static enum status clear_padding(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const struct param_table *t = s->c.table;
    for (int i = 0; i < t->params_n; i++) {
        const struct param *row = &t->param[i];
        int64_t end = i + 1 < t->params_n ? row[1].offset : t->total_elems,
                from = row->offset + row->elems;
        if (row->offset >= l->first && row->offset < l->first + l->elems && from < end)
            TRY(dev_fill(s->c.stream, tensor_at(grad_of(s, bucket), from - l->first).data, 0,
                         (size_t)(end - from) * sizeof(float)));
    }
    return ST_OK;
}

enum status store_prepare_grad(struct store *s, int unit)
{
    int bucket = s->layout.unit_bucket[unit], slot = s->layout.bucket[bucket].slot;
    if (!s->grads_buffered || slot < 0)
        return ST_OK;
    if (s->grad_in_slot[slot] == bucket)
        return ST_OK;
    if (s->grad_in_slot[slot] >= 0)
        TRY(finish(s, s->grad_in_slot[slot]));
    s->grad_in_slot[slot] = bucket;
    return clear_padding(s, bucket);
}

enum status store_post_backward(struct store *s, int unit)
{
    int last = s->layout.unit_bucket[unit];
    if (s->layout.bucket[last].unit_first != unit)
        return ST_OK; /* the bucket's other units are not done */
    if (unit == 0 && s->sparse) {
        TRY(dev_sync(s->c.stream));
        TRY(store_track(s, sparse_embed_exchange_begin(s->sparse, &s->sparse_ticket),
                        s->sparse_ticket));
    }
    for (int bucket = last; bucket >= (unit == 0 ? 0 : last); bucket--) {
        TRY(reduce(s, bucket));
        if (s->is_alone)
            TRY(finish(s, bucket)); /* its squares are taken while it is in cache */
    }
    return ST_OK;
}

enum status store_embedding_grad_ready(void *store)
{
    struct store *s = store;
    return s->sparse ? reduce(s, 0) : ST_OK;
}

enum status store_embed_pass(struct store *s, const struct pass *from, struct pass *out)
{
    *out = *from;
    if (!s->sparse)
        return ST_OK;
    TRY(store_wait(s, s->sparse_ticket));
    float *place = sparse_embed_rows(s->sparse);
    s->embed_table = *from->grad_table;
    memcpy(s->embed_params, from->grad_table->param,
           (size_t)s->c.table->params_n * sizeof *s->embed_params);
    s->embed_table.param = s->embed_params;
    s->embed_params[0].offset = place - (float *)s->grads.data;
    out->grad_table = &s->embed_table;
    return dev_copy(s->c.stream, out->tokens.data, sparse_embed_indices(s->sparse),
                    (size_t)(from->b * from->t) * sizeof(int32_t));
}

enum status store_grad_norm_begin(struct store *s)
{
    for (int bucket = s->layout.buckets_n - 1; bucket >= 0; bucket--) {
        ASSERTF(s->bucket[bucket].is_reduce_begun, "bucket %d has no gradient", bucket);
        TRY(finish(s, bucket));
    }
    return dev_copy(s->c.stream, s->sums, s->norms.data,
                    (size_t)s->layout.buckets_n * sizeof *s->sums);
}

struct tensor store_bucket_norms_sq(const struct store *s) { return s->norms; }

enum status store_grad_norm_end(struct store *s, double *norm_sq_out, double *extra, int n)
{
    int buckets_n = s->layout.buckets_n;
    double total = 0;
    struct comm_ticket ticket;
    ASSERTF(n <= STORE_EXTRAS_MAX, "%d sums", n);
    memcpy(s->sums + buckets_n, extra, (size_t)n * sizeof *extra);
    TRY(store_sum_begin(s, s->sums, buckets_n + n, &ticket));
    TRY(store_wait(s, ticket));
    for (int bucket = buckets_n - 1; bucket >= 0; bucket--)
        total += s->sums[bucket];
    memcpy(extra, s->sums + buckets_n, (size_t)n * sizeof *extra);
    *norm_sq_out = total;
    return ST_OK;
}

/* ---- the update ---- */

struct store_local_shard store_local_shard(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    if (!s->has_parts)
        return (struct store_local_shard){.first = l->first,
                                          .elems = l->elems,
                                          .p = tensor_at(s->params, l->first),
                                          .g = tensor_at(s->grads, l->first),
                                          .m = tensor_at(s->moment[0], l->first),
                                          .v = tensor_at(s->moment[1], l->first)};
    return (struct store_local_shard){.first = l->first + l->own.first,
                                      .elems = l->own.elems,
                                      .p = store_params_own(s, bucket),
                                      .g = grad_own(s, bucket),
                                      .m = tensor_at(s->moment[0], l->shard_at),
                                      .v = tensor_at(s->moment[1], l->shard_at)};
}

static enum status gather_grad(struct store *s, int bucket)
{
    struct store_bucket *p = &s->bucket[bucket];
    TRY(store_comm_wait_stream(s));
    struct tensor all = grad_of(s, bucket);
    enum status st =
        s->grad_compress
            ? grad_compress_gather_begin(s->grad_compress, bucket, all.data, &p->gather)
            : comm_all_gather_begin(s->c.comm, all, grad_own(s, bucket),
                                    s->layout.bucket[bucket].elems, &p->gather);
    TRY(store_track(s, st, p->gather));
    p->is_gathering = p->is_update_due = true;
    return ST_OK;
}

enum status store_update(struct store *s)
{
    for (int bucket = 0; bucket < s->layout.buckets_n; bucket++) {
        if (defers_update(s, bucket)) {
            TRY(gather_grad(s, bucket));
            continue;
        }
        TRY(s->c.update(s->c.update_arg, bucket));
        TRY(store_params_after_update(s, bucket));
    }
    return ST_OK;
}

/* ---- the state ---- */

/* What is held of a part, and whether it is local. */
static struct tensor held(const struct store *s, int part, bool *is_sharded_out)
{
    ASSERTF(part >= 0 && part <= s->c.moments, "part %d", part);
    *is_sharded_out = part == 0 ? s->params_sharded : s->has_parts;
    return part > 0 ? s->moment[part - 1] : s->params;
}

struct tensor store_replicated(const struct store *s, int part)
{
    bool is_sharded = s->has_parts;
    struct tensor t = part < 0 ? s->grads : held(s, part, &is_sharded), none = {0};
    return is_sharded ? none : t;
}

enum status store_drain(struct store *s)
{
    for (int i = 0; i < s->layout.buckets_n; i++)
        TRY(store_params_drain(s, i));
    return dev_sync(s->c.stream); /* updates that were due */
}

/* Elements [first, end) of the table that this rank's part of a bucket has of [*first, *end). */
static bool own_range(const struct layout_bucket *l, int64_t *first, int64_t *end)
{
    int64_t own = l->first + l->own.first, own_end = own + l->own.elems;
    *first = *first > own ? *first : own;
    *end = *end < own_end ? *end : own_end;
    return *first < *end;
}

bool store_holds(const struct store *s, int part, int64_t first, int64_t n)
{
    bool is_sharded;
    (void)held(s, part, &is_sharded);
    for (int i = 0; is_sharded && i < s->layout.buckets_n; i++) {
        int64_t from = first, end = first + n;
        if (own_range(&s->layout.bucket[i], &from, &end))
            return true;
    }
    return !is_sharded;
}

enum status store_set(struct store *s, int part, int64_t first, int64_t n, const float *values)
{
    bool is_sharded;
    struct tensor to = held(s, part, &is_sharded);
    TRY(store_drain(s));
    if (part == 0)
        store_params_invalidate(s);
    if (!is_sharded) {
        TRY(dev_copy(s->c.stream, tensor_at(to, first).data, values, (size_t)n * sizeof *values));
        return dev_sync(s->c.stream);
    }
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        int64_t from = first, end = first + n;
        if (own_range(l, &from, &end))
            TRY(dev_copy(s->c.stream,
                         tensor_at(to, l->shard_at + from - l->first - l->own.first).data,
                         values + from - first, (size_t)(end - from) * sizeof *values));
    }
    return dev_sync(s->c.stream);
}
