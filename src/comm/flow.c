/* flow — the streams of a large call and the one loop that moves them. Must not know which call it
 * is. */
#include "comm/flow.h"

#include <stdlib.h>
#include <string.h>

#include "comm/add.h"
#include "comm/comm_ops.h"
#include "comm/order.h"

#define LEAST_BYTES (32 << 10) /* of a piece: two of half the size cost more time than they win */

/* Messages of one kind with one peer: [done, posted) are under way. */
struct flow_stream {
    int64_t posted, done;
    struct ucx_op ops[FLOW_DEPTH];
};

struct flow_peer {
    struct flow_stream give, take;   /* contributions: to its part, to mine */
    struct flow_stream tell, listen; /* finished pieces: of my part, of its part */
};

/* One call under way. */
struct flow_run {
    struct flow *flow;
    const struct flow_call *call;
    int64_t each, each_out; /* bytes of an element on its way to be added, and finished */
    int64_t piece_elems;
    bool gives, tells;      /* which streams there are */
    bool is_windowed;       /* a piece waits for the return of the one FLOW_DEPTH before it */
    enum ucx_lane receipts; /* its pieces only say so, and are empty; CALL: none is such */
    struct order_extent mine;
    int64_t added;  /* pieces of my part that are finished */
    bool is_adding; /* a device is at the next one */
};

enum status flow_open(struct flow *flow, int64_t piece_bytes)
{
    flow->piece_bytes = piece_bytes;
    flow->peers = calloc((size_t)flow->n, sizeof(*flow->peers));
    flow->sources = calloc((size_t)flow->n, sizeof(*flow->sources));
    if (flow->peers == NULL || flow->sources == NULL)
        return FAIL(ST_RETRY, "out of memory: streams to %d ranks", flow->n);
    int64_t bytes = piece_bytes * FLOW_DEPTH * flow->n;
    void *slots;
    TRY(flow->dev != NULL ? dev_alloc(flow->dev, (size_t)bytes, &slots)
                          : comm_ops_reserve(bytes, &slots));
    flow->slots = slots;
    flow->slots_bytes = bytes;
    return ST_OK;
}

void flow_free(struct flow *flow)
{
    if (flow->dev == NULL)
        comm_ops_unmap(flow->slots, flow->slots_bytes);
    else if (flow->slots != NULL)
        dev_free(flow->dev, flow->slots, (size_t)flow->slots_bytes);
    free(flow->peers);
    free(flow->sources);
    flow->slots = NULL;
    flow->peers = NULL;
    flow->sources = NULL;
}

static int64_t count_pieces(const struct flow_run *run, struct order_extent part)
{
    return (part.elems + run->piece_elems - 1) / run->piece_elems;
}

static struct order_extent piece_of(const struct flow_run *run, struct order_extent part,
                                    int64_t piece_i)
{
    int64_t first = piece_i * run->piece_elems, left = part.elems - first;
    return (struct order_extent){.first = part.first + first,
                                 .elems = left < run->piece_elems ? left : run->piece_elems};
}

static char *slot_of(const struct flow *flow, int64_t piece_i, int r)
{
    return flow->slots + ((piece_i % FLOW_DEPTH) * flow->n + r) * flow->piece_bytes;
}

static bool has_room(const struct flow_stream *s) { return s->posted - s->done < FLOW_DEPTH; }

static void retire(struct flow_stream *s)
{
    while (s->done < s->posted && ucx_is_done(&s->ops[s->done % FLOW_DEPTH]))
        s->done++;
}

static int64_t bytes_of(const struct flow_run *run, int64_t elems, enum ucx_lane lane)
{
    if (lane == run->receipts)
        return 0;
    return elems * (lane == UCX_LANE_DONE ? run->each_out : run->each);
}

/* The message after those posted. An empty one lies nowhere. */
static struct ucx_op *next_op(const struct flow_run *run, struct flow_stream *s, int64_t bytes)
{
    struct ucx_op *op = &s->ops[s->posted++ % FLOW_DEPTH];
    op->is_gpu = run->flow->dev != NULL && bytes > 0;
    return op;
}

