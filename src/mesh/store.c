/* store — memory, the life of gradients, the update (store.h). Parameters on their way to passes
 * are in store_params.c, the whole state by ranges in store_state.c. */
#include "mesh/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/must.h"
#include "mesh/store_inside.h"

/* ---- memory ---- */

static enum status take(struct store *s, int64_t elems, enum dtype dtype, bool is_comm,
                        struct tensor *out)
{
    size_t bytes = (size_t)elems * dtype_bytes(dtype);
    void *data = NULL;
    ASSERT(s->memory_n < STORE_PIECES_OF_MEMORY);
    if (is_comm)
        TRY(comm_alloc(s->c.comm, (int64_t)bytes, &data));
    else
        TRY(dev_alloc(s->c.dev, bytes, &data));
    s->memory[s->memory_n].data = data;
    s->memory[s->memory_n].bytes = bytes;
    s->memory[s->memory_n++].is_comm = is_comm;
    *out = (struct tensor){data, dtype};
    if (s->c.beat)
        s->c.beat(s->c.beat_arg);
    return ST_OK;
}

static bool wants_rows(const struct store *s)
{
    const struct param *row = &s->c.table->row[0];
    return s->c.has_grads && !s->is_apart &&
           rows_are_worth(s->layout.ranks, row->dim[0], s->c.pass_tokens);
}

static int64_t rows_elems(const struct store *s)
{
    const struct param *row = &s->c.table->row[0];
    return wants_rows(s)
               ? rows_buffer_elems(s->layout.ranks, row->dim[0], row->dim[1], s->c.pass_tokens)
               : 0;
}

/* What each purpose needs, from the layout alone. */
static struct store_memory plan(const struct store *s)
{
    const struct store_config *c = &s->c;
    int64_t whole = c->table->total_elems, packed = s->layout.packed_elems,
            window = s->layout.window_elems;
    int64_t each = (int64_t)sizeof(float);
    struct store_memory m = {.params = (s->params_packed ? packed : whole) * each};
    if (s->has_view)
        m.windows = (s->params_window ? window : whole) * (int64_t)dtype_bytes(c->dtype);
    if (!c->has_grads)
        return m;
    m.grads = (s->grads_window ? packed : whole) * each;
    m.windows += ((s->grads_window ? window : 0) + rows_elems(s)) * each;
    m.moments = c->moments * (s->has_parts ? packed : whole) * each;
    return m;
}

static enum status take_rows(struct store *s, float *buffer)
{
    const struct param *row = &s->c.table->row[0];
    return rows_open(&(struct rows_config){.comm = s->c.comm,
                                           .rows_n = row->dim[0],
                                           .row_elems = row->dim[1],
                                           .tokens_max = s->c.pass_tokens,
                                           .buffer = buffer},
                     &s->rows);
}

/* The gradients' memory is one: a pass whose embedding's rows lie beside the table finds them by an
 * offset. */
static enum status take_grads(struct store *s)
{
    int64_t elems = s->grads_window ? s->layout.window_elems : s->c.table->total_elems;
    TRY(take(s, elems + rows_elems(s), DTYPE_F32, !s->is_alone, &s->grads));
    if (s->grads_window)
        TRY(take(s, s->layout.packed_elems, DTYPE_F32, !s->is_alone, &s->grads_own));
    if (wants_rows(s))
        TRY(take_rows(s, (float *)s->grads.data + elems));
    for (int i = 0; i < s->c.moments; i++)
        TRY(take(s, s->has_parts ? s->layout.packed_elems : s->c.table->total_elems, DTYPE_F32,
                 false, &s->moment[i]));
    return take(s, s->layout.pieces_n, DTYPE_F64, false, &s->norms);
}

