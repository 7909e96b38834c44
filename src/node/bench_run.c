/* bench_run — see bench_run.h. */
#include "node/bench_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/core/bus_bandwidth.h"
#include "comm/core/part.h"

#define RUNS_MAX 1001
#define RUNS_MIN 5
#define BUDGET_US 250000.0 /* for the timed runs of one row */
#define WARM_UP_US 50000.0 /* before the first row: processes that start take cores meanwhile */
#define WARM_UP_RUNS 33
#define PERIOD 13 /* of the pattern: whole numbers, so every sum is exact */

struct bench {
    struct comm *comm;
    int rank, ranks;
    float *data;           /* what is moved */
    float *host;           /* where it is written and looked at: the same, or beside a device's */
    struct stream *stream; /* between the two; NULL: they are one */
    double *times;         /* ranks × RUNS_MAX */
};

static enum bus_collective collective_of(enum bench_run_call call)
{
    static const enum bus_collective collective[BENCH_RUN_CALL_N] = {
        BUS_COLLECTIVE_ALL_REDUCE, BUS_COLLECTIVE_REDUCE_SCATTER, BUS_COLLECTIVE_ALL_GATHER,
        BUS_COLLECTIVE_BROADCAST};
    return collective[call];
}

const char *bench_run_name(enum bench_run_call call)
{
    return bus_bandwidth_name(collective_of(call));
}

double bench_run_bus(const struct bench_run_row *row, int ranks, double us)
{
    return bus_bandwidth(collective_of(row->call), row->bytes, ranks, us);
}

static enum status call_once(const struct bench *b, enum bench_run_call call, int64_t elems)
{
    struct tensor all = {b->data, DTYPE_F32};
    struct tensor part = tensor_at(all, part_extent(elems, b->ranks, b->rank).first);
    switch (call) {
    case BENCH_RUN_ALL_REDUCE:
        return comm_all_reduce(b->comm, all, all, elems);
    case BENCH_RUN_REDUCE_SCATTER:
        return comm_reduce_scatter(b->comm, part, all, elems);
    case BENCH_RUN_ALL_GATHER:
        return comm_all_gather(b->comm, all, part, elems);
    default:
        return comm_broadcast(b->comm, all, elems, 0);
    }
}

static float pattern(int rank, int64_t i) { return (float)((i + 3 * (int64_t)rank) % PERIOD); }

/* Elements [first, first+n) that are not what `rank`'s buffer holds (a sum of all ranks: rank <
 * 0). */
static int64_t count_wrong(const struct bench *b, int rank, int64_t first, int64_t n)
{
    float want[PERIOD] = {0};
    int64_t wrong = 0;
    for (int64_t k = 0; k < PERIOD; k++)
        for (int r = rank < 0 ? 0 : rank; r < (rank < 0 ? b->ranks : rank + 1); r++)
            want[k] += pattern(r, k);
    for (int64_t i = first; i < first + n; i++)
        wrong += b->host[i] != want[i % PERIOD];
    return wrong;
}

/* What was written goes to where it is moved from; and back. */
static enum status put(const struct bench *b, int64_t elems)
{
    if (b->stream == NULL)
        return ST_OK;
    TRY(dev_copy(b->stream, b->data, b->host, (size_t)elems * sizeof(float)));
    return dev_sync(b->stream);
}

static enum status get(const struct bench *b, int64_t elems)
{
    if (b->stream == NULL)
        return ST_OK;
    TRY(dev_copy(b->stream, b->host, b->data, (size_t)elems * sizeof(float)));
    return dev_sync(b->stream);
}