static enum status send_piece(struct flow_run *run, struct flow_stream *s, const char *data,
                              int64_t elems, int r, enum ucx_lane lane)
{
    int64_t bytes = bytes_of(run, elems, lane);
    struct flow *flow = run->flow;
    struct ucx_tag tag = {.group = flow->group, .lane = lane, .sequence = run->call->sequence};
    flow->bytes_sent += bytes;
    return ucx_send(flow->ucx, next_op(run, s, bytes), data, bytes, flow->world[r], tag);
}

static enum status recv_piece(struct flow_run *run, struct flow_stream *s, char *data,
                              int64_t elems, int r, enum ucx_lane lane)
{
    struct flow *flow = run->flow;
    struct ucx_tag tag = {.group = flow->group,
                          .from = flow->world[r],
                          .lane = lane,
                          .sequence = run->call->sequence};
    int64_t bytes = bytes_of(run, elems, lane);
    return ucx_recv(flow->ucx, next_op(run, s, bytes), data, bytes, tag);
}

/* Pieces of a stream that may be under way: few, and FLOW_DEPTH more than have come back of the
 * other. */
static bool may_go(const struct flow_run *run, const struct flow_stream *s, int64_t n, int64_t back)
{
    return s->posted < n && has_room(s) && (!run->is_windowed || s->posted < back + FLOW_DEPTH);
}

/* Receives first: a message that is expected is not copied. */
static enum status post_receives(struct flow_run *run, int r)
{
    struct flow *flow = run->flow;
    struct flow_peer *peer = &flow->peers[r];
    struct order_extent theirs = run->call->parts[r], piece;
    int64_t mine_n = count_pieces(run, run->mine), theirs_n = count_pieces(run, theirs);
    /* slots, by the pieces that have left them */
    int64_t free_n = run->call->in != NULL ? run->added : peer->take.done;
    while (run->gives && peer->take.posted < mine_n && peer->take.posted < free_n + FLOW_DEPTH) {
        piece = piece_of(run, run->mine, peer->take.posted);
        TRY(recv_piece(run, &peer->take, slot_of(flow, peer->take.posted, r), piece.elems, r,
                       UCX_LANE_DATA));
    }
    while (run->tells && peer->listen.posted < theirs_n && has_room(&peer->listen)) {
        piece = piece_of(run, theirs, peer->listen.posted);
        char *to =
            run->call->out != NULL ? run->call->out + piece.first * run->each_out : flow->slots;
        TRY(recv_piece(run, &peer->listen, to, piece.elems, r, UCX_LANE_DONE));
    }
    return ST_OK;
}

/* Begin what may be begun with rank r. */
static enum status post(struct flow_run *run, int r)
{
    const struct flow_call *call = run->call;
    struct flow_peer *peer = &run->flow->peers[r];
    struct order_extent theirs = call->parts[r], piece;
    int64_t theirs_n = count_pieces(run, theirs);
    TRY(post_receives(run, r));
    while (run->tells &&
           may_go(run, &peer->tell, run->added, call->in != NULL ? run->added : peer->take.done)) {
        piece = piece_of(run, run->mine, peer->tell.posted);
        TRY(send_piece(run, &peer->tell,
                       call->own_out + (piece.first - run->mine.first) * run->each_out, piece.elems,
                       r, UCX_LANE_DONE));
    }
    while (run->gives && may_go(run, &peer->give, call->in != NULL ? theirs_n : peer->listen.done,
                                peer->listen.done)) {
        piece = piece_of(run, theirs, peer->give.posted);
        const char *from = call->in != NULL ? call->in + piece.first * run->each : run->flow->slots;
        TRY(send_piece(run, &peer->give, from, piece.elems, r, UCX_LANE_DATA));
    }
    return ST_OK;
}

static bool may_add(const struct flow_run *run)
{
    const struct flow *flow = run->flow;
    for (int r = 0; r < flow->n; r++) {
        const struct flow_peer *peer = &flow->peers[r];
        if (r != flow->me && (peer->take.done <= run->added ||
                              (run->call->is_whole && peer->give.done <= run->added)))
            return false;
    }
    return true;
}

/* By the device, while pieces move. It tells nobody when it has done it, so it is asked, and only
 * one piece is with it at a time: adding is tens of times as fast as any wire. */
