/* counts — what a step of a rank does: the operations that its device executes and the calls that
 * its transport makes, counted by their sizes. */
#ifndef CONVOY_TESTS_PLAN_COUNTS_H
#define CONVOY_TESTS_PLAN_COUNTS_H

#include "mesh/ranks.h"

#include "comm/core/inside.h"
#include "dev/op_cost.h"

#define CALLS_MAX 64

struct counted_op {
    int64_t n, flops, bytes;
};
struct counted_call {
    enum comm_call_kind kind;
    int ranks, inside;
    int64_t bytes, n;
    int64_t begun; /* of n, not on the rank's own thread; in a plan, those that are hidden */
};
struct counts {
    struct counted_op op[OP_KIND_N];
    struct counted_call call[CALLS_MAX];
    int calls_n;
};

/* Of each rank; its operations run on its own thread, its calls also on its queue's. */
static struct counts counts[RANKS_MAX];
static pthread_mutex_t counts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dev *devs[RANKS_MAX];
static const struct op_table *real_ops;
static int locals_now;
static _Thread_local bool is_rank_thread;

static void count_op(const struct stream *s, enum op_kind op, const void *args)
{
    const struct dev *dev = ((const struct stream_head *)(const void *)s)->dev;
    struct op_cost cost;
    int rank = 0;
    while (rank < RANKS_MAX && devs[rank] != dev)
        rank++;
    if (rank == RANKS_MAX || !op_cost(op, args, &cost))
        return;
    struct counted_op *to = &counts[rank].op[op];
    to->n++;
    to->flops += cost.flops;
    to->bytes += cost.bytes_read + cost.bytes_written;
}

#define COUNTED_ENTRY(name)                                                   \
    static enum status counted_##name(struct stream *s, const struct name *a) \
    {                                                                         \
        count_op(s, OP_KIND_##name, a);                                       \
        return real_ops->name(s, a);                                          \
    }
OP_LIST(COUNTED_ENTRY)
#undef COUNTED_ENTRY

/* counting_dev — a CPU device whose table counts. */
static struct dev *counting_dev(int rank)
{
#define COUNTED_ROW(name) .name = counted_##name,
    static const struct op_table table = {OP_LIST(COUNTED_ROW)};
#undef COUNTED_ROW
    if (!devs[rank]) {
        assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &devs[rank]), ST_OK);
        struct dev_head *head = (struct dev_head *)(void *)devs[rank];
        real_ops = head->op;
        head->op = &table;
    }
    return devs[rank];
}

static int inside_of(const struct comm_ctx *ctx)
{
    int own = transport_root_rank(ctx, ctx->config.place.rank) / locals_now, n = 0;
    for (int i = 0; i < ctx->config.place.ranks; i++)
        n += transport_root_rank(ctx, i) / locals_now == own;
    return n;
}

static bool is_same(const struct counted_call *a, const struct counted_call *b)
{
    return a->kind == b->kind && a->ranks == b->ranks && a->inside == b->inside &&
           a->bytes == b->bytes;
}

static void add_call(struct counts *to, struct counted_call like)
{
    int i = 0;
    while (i < to->calls_n && !is_same(&to->call[i], &like))
        i++;
    if (i == CALLS_MAX)
        return; /* compare() sees it */
    if (i == to->calls_n) {
        to->call[to->calls_n++] = like;
        to->call[i].n = to->call[i].begun = 0;
    }
    to->call[i].n += like.n;
    to->call[i].begun += like.begun;
}

/* count_call — messages once, where they are sent; a group of one rank sends nothing. */
static void count_call(const struct comm_ctx *ctx, const struct comm_call *call)
{
    int ranks = ctx->config.place.ranks, rank = transport_root_rank(ctx, ctx->config.place.rank);
    struct counted_call like = {.kind = call->kind,
                                .ranks = ranks,
                                .inside = inside_of(ctx),
                                .begun = !is_rank_thread,
                                .n = 1};
    like.bytes = transport_bytes(call) * (call->kind == COMM_CALL_ALL_TO_ALL ? ranks : 1);
    if (call->kind == COMM_CALL_SEND) {
        int peer = transport_root_rank(ctx, call->peer);
        like.ranks = 2;
        like.inside = 1 + (peer / locals_now == rank / locals_now);
    }
    pthread_mutex_lock(&counts_lock);
    if (ranks > 1 && call->kind != COMM_CALL_RECV)
        add_call(&counts[rank], like);
    pthread_mutex_unlock(&counts_lock);
}

static enum status counted_run(struct comm_ctx *ctx, const struct comm_call *call)
{
    if (call->kind != COMM_CALL_BARRIER)
        count_call(ctx, call);
    return shm_threads_ops.run(ctx, call);
}

/* set_counting — of a comm and all that are split from it. */
static void set_counting(struct comm *comm)
{
    static struct transport_ops ops;
    pthread_mutex_lock(&counts_lock);
    ops = shm_threads_ops;
    ops.run = counted_run;
    pthread_mutex_unlock(&counts_lock);
    comm->ctx.ops = &ops;
}

#endif