static enum status check(const struct bench *b, enum bench_run_call call, int64_t elems,
                         int64_t *wrong_out)
{
    for (int64_t i = 0; i < elems; i++)
        b->host[i] = pattern(b->rank, i);
    TRY(put(b, elems));
    TRY(call_once(b, call, elems));
    TRY(get(b, elems));
    struct part_extent part = part_extent(elems, b->ranks, b->rank);
    double wrong = 0;
    if (call == BENCH_RUN_ALL_REDUCE)
        wrong = (double)count_wrong(b, -1, 0, elems);
    else if (call == BENCH_RUN_REDUCE_SCATTER)
        wrong = (double)count_wrong(b, -1, part.first, part.elems);
    else if (call == BENCH_RUN_BROADCAST)
        wrong = (double)count_wrong(b, 0, 0, elems);
    for (int r = 0; r < b->ranks && call == BENCH_RUN_ALL_GATHER; r++) {
        part = part_extent(elems, b->ranks, r);
        wrong += (double)count_wrong(b, r, part.first, part.elems);
    }
    struct tensor sum = {&wrong, DTYPE_F64};
    TRY(comm_all_reduce(b->comm, sum, sum, 1));
    *wrong_out = (int64_t)wrong;
    return ST_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs; the time of each is that of its slowest rank. Two barriers: from the second all leave
 * together. */
static enum status time_runs(const struct bench *b, enum bench_run_call call, int64_t elems,
                             int runs, double *median_out, double *best_out)
{
    double *all = b->times;
    memset(all, 0, sizeof(double) * (size_t)b->ranks * (size_t)runs);
    for (int i = 0; i < runs; i++) {
        TRY(comm_barrier(b->comm));
        TRY(comm_barrier(b->comm));
        int64_t begin = clock_ns();
        TRY(call_once(b, call, elems));
        all[b->rank * runs + i] = (double)(clock_ns() - begin) * 1e-3;
    }
    struct tensor times = {all, DTYPE_F64};
    TRY(comm_all_reduce(b->comm, times, times, (int64_t)b->ranks * runs));
    for (int i = 0; i < runs; i++)
        for (int r = 1; r < b->ranks; r++)
            all[i] = all[r * runs + i] > all[i] ? all[r * runs + i] : all[i];
    qsort(all, (size_t)runs, sizeof(*all), by_value);
    *median_out = all[runs / 2];
    *best_out = all[0];
    return ST_OK;
}

static enum status measure(const struct bench *b, struct bench_run_row *row)
{
    const int64_t elems = row->bytes / (int64_t)sizeof(float);
    double first, best;
    TRY(check(b, row->call, elems, &row->wrong));
    memset(b->host, 0, (size_t)row->bytes); /* zeros stay finite however often they are added */
    TRY(put(b, elems));
    TRY(time_runs(b, row->call, elems, 3, &first, &best));
    double runs = BUDGET_US / (first + 1);
    row->runs = runs > RUNS_MAX ? RUNS_MAX : runs < RUNS_MIN ? RUNS_MIN : (int)runs | 1;
    return time_runs(b, row->call, elems, row->runs, &row->median_us, &row->best_us);
}

/* Repeats a small call until WARM_UP_US have passed. The median is the same on all ranks, so all
 * end after the same call. */
static enum status warm_up(const struct bench *b)
{
    double median, best;
    b->host[0] = 0;
    TRY(put(b, 1));
    for (double us = 0; us < WARM_UP_US; us += (median + 1) * WARM_UP_RUNS)
        TRY(time_runs(b, BENCH_RUN_ALL_REDUCE, 1, WARM_UP_RUNS, &median, &best));
    return ST_OK;
}

/* Memory for the largest buffer and, for a device's, for the host's copy of it. */
static enum status take(struct bench *b, struct dev *dev, int64_t bytes)
{
    void *data = NULL;
    TRY(comm_alloc(b->comm, bytes, &data));
    b->data = b->host = data;
    if (dev_is_discrete(dev)) {
        TRY(dev_stream_open(dev, &b->stream));
        b->host = malloc((size_t)bytes);
    }
    b->times = malloc(sizeof(double) * (size_t)b->ranks * RUNS_MAX);
    if (b->host == NULL || b->times == NULL)
        return FAIL(memory_status(bytes),
                    "out of memory: %lld bytes of a buffer, the times of %d ranks",
                    (long long)bytes, b->ranks);
    return ST_OK;
}

static void give_back(struct bench *b)
{
    if (b->stream != NULL)
        free(b->host);
    dev_stream_close(b->stream);
    free(b->times);
}

static enum status measure_all(struct bench *b, const struct bench_run_question *question,
                               struct bench_run_row *rows, int *rows_n)
{
    *rows_n = 0;
    for (int call = 0; call < BENCH_RUN_CALL_N; call++)
        for (int s = 0; s < question->sizes_n; s++) {
            if (question->sizes[s] > question->bytes_max)
                continue;
            struct bench_run_row *row = &rows[(*rows_n)++];
            *row = (struct bench_run_row){.call = (enum bench_run_call)call,
                                          .bytes = question->sizes[s]};
            TRY(measure(b, row));
        }
    return ST_OK;
}

enum status bench_run(struct comm *comm, struct dev *dev, const struct bench_run_question *question,
                      struct bench_run_row *rows, int *rows_n)
{
    struct bench b = {
        .comm = comm, .rank = comm_place(comm)->rank, .ranks = comm_place(comm)->ranks};
    enum status st = take(&b, dev, question->bytes_max);
    if (st == ST_OK)
        st = warm_up(&b);
    if (st == ST_OK)
        st = measure_all(&b, question, rows, rows_n);
    give_back(&b);
    return st;
}
