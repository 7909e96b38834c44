/* half — a store whose passes read another copy of the parameters than the masters, led through
 * steps of training: whatever ranks hold in parts, gather or update late, each unit is the newest
 * masters, rounded, when it is needed, on the way up and on the way down. No pass runs here, so a
 * CPU does: what a pass would read is taken by copies on the stream, and looked at when they are
 * done. */
#ifndef CONVOY_TESTS_HALF_H
#define CONVOY_TESTS_HALF_H

#include "mesh/ranks.h"

#include "kernels/bf16.h"
#include "mesh/store_state.h"

#define HALF_STEPS 3
#define HALF_TOKENS 8
#define HALF_LOOKS 16

static const struct model_dims half_dims = {.name = "tiny",
                                            .task = MODEL_TASK_LM,
                                            .layers = 3,
                                            .heads = 2,
                                            .embed = 24,
                                            .context = 12,
                                            .vocab = 211};

struct half {
    enum layout_shard shard;
    enum dtype dtype;
    int64_t bucket_elems;
    struct stream *stream;
    struct comm *comm;
    struct store *store;
    struct param_table table;
    float *values; /* of the masters, wherever they lie */
    int step;      /* whose values they are, or will be when they are updated */
    struct {
        int unit;
        char *data; /* as the table lies */
    } look[HALF_LOOKS];
    int looks_n;
    long wrong, looked;
    /* sent from an update until the forward pass had all it needs, in all steps */
    int64_t gathered_bytes;
    int64_t params_bytes, windows_bytes;
};

/* The value of an element after a step; not the same in 16 bits. */
static inline float half_value(int step, int64_t i)
{
    return (float)(step * 1000 + 1) + (float)i * 0.37f;
}

static inline uint32_t half_bits(enum dtype dtype, float x)
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

static inline enum status half_update(void *arg, int piece)
{
    struct half *h = arg;
    struct store_arrays a = store_arrays(h->store, piece);
    for (int64_t i = a.first; i < a.first + a.elems; i++)
        h->values[i] = half_value(h->step, i);
    return a.elems > 0
               ? dev_copy(h->stream, a.p.data, h->values + a.first, (size_t)a.elems * sizeof(float))
               : ST_OK;
}

/* What a pass would read of a unit, in the stream's order. */
static inline enum status half_need(struct half *h, int unit, int way)
{
    struct pass p = {.dims = &half_dims};
    size_t each = dtype_bytes(h->dtype);
    TRY(store_need(h->store, unit, way));
    store_bind(h->store, &p);
    if (p.params.dtype != h->dtype || h->looks_n == HALF_LOOKS)
        return FAIL(ST_BUG, "dtype %d, look %d", (int)p.params.dtype, h->looks_n);
    char *to = calloc((size_t)h->table.total_elems, each);
    h->look[h->looks_n].unit = unit;
    h->look[h->looks_n++].data = to;
    for (int row = 0; row < h->table.rows_n; row++) {
        const struct param *at = &h->table.row[row];
        if (at->unit == unit)
            TRY(dev_copy(h->stream, to + at->offset * (int64_t)each,
                         tensor_at(p.params, p.table->row[row].offset).data,
                         (size_t)at->elems * each));
    }
    return ST_OK;
}

/* All that was read so far shall be the values of this step. */
static inline enum status half_look(struct half *h, int step)
{
    TRY(dev_sync(h->stream));
    for (int k = 0; k < h->looks_n; k++) {
        for (int row = 0; row < h->table.rows_n; row++) {
            const struct param *at = &h->table.row[row];
            for (int64_t i = at->offset; at->unit == h->look[k].unit && i < at->offset + at->elems;
                 i++, h->looked++) {
                uint32_t got = 0;
                size_t each = dtype_bytes(h->dtype);
                memcpy(&got, h->look[k].data + i * (int64_t)each, each);
                h->wrong += got != half_bits(h->dtype, half_value(step, i));
            }
        }
        free(h->look[k].data);
    }
    h->looks_n = 0;
    return ST_OK;
}

static inline enum status half_forward(struct half *h)
{
    int last = h->table.units_n - 1;
    for (int unit = 0; unit < last; unit++)
        TRY(half_need(h, unit, 1));
    TRY(half_need(h, last, 0));
    return half_need(h, 0, 0);
}

static inline void half_count(struct half *h, bool is_gathered)
{
    struct comm_times times;
    comm_times(h->comm, &times);
    h->gathered_bytes += is_gathered ? times.bytes_sent : 0;
}

