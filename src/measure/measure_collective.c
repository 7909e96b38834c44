/* measure_collective — see measure_collective.h. */
#include "measure/measure_collective.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/quantile.h"
#include "comm/core/part.h"
#include "measure/measure_pattern.h"
#include "measure/measure_ranks.h"
#include "measure/measure_time.h"

/* ---- life ---- */

enum status measure_collective_open(struct measure_collective_memory *memory, struct comm *comm,
                                    struct dev *dev, int64_t bytes, bool has_other)
{
    *memory = (struct measure_collective_memory){.bytes = bytes};
    /* the parts of an all_to_all have the same size: its buffer is rounded up */
    const int64_t all = bytes + comm_place(comm)->ranks * (int64_t)sizeof(float);
    void *data = NULL, *other = NULL;
    TRY(comm_alloc(comm, all, &data));
    memory->data = memory->host = data;
    if (has_other)
        TRY(comm_alloc(comm, all, &other));
    memory->other = other;
    if (!dev_is_discrete(dev))
        return ST_OK;
    memory->host = NULL;
    TRY(dev_stream_open(dev, &memory->stream));
    memory->host = malloc((size_t)all);
    return memory->host != NULL
               ? ST_OK
               : FAIL(memory_status(all), "out of memory: %lld bytes to compare", (long long)all);
}

void measure_collective_close(struct measure_collective_memory *memory)
{
    if (memory->host != memory->data)
        free(memory->host);
    dev_stream_close(memory->stream);
    *memory = (struct measure_collective_memory){0};
}

/* ---- one call ---- */

/* A call in its group. */
struct run {
    const struct measure_collective_memory *memory;
    struct comm *group;
    const struct measure_collective_call *call;
    int rank, ranks;
    int64_t elems; /* elements of the whole buffer; with all_to_all a multiple of ranks */
    struct part_extent part;
    struct tensor data, other;
};

static struct run run_of(const struct measure_collective_memory *memory, struct comm *group,
                         const struct measure_collective_call *call)
{
    const struct comm_place *place = comm_place(group);
    struct run run = {.memory = memory,
                      .group = group,
                      .call = call,
                      .rank = place->rank,
                      .ranks = place->ranks,
                      .elems = call->bytes / (int64_t)dtype_bytes(call->dtype)};
    run.data = tensor_at((struct tensor){memory->data, call->dtype}, call->at_elems);
    run.other = tensor_at((struct tensor){memory->other, call->dtype}, call->at_elems);
    if (call->collective == BUS_COLLECTIVE_ALL_TO_ALL)
        run.elems = (run.elems + run.ranks - 1) / run.ranks * run.ranks;
    run.part = part_extent(run.elems, run.ranks, run.rank);
    return run;
}

static bool has_other(const struct run *run)
{
    return run->call->collective == BUS_COLLECTIVE_ALL_TO_ALL ||
           run->call->collective == BUS_COLLECTIVE_SEND_RECV;
}

/* Copies between a device's buffer and the host's; on a host they are the same. */
static enum status copy_buffer(const struct run *run, void *to, const void *from)
{
    if (run->memory->stream == NULL)
        return ST_OK;
    TRY(dev_copy(run->memory->stream, to, from,
                 (size_t)run->elems * dtype_bytes(run->call->dtype)));
    return dev_sync(run->memory->stream);
}

/* Returns the memory in which the host writes and reads a buffer. */
static char *host_of(const struct run *run, struct tensor t)
{
    return run->memory->stream != NULL ? run->memory->host : t.data;
}

static enum status reduce_scatter(const struct run *run)
{
    TRY(comm_reduce_scatter(run->group, tensor_at(run->data, run->part.first), run->data,
                            run->elems));
    /* For tests: inverts the lowest bit of the middle element of this rank's part. */
    if (!run->call->flips || run->part.elems == 0)
        return ST_OK;
    char *host = host_of(run, run->data);
    TRY(copy_buffer(run, host, run->data.data));
    const int64_t i = run->part.first + run->part.elems / 2;
    host[i * (int64_t)dtype_bytes(run->data.dtype)] ^= 1;
    return copy_buffer(run, run->data.data, host);
}

static enum status all_gather(const struct run *run)
{
    return comm_all_gather(run->group, run->data, tensor_at(run->data, run->part.first),
                           run->elems);
}

static int next_of(const struct run *run) { return (run->rank + 1) % run->ranks; }
static int last_of(const struct run *run) { return (run->rank + run->ranks - 1) % run->ranks; }

/* Even ranks send first, so that no two ranks wait for each other. */
static enum status send_recv(const struct run *run)
{
    if (run->ranks == 1)
        return ST_OK;
    if (run->rank % 2 == 0)
        TRY(comm_send(run->group, run->other, run->elems, next_of(run)));
    TRY(comm_recv(run->group, run->data, run->elems, last_of(run)));
    return run->rank % 2 == 0 ? ST_OK : comm_send(run->group, run->other, run->elems, next_of(run));
}

static enum status run_collective(void *arg)
{
    const struct run *run = arg;
    switch (run->call->collective) {
    case BUS_COLLECTIVE_ALL_REDUCE:
        if (!run->call->is_split)
            return comm_all_reduce(run->group, run->data, run->data, run->elems);
        TRY(reduce_scatter(run));
        return all_gather(run);
    case BUS_COLLECTIVE_REDUCE_SCATTER:
        return reduce_scatter(run);
    case BUS_COLLECTIVE_ALL_GATHER:
        return all_gather(run);
    case BUS_COLLECTIVE_ALL_TO_ALL:
        return comm_all_to_all(run->group, run->data, run->other, run->elems / run->ranks);
    case BUS_COLLECTIVE_BROADCAST:
        return comm_broadcast(run->group, run->data, run->elems, run->ranks - 1);
    default:
        return send_recv(run);
    }
}

