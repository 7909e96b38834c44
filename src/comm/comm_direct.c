/* comm_direct — see comm_direct.h. Must not know small calls, nor what fails how. */
#include "comm/comm_direct.h"

#include <stdlib.h>

#include "base/must.h"
#include "comm/comm_lift.h"

/* Of slots: pieces that a wire of 50 GB/s takes some ten microseconds for, where there are few
 * ranks. */
#define SLOTS_BYTES ((int64_t)64 << 20)
#define PIECE_MOST ((int64_t)4 << 20)
#define PIECE_LEAST ((int64_t)256 << 10)

_Static_assert(COMM_RANKS_MAX <= COMBINE_MOST, "the device adds what all ranks bring at once");

/* ---- life ---- */

static int64_t piece_bytes(int ranks)
{
    int64_t bytes = SLOTS_BYTES / FLOW_DEPTH / ranks / PIECE_LEAST * PIECE_LEAST;
    return bytes > PIECE_MOST ? PIECE_MOST : bytes < PIECE_LEAST ? PIECE_LEAST : bytes;
}

static enum status open_flow(struct comm_direct *d, struct flow *flow, struct ucx *ucx, int group,
                             const int *world, int n, int me)
{
    *flow = (struct flow){.ucx = ucx,
                          .group = group,
                          .world = world,
                          .n = n,
                          .me = me,
                          .nodes = n,
                          .locals = 1,
                          .dev = d->dev,
                          .stream = d->stream};
    return flow_open(flow, piece_bytes(n));
}

enum status comm_direct_open(struct comm_direct *d, const struct comm_wire *wire, struct ucx *ucx,
                             int group, const int *world)
{
    const struct comm_place *place = &wire->config.place;
    *d = (struct comm_direct){.dev = wire->config.dev,
                              .nodes = place->nodes,
                              .node = place->node,
                              .locals = place->locals,
                              .local = place->local};
    d->line_world = calloc((size_t)place->nodes, sizeof(*d->line_world));
    d->inside_world = calloc((size_t)place->locals, sizeof(*d->inside_world));
    d->parts = calloc((size_t)place->ranks, sizeof(*d->parts));
    d->row_parts = calloc((size_t)place->nodes, sizeof(*d->row_parts));
    if (d->line_world == NULL || d->inside_world == NULL || d->parts == NULL ||
        d->row_parts == NULL)
        return FAIL(ST_RETRY, "out of memory: a group of %d ranks", place->ranks);
    for (int v = 0; v < d->nodes; v++)
        d->line_world[v] = world[v * d->locals + d->local];
    for (int l = 0; l < d->locals; l++)
        d->inside_world[l] = world[d->node * d->locals + l];
    TRY(dev_enter(d->dev));
    TRY(dev_stream_open(d->dev, &d->stream));
    TRY(open_flow(d, &d->line, ucx, group, d->line_world, d->nodes, d->node));
    return d->locals > 1
               ? open_flow(d, &d->inside, ucx, group, d->inside_world, d->locals, d->local)
               : ST_OK;
}

void comm_direct_close(struct comm_direct *d)
{
    dev_stream_close(d->stream); /* first: it may be adding */
    flow_free(&d->line);
    flow_free(&d->inside);
    if (d->row != NULL)
        dev_free(d->dev, d->row, (size_t)d->row_bytes);
    free(d->line_world);
    free(d->inside_world);
    free(d->parts);
    free(d->row_parts);
    *d = (struct comm_direct){0};
}

/* ---- what lies where ---- */

static int me(const struct comm_direct *d) { return d->node * d->locals + d->local; }

/* The ranks' parts of the buffer, and this worker's row: its own and those of its number on the
 * other nodes. */
static enum status deal(struct comm_direct *d, const struct comm_call *call)
{
    const int64_t each = (int64_t)dtype_bytes(call->dtype) +
                         (call->dtype == DTYPE_BF16 ? (int64_t)sizeof(float) : 0);
    for (int r = 0; r < d->nodes * d->locals; r++)
        d->parts[r] = order_extent(call->elems, d->nodes * d->locals, r);
    d->row_elems = order_row(call->elems, d->nodes, d->locals, d->local, d->row_parts);
    if (d->locals == 1 || d->row_elems * each <= d->row_bytes)
        return ST_OK;
    if (d->row != NULL)
        dev_free(d->dev, d->row, (size_t)d->row_bytes);
    d->row = NULL;
    d->row_bytes = 0;
    void *row;
    TRY(dev_alloc(d->dev, (size_t)(d->row_elems * each), &row));
    d->row = row;
    d->row_bytes = d->row_elems * each;
    return ST_OK;
}

/* Part `r` of the buffer, from where it came to be. */
static enum status put(struct comm_direct *d, const struct comm_call *call, int r, const void *from)
{
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    char *to = (char *)call->out + d->parts[r].first * each;
    size_t bytes = (size_t)(d->parts[r].elems * each);
    return to == from || bytes == 0 ? ST_OK : dev_copy(d->stream, to, from, bytes);
}

enum status comm_direct_begin(struct comm_direct *d, const struct comm_wire *wire,
                              const struct comm_call *call)
{
    TRY(deal(d, call));
    TRY(dev_wait(d->stream, call->mark));
    return comm_lift_await(wire, d->stream);
}