static enum status take_all(struct store *s)
{
    int64_t whole = s->c.table->total_elems, window = s->layout.window_elems;
    /* masters themselves; else what is made of them */
    bool is_gathered = s->has_parts && s->c.dtype == DTYPE_F32;
    TRY(take(s, s->params_packed ? s->layout.packed_elems : whole, DTYPE_F32, is_gathered,
             &s->params));
    s->view = s->params;
    if (s->has_view)
        TRY(take(s, s->params_window ? window : whole, s->c.dtype, s->has_parts, &s->view));
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

/* squeeze_of — what compresses gradients; NULL pieces: out of memory. The pieces are the caller's
 * to free. */
static struct squeeze_config squeeze_of(const struct store *s)
{
    int n = s->layout.pieces_n;
    int64_t *elems = calloc((size_t)n, sizeof *elems);
    for (int i = 0; elems && i < n; i++)
        elems[i] = s->layout.piece[i].elems;
    return (struct squeeze_config){.comm = s->c.comm,
                                   .dev = s->c.dev,
                                   .kind = s->c.compress,
                                   .late_first = !s->is_late     ? n
                                                 : wants_rows(s) ? 1
                                                                 : 0,
                                   .pieces_n = n,
                                   .piece_elems = elems};
}

static bool wants_squeeze(const struct store *s)
{
    return s->c.compress != SQUEEZE_KIND_NONE && s->c.has_grads && !s->is_alone;
}

static enum status no_pieces(const struct store *s)
{
    return FAIL(ST_RETRY, "out of memory: %d pieces of the model", s->layout.pieces_n);
}

static enum status open_squeeze(struct store *s)
{
    struct squeeze_config config = squeeze_of(s);
    enum status st = config.piece_elems ? squeeze_open(&config, &s->squeeze) : no_pieces(s);
    free((void *)(uintptr_t)config.piece_elems);
    TRY(st);
    s->taken.residuals = squeeze_bytes(s->squeeze);
    return ST_OK;
}

/* set_shape — what is held whole and what in parts, from the configuration and the layout alone. */
static void set_shape(struct store *s, bool is_apart)
{
    const struct store_config *c = &s->c;
    s->is_apart = is_apart;
    s->is_alone = s->layout.ranks == 1;
    s->has_parts = !s->is_alone && c->shard != LAYOUT_SHARD_NONE;
    s->is_late = !s->is_alone && !s->has_parts;
    s->params_window = !s->is_alone && c->shard == LAYOUT_SHARD_FULL;
    s->params_packed = s->params_window || (s->has_parts && c->dtype != DTYPE_F32);
    s->has_view = s->params_window || c->dtype != DTYPE_F32;
    s->grads_window = !s->is_alone && c->shard >= LAYOUT_SHARD_GRADIENTS && !c->is_accumulated;
}

enum status store_plan(const struct store_config *config, int rank, int ranks, bool is_apart,
                       struct store_memory *out)
{
    struct store s = {.c = *config};
    enum status st = ST_OK;
    TRY(layout_init(config->table, ranks, rank, config->bucket_elems, &s.layout));
    set_shape(&s, is_apart);
    *out = plan(&s);
    if (wants_squeeze(&s)) {
        struct squeeze_config squeeze = squeeze_of(&s);
        st = squeeze.piece_elems ? ST_OK : no_pieces(&s);
        if (st == ST_OK)
            out->residuals = squeeze_plan(&squeeze, rank, ranks, is_apart);
        free((void *)(uintptr_t)squeeze.piece_elems);
    }
    layout_free(&s.layout);
    return st;
}

static enum status open_all(struct store *s)
{
    const struct store_config *c = &s->c;
    const struct comm_place *place = comm_place(c->comm);
    TRY(layout_init(c->table, place->ranks, place->rank, c->bucket_elems, &s->layout));
    set_shape(s, dev_is_apart(c->dev));
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    s->taken = plan(s);
    s->piece = calloc((size_t)s->layout.pieces_n, sizeof *s->piece);
    s->sums = calloc((size_t)s->layout.pieces_n + STORE_EXTRAS_MAX, sizeof *s->sums);
    s->embed_row = calloc((size_t)c->table->rows_n, sizeof *s->embed_row);
    if (!s->piece || !s->sums || !s->embed_row)
        return no_pieces(s);
    TRY(take_all(s));
    check_taken(s);
    return wants_squeeze(s) ? open_squeeze(s) : ST_OK;
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
    rows_close(s->rows);
    squeeze_close(s->squeeze);
    layout_free(&s->layout);
    free(s->piece);
    free(s->sums);
    free(s->embed_row);
    free(s);
}

struct store_memory store_memory(const struct store *s) { return s->taken; }

int64_t store_memory_bytes(const struct store *s)
{
    const struct store_memory *m = &s->taken;
    return m->params + m->grads + m->moments + m->windows + m->residuals;
}

const struct layout *store_layout(const struct store *s) { return &s->layout; }

void store_bind(const struct store *s, struct pass *p)
{
    p->table = s->params_window ? &s->layout.window : s->c.table;
    p->grad_table = s->grads_window ? &s->layout.window : s->c.table;
    p->params = s->view;
    p->grads = s->grads;
}

/* ---- waiting ---- */

/* Calls are carried out in the order of beginning: when the newest is waited for, none is under
 * way. */
enum status store_begun(struct store *s, enum status st, struct comm_ticket ticket)
{
    TRY(st);
    s->newest = ticket;
    s->is_under_way = true;
    return ST_OK;
}

/* What the device has gathered (dev_collect) begins before the host waits for others: else it would
 * stand still. Not asked is whether the call happens to be done: what begins together must be the
 * same in each step. */
enum status store_wait(struct store *s, struct comm_ticket ticket)
{
    if (s->is_under_way && !s->is_alone)
        TRY(dev_begin(s->c.stream));
    int64_t begin = clock_ns();
    s->is_under_way = s->is_under_way && ticket.sequence != s->newest.sequence;
    enum status st = comm_wait(s->c.comm, ticket);
    s->wait_ns += clock_ns() - begin;
    return st;
}

enum status store_come_after(struct store *s)
{
    return s->squeeze ? dev_sync(s->c.stream) : comm_after(s->c.comm, s->c.stream);
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
    return store_begun(s, comm_all_reduce_begin(s->c.comm, all, all, n, ticket), *ticket);
}

/* ---- parameters ---- */

enum status store_need(struct store *s, int unit, int way)
{
    int last = s->layout.unit_piece[unit], next = last + way;
    for (int piece = unit == 0 ? 0 : last; piece <= last; piece++)
        TRY(store_params_need(s, piece));
    bool is_next = way != 0 && next < s->layout.pieces_n && next > s->layout.unit_piece[0];
    return is_next ? store_params_begin(s, next) : ST_OK;
}

/* ---- gradients ---- */

/* The whole piece, as the passes left it. */
static struct tensor grad_of(const struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    return tensor_at(s->grads, s->grads_window ? l->at : l->first);
}

/* This rank's part of it, reduced. */
static struct tensor grad_own(const struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    return s->grads_window ? tensor_at(s->grads_own, l->packed)
                           : tensor_at(grad_of(s, piece), l->own.first);
}

/* The embedding is the largest piece, begun first, and needed first in the next pass: it comes
 * whole beside the backward pass, and its token rows, which everybody has, are added by all to all
 * of it. */
static bool is_late(const struct store *s, int piece)
{
    return s->is_late && !(s->rows && piece == 0);
}

/* Nothing but token rows goes into this rank's embedding: then its table is zero everywhere, and no
 * message. */
static bool is_rows_alone(const struct store *s)
{
    return s->rows && s->c.table->row[0].grad_is_added && !s->c.is_accumulated;
}

static enum status reduce(struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    struct store_piece *p = &s->piece[piece];
    struct tensor from = grad_of(s, piece);
    if (p->is_begun)
        return ST_OK;
    p->is_begun = true;
    if (s->is_alone || (piece == 0 && is_rows_alone(s)))
        return ST_OK;
    p->is_reducing = true;
    TRY(store_come_after(s));
    enum status st;
    if (s->squeeze)
        st = squeeze_begin(s->squeeze, piece, from.data,
                           s->has_parts || is_late(s, piece) ? NULL : from.data,
                           grad_own(s, piece).data, &p->reduce);
    else if (s->has_parts || is_late(s, piece))
        st = comm_reduce_scatter_begin(s->c.comm, grad_own(s, piece), from, l->elems, &p->reduce);
    else
        st = comm_all_reduce_begin(s->c.comm, from, from, l->elems, &p->reduce);
    return store_begun(s, st, p->reduce);
}

/* The token rows that belong to what this rank keeps of the embedding. */
static void add_rows(struct store *s)
{
    const struct layout_piece *l = &s->layout.piece[0];
    int64_t elems = s->c.table->row[0].elems;
    if (s->has_parts || is_late(s, 0))
        rows_add(s->rows, l->own, grad_own(s, 0).data);
    else
        rows_add(s->rows, (struct order_extent){.elems = elems}, grad_of(s, 0).data);
}

static enum status finish(struct store *s, int piece)
{
    struct store_piece *p = &s->piece[piece];
    if (!p->is_begun || p->is_finished)
        return ST_OK;
    p->is_finished = true;
    if (p->is_reducing) {
        p->is_reducing = false;
        TRY(store_wait(s, p->reduce));
    }
    if (piece == 0 && s->rows) {
        TRY(store_wait(s, s->rows_ticket));
        add_rows(s);
    }
    return dev_op(s->c.dev)->sumsq(s->c.stream,
                                   &(struct sumsq){.out = tensor_at(s->norms, piece),
                                                   .x = grad_own(s, piece),
                                                   .n = s->layout.piece[piece].own.elems});
}

enum status store_begin(struct store *s, const int32_t *tokens, int64_t n)
{
    for (int i = 0; i < s->layout.pieces_n; i++)
        s->piece[i].is_begun = s->piece[i].is_reducing = s->piece[i].is_finished = false;
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    if (!s->rows)
        return ST_OK;
    if (is_rows_alone(s) && s->grads_window)
        TRY(dev_fill(s->c.stream, grad_own(s, 0).data, 0,
                     (size_t)s->layout.piece[0].own.elems * sizeof(float)));
    return store_begun(s, rows_begin(s->rows, tokens, n, &s->rows_ticket), s->rows_ticket);
}

/* What lies between the tensors of a piece is zero, whatever the slot held before. */
static enum status clear_padding(struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    const struct param_table *t = s->c.table;
    for (int i = 0; i < t->rows_n; i++) {
        const struct param *row = &t->row[i];
        int64_t end = i + 1 < t->rows_n ? row[1].offset : t->total_elems,
                from = row->offset + row->elems;
        if (row->offset >= l->first && row->offset < l->first + l->elems && from < end)
            TRY(dev_fill(s->c.stream, tensor_at(grad_of(s, piece), from - l->first).data, 0,
                         (size_t)(end - from) * sizeof(float)));
    }
    return ST_OK;
}

enum status store_room(struct store *s, int unit)
{
    int piece = s->layout.unit_piece[unit], slot = s->layout.piece[piece].slot;
    if (!s->grads_window || slot < 0)
        return ST_OK;
    if (s->grad_in_slot[slot] == piece)
        return ST_OK;
    if (s->grad_in_slot[slot] >= 0)
        TRY(finish(s, s->grad_in_slot[slot]));
    s->grad_in_slot[slot] = piece;
    return clear_padding(s, piece);
}

enum status store_done(struct store *s, int unit)
{
    int last = s->layout.unit_piece[unit];
    if (s->layout.piece[last].unit_first != unit)
        return ST_OK; /* the piece's other units are not done */
    if (unit == 0 && s->rows) {
        TRY(dev_sync(s->c.stream));
        TRY(store_begun(s, rows_exchange_begin(s->rows, &s->rows_ticket), s->rows_ticket));
    }
    for (int piece = last; piece >= (unit == 0 ? 0 : last); piece--) {
        TRY(reduce(s, piece));
        if (s->is_alone)
            TRY(finish(s, piece)); /* its squares are taken while it is in cache */
    }
    return ST_OK;
}

enum status store_done_table(void *store)
{
    struct store *s = store;
    return s->rows ? reduce(s, 0) : ST_OK;
}

enum status store_embed(struct store *s, const struct pass *from, struct pass *out)
{
    *out = *from;
    if (!s->rows)
        return ST_OK;
    TRY(store_wait(s, s->rows_ticket));
    float *place = rows_place(s->rows);
    s->embed_table = *from->grad_table;
    memcpy(s->embed_row, from->grad_table->row, (size_t)s->c.table->rows_n * sizeof *s->embed_row);
    s->embed_table.row = s->embed_row;
    s->embed_row[0].offset = place - (float *)s->grads.data;
    out->grad_table = &s->embed_table;
    return dev_copy(s->c.stream, out->tokens.data, rows_numbers(s->rows),
                    (size_t)(from->b * from->t) * sizeof(int32_t));
}

enum status store_squares(struct store *s)
{
    for (int piece = s->layout.pieces_n - 1; piece >= 0; piece--) {
        ASSERTF(s->piece[piece].is_begun, "piece %d has no gradient", piece);
        TRY(finish(s, piece));
    }
    return dev_copy(s->c.stream, s->sums, s->norms.data,
                    (size_t)s->layout.pieces_n * sizeof *s->sums);
}

struct tensor store_norms(const struct store *s) { return s->norms; }

enum status store_settle(struct store *s, double *norm_sq_out, double *extra, int n)
{
    int pieces_n = s->layout.pieces_n;
    double total = 0;
    struct comm_ticket ticket;
    ASSERTF(n <= STORE_EXTRAS_MAX, "%d sums", n);
    memcpy(s->sums + pieces_n, extra, (size_t)n * sizeof *extra);
    TRY(store_sum_begin(s, s->sums, pieces_n + n, &ticket));
    TRY(store_wait(s, ticket));
    for (int piece = pieces_n - 1; piece >= 0; piece--)
        total += s->sums[piece];
    memcpy(extra, s->sums + pieces_n, (size_t)n * sizeof *extra);
    *norm_sq_out = total;
    return ST_OK;
}

/* ---- the update ---- */

struct store_arrays store_arrays(const struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    if (!s->has_parts)
        return (struct store_arrays){.first = l->first,
                                     .elems = l->elems,
                                     .p = tensor_at(s->params, l->first),
                                     .g = tensor_at(s->grads, l->first),
                                     .m = tensor_at(s->moment[0], l->first),
                                     .v = tensor_at(s->moment[1], l->first)};
    return (struct store_arrays){.first = l->first + l->own.first,
                                 .elems = l->own.elems,
                                 .p = store_params_own(s, piece),
                                 .g = grad_own(s, piece),
                                 .m = tensor_at(s->moment[0], l->packed),
                                 .v = tensor_at(s->moment[1], l->packed)};
}

static enum status gather_grad(struct store *s, int piece)
{
    struct store_piece *p = &s->piece[piece];
    TRY(store_come_after(s));
    struct tensor all = grad_of(s, piece);
    enum status st = s->squeeze ? squeeze_gather_begin(s->squeeze, piece, all.data, &p->gather)
                                : comm_all_gather_begin(s->c.comm, all, grad_own(s, piece),
                                                        s->layout.piece[piece].elems, &p->gather);
    TRY(store_begun(s, st, p->gather));
    p->is_gathering = p->is_due = true;
    return ST_OK;
}

enum status store_update(struct store *s)
{
    for (int piece = 0; piece < s->layout.pieces_n; piece++) {
        if (is_late(s, piece)) {
            TRY(gather_grad(s, piece));
            continue;
        }
        TRY(s->c.update(s->c.update_arg, piece));
        TRY(store_params_updated(s, piece));
    }
    return ST_OK;
}

/* ---- the state ---- */

/* What is held of a part, and whether it is packed. */
static struct tensor held(const struct store *s, int part, bool *is_packed_out)
{
    ASSERTF(part >= 0 && part <= s->c.moments, "part %d", part);
    *is_packed_out = part == 0 ? s->params_packed : s->has_parts;
    return part > 0 ? s->moment[part - 1] : s->params;
}

struct tensor store_whole(const struct store *s, int part)
{
    bool is_packed = s->has_parts;
    struct tensor t = part < 0 ? s->grads : held(s, part, &is_packed), none = {0};
    return is_packed ? none : t;
}

enum status store_rest(struct store *s)
{
    for (int i = 0; i < s->layout.pieces_n; i++)
        TRY(store_params_wait(s, i));
    return dev_sync(s->c.stream); /* updates that were due */
}

/* Elements [first, end) of the table that this rank's part of a piece has of [*first, *end). */
static bool own_range(const struct layout_piece *l, int64_t *first, int64_t *end)
{
    int64_t own = l->first + l->own.first, own_end = own + l->own.elems;
    *first = *first > own ? *first : own;
    *end = *end < own_end ? *end : own_end;
    return *first < *end;
}

bool store_wants(const struct store *s, int part, int64_t first, int64_t n)
{
    bool is_packed;
    (void)held(s, part, &is_packed);
    for (int i = 0; is_packed && i < s->layout.pieces_n; i++) {
        int64_t from = first, end = first + n;
        if (own_range(&s->layout.piece[i], &from, &end))
            return true;
    }
    return !is_packed;
}

enum status store_keep(struct store *s, int part, int64_t first, int64_t n, const float *values)
{
    bool is_packed;
    struct tensor to = held(s, part, &is_packed);
    TRY(store_rest(s));
    if (part == 0)
        store_params_forget(s);
    if (!is_packed) {
        TRY(dev_copy(s->c.stream, tensor_at(to, first).data, values, (size_t)n * sizeof *values));
        return dev_sync(s->c.stream);
    }
    for (int i = 0; i < s->layout.pieces_n; i++) {
        const struct layout_piece *l = &s->layout.piece[i];
        int64_t from = first, end = first + n;
        if (own_range(l, &from, &end))
            TRY(dev_copy(s->c.stream,
                         tensor_at(to, l->packed + from - l->first - l->own.first).data,
                         values + from - first, (size_t)(end - from) * sizeof *values));
    }
    return dev_sync(s->c.stream);
}
