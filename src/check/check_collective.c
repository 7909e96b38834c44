/* check_collective — see check_collective.h.
 *
 * Sums. Every contribution is a whole number from 0 to 12. In fp32 all ranks contribute to each
 * element: sums stay below 2^24. bf16 holds whole numbers to 256 only, so at most SUMMANDS ranks
 * contribute to one element, in turn: then no order of additions rounds. */
#include "check/check_collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "check/check_gather.h"
#include "comm/core/part.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"

#define PERIOD 13
#define SUMMANDS 16
#define COPY_PERIOD 211 /* of what is copied, not summed: exact in bf16 too */

/* ---- life ---- */

enum status check_collective_open(struct check_collective_memory *memory, struct comm *comm,
                                  struct dev *dev, int64_t bytes)
{
    *memory = (struct check_collective_memory){.bytes = bytes};
    /* the parts of an all_to_all are of one size: its buffer is rounded up */
    const int64_t all = bytes + comm_place(comm)->ranks * (int64_t)sizeof(float);
    TRY(comm_alloc(comm, all, &memory->data));
    TRY(comm_alloc(comm, all, &memory->other));
    if (!dev_is_discrete(dev))
        return ST_OK;
    TRY(dev_stream_open(dev, &memory->stream));
    memory->host = malloc((size_t)all);
    return memory->host != NULL
               ? ST_OK
               : FAIL(memory_status(all), "out of memory: %lld bytes to compare", (long long)all);
}

void check_collective_close(struct check_collective_memory *memory)
{
    dev_stream_close(memory->stream);
    free(memory->host);
    *memory = (struct check_collective_memory){0};
}

/* ---- numbers ---- */

static void store(void *data, enum dtype dtype, int64_t i, float value)
{
    if (dtype == DTYPE_F32)
        ((float *)data)[i] = value;
    else
        ((uint16_t *)data)[i] =
            dtype == DTYPE_BF16 ? bf16_from_float(value) : f16_from_float(value);
}

static float load(const void *data, enum dtype dtype, int64_t i)
{
    if (dtype == DTYPE_F32)
        return ((const float *)data)[i];
    const uint16_t half = ((const uint16_t *)data)[i];
    return dtype == DTYPE_BF16 ? bf16_to_float(half) : f16_to_float(half);
}

/* In how many turns the ranks contribute to an element. */
static int turns_of(enum dtype dtype, int ranks)
{
    return dtype == DTYPE_F32 ? 1 : (ranks + SUMMANDS - 1) / SUMMANDS;
}

static float summand(int rank, int64_t i, int turns)
{
    return (i + rank) % turns == 0 ? (float)((i + 3 * (int64_t)rank) % PERIOD) : 0;
}

/* What the sums of all ranks repeat: PERIOD · turns values. NULL: out of memory. */
static float *new_sums(int ranks, int turns)
{
    float *sums = calloc((size_t)(PERIOD * turns), sizeof *sums);
    for (int64_t i = 0; i < PERIOD * turns && sums != NULL; i++)
        for (int r = 0; r < ranks; r++)
            sums[i] += summand(r, i, turns);
    return sums;
}

/* Element i of what `from` sends to `to`. */
static float copied(int from, int to, int64_t i)
{
    return (float)((i + 31 * (int64_t)from + 17 * (int64_t)to) % COPY_PERIOD);
}

/* ---- one call ---- */

/* A call in its group. */
struct run {
    const struct check_collective_memory *memory;
    struct comm *group;
    const struct check_collective_call *call;
    int rank, ranks;
    int64_t elems; /* of the whole buffer; of all_to_all a multiple of ranks */
    struct part_extent part;
    struct tensor data, other;
};

static struct run run_of(const struct check_collective_memory *memory, struct comm *group,
                         const struct check_collective_call *call)
{
    const struct comm_place *place = comm_place(group);
    struct run run = {.memory = memory,
                      .group = group,
                      .call = call,
                      .rank = place->rank,
                      .ranks = place->ranks,
                      .elems = call->bytes / (int64_t)dtype_bytes(call->dtype),
                      .data = {memory->data, call->dtype},
                      .other = {memory->other, call->dtype}};
    if (call->collective == BUS_COLLECTIVE_ALL_TO_ALL)
        run.elems = (run.elems + run.ranks - 1) / run.ranks * run.ranks;
    run.part = part_extent(run.elems, run.ranks, run.rank);
    return run;
}