static enum status add_on_device(struct flow_run *run)
{
    struct flow *flow = run->flow;
    const struct flow_call *call = run->call;
    struct order_extent piece = piece_of(run, run->mine, run->added);
    bool is_idle = false;
    if (run->is_adding) {
        TRY(dev_idle(flow->stream, &is_idle));
        run->is_adding = !is_idle;
        run->added += is_idle;
        return ST_OK;
    }
    if (!may_add(run))
        return ST_OK;
    run->is_adding = true;
    return dev_op(flow->dev)->combine(
        flow->stream,
        &(struct combine){
            .out = {call->own_out + (piece.first - run->mine.first) * run->each_out,
                    call->dtype_out},
            .in = {slot_of(flow, run->added, 0), call->dtype},
            .own = {(void *)(uintptr_t)(call->in + piece.first * run->each), call->dtype},
            .elems = piece.elems,
            .stride = flow->piece_bytes / run->each,
            .sources_n = flow->n,
            .own_i = flow->me});
}

/* All contributions to the next piece are there: add them up. */
static void add_next(struct flow_run *run)
{
    struct flow *flow = run->flow;
    if (!may_add(run))
        return;
    struct order_extent piece = piece_of(run, run->mine, run->added);
    for (int r = 0; r < flow->n; r++)
        flow->sources[r] =
            r == flow->me ? run->call->in + piece.first * run->each : slot_of(flow, run->added, r);
    void *out = run->call->own_out + (piece.first - run->mine.first) * run->each_out;
    struct add add = {.in = flow->sources,
                      .out = &out,
                      .nodes = flow->nodes,
                      .locals = flow->locals,
                      .outs_n = 1,
                      .dtype_in = run->call->dtype,
                      .dtype_out = run->call->dtype_out,
                      .elems = piece.elems};
    add_run(&add);
    run->added++;
}

/* Everything that is to come from and go to rank r has done so. */
static bool is_finished(const struct flow_run *run, int r)
{
    const struct flow_peer *peer = &run->flow->peers[r];
    int64_t mine_n = count_pieces(run, run->mine);
    int64_t theirs_n = count_pieces(run, run->call->parts[r]);
    if (run->gives &&
        (peer->give.done < theirs_n || (run->call->in == NULL && peer->take.done < mine_n)))
        return false;
    return !run->tells || (peer->tell.done == mine_n && peer->listen.done == theirs_n);
}

static enum status turn(struct flow_run *run, bool *is_done)
{
    struct flow *flow = run->flow;
    *is_done = true;
    for (int i = 1; i < flow->n; i++) {
        int r = (flow->me + i) % flow->n;
        struct flow_peer *peer = &flow->peers[r];
        retire(&peer->give);
        retire(&peer->take);
        retire(&peer->tell);
        retire(&peer->listen);
        TRY(post(run, r));
        *is_done = *is_done && is_finished(run, r);
    }
    if (run->added < count_pieces(run, run->mine)) {
        if (flow->dev != NULL)
            TRY(add_on_device(run));
        else
            add_next(run);
        *is_done = false;
    }
    return run->call->turn(run->call->arg);
}

/* Pieces that fill a slot, or smaller ones when the parts are: a part should be two pieces, that
 * adding and moving overlap; more of them cost more than they win. */
static int64_t choose_piece(const struct flow *flow, int64_t part_elems, int64_t each)
{
    int64_t most = flow->piece_bytes / each, wanted = part_elems / 2, least = LEAST_BYTES / each;
    wanted = wanted > least ? wanted : least;
    wanted = wanted < most ? wanted : most;
    /* of which `most` is a multiple */
    return (wanted + ORDER_ALIGN - 1) / ORDER_ALIGN * ORDER_ALIGN;
}

/* What the call is cut into, by the largest part, which is the same on all ranks. */
static void plan(struct flow_run *run)
{
    const struct flow_call *call = run->call;
    int64_t most = 0;
    for (int r = 0; r < run->flow->n; r++)
        most = call->parts[r].elems > most ? call->parts[r].elems : most;
    run->piece_elems = choose_piece(run->flow, most, run->each);
    run->is_windowed =
        run->flow->dev == NULL && !call->is_whole && most > run->piece_elems * FLOW_DEPTH;
    run->gives = call->in != NULL || run->is_windowed;
    run->tells = call->out != NULL || run->is_windowed;
    run->receipts = call->in == NULL    ? UCX_LANE_DATA
                    : call->out == NULL ? UCX_LANE_DONE
                                        : UCX_LANE_CALL;
    run->added = call->in != NULL ? 0 : count_pieces(run, run->mine);
}

