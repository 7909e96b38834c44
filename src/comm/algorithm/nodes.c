/* comm_nodes — the transport of ranks that are processes on any nodes, over messages: chooses an
 * algorithm for each call.
 *
 *   one-shot   a small call: each rank sends a header and its buffer (eager.h) to all others
 *              and adds all in the order of sum.h, to the same bits, after one message each way
 *   star       a small sum of ranks that share cores (star.c)
 *   direct     a large call: headers, then chunks (direct.h)
 *   two-level  the same if nodes have several workers (two_level.h)
 *   chain      a large broadcast (chain.c)
 *
 * If a rank's call fails, it sends GOAWAY to its peers (messenger_abort). So they look for the
 * missing rank and do not blame this one. Must not know the meaning of the data. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "comm/core/sum.h"
#include "comm/core/queue.h"
#include "comm/algorithm/nodes.h"
#include "comm/core/part.h"

/* bytes of a call that needs milliseconds on any wire between nodes */
#define COALESCE_BYTES (4 << 20)

/* Notes which ranks have entered the call meanwhile. */
static enum status check_peers(void *arg)
{
    struct comm_ctx *ctx = arg;
    struct comm_nodes *state = ctx->state;
    for (int r = 0; r < state->n; r++)
        TRY(comm_eager_check(&state->eager, ctx, r));
    return ST_OK;
}

static enum status check_wait(void *arg)
{
    struct comm_ctx *ctx = arg;
    struct comm_nodes *state = ctx->state;
    enum status st = transport_check(ctx);
    state->was_cancelled = st != ST_OK;
    return st;
}

struct message_wait comm_nodes_wait(struct comm_ctx *ctx)
{
    return (struct message_wait){
        .watch = {.check = check_wait, .arg = ctx, .wait_policy = ctx->wait_policy}};
}

static bool coalesce(void *arg, int64_t ns)
{
    return comm_queue_sleep(((struct comm_ctx *)arg)->queue, ns);
}

/* Returns the wait of a call that moves `bytes` bytes. A large call wakes the thread for each
 * message only if a thread waits for the call. */
static struct message_wait wait_of_large(struct comm_ctx *ctx, int64_t bytes)
{
    struct message_wait wait = comm_nodes_wait(ctx);
    wait.watch.coalesce = ctx->queue != NULL && bytes >= COALESCE_BYTES ? coalesce : NULL;
    return wait;
}

/* Lists the sources of a sum: the received buffer of each rank, and `own` for this rank. */
static void list_sources(struct comm_nodes *state, const void *own)
{
    for (int r = 0; r < state->n; r++)
        state->sources[r] = r == state->me ? own : comm_eager_received(&state->eager, r);
}

static void sum_sources(struct comm_nodes *state, const struct comm_ctx *ctx, enum dtype dtype,
                        void *out, int64_t elems)
{
    struct sum_args sum = {.in = state->sources,
                           .out = &out,
                           .nodes = ctx->config.place.nodes,
                           .locals = ctx->config.place.locals,
                           .outs_n = 1,
                           .dtype_in = dtype,
                           .dtype_out = dtype,
                           .elems = elems};
    if (elems > 0)
        sum_run(&sum);
}

/* ---- failures ---- */

/* Returns a member that has not entered the call and is not rank `but` of the root; -1: none. */
static int find_missing(const struct comm_ctx *ctx, int but)
{
    const struct comm_nodes *state = ctx->state;
    for (int r = 0; r < state->n; r++) {
        if (r != state->me && state->root_rank[r] != but &&
            ctx->ops->entered(ctx, r) == TRANSPORT_ENTERED_NO)
            return r;
    }
    return -1;
}

