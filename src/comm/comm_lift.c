/* comm_lift — see comm_lift.h. Must not know what carries a call out. */
#include "comm/comm_lift.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/must.h"
#include "comm/order.h"

#define IDLE_SLEEP_US 50

struct comm_lift {
    struct dev *dev;
    bool to_device;
    struct stream *in, *out;  /* copies to this side, and back */
    char *slot[2], *extra[2]; /* pieces; extra: where a call's result cannot lie in its source */
    struct mark *marks[COMM_LIFT_MARKS];
    int marks_next;
};

/* A call cut in pieces: `parts` extents of the buffers, of which a piece has up to `each` elements
 * of each. */
struct cut {
    int parts;
    int64_t each, rounds;
};

/* ---- life ---- */

/* Zeroed once: what a short part leaves of a piece is summed with the rest, though nobody reads the
 * sums. */
static enum status take(struct comm_lift *l, char **out)
{
    void *data;
    if (l->to_device) {
        TRY(dev_alloc(l->dev, COMM_LIFT_BYTES, &data));
    } else {
        TRY(dev_pin(l->dev, COMM_LIFT_BYTES, &data));
        memset(data, 0, (size_t)COMM_LIFT_BYTES);
    }
    *out = data;
    return ST_OK;
}

static enum status take_all(struct comm_lift *l)
{
    TRY(dev_enter(l->dev));
    TRY(dev_stream_open(l->dev, &l->in));
    TRY(dev_stream_open(l->dev, &l->out));
    for (int i = 0; i < 2; i++) {
        TRY(take(l, &l->slot[i]));
        TRY(take(l, &l->extra[i]));
    }
    return ST_OK;
}

enum status comm_lift_open(struct dev *dev, bool to_device, struct comm_lift **out)
{
    struct comm_lift *l = calloc(1, sizeof *l);
    if (l == NULL)
        return FAIL(ST_RETRY, "out of memory: stages for communication");
    l->dev = dev;
    l->to_device = to_device;
    enum status st = take_all(l);
    if (st == ST_OK)
        *out = l;
    else
        comm_lift_close(l);
    return st;
}

void comm_lift_close(struct comm_lift *l)
{
    if (l == NULL)
        return;
    for (int i = 0; i < COMM_LIFT_MARKS; i++)
        dev_unmark(l->dev, l->marks[i]);
    dev_stream_close(l->in);
    dev_stream_close(l->out);
    for (int i = 0; i < 2; i++) {
        if (l->to_device) {
            dev_free(l->dev, l->slot[i], COMM_LIFT_BYTES);
            dev_free(l->dev, l->extra[i], COMM_LIFT_BYTES);
        } else {
            dev_unpin(l->dev, l->slot[i]);
            dev_unpin(l->dev, l->extra[i]);
        }
    }
    free(l);
}

enum status comm_lift_mark(struct comm_lift *l, struct stream *s, struct mark **out)
{
    struct mark **mark = &l->marks[l->marks_next];
    TRY(dev_mark(s, mark));
    l->marks_next = (l->marks_next + 1) % COMM_LIFT_MARKS;
    *out = *mark;
    return ST_OK;
}

/* ---- what of a call lies where ---- */

static bool is_pair(const struct comm_call *call)
{
    return call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV;
}

static bool is_spread(const struct comm_call *call)
{
    return call->kind == COMM_CALL_REDUCE_SCATTER || call->kind == COMM_CALL_ALL_GATHER ||
           call->kind == COMM_CALL_ALL_TO_ALL;
}

static struct order_extent extent_of(const struct comm_call *call, int ranks, int part)
{
    if (call->kind == COMM_CALL_ALL_TO_ALL)
        return (struct order_extent){.first = part * call->elems, .elems = call->elems};
    if (is_spread(call))
        return order_extent(call->elems, ranks, part);
    return (struct order_extent){.elems = call->elems};
}

static struct cut cut_of(const struct comm_call *call, int ranks)
{
    struct cut cut = {.parts = is_spread(call) ? ranks : 1};
    int64_t most = 0;
    cut.each =
        COMM_LIFT_BYTES / cut.parts / (int64_t)dtype_bytes(call->dtype) / ORDER_ALIGN * ORDER_ALIGN;
    ASSERTF(cut.each > 0, "%d parts in a piece", cut.parts);
    for (int part = 0; part < cut.parts; part++) {
        int64_t elems = extent_of(call, ranks, part).elems;
        most = elems > most ? elems : most;
    }
    cut.rounds = most / cut.each + (most % cut.each != 0);
    if (most < cut.each) /* one round, no longer than it must be */
        cut.each = (most + ORDER_ALIGN - 1) / ORDER_ALIGN * ORDER_ALIGN;
    return cut;
}

/* Does this rank's part of round j go in (or come out), and is it the only one in its buffer? */
static bool is_moved(const struct comm_wire *wire, const struct comm_call *call, int part,
                     bool is_in, bool *is_alone_out)
{
    int rank = wire->config.place.rank;
    *is_alone_out = call->kind == (is_in ? COMM_CALL_ALL_GATHER : COMM_CALL_REDUCE_SCATTER);
    if (*is_alone_out)
        return part == rank;
    switch (call->kind) {
    case COMM_CALL_BROADCAST:
        return is_in == (call->peer == rank);
    case COMM_CALL_SEND:
        return is_in;
    case COMM_CALL_RECV:
        return !is_in;
    default:
        return true;
    }
}