enum status measure_collective_make(const struct measure_collective_memory *memory,
                                    struct comm *group, const struct measure_collective_call *call)
{
    struct run run = run_of(memory, group, call);
    return run_collective(&run);
}

/* ---- right or wrong ---- */

static int64_t count_copies(const struct run *run, const char *host, int from, int64_t first,
                            int64_t n)
{
    struct measure_pattern p;
    measure_pattern_copy(&p, run->call->dtype, from, 0);
    return measure_pattern_wrong(&p, host, first, n);
}

static int64_t count_sums(const struct run *run, const char *host, int64_t first, int64_t n)
{
    struct measure_pattern p;
    measure_pattern_sum(&p, run->call->dtype, run->ranks);
    return measure_pattern_wrong(&p, host, first, n);
}

/* Counts the wrong elements of an all_gather's parts. */
static int64_t count_parts(const struct run *run, const char *host)
{
    int64_t wrong = 0;
    for (int r = 0; r < run->ranks; r++) {
        const struct part_extent part = part_extent(run->elems, run->ranks, r);
        wrong += count_copies(run, host, r, part.first, part.elems);
    }
    return wrong;
}

/* Counts the wrong elements of an all_to_all's blocks. */
static int64_t count_blocks(const struct run *run, const char *host)
{
    const int64_t each = run->elems / run->ranks;
    int64_t wrong = 0;
    for (int r = 0; r < run->ranks; r++) {
        struct measure_pattern p;
        measure_pattern_copy(&p, run->call->dtype, r, run->rank);
        wrong += measure_pattern_wrong(&p, host + r * each * (int64_t)dtype_bytes(run->call->dtype),
                                       0, each);
    }
    return wrong;
}

static int64_t count_wrong(const struct run *run)
{
    const char *host = host_of(run, run->data);
    switch (run->call->collective) {
    case BUS_COLLECTIVE_ALL_REDUCE:
        return count_sums(run, host, 0, run->elems);
    case BUS_COLLECTIVE_REDUCE_SCATTER:
        return count_sums(run, host, run->part.first, run->part.elems);
    case BUS_COLLECTIVE_ALL_GATHER:
        return count_parts(run, host);
    case BUS_COLLECTIVE_ALL_TO_ALL:
        return count_blocks(run, host);
    case BUS_COLLECTIVE_BROADCAST:
        return count_copies(run, host, run->ranks - 1, 0, run->elems);
    default:
        return run->ranks == 1 ? 0 : count_copies(run, host, last_of(run), 0, run->elems);
    }
}

enum status measure_collective_right(const struct measure_collective_memory *memory,
                                     struct comm *group, const struct measure_collective_call *call,
                                     int64_t *wrong_out, double *us_out)
{
    struct run run = run_of(memory, group, call);
    /* Writes this rank's input; nothing of the previous call is left. */
    const struct tensor in = has_other(&run) ? run.other : run.data;
    const int64_t each = run.elems / run.ranks, each_bytes = each * (int64_t)dtype_bytes(in.dtype);
    struct measure_pattern p;
    char *host = host_of(&run, in);
    switch (run.call->collective) {
    case BUS_COLLECTIVE_ALL_REDUCE:
    case BUS_COLLECTIVE_REDUCE_SCATTER:
        measure_pattern_summand(&p, in.dtype, run.rank, run.ranks);
        measure_pattern_fill(&p, host, 0, run.elems);
        break;
    case BUS_COLLECTIVE_ALL_TO_ALL:
        for (int r = 0; r < run.ranks; r++) {
            measure_pattern_copy(&p, in.dtype, run.rank, r);
            measure_pattern_fill(&p, host + r * each_bytes, 0, each);
        }
        break;
    default:
        measure_pattern_copy(&p, in.dtype, run.rank, 0);
        measure_pattern_fill(&p, host, 0, run.elems);
        break;
    }
    if (has_other(&run) && run.memory->stream == NULL)
        memset(run.data.data, 0xff, (size_t)run.elems * dtype_bytes(run.data.dtype));
    TRY(copy_buffer(&run, in.data, host));
    const int64_t begin_ns = clock_ns();
    TRY(comm_barrier(group));
    TRY(run_collective(&run));
    *us_out = (double)(clock_ns() - begin_ns) * 1e-3;
    TRY(copy_buffer(&run, host_of(&run, run.data), run.data.data));
    *wrong_out = count_wrong(&run);
    return ST_OK;
}

/* ---- time ---- */

enum status measure_collective_time(const struct measure_collective_memory *memory,
                                    struct comm *group, const struct measure_collective_call *call,
                                    int runs, double *best_us_out, double *median_us_out)
{
    struct measure_collective_call plain = *call;
    plain.is_split = plain.flips = false;
    struct run run = run_of(memory, group, &plain);
    const struct measure_timer timer = {.comm = group};
    double seconds[MEASURE_COLLECTIVE_RUNS_MAX];
    runs = runs > MEASURE_COLLECTIVE_RUNS_MAX ? MEASURE_COLLECTIVE_RUNS_MAX : runs;
    memset(host_of(&run, run.data), 0, (size_t)run.elems * dtype_bytes(run.data.dtype));
    /* zeros stay finite however often they are added */
    TRY(copy_buffer(&run, run.data.data, host_of(&run, run.data)));
    TRY(measure_time_runs(&timer, run_collective, &run, 1, seconds, runs));
    TRY(measure_ranks_max(group, seconds, runs));
    *median_us_out = 1e6 * quantile_median(seconds, runs);
    *best_us_out = 1e6 * seconds[0]; /* sorted */
    return ST_OK;
}
