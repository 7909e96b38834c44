/* comm_ucx — ranks in processes of their own, on any nodes, over UCX or TCP (ucx.h).
 *
 * Every call begins with a meeting: each rank sends all others what call it is in, with the content
 * when that is small, so that a difference is found at once, everybody knows who has not come, and
 * a small call is over after one message each way: all ranks add up all contributions, in the order
 * of order.h, to the same bits. Large calls go on
 * in pieces (flow.h).
 *
 * A rank whose call fails takes its leave of the others, so that they look for the one that did not
 * come rather than blame it. Must not know what is summed for whom. */
#include <stdlib.h>
#include <string.h>

#include "base/must.h"
#include "base/text.h"
#include "comm/add.h"
#include "comm/comm_queue.h"
#include "comm/comm_ucx_inside.h"
#include "comm/comm_ucx_size.h"
#include "comm/order.h"

#define NAP_BYTES (4 << 20) /* a call that takes milliseconds on any wire between nodes */

_Static_assert(COMM_RANKS_MAX <= UCX_RANKS_MAX, "ranks of a comm are told apart by their tags");
_Static_assert((int)COMM_NET_AUTO == (int)UCX_NET_AUTO && (int)COMM_NET_TCP == (int)UCX_NET_TCP &&
                   (int)COMM_NET_UCX == (int)UCX_NET_UCX && COMM_SECRET_BYTES == UCX_SECRET_BYTES,
               "one choice under two names");

/* Who has come meanwhile? */
static enum status look_around(void *arg)
{
    struct comm_wire *wire = arg;
    struct comm_ucx *state = wire->state;
    for (int r = 0; r < state->n; r++)
        TRY(meeting_look(&state->meeting, wire, r));
    return ST_OK;
}

static enum status ask(void *arg)
{
    struct comm_wire *wire = arg;
    struct comm_ucx *state = wire->state;
    enum status st = comm_ops_check(wire);
    state->was_asked = st != ST_OK;
    return st;
}

struct ucx_wait comm_ucx_wait(struct comm_wire *wire)
{
    return (struct ucx_wait){
        .watch = {.check = ask, .arg = wire, .spins = wire->spins, .rests = wire->rests}};
}

static bool nap(void *arg, int64_t ns)
{
    return comm_queue_nap(((struct comm_wire *)arg)->queue, ns);
}

/* Of a call that moves so many bytes: where they are many nobody but a waiting caller minds when
 * they come. */
static struct ucx_wait wait_of_large(struct comm_wire *wire, int64_t bytes)
{
    struct ucx_wait wait = comm_ucx_wait(wire);
    wait.watch.nap = wire->queue != NULL && bytes >= NAP_BYTES ? nap : NULL;
    return wait;
}

/* Sources of a sum: what each brought, `own` for this rank. */
static void gather_sources(struct comm_ucx *state, const void *own)
{
    for (int r = 0; r < state->n; r++)
        state->sources[r] = r == state->me ? own : meeting_came(&state->meeting, r);
}

static void add_sources(struct comm_ucx *state, const struct comm_wire *wire, enum dtype dtype,
                        void *out, int64_t elems)
{
    struct add add = {.in = state->sources,
                      .out = &out,
                      .nodes = wire->config.place.nodes,
                      .locals = wire->config.place.locals,
                      .outs_n = 1,
                      .dtype_in = dtype,
                      .dtype_out = dtype,
                      .elems = elems};
    if (elems > 0)
        add_run(&add);
}

/* ---- failures ---- */

/* A member that has not come and is not that rank of the root; -1: none is known. */
static int find_missing(const struct comm_wire *wire, int but)
{
    const struct comm_ucx *state = wire->state;
    for (int r = 0; r < state->n; r++) {
        if (r != state->me && state->world[r] != but && wire->ops->entered(wire, r) == 0)
            return r;
    }
    return -1;
}

