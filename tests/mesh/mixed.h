/* mixed — a store whose compute copy is not the masters, driven through steps of training. However
 * SHARD shards, gathers or defers updates, each unit that is unsharded holds the newest masters,
 * rounded, in the forward and in the backward pass. No pass runs, so a CPU will do: copies on the
 * stream take what a pass would read, and are compared when they are done. */
#ifndef CONVOY_TESTS_MIXED_H
#define CONVOY_TESTS_MIXED_H

#include "mesh/ranks.h"

#include "kernels/bf16.h"
#include "mesh/store/state.h"

#define MIXED_STEPS 3
#define MIXED_TOKENS 8
#define MIXED_ROWS 16 /* of tokens, as they are exchanged */
#define MIXED_COPIES 16

static const struct model_dims mixed_dims = {.name = "tiny",
                                             .task = MODEL_TASK_LM,
                                             .layers = 3,
                                             .heads = 2,
                                             .embed = 24,
                                             .context = 12,
                                             .vocab = 211};

struct mixed {
    enum layout_shard shard;
    enum dtype dtype;
    enum grad_compress_kind compress;
    bool has_whole_embed;
    int64_t bucket_elems_min;
    struct stream *stream;
    struct comm *comm;
    struct store *store;
    struct param_table table;
    float *values; /* of all masters */
    int step;      /* of these values; the masters have them, or get them by the next update */
    struct {
        int unit;
        char *data; /* laid out as the table */
    } copy[MIXED_COPIES];
    int copies_n;
    long wrong, looked;
    /* sent between an update and the end of the next forward pass, in all steps */
    int64_t gathered_bytes;
    int64_t sent_bytes; /* in all steps */
    int64_t params_bytes, unsharded_bytes;
};

/* The value of an element after a step; it changes when rounded to 16 bits. */
static inline float mixed_value(int step, int64_t i)
{
    return (float)(step * 1000 + 1) + (float)i * 0.37f;
}

static inline uint32_t mixed_bits(enum dtype dtype, float x)
{
    uint32_t bits;
    uint16_t small;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == DTYPE_F32)
        return bits;
    if (dtype == DTYPE_BF16)
        return bf16_from_float(x);
    _Float16 h = (_Float16)x;
    memcpy(&small, &h, sizeof small);
    return small;
}

static inline enum status mixed_update(void *arg, int bucket)
{
    struct mixed *h = arg;
    struct store_local_shard a = store_local_shard(h->store, bucket);
    for (int64_t i = a.first; i < a.first + a.elems; i++)
        h->values[i] = mixed_value(h->step, i);
    return a.elems > 0
               ? dev_copy(h->stream, a.p.data, h->values + a.first, (size_t)a.elems * sizeof(float))
               : ST_OK;
}

/* Copies what a pass would read of a unit, in the stream's order. */
static inline enum status mixed_unshard(struct mixed *h, int unit, int direction)
{
    struct pass p = {.dims = &mixed_dims};
    size_t each = dtype_bytes(h->dtype);
    TRY(store_unshard(h->store, unit, direction));
    store_bind(h->store, &p);
    if (p.params.dtype != h->dtype || h->copies_n == MIXED_COPIES)
        return FAIL(ST_BUG, "dtype %d, copy %d", (int)p.params.dtype, h->copies_n);
    char *to = calloc((size_t)h->table.total_elems, each);
    h->copy[h->copies_n].unit = unit;
    h->copy[h->copies_n++].data = to;
    for (int row = 0; row < h->table.params_n; row++) {
        const struct param *at = &h->table.param[row];
        if (at->unit == unit)
            TRY(dev_copy(h->stream, to + at->offset * (int64_t)each,
                         tensor_at(p.params, p.table->param[row].offset).data,
                         (size_t)at->elems * each));
    }
    return ST_OK;
}

/* All copies so far must be the values of this step. */
static inline enum status mixed_check(struct mixed *h, int step)
{
    TRY(dev_sync(h->stream));
    for (int k = 0; k < h->copies_n; k++) {
        for (int row = 0; row < h->table.params_n; row++) {
            const struct param *at = &h->table.param[row];
            for (int64_t i = at->offset; at->unit == h->copy[k].unit && i < at->offset + at->elems;
                 i++, h->looked++) {
                uint32_t got = 0;
                size_t each = dtype_bytes(h->dtype);
                memcpy(&got, h->copy[k].data + i * (int64_t)each, each);
                h->wrong += got != mixed_bits(h->dtype, mixed_value(step, i));
            }
        }
        free(h->copy[k].data);
    }
    h->copies_n = 0;
    return ST_OK;
}

static inline enum status mixed_forward(struct mixed *h)
{
    int last = h->table.units_n - 1;
    for (int unit = 0; unit < last; unit++)
        TRY(mixed_unshard(h, unit, 1));
    TRY(mixed_unshard(h, last, 0));
    return mixed_unshard(h, 0, 0);
}

static inline void mixed_count(struct mixed *h, bool is_gathered)
{
    struct comm_times times;
    comm_times(h->comm, &times);
    h->sent_bytes += times.bytes_sent;
    h->gathered_bytes += is_gathered ? times.bytes_sent : 0;
}

/* The counts of a step's targets, a number for each rank: calls that began before them are done. */
static inline enum status mixed_counts(struct mixed *h)
{
    double counts[RANKS_MAX] = {0};
    struct comm_ticket ticket;
    TRY(store_all_reduce_begin(h->store, counts, comm_place(h->comm)->ranks, &ticket));
    return store_wait(h->store, ticket);
}