enum status flow_run(struct flow *flow, const struct flow_call *call, struct ucx_wait *wait)
{
    struct flow_run run = {.flow = flow,
                           .call = call,
                           .each = (int64_t)dtype_bytes(call->dtype),
                           .each_out = (int64_t)dtype_bytes(call->dtype_out),
                           .mine = call->parts[flow->me]};
    plan(&run);
    memset(flow->peers, 0, sizeof(*flow->peers) * (size_t)flow->n);
    bool is_done = false;
    for (;;) {
        int64_t added = run.added;
        TRY(turn(&run, &is_done));
        if (is_done)
            return ST_OK;
        /* to send that piece, which no news would wake us for */
        wait->is_awake = run.is_adding || run.added > added;
        TRY(ucx_pump(flow->ucx, wait));
        wait->is_awake = false;
    }
}

enum status flow_swap(struct flow *flow, const struct flow_call *call, int64_t elems,
                      struct ucx_wait *wait)
{
    struct flow_run run = {.flow = flow, .call = call, .each = (int64_t)dtype_bytes(call->dtype)};
    int64_t bytes = elems * run.each;
    memset(flow->peers, 0, sizeof(*flow->peers) * (size_t)flow->n);
    for (int i = 1; i < flow->n; i++) {
        int to = (flow->me + i) % flow->n, from = (flow->me - i + flow->n) % flow->n;
        TRY(recv_piece(&run, &flow->peers[from].take, call->out + from * bytes, elems, from,
                       UCX_LANE_DATA));
        TRY(send_piece(&run, &flow->peers[to].give, call->in + to * bytes, elems, to,
                       UCX_LANE_DATA));
    }
    for (int r = 0; r < flow->n; r++) {
        while (!ucx_is_done(&flow->peers[r].take.ops[0]) ||
               !ucx_is_done(&flow->peers[r].give.ops[0])) {
            TRY(call->turn(call->arg));
            TRY(ucx_pump(flow->ucx, wait));
        }
    }
    return ST_OK;
}

/* Pieces go from rank to rank: a rank passes a piece on while the next one comes. They are so large
 * that UCX asks for each, since nothing comes back. */
enum status flow_chain(struct flow *flow, const struct flow_call *call, int64_t bytes, int root,
                       struct ucx_wait *wait)
{
    struct flow_run run = {
        .flow = flow, .call = call, .each = 1, .each_out = 1, .piece_elems = 2 * flow->piece_bytes};
    int at = (flow->me - root + flow->n) % flow->n, prev = (flow->me - 1 + flow->n) % flow->n;
    int next = (flow->me + 1) % flow->n;
    bool is_last = at == flow->n - 1;
    struct order_extent all = {.elems = bytes};
    int64_t pieces_n = count_pieces(&run, all);
    struct flow_stream *from = &flow->peers[prev].listen, *to = &flow->peers[next].tell;
    memset(flow->peers, 0, sizeof(*flow->peers) * (size_t)flow->n);
    if (at == 0)
        from->done = from->posted = pieces_n;
    if (is_last)
        to->done = to->posted = pieces_n;
    while (from->done < pieces_n || to->done < pieces_n) {
        retire(from);
        retire(to);
        while (from->posted < pieces_n && has_room(from)) {
            struct order_extent piece = piece_of(&run, all, from->posted);
            TRY(recv_piece(&run, from, call->out + piece.first, piece.elems, prev, UCX_LANE_DATA));
        }
        while (to->posted < from->done && has_room(to)) {
            struct order_extent piece = piece_of(&run, all, to->posted);
            TRY(send_piece(&run, to, call->out + piece.first, piece.elems, next, UCX_LANE_DATA));
        }
        TRY(call->turn(call->arg));
        TRY(ucx_pump(flow->ucx, wait));
    }
    return ST_OK;
}