/* Between a buffer and the host's copy; nothing to do where they are one. */
static enum status copy_out(const struct run *run, struct tensor to)
{
    const struct check_collective_memory *memory = run->memory;
    if (memory->stream == NULL)
        return ST_OK;
    TRY(dev_copy(memory->stream, to.data, memory->host,
                 (size_t)run->elems * dtype_bytes(to.dtype)));
    return dev_sync(memory->stream);
}

static enum status copy_in(const struct run *run)
{
    const struct check_collective_memory *memory = run->memory;
    if (memory->stream == NULL)
        return ST_OK;
    TRY(dev_copy(memory->stream, memory->host, run->data.data,
                 (size_t)run->elems * dtype_bytes(run->data.dtype)));
    return dev_sync(memory->stream);
}

static void *host_of(const struct run *run, struct tensor t)
{
    return run->memory->stream != NULL ? run->memory->host : t.data;
}

/* For tests: the lowest bit of the middle element of this rank's part is wrong. */
static enum status flip(const struct run *run)
{
    if (!run->call->flips || run->part.elems == 0)
        return ST_OK;
    TRY(copy_in(run));
    char *host = host_of(run, run->data);
    const int64_t i = run->part.first + run->part.elems / 2;
    host[i * (int64_t)dtype_bytes(run->data.dtype)] ^= 1;
    return copy_out(run, run->data);
}

static enum status reduce_scatter(const struct run *run)
{
    TRY(comm_reduce_scatter(run->group, tensor_at(run->data, run->part.first), run->data,
                            run->elems));
    return flip(run);
}

/* Even ranks send first, so that no two ranks wait for each other. */
static enum status send_recv(const struct run *run)
{
    const int to = (run->rank + 1) % run->ranks, from = (run->rank + run->ranks - 1) % run->ranks;
    if (run->ranks == 1)
        return ST_OK;
    if (run->rank % 2 == 0)
        TRY(comm_send(run->group, run->other, run->elems, to));
    TRY(comm_recv(run->group, run->data, run->elems, from));
    return run->rank % 2 == 0 ? ST_OK : comm_send(run->group, run->other, run->elems, to);
}

static enum status all_gather(const struct run *run)
{
    return comm_all_gather(run->group, run->data, tensor_at(run->data, run->part.first),
                           run->elems);
}