/* ---- a piece's way ---- */

/* Round j between the call's buffers and a slot. */
static enum status carry(struct comm_lift *l, const struct comm_wire *wire,
                         const struct comm_call *call, const struct cut *cut, int64_t j, char *slot,
                         bool is_in)
{
    const int64_t bytes = (int64_t)dtype_bytes(call->dtype), first = j * cut->each;
    for (int part = 0; part < cut->parts; part++) {
        struct order_extent extent = extent_of(call, wire->config.place.ranks, part);
        int64_t n = extent.elems - first < cut->each ? extent.elems - first : cut->each;
        bool is_alone;
        char *at = slot + part * cut->each * bytes;
        if (!is_moved(wire, call, part, is_in, &is_alone))
            continue;
        int64_t from = ((is_alone ? 0 : extent.first) + first) * bytes;
        if (n > 0 && is_in)
            TRY(dev_copy(l->in, at, (const char *)call->in + from, (size_t)(n * bytes)));
        if (n > 0 && !is_in)
            TRY(dev_copy(l->out, (char *)call->out + from, at, (size_t)(n * bytes)));
    }
    return ST_OK;
}

enum status comm_lift_await(const struct comm_wire *wire, struct stream *s)
{
    for (;;) {
        bool is_idle = false;
        TRY(dev_idle(s, &is_idle));
        if (is_idle)
            return dev_sync(s); /* what waits in pinned slots goes to its place */
        TRY(comm_ops_check(wire));
        if (wire->spins)
            comm_ops_pause();
        else
            clock_sleep_us(IDLE_SLEEP_US);
    }
}

/* The call of one piece, in slots: as in comm_ops.h, reduce_scatter's out and all_gather's in are
 * the part alone. */
static enum status move(struct comm_wire *wire, const struct comm_call *call, const struct cut *cut,
                        int64_t elems, char *slot, char *extra)
{
    const int64_t own = wire->config.place.rank * cut->each * (int64_t)dtype_bytes(call->dtype);
    struct comm_call piece = *call;
    piece.mark = NULL; /* the copies have waited for it */
    piece.elems = call->kind == COMM_CALL_ALL_TO_ALL ? cut->each
                  : is_spread(call)                  ? cut->parts * cut->each
                                                     : elems;
    piece.in = call->kind == COMM_CALL_ALL_GATHER ? slot + own
               : call->kind == COMM_CALL_RECV     ? NULL
                                                  : slot;
    piece.out = call->kind == COMM_CALL_REDUCE_SCATTER ? slot + own
                : call->kind == COMM_CALL_ALL_TO_ALL   ? extra
                : call->kind == COMM_CALL_SEND         ? NULL
                                                       : slot;
    wire->call = &piece;
    enum status st = comm_ops_work(wire, &piece);
    wire->call = call;
    return st;
}

static enum status run_pieces(struct comm_lift *l, struct comm_wire *wire,
                              const struct comm_call *call)
{
    const struct cut cut = cut_of(call, wire->config.place.ranks);
    /* and so does `out`: the host waits for `in` before any result goes there */
    TRY(dev_wait(l->in, call->mark));
    if (cut.rounds > 0)
        TRY(carry(l, wire, call, &cut, 0, l->slot[0], true));
    for (int64_t j = 0; j < cut.rounds; j++) {
        int64_t left = call->elems - j * cut.each;
        TRY(comm_lift_await(wire, l->in));
        /* the slot of round j+1 was j-1's: empty before it is filled again */
        TRY(dev_after(l->in, l->out));
        if (j + 1 < cut.rounds)
            TRY(carry(l, wire, call, &cut, j + 1, l->slot[(j + 1) % 2], true));
        TRY(move(wire, call, &cut, left < cut.each ? left : cut.each, l->slot[j % 2],
                 l->extra[j % 2]));
        TRY(carry(l, wire, call, &cut, j,
                  call->kind == COMM_CALL_ALL_TO_ALL ? l->extra[j % 2] : l->slot[j % 2], false));
    }
    return comm_lift_await(wire, l->out);
}

/* Do both buffers lie on the device? */
static bool is_on_device(const struct comm_lift *l, const struct comm_call *call)
{
    return (call->in == NULL || dev_holds(l->dev, call->in)) &&
           (call->out == NULL || dev_holds(l->dev, call->out));
}

/* Does it lie where the transport reaches? */
static bool is_reached(const struct comm_lift *l, const void *data)
{
    return data == NULL || dev_holds(l->dev, data) == l->to_device;
}

enum status comm_lift_run(struct comm_lift *l, struct comm_wire *wire, const struct comm_call *call)
{
    TRY(dev_enter(l->dev));
    bool is_near = is_reached(l, call->in) && is_reached(l, call->out);
    bool is_long = call->elems > COMM_LIFT_BYTES / (int64_t)dtype_bytes(call->dtype);
    /* also a barrier, and the making of a group */
    if (call->elems == 0 || (is_near && !(is_pair(call) && is_long)))
        return comm_ops_work(wire, call);
    if (wire->is_direct && !is_pair(call) && call->kind != COMM_CALL_ALL_TO_ALL &&
        is_on_device(l, call))
        return wire->ops->direct(wire, call);
    return run_pieces(l, wire, call);
}