/* Reports the rank that caused the transport to fail during this call. */
static enum status name_cause(struct comm_ctx *ctx, enum status st)
{
    const struct comm_nodes *state = ctx->state;
    struct message_loss loss = {.rank = -1};
    int member = -1;
    bool is_lost = messenger_lost(state->root->messenger, &loss);
    for (int r = 0; r < state->n; r++)
        member = state->root_rank[r] == loss.rank ? r : member;
    if (st != ST_PEER || state->was_cancelled || !is_lost || member < 0)
        return st;
    if (loss.is_damaged) {
        /* A message arrived with other content than its sender sent: report rank, node, link and
         * call. */
        const struct comm_ctx *root = ctx;
        while (root->parent != NULL)
            root = root->parent;
        return FAIL(
            ST_PEER,
            "rank %d (node %d) was lost in %s %lld: %s, over %s; if this happens again, look at "
            "the network adapters, cables and memory of both nodes",
            loss.rank, loss.rank / root->config.place.locals, transport_call_name(ctx->call->kind),
            (long long)ctx->call->sequence, loss.text, messenger_name(state->root->messenger));
    }
    if (!loss.sent_goaway && find_missing(ctx, loss.rank) < 0)
        return st;
    st = transport_fail_abandoned(ctx, member);
    if (!loss.sent_goaway)
        return FAIL(ST_PEER, "rank %d was lost: its connection ended (%s: %s); %s", loss.rank,
                    loss.label, loss.text, status_message());
    return loss.cause < 0 ? st
                          : FAIL(ST_PEER, "%s, for rank %d was lost", status_message(), loss.cause);
}

enum status comm_nodes_finish(struct comm_ctx *ctx, enum status st)
{
    struct comm_nodes *state = ctx->state;
    int64_t *counts[] = {&state->direct.bytes_sent,
                         &state->two_level.inter.bytes_sent,
                         &state->eager.bytes_sent,
                         &state->gpu.flat.bytes_sent,
                         &state->gpu.two_level.inter.bytes_sent,
                         &state->gpu.intra.bytes_sent};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        atomic_fetch_add_explicit(&ctx->bytes_sent, *counts[i], memory_order_relaxed);
        *counts[i] = 0;
    }
    if (st == ST_OK)
        return ST_OK;
    st = name_cause(ctx, st);
    messenger_abort(state->root->messenger);
    return st;
}

static enum transport_entered query_entered(const struct comm_ctx *ctx, int rank)
{
    const struct comm_nodes *state = ctx->state;
    if (state->eager.call != ctx->call || state->eager.peers == NULL ||
        ctx->call->kind == COMM_CALL_SEND || (state->eager.is_leaf && rank != COMM_STAR_ROOT))
        return TRANSPORT_ENTERED_UNKNOWN;
    return state->eager.peers[rank].has_entered ? TRANSPORT_ENTERED_YES : TRANSPORT_ENTERED_NO;
}

/* ---- large calls: headers, then chunks in separate messages ---- */

/* Returns the call in the form of direct.h. */
static struct comm_direct_call large_call(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_nodes *state = ctx->state;
    const bool is_all_reduce = call->kind == COMM_CALL_ALL_REDUCE,
               is_reduce_scatter = call->kind == COMM_CALL_REDUCE_SCATTER;
    for (int r = 0; r < state->n; r++)
        state->parts[r] = part_extent(call->elems, state->n, r);
    const int64_t own = state->parts[state->me].first * (int64_t)dtype_bytes(call->dtype);
    return (struct comm_direct_call){.in = is_all_reduce || is_reduce_scatter ? call->in : NULL,
                                     .out = is_reduce_scatter ? NULL : call->out,
                                     .own_out = is_all_reduce       ? (char *)call->out + own
                                                : is_reduce_scatter ? call->out
                                                                    : (char *)(uintptr_t)call->in,
                                     .parts = state->parts,
                                     .sequence = call->sequence,
                                     .dtype = call->dtype,
                                     .dtype_out = call->dtype,
                                     .poll = check_peers,
                                     .arg = ctx};
}

/* The algorithms of large calls for one kind of memory. */
struct route {
    struct comm_direct *flat;
    struct comm_two_level *two_level; /* zeroed: each node has one worker */
    struct message_wait wait;
};

