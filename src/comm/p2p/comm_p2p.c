/* comm_p2p — ranks in processes of their own, on any nodes, over UCX or TCP (p2p.h).
 *
 * Every call begins with a meeting: each rank sends all others what call it is in, with the content
 * when that is eager_max, so that a difference is found at once, everybody knows who has not come,
 * and a eager_max call is over after one message each way: all ranks add up all contributions, in
 * the order of sum_tree.h, to the same bits. Large calls go on
 * in chunks (p2p_pipeline.h).
 *
 * A rank whose call fails takes its leave of the others, so that they look for the one that did not
 * come rather than blame it. Must not know what is summed for whom. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "comm/core/sum.h"
#include "comm/core/comm_queue.h"
#include "comm/p2p/comm_p2p_inside.h"
#include "comm/p2p/comm_p2p_size.h"
#include "comm/core/part.h"

#define NAP_BYTES (4 << 20) /* a call that takes milliseconds on any wire between nodes */

_Static_assert(COMM_RANKS_MAX <= P2P_RANKS_MAX, "ranks of a comm are told apart by their tags");
_Static_assert((int)COMM_NET_AUTO == (int)P2P_NET_AUTO && (int)COMM_NET_TCP == (int)P2P_NET_TCP &&
                   (int)COMM_NET_UCX == (int)P2P_NET_UCX && COMM_SECRET_BYTES == P2P_SECRET_BYTES,
               "one choice under two names");

/* Who has come meanwhile? */
static enum status check_peers(void *arg)
{
    struct comm_ctx *ctx = arg;
    struct comm_p2p *state = ctx->state;
    for (int r = 0; r < state->n; r++)
        TRY(p2p_eager_check(&state->eager, ctx, r));
    return ST_OK;
}

static enum status check_wait(void *arg)
{
    struct comm_ctx *ctx = arg;
    struct comm_p2p *state = ctx->state;
    enum status st = transport_check(ctx);
    state->was_cancelled = st != ST_OK;
    return st;
}

struct p2p_wait comm_p2p_wait(struct comm_ctx *ctx)
{
    return (struct p2p_wait){
        .watch = {.check = check_wait, .arg = ctx, .wait_policy = ctx->wait_policy}};
}

static bool nap(void *arg, int64_t ns)
{
    return comm_queue_sleep(((struct comm_ctx *)arg)->queue, ns);
}

/* Of a call that moves so many bytes: where they are many nobody but a waiting caller minds when
 * they come. */
static struct p2p_wait wait_of_large(struct comm_ctx *ctx, int64_t bytes)
{
    struct p2p_wait wait = comm_p2p_wait(ctx);
    wait.watch.nap = ctx->queue != NULL && bytes >= NAP_BYTES ? nap : NULL;
    return wait;
}

/* Sources of a sum: what each brought, `own` for this rank. */
static void gather_sources(struct comm_p2p *state, const void *own)
{
    for (int r = 0; r < state->n; r++)
        state->sources[r] = r == state->me ? own : p2p_eager_received(&state->eager, r);
}