/* The calls of a step of training (train/step/run.c). */
static inline enum status mixed_step(struct mixed *h, int32_t *tokens)
{
    int last = h->table.units_n - 1;
    struct pass p = {.dims = &mixed_dims, .b = 1, .t = MIXED_TOKENS, .tokens = {tokens, DTYPE_I32}},
                embed;
    double norm_sq, extra = 0;
    store_bind(h->store, &p);
    TRY(store_grad_sync_begin(h->store, tokens, MIXED_TOKENS, true));
    TRY(mixed_forward(h));
    TRY(mixed_counts(h));
    mixed_count(h, h->step > 0);
    TRY(store_prepare_grad(h->store, last));
    TRY(store_embedding_grad_ready(h->store));
    TRY(store_post_backward(h->store, last));
    for (int unit = last - 1; unit > 0; unit--) {
        TRY(mixed_unshard(h, unit, -1));
        TRY(store_prepare_grad(h->store, unit));
        TRY(store_post_backward(h->store, unit));
    }
    TRY(store_sparse_embed_pass(h->store, &p, &embed));
    TRY(store_post_backward(h->store, 0));
    TRY(store_grad_norm_begin(h->store));
    TRY(dev_sync(h->stream));
    TRY(store_grad_norm_end(h->store, &norm_sq, &extra, 1));
    TRY(mixed_check(h, h->step++));
    mixed_count(h, false);
    return store_update(h->store);
}

/* Initial values; each rank has all of them. */
static inline enum status mixed_begin(struct mixed *h)
{
    for (int64_t i = 0; i < h->table.total_elems; i++)
        h->values[i] = mixed_value(h->step, i);
    return state_write(store_state(h->store), 0, 0, h->table.total_elems, h->values);
}

/* Rank 0 reads the masters, which must not be rounded, and replaces them as from a checkpoint;
 * passes must then read the new ones. */
static inline enum status mixed_state(struct mixed *h, int rank)
{
    enum status st;
    int64_t n = h->table.total_elems;
    int step = h->step;
    h->step += 10;
    const struct state state = state_of_model(h->comm, h->store, NULL, NULL);
    if (rank > 0)
        return state_serve(&state);
    TRY_OR(state_read(&state, 0, 0, n, h->values), out);
    for (int row = 0; row < h->table.params_n; row++)
        for (int64_t i = h->table.param[row].offset;
             i < h->table.param[row].offset + h->table.param[row].elems; i++)
            h->wrong += h->values[i] != mixed_value(step, i);
    for (int64_t i = 0; i < n; i++)
        h->values[i] = mixed_value(h->step, i);
    for (int64_t first = 0; st == ST_OK && first < n; first += 1000)
        st = state_write(&state, 0, first, n - first < 1000 ? n - first : 1000, h->values + first);
out:
    return state_end(&state, st);
}

static inline enum status mixed_open(struct mixed *h, struct ranks_one *one)
{
    TRY(model_ops(&mixed_dims)->describe(&mixed_dims, &h->table));
    layout_pad(&h->table, one->ranks);
    h->values = calloc((size_t)h->table.total_elems, sizeof *h->values);
    h->comm = one->comm;
    TRY(dev_stream_open(one->dev, &h->stream));
    TRY(store_open(&(struct store_config){.dev = one->dev,
                                          .stream = h->stream,
                                          .comm = one->comm,
                                          .table = &h->table,
                                          .settings.shard = h->shard,
                                          .has_grads = true,
                                          .settings.dtype = h->dtype,
                                          .settings.compress = h->compress,
                                          .settings.has_whole_embed = h->has_whole_embed,
                                          .moments_n = 2,
                                          .pass_tokens = MIXED_TOKENS,
                                          .settings.bucket_elems_min = h->bucket_elems_min,
                                          .update = mixed_update,
                                          .update_arg = h},
                   &h->store));
    h->params_bytes = store_memory(h->store).params;
    h->unsharded_bytes = store_memory(h->store).unsharded;
    return ST_OK;
}

static inline enum status mixed_rank(struct ranks_one *one)
{
    struct mixed *h = one->arg;
    int32_t tokens[MIXED_TOKENS];
    enum status st;
    TRY_OR(mixed_open(h, one), out_close);
    TRY_OR(mixed_begin(h), out_close);
    for (int i = 0; i < MIXED_STEPS; i++) {
        for (int k = 0; k < MIXED_TOKENS; k++)
            tokens[k] = one->rank * 10 + k;
        TRY_OR(mixed_step(h, tokens), out_close);
    }
    TRY_OR(mixed_forward(h), out_close);
    TRY_OR(mixed_check(h, h->step), out_close);
    TRY_OR(mixed_state(h, one->rank), out_close);
    TRY_OR(mixed_forward(h), out_close);
    TRY_OR(mixed_check(h, h->step), out_close);
out_close:
    store_close(h->store);
    dev_stream_close(h->stream);
    for (int k = 0; k < h->copies_n; k++)
        free(h->copy[k].data);
    free(h->values);
    param_table_free(&h->table);
    return st;
}

/* mixed_run — runs it on every rank and fails on a wrong number; returns what rank 0 has. */
static inline struct mixed mixed_run(const struct mixed *like, int ranks)
{
    struct mixed all[RANKS_MAX];
    for (int rank = 0; rank < ranks; rank++)
        all[rank] = *like;
    ranks_run(1, ranks, mixed_rank, all, sizeof *all);
    for (int rank = 0; rank < ranks; rank++)
        if (all[rank].wrong || all[rank].looked < 6 * 211 * 24)
            fail_msg("%d ranks, shard %d, dtype %d: rank %d saw %ld wrong numbers of %ld", ranks,
                     (int)like->shard, (int)like->dtype, rank, all[rank].wrong, all[rank].looked);
    return all[0];
}

#endif