/* Sends the headers, and the chunks after them without waiting. */
static enum status run_route(struct comm_ctx *ctx, const struct comm_call *call,
                             const struct comm_direct_call *large, struct route *route)
{
    struct comm_nodes *state = ctx->state;
    const bool is_two_level = route->two_level->ops != NULL;
    TRY(comm_eager_begin(&state->eager, call, NULL, 0, 0));
    if (is_two_level)
        TRY(comm_two_level_run(route->two_level, call, *large, &route->wait));
    else if (call->kind == COMM_CALL_BROADCAST)
        TRY(comm_chain_broadcast(route->flat, large, transport_bytes(call), call->peer,
                                 &route->wait));
    else
        TRY(comm_direct_run(route->flat, large, &route->wait));
    TRY(comm_eager_end(&state->eager, ctx, &route->wait));
    return is_two_level ? comm_two_level_end(route->two_level, call, *large, &route->wait) : ST_OK;
}

static enum status run_large(struct comm_ctx *ctx, const struct comm_call *call,
                             const struct comm_direct_call *large)
{
    struct comm_nodes *state = ctx->state;
    struct route host = {.flat = &state->direct,
                         .two_level = &state->two_level,
                         .wait = wait_of_large(ctx, transport_bytes(call))};
    return run_route(ctx, call, large, &host);
}

/* Runs a call between GPUs' memory: no content goes with the headers. */
static enum status run_gpu(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_nodes *state = ctx->state;
    struct route gpu = {
        .flat = &state->gpu.flat, .two_level = &state->gpu.two_level, .wait = comm_nodes_wait(ctx)};
    const struct comm_direct_call large = large_call(ctx, call);
    enum status st = comm_gpu_begin(&state->gpu, ctx, call);
    if (st == ST_OK)
        st = run_route(ctx, call, &large, &gpu);
    return comm_nodes_finish(ctx, st == ST_OK ? comm_gpu_end(&state->gpu, ctx) : st);
}

/* ---- small calls: one-shot, the content follows the header in its message ---- */

/* Exchanges headers with content. */
static enum status run_small(struct comm_ctx *ctx, const struct comm_call *call,
                             const void *content, int64_t stride, int64_t bytes)
{
    struct comm_nodes *state = ctx->state;
    struct message_wait wait = comm_nodes_wait(ctx);
    TRY(comm_eager_begin(&state->eager, call, content, stride, bytes));
    return comm_eager_end(&state->eager, ctx, &wait);
}

static int64_t part_bytes_max(const struct comm_nodes *state, const struct comm_call *call)
{
    int64_t most = 0;
    for (int r = 0; r < state->n; r++) {
        int64_t elems = part_extent(call->elems, state->n, r).elems;
        most = elems > most ? elems : most;
    }
    return most * (int64_t)dtype_bytes(call->dtype);
}

/* Sends each rank's contribution to each part to the part's owner, which adds them up in
 * own_out. */
static enum status scatter_small(struct comm_ctx *ctx, const struct comm_call *call, void *own_out)
{
    struct comm_nodes *state = ctx->state;
    struct message_wait wait = comm_nodes_wait(ctx);
    int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    comm_eager_set_call(&state->eager, call);
    for (int i = 1; i < state->n; i++) {
        int r = (state->me + i) % state->n;
        struct part_extent part = part_extent(call->elems, state->n, r);
        if (part.elems > 0)
            memcpy(comm_eager_to_send(&state->eager, r),
                   (const char *)call->in + part.first * elem_bytes,
                   (size_t)(part.elems * elem_bytes));
        TRY(comm_eager_exchange(&state->eager, r, MESSAGE_TAG_HEADER, part.elems * elem_bytes));
    }
    TRY(comm_eager_end(&state->eager, ctx, &wait));
    struct part_extent mine = part_extent(call->elems, state->n, state->me);
    list_sources(state, (const char *)call->in + mine.first * elem_bytes);
    sum_sources(state, ctx, call->dtype, own_out, mine.elems);
    return ST_OK;
}

/* Runs an all_reduce or a barrier (no elements) of ranks that share cores; the steps of star.c. */
static enum status run_star(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_nodes *state = ctx->state;
    struct message_wait wait = comm_nodes_wait(ctx);
    const size_t bytes = (size_t)transport_bytes(call);
    const bool is_root = state->me == COMM_STAR_ROOT;
    char *result = is_root ? comm_eager_to_send(&state->eager, COMM_STAR_ROOT)
                           : comm_eager_received(&state->eager, COMM_STAR_ROOT);
    TRY(comm_star_gather(&state->eager, ctx, call, call->in, (int64_t)bytes, &wait)); /* 1. */
    if (is_root) {                                                                    /* 2. */
        list_sources(state, call->in);
        sum_sources(state, ctx, call->dtype, result, call->elems);
    }
    TRY(comm_star_scatter(&state->eager, ctx, (int64_t)bytes, &wait)); /* 3. */
    if (bytes > 0)
        memcpy(call->out, result, bytes);
    return ST_OK;
}

