/* tensor_axis — see tensor_axis.h. */
#include "mesh/tensor_axis.h"

#include "base/assert.h"
#include "base/clock.h"
#include "comm/core/part.h"

/* check_parts — equal parts, as the model expects them. */
static enum status check_parts(const struct tensor_axis *a, const char *call, int64_t elems)
{
    int64_t parts = a->model.parts;
    if (elems % parts == 0 && elems / parts % PART_ALIGN == 0)
        return ST_OK;
    return FAIL(ST_BUG, "%s of %lld elements: not %lld parts of a multiple of %d", call,
                (long long)elems, (long long)parts, PART_ALIGN);
}

/* count — a call that blocked this thread since start_ns. */
static enum status count(struct tensor_axis *a, int64_t start_ns, enum status st)
{
    a->blocked_ms += (double)(clock_ns() - start_ns) * 1e-6;
    return st;
}

double tensor_axis_blocked_ms(struct tensor_axis *a)
{
    double ms = a->blocked_ms;
    a->blocked_ms = 0;
    return ms;
}

static enum status gather(void *arg, struct stream *s, struct tensor out, struct tensor own,
                          int64_t elems)
{
    struct tensor_axis *a = arg;
    struct comm_ticket ticket;
    int64_t start_ns = clock_ns();
    TRY(check_parts(a, "gather", elems));
    TRY(comm_wait_stream(a->comm, s));
    if (!comm_stays_on_device(a->comm))
        return count(a, start_ns, comm_all_gather(a->comm, out, own, elems));
    TRY(comm_all_gather_begin(a->comm, out, own, elems, &ticket));
    return comm_wait_on(a->comm, ticket, s);
}

static enum status scatter_sum(void *arg, struct stream *s, struct tensor own, struct tensor in,
                               int64_t elems)
{
    struct tensor_axis *a = arg;
    struct comm_ticket ticket;
    int64_t start_ns = clock_ns();
    TRY(check_parts(a, "scatter_sum", elems));
    TRY(comm_wait_stream(a->comm, s));
    if (!comm_stays_on_device(a->comm))
        return count(a, start_ns, comm_reduce_scatter(a->comm, own, in, elems));
    TRY(comm_reduce_scatter_begin(a->comm, own, in, elems, &ticket));
    return comm_wait_on(a->comm, ticket, s);
}

/* comm_of — of the neighbours that share a tensor. */
static struct comm *comm_of(const struct tensor_axis *a, int copies)
{
    if (copies == a->model.parts)
        return a->comm;
    ASSERTF(a->keys && copies == a->keys_n, "%d copies; key heads have %d", copies, a->keys_n);
    return a->keys;
}

static enum status sum(void *arg, struct stream *s, struct tensor x, int64_t elems, int copies)
{
    struct comm *comm = comm_of(arg, copies);
    struct comm_ticket ticket;
    int64_t start_ns = clock_ns();
    TRY(comm_wait_stream(comm, s));
    if (!comm_stays_on_device(comm))
        return count(arg, start_ns, comm_all_reduce(comm, x, x, elems));
    TRY(comm_all_reduce_begin(comm, x, x, elems, &ticket));
    return comm_wait_on(comm, ticket, s);
}

/* set_calls — of all ranks of a comm. */
static void set_calls(struct tensor_axis *a, struct comm *comm)
{
    *a = (struct tensor_axis){.model = {.part = comm_place(comm)->rank,
                                        .parts = comm_place(comm)->ranks,
                                        .arg = a,
                                        .gather = gather,
                                        .scatter_sum = scatter_sum,
                                        .sum = sum},
                              .comm = comm,
                              .keys_n = 1};
}

void tensor_axis_of_context(struct comm *comm, struct tensor_axis *out) { set_calls(out, comm); }

enum status tensor_axis_open(struct comm *comm, const struct model_dims *dims,
                             struct tensor_axis *out)
{
    int ranks = comm_place(comm)->ranks, rank = comm_place(comm)->rank,
        heads = (int)dims->part.kv_heads;
    ASSERTF(ranks == dims->part.tensor_ranks && rank == dims->part.tensor_rank,
            "rank %d of %d, but the model is part %d of %d", rank, ranks, dims->part.tensor_rank,
            dims->part.tensor_ranks);
    set_calls(out, comm);
    out->keys_n = heads < ranks ? ranks / heads : 1;
    if (out->keys_n == 1 || out->keys_n == ranks)
        return ST_OK;
    int neighbour[COMM_RANKS_MAX];
    for (int i = 0; i < out->keys_n; i++)
        neighbour[i] = rank / out->keys_n * out->keys_n + i;
    return comm_split(comm, neighbour, out->keys_n, &out->keys);
}

void tensor_axis_close(struct tensor_axis *a)
{
    comm_close(a->keys);
    *a = (struct tensor_axis){0};
}