/* What a step of training asks of the store (train/step_run.c). */
static inline enum status half_step(struct half *h, int32_t *tokens)
{
    int last = h->table.units_n - 1;
    struct pass p = {.dims = &half_dims, .b = 1, .t = HALF_TOKENS, .tokens = {tokens, DTYPE_I32}},
                embed;
    double norm_sq, extra = 0;
    store_bind(h->store, &p);
    TRY(store_begin(h->store, tokens, HALF_TOKENS));
    TRY(half_forward(h));
    half_count(h, h->step > 0);
    TRY(store_room(h->store, last));
    TRY(store_done_table(h->store));
    TRY(store_done(h->store, last));
    for (int unit = last - 1; unit > 0; unit--) {
        TRY(half_need(h, unit, -1));
        TRY(store_room(h->store, unit));
        TRY(store_done(h->store, unit));
    }
    /* token rows, whose numbers go where tokens are */
    if (!dev_is_apart(((struct stream_head *)h->stream)->dev))
        TRY(store_embed(h->store, &p, &embed));
    TRY(store_done(h->store, 0));
    TRY(store_squares(h->store));
    TRY(dev_sync(h->stream));
    TRY(store_settle(h->store, &norm_sq, &extra, 1));
    TRY(half_look(h, h->step++));
    half_count(h, false);
    return store_update(h->store);
}

/* Initial values, which each rank has at hand. */
static inline enum status half_begin(struct half *h)
{
    for (int64_t i = 0; i < h->table.total_elems; i++)
        h->values[i] = half_value(h->step, i);
    return store_keep(h->store, 0, 0, h->table.total_elems, h->values);
}

/* Rank 0 reads the masters, which nothing has rounded, and puts others in their place, as from a
 * checkpoint: what passes read is theirs. */
static inline enum status half_state(struct half *h, int rank)
{
    enum status st;
    int64_t n = h->table.total_elems;
    int step = h->step;
    h->step += 10;
    if (rank > 0)
        return store_state_follow(h->store);
    TRY_OR(store_state_get(h->store, 0, 0, n, h->values), out);
    for (int row = 0; row < h->table.rows_n; row++)
        for (int64_t i = h->table.row[row].offset;
             i < h->table.row[row].offset + h->table.row[row].elems; i++)
            h->wrong += h->values[i] != half_value(step, i);
    for (int64_t i = 0; i < n; i++)
        h->values[i] = half_value(h->step, i);
    for (int64_t first = 0; st == ST_OK && first < n; first += 1000)
        st = store_state_put(h->store, 0, first, n - first < 1000 ? n - first : 1000,
                             h->values + first);
out:
    return store_state_end(h->store, st);
}

static inline enum status half_open(struct half *h, struct ranks_one *one)
{
    TRY(model_ops(&half_dims)->describe(&half_dims, &h->table));
    h->values = calloc((size_t)h->table.total_elems, sizeof *h->values);
    h->comm = one->comm;
    TRY(dev_stream_open(one->dev, &h->stream));
    TRY(store_open(&(struct store_config){.dev = one->dev,
                                          .stream = h->stream,
                                          .comm = one->comm,
                                          .table = &h->table,
                                          .shard = h->shard,
                                          .has_grads = true,
                                          .dtype = h->dtype,
                                          .moments = 2,
                                          .pass_tokens = HALF_TOKENS,
                                          .bucket_elems = h->bucket_elems,
                                          .update = half_update,
                                          .update_arg = h},
                   &h->store));
    h->params_bytes = store_memory(h->store).params;
    h->windows_bytes = store_memory(h->store).windows;
    return ST_OK;
}

static inline enum status half_rank(struct ranks_one *one)
{
    struct half *h = one->arg;
    int32_t tokens[HALF_TOKENS];
    enum status st;
    TRY_OR(half_open(h, one), out_close);
    TRY_OR(half_begin(h), out_close);
    for (int i = 0; i < HALF_STEPS; i++) {
        for (int k = 0; k < HALF_TOKENS; k++)
            tokens[k] = one->rank * 10 + k;
        TRY_OR(half_step(h, tokens), out_close);
    }
    TRY_OR(half_forward(h), out_close);
    TRY_OR(half_look(h, h->step), out_close);
    TRY_OR(half_state(h, one->rank), out_close);
    TRY_OR(half_forward(h), out_close);
    TRY_OR(half_look(h, h->step), out_close);
out_close:
    store_close(h->store);
    dev_stream_close(h->stream);
    for (int k = 0; k < h->looks_n; k++)
        free(h->look[k].data);
    free(h->values);
    param_table_free(&h->table);
    return st;
}

/* half_run — on every rank; what rank 0 found. */
static inline struct half half_run(const struct half *like, int ranks)
{
    struct half all[RANKS_MAX];
    for (int rank = 0; rank < ranks; rank++)
        all[rank] = *like;
    ranks_run(1, ranks, half_rank, all, sizeof *all);
    for (int rank = 0; rank < ranks; rank++)
        if (all[rank].wrong || all[rank].looked < 6 * 211 * 24)
            fail_msg("%d ranks, shard %d, dtype %d: rank %d saw %ld wrong numbers of %ld", ranks,
                     (int)like->shard, (int)like->dtype, rank, all[rank].wrong, all[rank].looked);
    return all[0];
}

#endif