/* ---- the choice of an algorithm for a call ---- */

static enum status all_reduce(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_nodes *state = ctx->state;
    const int64_t bytes = transport_bytes(call);
    if (bytes <= state->star_max)
        return run_star(ctx, call);
    if (bytes <= state->eager_max) {
        TRY(run_small(ctx, call, call->in, 0, bytes));
        list_sources(state, call->in);
        sum_sources(state, ctx, call->dtype, call->out, call->elems);
        return ST_OK;
    }
    struct comm_direct_call large = large_call(ctx, call);
    if (bytes <= state->whole_max && state->two_level.ops == NULL) {
        for (int r = 0; r < state->n; r++)
            state->parts[r] = (struct part_extent){.elems = call->elems};
        large.is_whole = true;
        large.own_out = call->out;
        large.out = NULL;
    } else if (part_bytes_max(state, call) <= state->eager_max) {
        /* contributions go to the owners with the headers, sums come back to all */
        struct message_wait wait = comm_nodes_wait(ctx);
        TRY(scatter_small(ctx, call, large.own_out));
        large.in = NULL;
        return comm_direct_run(&state->direct, &large, &wait);
    }
    return run_large(ctx, call, &large);
}

static enum status reduce_scatter(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nodes *state = ctx->state;
    if (part_bytes_max(state, call) <= state->eager_max)
        return scatter_small(ctx, call, call->out);
    const struct comm_direct_call large = large_call(ctx, call);
    return run_large(ctx, call, &large);
}

static enum status all_gather(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nodes *state = ctx->state;
    const int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    const struct part_extent mine = part_extent(call->elems, state->n, state->me);
    char *out = call->out, *own = out + mine.first * elem_bytes;
    if (own != call->in && mine.elems > 0)
        memmove(own, call->in, (size_t)(mine.elems * elem_bytes));
    if (part_bytes_max(state, call) > state->eager_max) {
        struct comm_direct_call large = large_call(ctx, call);
        large.own_out = own;
        return run_large(ctx, call, &large);
    }
    TRY(run_small(ctx, call, own, 0, mine.elems * elem_bytes));
    for (int r = 0; r < state->n; r++) {
        struct part_extent part = part_extent(call->elems, state->n, r);
        if (r != state->me && part.elems > 0)
            memcpy(out + part.first * elem_bytes, comm_eager_received(&state->eager, r),
                   (size_t)(part.elems * elem_bytes));
    }
    return ST_OK;
}

static enum status all_to_all(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_nodes *state = ctx->state;
    int64_t bytes = transport_bytes(call);
    const char *in = call->in;
    char *out = call->out;
    if (bytes > 0)
        memcpy(out + state->me * bytes, in + state->me * bytes, (size_t)bytes);
    if (bytes > state->eager_max) {
        struct message_wait wait = wait_of_large(ctx, bytes * state->n);
        struct comm_direct_call large = large_call(ctx, call);
        large.in = in;
        TRY(comm_eager_begin(&state->eager, call, NULL, 0, 0));
        TRY(comm_direct_all_to_all(&state->direct, &large, call->elems, &wait));
        return comm_eager_end(&state->eager, ctx, &wait);
    }
    TRY(run_small(ctx, call, in, bytes, bytes));
    for (int r = 0; r < state->n && bytes > 0; r++)
        if (r != state->me)
            memcpy(out + r * bytes, comm_eager_received(&state->eager, r), (size_t)bytes);
    return ST_OK;
}

static enum status run_broadcast(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nodes *state = ctx->state;
    const int64_t bytes = transport_bytes(call);
    const bool is_root = call->peer == state->me;
    if (bytes > state->eager_max) {
        const struct comm_direct_call large = large_call(ctx, call);
        return run_large(ctx, call, &large);
    }
    TRY(run_small(ctx, call, call->in, 0, is_root ? bytes : 0));
    if (!is_root && bytes > 0)
        memcpy(call->out, comm_eager_received(&state->eager, call->peer), (size_t)bytes);
    return ST_OK;
}