/* The wire has failed under this call: who is to blame? */
static enum status explain(struct comm_wire *wire, enum status st)
{
    const struct comm_ucx *state = wire->state;
    struct ucx_loss loss = {.rank = -1};
    int member = -1;
    bool is_lost = ucx_lost(state->root->ucx, &loss);
    for (int r = 0; r < state->n; r++)
        member = state->world[r] == loss.rank ? r : member;
    if (st != ST_PEER || state->was_asked || !is_lost || member < 0)
        return st;
    if (!loss.has_left && find_missing(wire, loss.rank) < 0)
        return st;
    st = comm_ops_give_up(wire, member);
    if (!loss.has_left)
        return FAIL(ST_PEER, "rank %d was lost: its connection ended (%s: %s); %s", loss.rank,
                    loss.label, loss.text, status_message());
    return loss.blamed < 0
               ? st
               : FAIL(ST_PEER, "%s, for rank %d was lost", status_message(), loss.blamed);
}

enum status comm_ucx_finish(struct comm_wire *wire, enum status st)
{
    struct comm_ucx *state = wire->state;
    int64_t *counts[] = {&state->flow.bytes_sent, &state->rows.line.bytes_sent,
                         &state->meeting.bytes_sent, &state->direct.line.bytes_sent,
                         &state->direct.inside.bytes_sent};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        atomic_fetch_add_explicit(&wire->bytes_sent, *counts[i], memory_order_relaxed);
        *counts[i] = 0;
    }
    if (st == ST_OK)
        return ST_OK;
    st = explain(wire, st);
    ucx_break(state->root->ucx);
    return st;
}

static int entered(const struct comm_wire *wire, int rank)
{
    const struct comm_ucx *state = wire->state;
    if (state->meeting.call != wire->call || state->meeting.guests == NULL ||
        wire->call->kind == COMM_CALL_SEND)
        return -1;
    return state->meeting.guests[rank].has_come;
}

/* ---- life ---- */

static void state_free(struct comm_ucx *state)
{
    comm_direct_close(&state->direct);
    comm_rows_free(&state->rows);
    flow_free(&state->flow);
    free(state->world);
    meeting_free(&state->meeting);
    free(state->sources);
    free(state->parts);
    if (state->owns_root) {
        ucx_close(state->root->ucx);
        free(state->root);
    }
    free(state);
}

