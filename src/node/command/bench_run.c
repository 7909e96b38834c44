/* bench_run — see bench_run.h. */
#include "node/command/bench_run.h"

#include "measure/measure_collective.h"
#include "measure/measure_ranks.h"

#define RUNS_MIN 5
#define BUDGET_US 250000.0 /* microseconds for the timed runs of one row */
/* microseconds before the first row: starting processes still compete for cores */
#define WARM_UP_US 50000.0
#define WARM_UP_RUNS 33

struct bench {
    struct comm *comm;
    struct measure_collective_memory memory;
};

/* warm_up — repeats a small call until WARM_UP_US have passed. The median is the same on all ranks,
 * so all ranks stop after the same call. */
static enum status warm_up(const struct bench *b)
{
    const struct measure_collective_call call = {
        .collective = BUS_COLLECTIVE_ALL_REDUCE, .dtype = DTYPE_F32, .bytes = sizeof(float)};
    double median, best;
    for (double us = 0; us < WARM_UP_US; us += (median + 1) * WARM_UP_RUNS)
        TRY(measure_collective_time(&b->memory, b->comm, &call, WARM_UP_RUNS, &best, &median));
    return ST_OK;
}

static const enum bus_collective collectives[BENCH_RUN_COLLECTIVES] = {
    BUS_COLLECTIVE_ALL_REDUCE, BUS_COLLECTIVE_REDUCE_SCATTER, BUS_COLLECTIVE_ALL_GATHER,
    BUS_COLLECTIVE_BROADCAST};

static enum status measure_all(struct bench *b, const struct bench_run_question *question,
                               struct bench_run_row *rows, int *rows_n)
{
    *rows_n = 0;
    for (int i = 0; i < BENCH_RUN_COLLECTIVES; i++)
        for (int s = 0; s < question->sizes_n; s++) {
            if (question->sizes[s] > question->bytes_max)
                continue;
            struct bench_run_row *row = &rows[(*rows_n)++];
            *row =
                (struct bench_run_row){.collective = collectives[i], .bytes = question->sizes[s]};
            const struct measure_collective_call call = {
                .collective = row->collective, .dtype = DTYPE_F32, .bytes = row->bytes};
            int64_t wrong;
            double best, first;
            TRY(measure_collective_right(&b->memory, b->comm, &call, &wrong, &first));
            double all_wrong = (double)wrong;
            TRY(measure_ranks_sum(b->comm, &all_wrong, 1));
            row->wrong = (int64_t)all_wrong;
            TRY(measure_collective_time(&b->memory, b->comm, &call, 3, &best, &first));
            const double runs = BUDGET_US / (first + 1);
            row->runs = runs > MEASURE_COLLECTIVE_RUNS_MAX ? MEASURE_COLLECTIVE_RUNS_MAX
                        : runs < RUNS_MIN                  ? RUNS_MIN
                                                           : (int)runs | 1;
            TRY(measure_collective_time(&b->memory, b->comm, &call, row->runs, &row->best_us,
                                        &row->median_us));
        }
    return ST_OK;
}

enum status bench_run(struct comm *comm, struct dev *dev, const struct bench_run_question *question,
                      struct bench_run_row *rows, int *rows_n)
{
    struct bench b = {.comm = comm};
    enum status st = measure_collective_open(&b.memory, comm, dev, question->bytes_max, false);
    if (st == ST_OK)
        st = warm_up(&b);
    if (st == ST_OK)
        st = measure_all(&b, question, rows, rows_n);
    measure_collective_close(&b.memory);
    return st;
}
