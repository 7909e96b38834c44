/* The 16-bit copy of the parameters that passes read: whatever ranks hold in parts, gather or update late, each unit is the rounded
 * newest masters when it is needed, on the way up and on the way down. No pass runs here, so a CPU does. */
#include "mesh/ranks.h"

#include "mesh/store.h"

#define STEPS 3
#define TOKENS 8

static const struct model_dims dims = {
    .name = "tiny", .task = MODEL_TASK_LM, .layers = 3, .heads = 2, .embed = 24, .context = 12, .vocab = 211};

struct half {
    enum layout_shard shard;
    int64_t bucket_elems;
    struct store *store;
    struct param_table table;
    int step; /* whose values the masters have, or will have when they are updated */
    long wrong, looked;
};

/* The value of an element after a step; not the same in bf16. */
static float value(int step, int64_t i) { return (float)(step * 1000 + 1) + (float)i * 0.37f; }

static uint16_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static enum status update(void *arg, int piece)
{
    const struct half *h = arg;
    struct store_arrays a = store_arrays(h->store, piece);
    for (int64_t i = 0; i < a.elems; i++)
        ((float *)a.p.data)[i] = value(h->step, a.first + i);
    return ST_OK;
}

static void look(struct half *h, int unit)
{
    struct pass p = {.dims = &dims};
    store_bind(h->store, &p);
    for (int row = 0; row < h->table.rows_n; row++) {
        const struct param *at = &h->table.row[row];
        const uint16_t *got = tensor_at(p.params, p.table->row[row].offset).data;
        for (int64_t i = 0; at->unit == unit && i < at->elems; i++, h->looked++)
            h->wrong += p.params.dtype != DTYPE_BF16 || got[i] != rounded(value(h->step, at->offset + i));
    }
}

static enum status need(struct half *h, int unit, int way)
{
    TRY(store_need(h->store, unit, way));
    look(h, unit);
    return ST_OK;
}

/* What a step of training asks of the store (train/step_run.c). */
static enum status one_step(struct half *h, struct stream *s, int32_t *tokens)
{
    int last = h->table.units_n - 1;
    struct pass p = {.dims = &dims, .b = 1, .t = TOKENS, .tokens = {tokens, DTYPE_I32}}, embed;
    double norm_sq, extra = 0;
    store_bind(h->store, &p);
    TRY(store_begin(h->store, tokens, TOKENS));
    for (int unit = 0; unit < last; unit++)
        TRY(need(h, unit, 1));
    TRY(need(h, last, 0));
    TRY(need(h, 0, 0));
    TRY(store_room(h->store, last));
    TRY(store_done_table(h->store));
    TRY(store_done(h->store, last));
    for (int unit = last - 1; unit > 0; unit--) {
        TRY(need(h, unit, -1));
        TRY(store_room(h->store, unit));
        TRY(store_done(h->store, unit));
    }
    TRY(store_embed(h->store, &p, &embed));
    TRY(store_done(h->store, 0));
    TRY(store_squares(h->store));
    TRY(dev_sync(s));
    TRY(store_settle(h->store, &norm_sq, &extra, 1));
    h->step++;
    return store_update(h->store);
}

static enum status begin(struct half *h)
{
    int64_t n = h->table.total_elems;
    float *first = malloc((size_t)n * sizeof *first);
    if (!first)
        return FAIL(ST_RETRY, "out of memory");
    for (int64_t i = 0; i < n; i++)
        first[i] = value(0, i);
    enum status st = store_keep(h->store, 0, 0, n, first);
    free(first);
    return st;
}

static enum status rank_main(struct ranks_one *one)
{
    struct half *h = one->arg;
    struct stream *s = NULL;
    int32_t tokens[TOKENS];
    enum status st;
    TRY(model_ops(&dims)->describe(&dims, &h->table));
    TRY_OR(dev_stream_open(one->dev, &s), out_close);
    TRY_OR(store_open(&(struct store_config){.dev = one->dev,
                                             .stream = s,
                                             .comm = one->comm,
                                             .table = &h->table,
                                             .shard = h->shard,
                                             .has_grads = true,
                                             .dtype = DTYPE_BF16,
                                             .moments = 2,
                                             .pass_tokens = TOKENS,
                                             .bucket_elems = h->bucket_elems,
                                             .update = update,
                                             .update_arg = h},
                      &h->store),
           out_close);
    TRY_OR(begin(h), out_close);
    for (int i = 0; st == ST_OK && i < STEPS; i++) {
        for (int k = 0; k < TOKENS; k++)
            tokens[k] = one->rank * 10 + k;
        st = one_step(h, s, tokens);
    }
    for (int unit = 0; st == ST_OK && unit < h->table.units_n; unit++)
        st = need(h, unit, unit + 1 < h->table.units_n);
    if (st == ST_OK)
        st = begin(h); /* a checkpoint is loaded over it */
    h->step = 0;
    for (int unit = 0; st == ST_OK && unit < h->table.units_n; unit++)
        st = need(h, unit, unit + 1 < h->table.units_n);
out_close:
    store_close(h->store);
    dev_stream_close(s);
    param_table_free(&h->table);
    return st;
}

static void what_is_needed_is_rounded_anew(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
            for (int64_t bucket = 0; bucket < 2; bucket++) {
                struct half all[3] = {{0}};
                for (int rank = 0; rank < ranks; rank++)
                    all[rank] = (struct half){.shard = (enum layout_shard)shard, .bucket_elems = bucket};
                ranks_run(1, ranks, rank_main, all, sizeof *all);
                for (int rank = 0; rank < ranks; rank++)
                    if (all[rank].wrong || all[rank].looked < 6 * 211 * 24)
                        fail_msg("%d ranks, shard %d: rank %d saw %ld wrong numbers of %ld", ranks, shard, rank, all[rank].wrong,
                                 all[rank].looked);
            }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_needed_is_rounded_anew)};
HARNESS_MAIN(tests)