/* The members and their memory. */
static enum status seat_members(struct comm_ucx *state, const struct comm_wire *wire, int group)
{
    const struct comm_place *place = &wire->config.place;
    const struct comm_ucx_size *size = comm_ucx_size(place->ranks);
    int n = place->ranks;
    state->n = n;
    state->me = place->rank;
    state->small = size->small;
    state->whole = size->whole;
    state->world = calloc((size_t)n, sizeof(*state->world));
    state->sources = calloc((size_t)n, sizeof(*state->sources));
    state->parts = calloc((size_t)n, sizeof(*state->parts));
    if (state->world == NULL || state->sources == NULL || state->parts == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm of %d ranks", n);
    for (int r = 0; r < n; r++)
        state->world[r] = comm_ops_rank(wire, r);
    state->meeting = (struct meeting){.ucx = state->root->ucx,
                                      .group = group,
                                      .n = n,
                                      .me = state->me,
                                      .world = state->world,
                                      .small = state->small};
    TRY(meeting_open(&state->meeting));
    state->flow = (struct flow){.ucx = state->root->ucx,
                                .group = group,
                                .world = state->world,
                                .n = n,
                                .me = state->me,
                                .nodes = place->nodes,
                                .locals = place->locals};
    return flow_open(&state->flow, size->piece);
}

/* What goes on inside the node, and what between the workers of equal number. Takes share. */
static enum status open_rows(struct comm_ucx *state, const struct comm_wire *wire,
                             struct comm_share *share)
{
    return comm_rows_open(&state->rows, share, &wire->config.place, state->root->ucx,
                          state->meeting.group, state->world, state->flow.piece_bytes);
}

static enum status new_state(struct comm_wire *wire)
{
    struct comm_ucx *state = calloc(1, sizeof(*state));
    if (state == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm over UCX");
    wire->state = state;
    return ST_OK;
}

/* A GPU's memory may be given to UCX on all ranks, or is on none. */
static bool offers_gpu(const struct comm_wire *wire)
{
    const struct comm_ucx *state = wire->state;
    return dev_is_apart(wire->config.dev) && ucx_reaches_gpu(state->root->ucx);
}

static enum status open_direct(struct comm_ucx *state, struct comm_wire *wire)
{
    wire->is_direct = true;
    return comm_direct_open(&state->direct, wire, state->root->ucx, state->meeting.group,
                            state->world);
}

static enum status begin_open(struct comm_wire *wire, void *address, int64_t *address_bytes)
{
    TRY(new_state(wire));
    struct comm_ucx *state = wire->state;
    state->root = calloc(1, sizeof(*state->root));
    if (state->root == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm over UCX");
    state->owns_root = true;
    state->root->group_next = 1;
    const struct comm_config *c = &wire->config;
    const struct ucx_config config = {.net = (enum ucx_net)c->net,
                                      .at_once = comm_ucx_size(c->place.ranks)->piece +
                                                 COMM_UCX_AT_ONCE_MORE,
                                      .data_addr = c->data_addr,
                                      .master = c->master};
    TRY(ucx_open(&config, &state->root->ucx));
    bool is_near = wire->config.place.locals > 1 && offers_gpu(wire);
    TRY(ucx_address(state->root->ucx, is_near, address, COMM_ADDRESS_MAX, address_bytes));
    TRY(seat_members(state, wire, 0));
    if (wire->config.place.locals == 1)
        return ST_OK;
    struct comm_share *share;
    TRY(comm_share_open(wire, &share));
    return open_rows(state, wire, share);
}

/* Behind what has been said of GPUs. */
static void add_why(struct comm_wire *wire, const char *why)
{
    size_t n = strlen(wire->why);
    if (why[0] != 0)
        text_format(wire->why + n, sizeof(wire->why) - n, "%s%s", n > 0 ? "; " : "", why);
}

static enum status end_open(struct comm_wire *wire, const void *addresses, const int64_t *bytes)
{
    struct comm_ucx *state = wire->state;
    bool *is_peer = malloc((size_t)state->n * sizeof(*is_peer));
    if (is_peer == NULL)
        return FAIL(ST_RETRY, "out of memory: %d ranks", state->n);
    for (int r = 0; r < state->n; r++)
        is_peer[r] = r != state->me;
    struct ucx_world world = {.generation = wire->config.generation,
                              .rank = state->me,
                              .ranks = state->n,
                              .is_peer = is_peer,
                              .addresses = addresses,
                              .stride = COMM_ADDRESS_MAX,
                              .bytes = bytes,
                              .secret = wire->config.secret,
                              .offers_gpu = offers_gpu(wire)};
    enum status st = ucx_connect(state->root->ucx, &world, comm_ucx_wait(wire).watch);
    free(is_peer);
    if (st == ST_OK && state->rows.share != NULL)
        st = comm_share_join(state->rows.share);
    text_copy(state->root->name, sizeof(state->root->name), ucx_name(state->root->ucx));
    add_why(wire, ucx_why(state->root->ucx));
    if (st == ST_OK && ucx_without_gpu(state->root->ucx) < 0)
        st = open_direct(state, wire);
    if (st == ST_OK && state->me == 0 && dev_is_apart(wire->config.dev))
        ucx_tell_gpu(state->root->ucx);
    return comm_ucx_finish(wire, st);
}

static void wire_close(struct comm_wire *wire)
{
    if (wire->state != NULL)
        state_free(wire->state);
    wire->state = NULL;
}

static const char *describe(const struct comm_wire *wire)
{
    const struct comm_ucx *state = wire->state;
    return state->root->name[0] != 0 ? state->root->name : "ucx";
}

/* The members agree on a number for their group: the greatest that is free with all of them. They
 * tell each other in the parent's group, where each of them stands at the same place. */
static enum status agree_on_group(struct comm_ucx *state, struct comm_wire *wire)
{
    struct ucx_wait wait = comm_ucx_wait(wire);
    int32_t mine = state->root->group_next, next = mine;
    TRY(meeting_begin(&state->meeting, wire->call, &mine, 0, sizeof(mine)));
    TRY(meeting_end(&state->meeting, wire, &wait));
    gather_sources(state, &mine);
    for (int r = 0; r < state->n; r++) {
        int32_t theirs;
        memcpy(&theirs, state->sources[r], sizeof(theirs));
        next = theirs > next ? theirs : next;
    }
    if (next >= UCX_GROUPS)
        return FAIL(ST_BUG, "more than %d groups of ranks in one life of a comm", UCX_GROUPS);
    state->meeting.group = state->flow.group = next; /* of rows: opened later */
    state->root->group_next = next + 1;
    return ST_OK;
}

static enum status sub(struct comm_wire *wire)
{
    const struct comm_ucx *parent = wire->parent->state;
    TRY(new_state(wire));
    struct comm_ucx *state = wire->state;
    state->root = parent->root;
    TRY(seat_members(state, wire, parent->meeting.group));
    enum status st = agree_on_group(state, wire);
    struct comm_share *share = NULL;
    if (st == ST_OK && wire->config.place.locals > 1)
        st = comm_share_sub(parent->rows.share, wire, &share);
    if (share != NULL)
        st = open_rows(state, wire, share);
    if (st == ST_OK && wire->parent->is_direct)
        st = open_direct(state, wire);
    return comm_ucx_finish(wire, st);
}

static enum status alloc(struct comm_wire *wire, int64_t bytes, void **out)
{
    struct comm_ucx *state = wire->state;
    return comm_share_alloc(state->rows.share, bytes, out);
}

/* ---- collectives ---- */

static struct flow_call flow_of(struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_ucx *state = wire->state;
    for (int r = 0; r < state->n; r++)
        state->parts[r] = order_extent(call->elems, state->n, r);
    return (struct flow_call){.parts = state->parts,
                              .sequence = call->sequence,
                              .dtype = call->dtype,
                              .dtype_out = call->dtype,
                              .turn = look_around,
                              .arg = wire};
}

typedef enum status comm_rows_call(struct comm_rows *rows, const struct comm_call *call,
                                   struct flow_call base, struct ucx_wait *wait);

/* A meeting, and behind it without waiting the pieces; `inside`: where nodes have several
 * workers. */
static enum status run_large(struct comm_wire *wire, const struct comm_call *call,
                             const struct flow_call *large, comm_rows_call *inside)
{
    struct comm_ucx *state = wire->state;
    struct ucx_wait wait = wait_of_large(wire, comm_ops_bytes(call));
    TRY(meeting_begin(&state->meeting, call, NULL, 0, 0));
    if (state->rows.share != NULL)
        TRY(inside(&state->rows, call, *large, &wait));
    else if (call->kind == COMM_CALL_BROADCAST)
        TRY(flow_chain(&state->flow, large, comm_ops_bytes(call), call->peer, &wait));
    else
        TRY(flow_run(&state->flow, large, &wait));
    TRY(meeting_end(&state->meeting, wire, &wait));
    return state->rows.share != NULL ? comm_rows_end(&state->rows, call) : ST_OK;
}

static enum status run_small(struct comm_wire *wire, const struct comm_call *call,
                             const void *content, int64_t stride, int64_t bytes)
{
    struct comm_ucx *state = wire->state;
    struct ucx_wait wait = comm_ucx_wait(wire);
    TRY(meeting_begin(&state->meeting, call, content, stride, bytes));
    return meeting_end(&state->meeting, wire, &wait);
}

static int64_t part_bytes_max(const struct comm_ucx *state, const struct comm_call *call)
{
    int64_t most = 0;
    for (int r = 0; r < state->n; r++) {
        int64_t elems = order_extent(call->elems, state->n, r).elems;
        most = elems > most ? elems : most;
    }
    return most * (int64_t)dtype_bytes(call->dtype);
}

/* Everybody's contribution to each part, to its owner, who adds them up in own_out. */
static enum status scatter_small(struct comm_wire *wire, const struct comm_call *call,
                                 void *own_out)
{
    struct comm_ucx *state = wire->state;
    struct ucx_wait wait = comm_ucx_wait(wire);
    int64_t each = (int64_t)dtype_bytes(call->dtype);
    meeting_call(&state->meeting, call);
    for (int i = 1; i < state->n; i++) {
        int r = (state->me + i) % state->n;
        struct order_extent part = order_extent(call->elems, state->n, r);
        if (part.elems > 0)
            memcpy(meeting_brought(&state->meeting, r), (const char *)call->in + part.first * each,
                   (size_t)(part.elems * each));
        TRY(meeting_greet(&state->meeting, r, UCX_LANE_CALL, part.elems * each));
    }
    TRY(meeting_end(&state->meeting, wire, &wait));
    struct order_extent mine = order_extent(call->elems, state->n, state->me);
    gather_sources(state, (const char *)call->in + mine.first * each);
    add_sources(state, wire, call->dtype, own_out, mine.elems);
    return ST_OK;
}

/* all_reduce of parts that are small: they go to their owners with the meeting, and finished to
 * all. */
static enum status reduce_parts(struct comm_wire *wire, const struct comm_call *call,
                                struct flow_call *parts)
{
    struct comm_ucx *state = wire->state;
    struct ucx_wait wait = comm_ucx_wait(wire);
    TRY(scatter_small(wire, call, parts->own_out));
    parts->in = NULL;
    return flow_run(&state->flow, parts, &wait);
}

static enum status all_reduce(struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_ucx *state = wire->state;
    int64_t each = (int64_t)dtype_bytes(call->dtype);
    if (call->elems * each <= state->small) {
        enum status st = run_small(wire, call, call->in, 0, call->elems * each);
        gather_sources(state, call->in);
        if (st == ST_OK)
            add_sources(state, wire, call->dtype, call->out, call->elems);
        return comm_ucx_finish(wire, st);
    }
    struct flow_call large = flow_of(wire, call);
    large.in = call->in;
    large.is_whole = call->elems * each <= state->whole && state->rows.share == NULL;
    if (large.is_whole) {
        for (int r = 0; r < state->n; r++)
            state->parts[r] = (struct order_extent){.elems = call->elems};
        large.own_out = call->out;
    } else {
        large.out = call->out;
        large.own_out = large.out + order_extent(call->elems, state->n, state->me).first * each;
    }
    if (!large.is_whole && part_bytes_max(state, call) <= state->small)
        return comm_ucx_finish(wire, reduce_parts(wire, call, &large));
    return comm_ucx_finish(wire, run_large(wire, call, &large, comm_rows_all_reduce));
}

static enum status reduce_scatter(struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_ucx *state = wire->state;
    if (part_bytes_max(state, call) <= state->small)
        return comm_ucx_finish(wire, scatter_small(wire, call, call->out));
    struct flow_call large = flow_of(wire, call);
    large.in = call->in;
    large.own_out = call->out;
    return comm_ucx_finish(wire, run_large(wire, call, &large, comm_rows_reduce_scatter));
}

static enum status gather_small(struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_ucx *state = wire->state;
    int64_t each = (int64_t)dtype_bytes(call->dtype);
    struct order_extent mine = order_extent(call->elems, state->n, state->me);
    char *out = call->out;
    TRY(run_small(wire, call, out + mine.first * each, 0, mine.elems * each));
    for (int r = 0; r < state->n; r++) {
        struct order_extent part = order_extent(call->elems, state->n, r);
        if (r != state->me && part.elems > 0)
            memcpy(out + part.first * each, meeting_came(&state->meeting, r),
                   (size_t)(part.elems * each));
    }
    return ST_OK;
}

static enum status all_gather(struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_ucx *state = wire->state;
    int64_t each = (int64_t)dtype_bytes(call->dtype);
    struct order_extent mine = order_extent(call->elems, state->n, state->me);
    struct flow_call large = flow_of(wire, call);
    large.out = call->out;
    large.own_out = large.out + mine.first * each;
    if (large.own_out != call->in && mine.elems > 0)
        memmove(large.own_out, call->in, (size_t)(mine.elems * each));
    if (part_bytes_max(state, call) <= state->small)
        return comm_ucx_finish(wire, gather_small(wire, call));
    return comm_ucx_finish(wire, run_large(wire, call, &large, comm_rows_all_gather));
}

static enum status all_to_all(struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_ucx *state = wire->state;
    int64_t bytes = comm_ops_bytes(call);
    const char *in = call->in;
    char *out = call->out;
    if (bytes > 0)
        memcpy(out + state->me * bytes, in + state->me * bytes, (size_t)bytes);
    if (bytes <= state->small) {
        enum status st = run_small(wire, call, in, bytes, bytes);
        for (int r = 0; r < state->n && st == ST_OK && bytes > 0; r++) {
            if (r != state->me)
                memcpy(out + r * bytes, meeting_came(&state->meeting, r), (size_t)bytes);
        }
        return comm_ucx_finish(wire, st);
    }
    struct ucx_wait wait = wait_of_large(wire, bytes * state->n);
    struct flow_call large = flow_of(wire, call);
    large.in = in;
    large.out = out;
    enum status st = meeting_begin(&state->meeting, call, NULL, 0, 0);
    if (st == ST_OK)
        st = flow_swap(&state->flow, &large, call->elems, &wait);
    return comm_ucx_finish(wire, st == ST_OK ? meeting_end(&state->meeting, wire, &wait) : st);
}

static enum status broadcast(struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_ucx *state = wire->state;
    int64_t bytes = comm_ops_bytes(call);
    bool is_root = call->peer == state->me;
    if (bytes <= state->small) {
        enum status st = run_small(wire, call, call->in, 0, is_root ? bytes : 0);
        if (st == ST_OK && !is_root && bytes > 0)
            memcpy(call->out, meeting_came(&state->meeting, call->peer), (size_t)bytes);
        return comm_ucx_finish(wire, st);
    }
    struct flow_call large = flow_of(wire, call);
    large.out = call->out;
    return comm_ucx_finish(wire, run_large(wire, call, &large, comm_rows_broadcast));
}

static enum status barrier(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_ucx_finish(wire, run_small(wire, call, NULL, 0, 0));
}

/* Between GPUs' memory: nothing of it goes with the meeting. */
static enum status direct(struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_ucx *state = wire->state;
    struct ucx_wait wait = comm_ucx_wait(wire);
    enum status st = comm_direct_begin(&state->direct, wire, call);
    if (st == ST_OK)
        st = meeting_begin(&state->meeting, call, NULL, 0, 0);
    if (st == ST_OK)
        st = comm_direct_run(&state->direct, call, look_around, wire, &wait);
    if (st == ST_OK)
        st = meeting_end(&state->meeting, wire, &wait);
    return comm_ucx_finish(wire, st == ST_OK ? comm_direct_end(&state->direct, wire) : st);
}

const struct comm_ops comm_ucx_ops = {
    .kind = COMM_KIND_UCX,
    .name = "ucx",
    .begin_open = begin_open,
    .end_open = end_open,
    .close = wire_close,
    .describe = describe,
    .alloc = alloc,
    .sub = sub,
    .entered = entered,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .broadcast = broadcast,
    .send = comm_ucx_pair_send,
    .recv = comm_ucx_pair_recv,
    .barrier = barrier,
    .direct = direct,
};