static void sum_sources(struct comm_p2p *state, const struct comm_ctx *ctx, enum dtype dtype,
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

/* A member that has not come and is not that rank of the root; -1: none is known. */
static int find_missing(const struct comm_ctx *ctx, int but)
{
    const struct comm_p2p *state = ctx->state;
    for (int r = 0; r < state->n; r++) {
        if (r != state->me && state->world[r] != but && ctx->ops->entered(ctx, r) == 0)
            return r;
    }
    return -1;
}

/* The wire has failed under this call: who is to blame? */
static enum status explain(struct comm_ctx *ctx, enum status st)
{
    const struct comm_p2p *state = ctx->state;
    struct p2p_loss loss = {.rank = -1};
    int member = -1;
    bool is_lost = p2p_lost(state->root->p2p, &loss);
    for (int r = 0; r < state->n; r++)
        member = state->world[r] == loss.rank ? r : member;
    if (st != ST_PEER || state->was_cancelled || !is_lost || member < 0)
        return st;
    if (!loss.sent_goaway && find_missing(ctx, loss.rank) < 0)
        return st;
    st = transport_fail_abandoned(ctx, member);
    if (!loss.sent_goaway)
        return FAIL(ST_PEER, "rank %d was lost: its connection ended (%s: %s); %s", loss.rank,
                    loss.label, loss.text, status_message());
    return loss.cause < 0 ? st
                          : FAIL(ST_PEER, "%s, for rank %d was lost", status_message(), loss.cause);
}

enum status comm_p2p_finish(struct comm_ctx *ctx, enum status st)
{
    struct comm_p2p *state = ctx->state;
    int64_t *counts[] = {&state->pipeline.bytes_sent,
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
    st = explain(ctx, st);
    p2p_abort(state->root->p2p);
    return st;
}

static int entered(const struct comm_ctx *ctx, int rank)
{
    const struct comm_p2p *state = ctx->state;
    if (state->eager.call != ctx->call || state->eager.peers == NULL ||
        ctx->call->kind == COMM_CALL_SEND)
        return -1;
    return state->eager.peers[rank].has_entered;
}

/* ---- life ---- */

static void state_free(struct comm_p2p *state)
{
    p2p_gpu_close(&state->gpu);
    p2p_two_level_free(&state->two_level);
    p2p_shm_close(&state->shm);
    p2p_pipeline_free(&state->pipeline);
    free(state->world);
    p2p_eager_free(&state->eager);
    free(state->sources);
    free(state->parts);
    if (state->owns_root) {
        p2p_close(state->root->p2p);
        free(state->root);
    }
    free(state);
}

/* The members and their memory. */
static enum status open_members(struct comm_p2p *state, const struct comm_ctx *ctx, int group)
{
    const struct comm_place *place = &ctx->config.place;
    const struct comm_p2p_size *size = comm_p2p_size(place->ranks);
    int n = place->ranks;
    state->n = n;
    state->me = place->rank;
    state->eager_max = size->eager_max;
    state->whole_max = size->whole_max;
    state->world = calloc((size_t)n, sizeof(*state->world));
    state->sources = calloc((size_t)n, sizeof(*state->sources));
    state->parts = calloc((size_t)n, sizeof(*state->parts));
    if (state->world == NULL || state->sources == NULL || state->parts == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm of %d ranks", n);
    for (int r = 0; r < n; r++)
        state->world[r] = transport_root_rank(ctx, r);
    state->eager = (struct p2p_eager){.p2p = state->root->p2p,
                                      .group = group,
                                      .n = n,
                                      .me = state->me,
                                      .world = state->world,
                                      .eager_max = state->eager_max};
    TRY(p2p_eager_open(&state->eager));
    state->pipeline = (struct p2p_pipeline){.p2p = state->root->p2p,
                                            .group = group,
                                            .world = state->world,
                                            .n = n,
                                            .me = state->me,
                                            .nodes = place->nodes,
                                            .locals = place->locals,
                                            .memory = {.ops = &p2p_memory_host}};
    return p2p_pipeline_open(&state->pipeline, size->chunk_bytes);
}

/* What goes on inside the node, and what between the workers of equal number. Takes share. */
static enum status open_two_level(struct comm_p2p *state, const struct comm_ctx *ctx,
                                  struct comm_shm *share)
{
    const struct p2p_two_level_config config = {.ops = &p2p_shm_ops,
                                                .intra = &state->shm,
                                                .p2p = state->root->p2p,
                                                .memory = {.ops = &p2p_memory_host},
                                                .place = &ctx->config.place,
                                                .group = state->eager.group,
                                                .world = state->world,
                                                .chunk_bytes = state->pipeline.chunk_bytes};
    TRY(p2p_shm_open(&state->shm, share, state->n));
    return p2p_two_level_open(&state->two_level, &config);
}

static enum status new_state(struct comm_ctx *ctx)
{
    struct comm_p2p *state = calloc(1, sizeof(*state));
    if (state == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm over UCX");
    ctx->state = state;
    return ST_OK;
}

/* A GPU's memory may be given to UCX on all ranks, or is on none. */
static bool offers_gpu(const struct comm_ctx *ctx)
{
    const struct comm_p2p *state = ctx->state;
    return dev_is_discrete(ctx->config.dev) && p2p_supports_gpu(state->root->p2p);
}

static enum status open_gpu(struct comm_p2p *state, struct comm_ctx *ctx)
{
    ctx->has_gpu_direct = true;
    return p2p_gpu_open(&state->gpu, ctx, state->root->p2p, state->eager.group, state->world);
}

static enum status begin_open(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    TRY(new_state(ctx));
    struct comm_p2p *state = ctx->state;
    state->root = calloc(1, sizeof(*state->root));
    if (state->root == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm over UCX");
    state->owns_root = true;
    state->root->group_next = 1;
    const struct comm_config *c = &ctx->config;
    const struct p2p_config config = {.net = (enum p2p_net)c->net,
                                      .eager_bytes = comm_p2p_size(c->place.ranks)->chunk_bytes +
                                                     COMM_P2P_EAGER_EXTRA,
                                      .data_addr = c->data_addr,
                                      .master = c->master};
    TRY(p2p_open(&config, &state->root->p2p));
    bool is_intra_node = ctx->config.place.locals > 1 && offers_gpu(ctx);
    TRY(p2p_address(state->root->p2p, is_intra_node, address, COMM_ADDRESS_MAX, address_bytes));
    TRY(open_members(state, ctx, 0));
    if (ctx->config.place.locals == 1)
        return ST_OK;
    struct comm_shm *share;
    TRY(comm_shm_open(ctx, &share));
    return open_two_level(state, ctx, share);
}

/* Behind what has been said of GPUs. */
static void add_why(struct comm_ctx *ctx, const char *why)
{
    size_t n = strlen(ctx->why);
    if (why[0] != 0)
        text_format(ctx->why + n, sizeof(ctx->why) - n, "%s%s", n > 0 ? "; " : "", why);
}

static void set_names(const struct comm_p2p *state)
{
    struct comm_p2p_root *root = state->root;
    const char *intra = state->shm.shm != NULL ? "shm + " : "";
    text_format(root->backend, sizeof(root->backend), "%s%s", intra, p2p_driver_name(root->p2p));
    text_format(root->name, sizeof(root->name), "%s%s", intra, p2p_name(root->p2p));
}

static enum status end_open(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    struct comm_p2p *state = ctx->state;
    bool *is_peer = malloc((size_t)state->n * sizeof(*is_peer));
    if (is_peer == NULL)
        return FAIL(ST_RETRY, "out of memory: %d ranks", state->n);
    for (int r = 0; r < state->n; r++)
        is_peer[r] = r != state->me;
    struct p2p_world world = {.generation = ctx->config.generation,
                              .rank = state->me,
                              .ranks = state->n,
                              .is_peer = is_peer,
                              .addresses = addresses,
                              .stride = COMM_ADDRESS_MAX,
                              .bytes = bytes,
                              .secret = ctx->config.secret,
                              .offers_gpu = offers_gpu(ctx)};
    enum status st = p2p_connect(state->root->p2p, &world, comm_p2p_wait(ctx).watch);
    free(is_peer);
    if (st == ST_OK && state->shm.shm != NULL)
        st = comm_shm_join(state->shm.shm);
    if (st == ST_OK)
        set_names(state);
    add_why(ctx, p2p_why(state->root->p2p));
    if (st == ST_OK && p2p_rank_without_gpu(state->root->p2p) < 0)
        st = open_gpu(state, ctx);
    if (st == ST_OK && state->me == 0 && dev_is_discrete(ctx->config.dev))
        p2p_log_gpu(state->root->p2p);
    return comm_p2p_finish(ctx, st);
}

static void ctx_close(struct comm_ctx *ctx)
{
    if (ctx->state != NULL)
        state_free(ctx->state);
    ctx->state = NULL;
}

static const char *backend(const struct comm_ctx *ctx)
{
    return ((const struct comm_p2p *)ctx->state)->root->backend;
}

static const char *describe(const struct comm_ctx *ctx)
{
    return ((const struct comm_p2p *)ctx->state)->root->name;
}

/* The members agree on a number for their group: the greatest that is free with all of them. They
 * tell each other in the parent's group, where each of them stands at the same place. */
static enum status agree_on_group(struct comm_p2p *state, struct comm_ctx *ctx)
{
    struct p2p_wait wait = comm_p2p_wait(ctx);
    int32_t mine = state->root->group_next, next = mine;
    TRY(p2p_eager_begin(&state->eager, ctx->call, &mine, 0, sizeof(mine)));
    TRY(p2p_eager_end(&state->eager, ctx, &wait));
    gather_sources(state, &mine);
    for (int r = 0; r < state->n; r++) {
        int32_t theirs;
        memcpy(&theirs, state->sources[r], sizeof(theirs));
        next = theirs > next ? theirs : next;
    }
    if (next >= P2P_GROUPS)
        return FAIL(ST_BUG, "more than %d groups of ranks in one life of a comm", P2P_GROUPS);
    state->eager.group = state->pipeline.group = next; /* of two_level: opened later */
    state->root->group_next = next + 1;
    return ST_OK;
}

static enum status split(struct comm_ctx *ctx)
{
    const struct comm_p2p *parent = ctx->parent->state;
    TRY(new_state(ctx));
    struct comm_p2p *state = ctx->state;
    state->root = parent->root;
    TRY(open_members(state, ctx, parent->eager.group));
    enum status st = agree_on_group(state, ctx);
    struct comm_shm *share = NULL;
    if (st == ST_OK && ctx->config.place.locals > 1)
        st = comm_shm_split(parent->shm.shm, ctx, &share);
    if (share != NULL)
        st = open_two_level(state, ctx, share);
    if (st == ST_OK && ctx->parent->has_gpu_direct)
        st = open_gpu(state, ctx);
    return comm_p2p_finish(ctx, st);
}

static enum status alloc(struct comm_ctx *ctx, int64_t bytes, void **out)
{
    struct comm_p2p *state = ctx->state;
    return comm_shm_alloc(state->shm.shm, bytes, out);
}

/* ---- collectives ---- */

static struct p2p_pipeline_call pipeline_call(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_p2p *state = ctx->state;
    for (int r = 0; r < state->n; r++)
        state->parts[r] = part_extent(call->elems, state->n, r);
    return (struct p2p_pipeline_call){.parts = state->parts,
                                      .sequence = call->sequence,
                                      .dtype = call->dtype,
                                      .dtype_out = call->dtype,
                                      .poll = check_peers,
                                      .arg = ctx};
}

/* How large calls travel whose buffers lie in one kind of memory. */
struct route {
    struct p2p_pipeline *flat;
    struct p2p_two_level *two_level; /* zeroed: each node has one worker */
    struct p2p_wait wait;
};

/* The headers, and behind them without waiting the chunks. */
static enum status run_route(struct comm_ctx *ctx, const struct comm_call *call,
                             const struct p2p_pipeline_call *large, struct route *route)
{
    struct comm_p2p *state = ctx->state;
    const bool is_two_level = route->two_level->ops != NULL;
    TRY(p2p_eager_begin(&state->eager, call, NULL, 0, 0));
    if (is_two_level)
        TRY(p2p_two_level_run(route->two_level, call, *large, &route->wait));
    else if (call->kind == COMM_CALL_BROADCAST)
        TRY(p2p_pipeline_broadcast(route->flat, large, transport_bytes(call), call->peer,
                                   &route->wait));
    else
        TRY(p2p_pipeline_run(route->flat, large, &route->wait));
    TRY(p2p_eager_end(&state->eager, ctx, &route->wait));
    return is_two_level ? p2p_two_level_end(route->two_level, call, *large, &route->wait) : ST_OK;
}

static enum status run_large(struct comm_ctx *ctx, const struct comm_call *call,
                             const struct p2p_pipeline_call *large)
{
    struct comm_p2p *state = ctx->state;
    struct route host = {.flat = &state->pipeline,
                         .two_level = &state->two_level,
                         .wait = wait_of_large(ctx, transport_bytes(call))};
    return run_route(ctx, call, large, &host);
}

static enum status run_small(struct comm_ctx *ctx, const struct comm_call *call,
                             const void *content, int64_t stride, int64_t bytes)
{
    struct comm_p2p *state = ctx->state;
    struct p2p_wait wait = comm_p2p_wait(ctx);
    TRY(p2p_eager_begin(&state->eager, call, content, stride, bytes));
    return p2p_eager_end(&state->eager, ctx, &wait);
}

static int64_t part_bytes_max(const struct comm_p2p *state, const struct comm_call *call)
{
    int64_t most = 0;
    for (int r = 0; r < state->n; r++) {
        int64_t elems = part_extent(call->elems, state->n, r).elems;
        most = elems > most ? elems : most;
    }
    return most * (int64_t)dtype_bytes(call->dtype);
}

/* Everybody's contribution to each part, to its owner, who adds them up in own_out. */
static enum status scatter_small(struct comm_ctx *ctx, const struct comm_call *call, void *own_out)
{
    struct comm_p2p *state = ctx->state;
    struct p2p_wait wait = comm_p2p_wait(ctx);
    int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    p2p_eager_set_call(&state->eager, call);
    for (int i = 1; i < state->n; i++) {
        int r = (state->me + i) % state->n;
        struct part_extent part = part_extent(call->elems, state->n, r);
        if (part.elems > 0)
            memcpy(p2p_eager_to_send(&state->eager, r),
                   (const char *)call->in + part.first * elem_bytes,
                   (size_t)(part.elems * elem_bytes));
        TRY(p2p_eager_exchange(&state->eager, r, P2P_TAG_HEADER, part.elems * elem_bytes));
    }
    TRY(p2p_eager_end(&state->eager, ctx, &wait));
    struct part_extent mine = part_extent(call->elems, state->n, state->me);
    gather_sources(state, (const char *)call->in + mine.first * elem_bytes);
    sum_sources(state, ctx, call->dtype, own_out, mine.elems);
    return ST_OK;
}

/* all_reduce of parts that are eager_max: they go to their owners with the meeting, and finished to
 * all. */
static enum status reduce_parts(struct comm_ctx *ctx, const struct comm_call *call,
                                struct p2p_pipeline_call *parts)
{
    struct comm_p2p *state = ctx->state;
    struct p2p_wait wait = comm_p2p_wait(ctx);
    TRY(scatter_small(ctx, call, parts->own_out));
    parts->in = NULL;
    return p2p_pipeline_run(&state->pipeline, parts, &wait);
}

static enum status all_reduce(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_p2p *state = ctx->state;
    int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    if (call->elems * elem_bytes <= state->eager_max) {
        enum status st = run_small(ctx, call, call->in, 0, call->elems * elem_bytes);
        gather_sources(state, call->in);
        if (st == ST_OK)
            sum_sources(state, ctx, call->dtype, call->out, call->elems);
        return comm_p2p_finish(ctx, st);
    }
    struct p2p_pipeline_call large = pipeline_call(ctx, call);
    large.in = call->in;
    large.is_whole = call->elems * elem_bytes <= state->whole_max && state->two_level.ops == NULL;
    if (large.is_whole) {
        for (int r = 0; r < state->n; r++)
            state->parts[r] = (struct part_extent){.elems = call->elems};
        large.own_out = call->out;
    } else {
        large.out = call->out;
        large.own_out =
            large.out + part_extent(call->elems, state->n, state->me).first * elem_bytes;
    }
    if (!large.is_whole && part_bytes_max(state, call) <= state->eager_max)
        return comm_p2p_finish(ctx, reduce_parts(ctx, call, &large));
    return comm_p2p_finish(ctx, run_large(ctx, call, &large));
}

static enum status reduce_scatter(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_p2p *state = ctx->state;
    if (part_bytes_max(state, call) <= state->eager_max)
        return comm_p2p_finish(ctx, scatter_small(ctx, call, call->out));
    struct p2p_pipeline_call large = pipeline_call(ctx, call);
    large.in = call->in;
    large.own_out = call->out;
    return comm_p2p_finish(ctx, run_large(ctx, call, &large));
}

static enum status gather_small(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_p2p *state = ctx->state;
    int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    struct part_extent mine = part_extent(call->elems, state->n, state->me);
    char *out = call->out;
    TRY(run_small(ctx, call, out + mine.first * elem_bytes, 0, mine.elems * elem_bytes));
    for (int r = 0; r < state->n; r++) {
        struct part_extent part = part_extent(call->elems, state->n, r);
        if (r != state->me && part.elems > 0)
            memcpy(out + part.first * elem_bytes, p2p_eager_received(&state->eager, r),
                   (size_t)(part.elems * elem_bytes));
    }
    return ST_OK;
}

static enum status all_gather(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_p2p *state = ctx->state;
    int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    struct part_extent mine = part_extent(call->elems, state->n, state->me);
    struct p2p_pipeline_call large = pipeline_call(ctx, call);
    large.out = call->out;
    large.own_out = large.out + mine.first * elem_bytes;
    if (large.own_out != call->in && mine.elems > 0)
        memmove(large.own_out, call->in, (size_t)(mine.elems * elem_bytes));
    if (part_bytes_max(state, call) <= state->eager_max)
        return comm_p2p_finish(ctx, gather_small(ctx, call));
    return comm_p2p_finish(ctx, run_large(ctx, call, &large));
}

static enum status all_to_all(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_p2p *state = ctx->state;
    int64_t bytes = transport_bytes(call);
    const char *in = call->in;
    char *out = call->out;
    if (bytes > 0)
        memcpy(out + state->me * bytes, in + state->me * bytes, (size_t)bytes);
    if (bytes <= state->eager_max) {
        enum status st = run_small(ctx, call, in, bytes, bytes);
        for (int r = 0; r < state->n && st == ST_OK && bytes > 0; r++) {
            if (r != state->me)
                memcpy(out + r * bytes, p2p_eager_received(&state->eager, r), (size_t)bytes);
        }
        return comm_p2p_finish(ctx, st);
    }
    struct p2p_wait wait = wait_of_large(ctx, bytes * state->n);
    struct p2p_pipeline_call large = pipeline_call(ctx, call);
    large.in = in;
    large.out = out;
    enum status st = p2p_eager_begin(&state->eager, call, NULL, 0, 0);
    if (st == ST_OK)
        st = p2p_pipeline_all_to_all(&state->pipeline, &large, call->elems, &wait);
    return comm_p2p_finish(ctx, st == ST_OK ? p2p_eager_end(&state->eager, ctx, &wait) : st);
}

static enum status broadcast(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_p2p *state = ctx->state;
    int64_t bytes = transport_bytes(call);
    bool is_root = call->peer == state->me;
    if (bytes <= state->eager_max) {
        enum status st = run_small(ctx, call, call->in, 0, is_root ? bytes : 0);
        if (st == ST_OK && !is_root && bytes > 0)
            memcpy(call->out, p2p_eager_received(&state->eager, call->peer), (size_t)bytes);
        return comm_p2p_finish(ctx, st);
    }
    struct p2p_pipeline_call large = pipeline_call(ctx, call);
    large.out = call->out;
    return comm_p2p_finish(ctx, run_large(ctx, call, &large));
}

static enum status barrier(struct comm_ctx *ctx, const struct comm_call *call)
{
    return comm_p2p_finish(ctx, run_small(ctx, call, NULL, 0, 0));
}

/* Between GPUs' memory: no content goes with the headers. */
static enum status direct(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_p2p *state = ctx->state;
    struct route gpu = {
        .flat = &state->gpu.flat, .two_level = &state->gpu.two_level, .wait = comm_p2p_wait(ctx)};
    struct p2p_pipeline_call large = pipeline_call(ctx, call);
    const int64_t own = state->parts[state->me].first * (int64_t)dtype_bytes(call->dtype);
    const bool is_sum =
        call->kind == COMM_CALL_ALL_REDUCE || call->kind == COMM_CALL_REDUCE_SCATTER;
    large.in = is_sum ? call->in : NULL;
    large.out = call->kind == COMM_CALL_REDUCE_SCATTER ? NULL : call->out;
    large.own_out = call->kind == COMM_CALL_ALL_REDUCE       ? large.out + own
                    : call->kind == COMM_CALL_REDUCE_SCATTER ? call->out
                                                             : (char *)(uintptr_t)call->in;
    enum status st = p2p_gpu_begin(&state->gpu, ctx, call);
    if (st == ST_OK)
        st = run_route(ctx, call, &large, &gpu);
    return comm_p2p_finish(ctx, st == ST_OK ? p2p_gpu_end(&state->gpu, ctx) : st);
}

const struct transport_ops comm_p2p_ops = {
    .kind = COMM_KIND_HOST,
    .name = "p2p",
    .begin_open = begin_open,
    .end_open = end_open,
    .close = ctx_close,
    .backend = backend,
    .describe = describe,
    .alloc = alloc,
    .split = split,
    .entered = entered,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .broadcast = broadcast,
    .send = comm_p2p_pair_send,
    .recv = comm_p2p_pair_recv,
    .barrier = barrier,
    .gpu_direct = direct,
};