enum status comm_direct_end(struct comm_direct *d, const struct comm_wire *wire)
{
    return comm_lift_await(wire, d->stream);
}

/* ---- inside the nodes, between them, inside again ---- */

/* Each worker gets its node's sums of its row; in fp32 where the call's are BF16. */
static enum status reduce_inside(struct comm_direct *d, const struct comm_call *call,
                                 struct flow_call flow, struct ucx_wait *wait)
{
    flow.in = call->in;
    flow.dtype = call->dtype;
    flow.dtype_out = call->dtype == DTYPE_BF16 ? DTYPE_F32 : call->dtype;
    for (int v = 0; v < d->nodes; v++) {
        flow.parts = d->parts + v * d->locals;
        flow.own_out = d->row + d->row_parts[v].first * (int64_t)dtype_bytes(flow.dtype_out);
        TRY(flow_run(&d->inside, &flow, wait));
    }
    return ST_OK;
}

/* Finished rows come together in `out`: from `row`, but this rank's own part from `own`. */
static enum status gather_inside(struct comm_direct *d, const struct comm_call *call,
                                 struct flow_call flow, char *row, char *own, struct ucx_wait *wait)
{
    flow.out = call->out;
    flow.dtype = flow.dtype_out = call->dtype;
    for (int v = 0; v < d->nodes; v++) {
        flow.parts = d->parts + v * d->locals;
        flow.own_out =
            v == d->node ? own : row + d->row_parts[v].first * (int64_t)dtype_bytes(call->dtype);
        TRY(put(d, call, v * d->locals + d->local, flow.own_out));
        TRY(flow_run(&d->inside, &flow, wait));
    }
    return ST_OK;
}

/* The sums: of one worker a node straight from the buffer, of several from the row. out NULL: this
 * rank's part goes to own_out alone. */
static enum status reduce_between(struct comm_direct *d, const struct comm_call *call,
                                  struct flow_call flow, char *out, char *own_out,
                                  struct ucx_wait *wait)
{
    bool is_row = d->locals > 1;
    flow.in = is_row ? d->row : call->in;
    flow.parts = is_row ? d->row_parts : d->parts;
    flow.dtype = is_row && call->dtype == DTYPE_BF16 ? DTYPE_F32 : call->dtype;
    flow.dtype_out = call->dtype;
    flow.out = out;
    flow.own_out = own_out;
    return flow_run(&d->line, &flow, wait);
}

static enum status all_reduce(struct comm_direct *d, const struct comm_call *call,
                              struct flow_call flow, struct ucx_wait *wait)
{
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    char *out = call->out;
    if (d->locals == 1)
        return reduce_between(d, call, flow, out, out + d->parts[me(d)].first * each, wait);
    TRY(reduce_inside(d, call, flow, wait));
    char *row = call->dtype == DTYPE_BF16 ? d->row + d->row_elems * (int64_t)sizeof(float) : d->row;
    char *own = row + d->row_parts[d->node].first * each;
    TRY(reduce_between(d, call, flow, row, own, wait));
    return gather_inside(d, call, flow, row, own, wait);
}

static enum status reduce_scatter(struct comm_direct *d, const struct comm_call *call,
                                  struct flow_call flow, struct ucx_wait *wait)
{
    if (d->locals > 1)
        TRY(reduce_inside(d, call, flow, wait));
    return reduce_between(d, call, flow, NULL, call->out, wait);
}

static enum status all_gather(struct comm_direct *d, const struct comm_call *call,
                              struct flow_call flow, struct ucx_wait *wait)
{
    char *own = (char *)(uintptr_t)call->in;
    flow.dtype = flow.dtype_out = call->dtype;
    flow.out = d->locals > 1 ? d->row : call->out;
    flow.own_out = own;
    flow.parts = d->locals > 1 ? d->row_parts : d->parts;
    if (d->locals == 1)
        TRY(put(d, call, me(d), own));
    TRY(flow_run(&d->line, &flow, wait));
    return d->locals > 1 ? gather_inside(d, call, flow, d->row, own, wait) : ST_OK;
}

static enum status broadcast(struct comm_direct *d, const struct comm_call *call,
                             struct flow_call flow, struct ucx_wait *wait)
{
    const int64_t bytes = comm_ops_bytes(call);
    flow.out = call->out;
    if (d->local == call->peer % d->locals)
        TRY(flow_chain(&d->line, &flow, bytes, call->peer / d->locals, wait));
    return d->locals > 1 ? flow_chain(&d->inside, &flow, bytes, call->peer % d->locals, wait)
                         : ST_OK;
}

enum status comm_direct_run(struct comm_direct *d, const struct comm_call *call,
                            enum status (*turn)(void *arg), void *arg, struct ucx_wait *wait)
{
    struct flow_call flow = {.sequence = call->sequence, .turn = turn, .arg = arg};
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
        return all_reduce(d, call, flow, wait);
    case COMM_CALL_REDUCE_SCATTER:
        return reduce_scatter(d, call, flow, wait);
    case COMM_CALL_ALL_GATHER:
        return all_gather(d, call, flow, wait);
    case COMM_CALL_BROADCAST:
        return broadcast(d, call, flow, wait);
    default:
        break;
    }
    ASSERTF(false, "call %d", (int)call->kind);
    return ST_BUG;
}