static enum status wait_for(struct comm_nodes *state, const struct message_op *op,
                            struct message_wait *wait)
{
    while (!messenger_is_done(op))
        TRY(messenger_progress(state->root->messenger, wait));
    return ST_OK;
}

/* Runs send and recv: the header of the call, with the content in it if that is short, else the
 * content in a message after it. */
static enum status run_pair(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_nodes *state = ctx->state;
    struct comm_eager_peer *peer = &state->eager.peers[call->peer];
    struct message_wait wait = comm_nodes_wait(ctx);
    const struct message_tag tag = {.group = state->eager.group,
                                    .from = state->root_rank[call->peer],
                                    .tag_class = MESSAGE_TAG_PAIR};
    const int64_t bytes = transport_bytes(call), small = bytes <= state->eager_max ? bytes : 0;
    const bool is_send = call->kind == COMM_CALL_SEND;
    const struct message_op *op = is_send ? &peer->send : &peer->recv;
    comm_eager_set_call(&state->eager, call);
    if (is_send && small > 0)
        memcpy(comm_eager_to_send(&state->eager, call->peer), call->in, (size_t)small);
    TRY(comm_eager_exchange(&state->eager, call->peer, MESSAGE_TAG_PAIR, is_send ? small : 0));
    TRY(wait_for(state, op, &wait));
    if (!is_send)
        TRY(comm_eager_check(&state->eager, ctx, call->peer));
    if (!is_send && small > 0)
        memcpy(call->out, comm_eager_received(&state->eager, call->peer), (size_t)small);
    if (small == bytes)
        return ST_OK;
    if (is_send) {
        state->eager.bytes_sent += bytes;
        TRY(messenger_send(state->root->messenger, &peer->send, call->in, bytes,
                           state->root_rank[call->peer], tag));
    } else
        TRY(messenger_recv(state->root->messenger, &peer->recv, call->out, bytes, tag));
    return wait_for(state, op, &wait);
}

static enum status run_call(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nodes *state = ctx->state;
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
        return all_reduce(ctx, call);
    case COMM_CALL_REDUCE_SCATTER:
        return reduce_scatter(ctx, call);
    case COMM_CALL_ALL_GATHER:
        return all_gather(ctx, call);
    case COMM_CALL_ALL_TO_ALL:
        return all_to_all(ctx, call);
    case COMM_CALL_BROADCAST:
        return run_broadcast(ctx, call);
    case COMM_CALL_SEND:
    case COMM_CALL_RECV:
        return run_pair(ctx, call);
    default:
        ASSERT(call->kind == COMM_CALL_BARRIER);
        return state->star_max >= 0 ? run_star(ctx, call) : run_small(ctx, call, NULL, 0, 0);
    }
}

static enum status run(struct comm_ctx *ctx, const struct comm_call *call)
{
    return comm_nodes_finish(ctx, run_call(ctx, call));
}

/* ---- the table ---- */

static enum status alloc(struct comm_ctx *ctx, int64_t bytes, void **out)
{
    struct comm_nodes *state = ctx->state;
    return comm_shm_alloc(state->shm.shm, bytes, out);
}

static bool get_link(const struct comm_ctx *ctx, int rank, struct comm_link *out)
{
    const struct comm_nodes *state = ctx->state;
    return messenger_link(state->root->messenger, state->root_rank[rank], out);
}

static int closed(const struct comm_ctx *ctx)
{
    return messenger_closed(((const struct comm_nodes *)ctx->state)->root->messenger);
}

const struct transport_ops comm_nodes_ops = {
    .name = "nodes",
    .begin_open = comm_nodes_open_begin,
    .end_open = comm_nodes_open_end,
    .split = comm_nodes_open_split,
    .close = comm_nodes_open_close,
    .alloc = alloc,
    .run = run,
    .gpu_direct = run_gpu,
    .entered = query_entered,
    .link = get_link,
    .closed = closed,
};
