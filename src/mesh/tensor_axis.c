/* tensor_axis — see tensor_axis.h. */
#include "mesh/tensor_axis.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/core/part.h"
#include "mesh/grad/tree.h"
#include "mesh/store/shard_tree.h"

/* check_parts — checks that the shares are equal, as the model expects. */
static enum status check_parts(const struct tensor_axis *a, const char *call, int64_t elems)
{
    int64_t ranks = a->model.ranks;
    if (elems % ranks == 0 && elems / ranks % PART_ALIGN == 0)
        return ST_OK;
    return FAIL(ST_BUG, "%s of %lld elements: not %lld parts of a multiple of %d", call,
                (long long)elems, (long long)ranks, PART_ALIGN);
}

/* end_blocked — counts a call that blocked this thread since start_ns. */
static enum status end_blocked(struct tensor_axis *a, struct stream *s, int64_t start_ns,
                               enum status st)
{
    a->blocked_ms += (double)(clock_ns() - start_ns) * 1e-6;
    TRY(st);
    return dev_busy_resume(s);
}

double tensor_axis_blocked_ms(struct tensor_axis *a)
{
    double ms = a->blocked_ms;
    a->blocked_ms = 0;
    return ms;
}

static enum status gather(void *arg, struct stream *s, struct tensor own, struct tensor *all,
                          int64_t elems)
{
    struct tensor_axis *a = arg;
    struct comm *comm = a->all.comm;
    struct comm_ticket ticket;
    int64_t start_ns = clock_ns();
    TRY(check_parts(a, "gather", elems));
    TRY(dev_busy_pause(s));
    TRY(comm_wait_stream(comm, s));
    if (!comm_stays_on_device(comm))
        return end_blocked(a, s, start_ns, comm_all_gather(comm, *all, own, elems));
    TRY(comm_all_gather_begin(comm, *all, own, elems, &ticket));
    return comm_wait_on(comm, ticket, s);
}

/* sum_in_tree — writes the whole sum to to_all, or this rank's part to to_own. */
static enum status sum_in_tree(const struct tensor_axis_group *g, struct tensor x, int64_t elems,
                               struct tensor to_all, struct tensor to_own)
{
    struct comm_ticket ticket;
    const float *partial[] = {x.data};
    ASSERT(x.dtype == DTYPE_F32);
    TRY(grad_tree_begin(g->tree, 0, partial, elems, to_all.data, to_own.data, &ticket));
    return comm_wait(g->comm, ticket);
}

static enum status scatter_sum(void *arg, struct stream *s, struct tensor own, struct tensor in,
                               int64_t elems)
{
    struct tensor_axis *a = arg;
    struct comm *comm = a->all.comm;
    struct comm_ticket ticket;
    int64_t start_ns = clock_ns();
    TRY(check_parts(a, "scatter_sum", elems));
    TRY(dev_busy_pause(s));
    TRY(comm_wait_stream(comm, s));
    if (a->all.tree)
        return end_blocked(a, s, start_ns,
                           sum_in_tree(&a->all, in, elems, (struct tensor){0}, own));
    if (!comm_stays_on_device(comm))
        return end_blocked(a, s, start_ns, comm_reduce_scatter(comm, own, in, elems));
    TRY(comm_reduce_scatter_begin(comm, own, in, elems, &ticket));
    return comm_wait_on(comm, ticket, s);
}

static enum status sum(void *arg, struct stream *s, struct tensor x, int64_t elems, int copies)
{
    /* The neighbours that share the tensor. */
    const struct tensor_axis *a = arg;
    const bool is_all = copies == a->model.ranks;
    ASSERTF(is_all || (a->keys.comm && copies == a->keys_n), "%d copies; key heads have %d", copies,
            a->keys_n);
    const struct tensor_axis_group *g = is_all ? &a->all : &a->keys;
    struct comm_ticket ticket;
    int64_t start_ns = clock_ns();
    TRY(dev_busy_pause(s));
    TRY(comm_wait_stream(g->comm, s));
    if (g->tree)
        return end_blocked(arg, s, start_ns, sum_in_tree(g, x, elems, x, (struct tensor){0}));
    if (!comm_stays_on_device(g->comm))
        return end_blocked(arg, s, start_ns, comm_all_reduce(g->comm, x, x, elems));
    TRY(comm_all_reduce_begin(g->comm, x, x, elems, &ticket));
    return comm_wait_on(g->comm, ticket, s);
}

/* ---- a fixed order ---- */

/* open_tree — opens sums in the order of shard_tree.h, with one shard for each rank: an order that
 * depends only on the number of ranks. With a power of two of ranks, or with 3, the comm's own sums
 * have that order, and no tree is needed. */
static enum status open_tree(struct tensor_axis_group *g)
{
    const struct comm_place *place = comm_place(g->comm);
    g->begin = memory_new((size_t)place->ranks + 1, sizeof *g->begin);
    shard_tree_deal(place->ranks, place->ranks, g->begin);
    if (shard_tree_is_of_ranks(g->begin, 1, place->nodes, place->locals))
        return ST_OK;
    const struct grad_tree_config config = {
        .comm = g->comm, .begin = g->begin, .contexts = 1, .buckets_n = 1};
    return grad_tree_open(&config, &g->tree);
}

static void close_tree(struct tensor_axis_group *g)
{
    grad_tree_close(g->tree);
    free(g->begin);
}

/* ---- open and close ---- */

/* set_calls — sets the calls of all ranks of a comm; NULL: of one rank. */
static enum status set_calls(struct tensor_axis *a, struct comm *comm, bool is_fixed)
{
    *a = (struct tensor_axis){.model = model_axis_self};
    if (!comm)
        return ST_OK;
    *a = (struct tensor_axis){.model = {.at = comm_place(comm)->rank,
                                        .ranks = comm_place(comm)->ranks,
                                        .arg = a,
                                        .gather = gather,
                                        .scatter_sum = scatter_sum,
                                        .sum = sum},
                              .all = {.comm = comm},
                              .keys_n = 1};
    return is_fixed ? open_tree(&a->all) : ST_OK;
}

enum status tensor_axis_of_context(struct comm *comm, bool is_fixed, struct tensor_axis *out)
{
    return set_calls(out, comm, is_fixed);
}

enum status tensor_axis_open(struct comm *comm, const struct model_dims *dims, bool is_fixed,
                             struct tensor_axis *out)
{
    TRY(set_calls(out, comm, is_fixed));
    int ranks = out->model.ranks, rank = out->model.at, heads = (int)dims->shard.kv_heads;
    ASSERTF(ranks == model_tensor_ranks(dims) && rank == dims->shard.tensor_rank,
            "rank %d of %d, but the model is shard %d of %d", rank, ranks, dims->shard.tensor_rank,
            model_tensor_ranks(dims));
    out->keys_n = heads > 0 && heads < ranks ? ranks / heads : 1;
    if (out->keys_n == 1 || out->keys_n == ranks)
        return ST_OK;
    int neighbour[COMM_RANKS_MAX];
    for (int i = 0; i < out->keys_n; i++)
        neighbour[i] = rank / out->keys_n * out->keys_n + i;
    TRY(comm_split(comm, neighbour, out->keys_n, &out->keys.comm));
    return is_fixed ? open_tree(&out->keys) : ST_OK;
}

void tensor_axis_close(struct tensor_axis *a)
{
    close_tree(&a->all);
    close_tree(&a->keys);
    comm_close(a->keys.comm);
    *a = (struct tensor_axis){0};
}