static enum status make(const struct run *run)
{
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

/* ---- right or wrong ---- */

static bool is_sum(enum bus_collective collective)
{
    return collective == BUS_COLLECTIVE_ALL_REDUCE || collective == BUS_COLLECTIVE_REDUCE_SCATTER;
}

static bool has_other(enum bus_collective collective)
{
    return collective == BUS_COLLECTIVE_ALL_TO_ALL || collective == BUS_COLLECTIVE_SEND_RECV;
}

/* What this rank puts in before the call. Nothing stays of the last call. */
static enum status fill(const struct run *run)
{
    const enum bus_collective collective = run->call->collective;
    const struct tensor in = has_other(collective) ? run->other : run->data;
    const int turns = turns_of(run->call->dtype, run->ranks);
    void *host = host_of(run, in);
    if (has_other(collective) && run->memory->stream == NULL)
        memset(run->data.data, 0xff, (size_t)run->elems * dtype_bytes(run->data.dtype));
    const int64_t each = run->elems / run->ranks;
    for (int64_t i = 0; i < run->elems; i++) {
        float value = is_sum(collective) ? summand(run->rank, i, turns) : copied(run->rank, 0, i);
        if (collective == BUS_COLLECTIVE_ALL_TO_ALL && each > 0)
            value = copied(run->rank, (int)(i / each), i % each);
        store(host, in.dtype, i, value);
    }
    return copy_out(run, in);
}

static int64_t count_copies(const struct run *run, const void *host, int from, int64_t first,
                            int64_t n)
{
    int64_t wrong = 0;
    for (int64_t i = first; i < first + n; i++)
        wrong += load(host, run->data.dtype, i) != copied(from, 0, i);
    return wrong;
}

static int64_t count_parts(const struct run *run, const void *host)
{
    int64_t wrong = 0;
    for (int r = 0; r < run->ranks; r++) {
        const struct part_extent part = part_extent(run->elems, run->ranks, r);
        wrong += count_copies(run, host, r, part.first, part.elems);
    }
    return wrong;
}

static int64_t count_blocks(const struct run *run, const void *host)
{
    const int64_t each = run->elems / run->ranks;
    int64_t wrong = 0;
    for (int64_t i = 0; i < run->elems; i++)
        wrong += load(host, run->data.dtype, i) != copied((int)(i / each), run->rank, i % each);
    return wrong;
}

/* -1: out of memory. */
static int64_t count_sums(const struct run *run, const void *host)
{
    const int turns = turns_of(run->call->dtype, run->ranks);
    const bool is_all = run->call->collective == BUS_COLLECTIVE_ALL_REDUCE;
    const int64_t first = is_all ? 0 : run->part.first, n = is_all ? run->elems : run->part.elems;
    float *sums = new_sums(run->ranks, turns);
    int64_t wrong = 0;
    if (sums == NULL)
        return -1;
    for (int64_t i = first; i < first + n; i++)
        wrong += load(host, run->data.dtype, i) != sums[i % (PERIOD * turns)];
    free(sums);
    return wrong;
}

static int64_t count_wrong(const struct run *run)
{
    const void *host = host_of(run, run->data);
    switch (run->call->collective) {
    case BUS_COLLECTIVE_ALL_REDUCE:
    case BUS_COLLECTIVE_REDUCE_SCATTER:
        return count_sums(run, host);
    case BUS_COLLECTIVE_ALL_GATHER:
        return count_parts(run, host);
    case BUS_COLLECTIVE_ALL_TO_ALL:
        return count_blocks(run, host);
    case BUS_COLLECTIVE_BROADCAST:
        return count_copies(run, host, run->ranks - 1, 0, run->elems);
    default:
        return run->ranks == 1 ? 0
                               : count_copies(run, host, (run->rank + run->ranks - 1) % run->ranks,
                                              0, run->elems);
    }
}

enum status check_collective_right(const struct check_collective_memory *memory, struct comm *group,
                                   const struct check_collective_call *call, int64_t *wrong_out,
                                   double *us_out)
{
    const struct run run = run_of(memory, group, call);
    TRY(fill(&run));
    const int64_t begin_ns = clock_ns();
    TRY(comm_barrier(group));
    TRY(make(&run));
    *us_out = (double)(clock_ns() - begin_ns) * 1e-3;
    TRY(copy_in(&run));
    *wrong_out = count_wrong(&run);
    return *wrong_out >= 0 ? ST_OK : FAIL(ST_RETRY, "out of memory: sums of %d ranks", run.ranks);
}

/* ---- time ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Two barriers: from the second all ranks leave together. */
static enum status time_once(const struct run *run, double *us_out)
{
    TRY(comm_barrier(run->group));
    TRY(comm_barrier(run->group));
    const int64_t begin_ns = clock_ns();
    TRY(make(run));
    *us_out = (double)(clock_ns() - begin_ns) * 1e-3;
    return ST_OK;
}

static enum status gather_times(struct comm *group, const double *mine, int runs, double *slowest)
{
    const int ranks = comm_place(group)->ranks;
    double *all = malloc(sizeof *all * (size_t)ranks * (size_t)runs);
    if (all == NULL)
        return FAIL(ST_RETRY, "out of memory: the times of %d ranks", ranks);
    enum status st = check_gather(group, mine, (int64_t)sizeof *mine * runs, all);
    for (int i = 0; i < runs && st == ST_OK; i++) {
        slowest[i] = 0;
        for (int r = 0; r < ranks; r++)
            slowest[i] = fmax(slowest[i], all[r * runs + i]);
    }
    free(all);
    return st;
}

enum status check_collective_time(const struct check_collective_memory *memory, struct comm *group,
                                  const struct check_collective_call *call, int runs,
                                  double *best_us_out, double *median_us_out)
{
    struct check_collective_call plain = *call;
    plain.is_split = plain.flips = false;
    const struct run run = run_of(memory, group, &plain);
    double times[CHECK_COLLECTIVE_RUNS_MAX];
    runs = runs > CHECK_COLLECTIVE_RUNS_MAX ? CHECK_COLLECTIVE_RUNS_MAX : runs;
    memset(host_of(&run, run.data), 0, (size_t)run.elems * dtype_bytes(run.data.dtype));
    TRY(copy_out(&run, run.data)); /* zeros stay finite however often they are added */
    for (int i = 0; i < runs; i++)
        TRY(time_once(&run, &times[i]));
    TRY(gather_times(group, times, runs, times));
    qsort(times, (size_t)runs, sizeof *times, by_value);
    *best_us_out = times[0];
    *median_us_out = times[runs / 2];
    return ST_OK;
}
