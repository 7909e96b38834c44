/* bench_run — one rank's part of `convoy bench`: run every collective at every size, check the
 * result, then time it. Must not know how ranks were started, nor the output format. */
#ifndef CONVOY_NODE_BENCH_RUN_H
#define CONVOY_NODE_BENCH_RUN_H

#include "comm/core/comm.h"

#define BENCH_RUN_SIZES_MAX 16
#define BENCH_RUN_ROWS_MAX (4 * BENCH_RUN_SIZES_MAX)

enum bench_run_call {
    BENCH_RUN_ALL_REDUCE,
    BENCH_RUN_REDUCE_SCATTER,
    BENCH_RUN_ALL_GATHER,
    BENCH_RUN_BROADCAST,
    BENCH_RUN_CALL_N
};

struct bench_run_question {
    int64_t bytes_max; /* sizes up to it are measured */
    int sizes_n;
    int64_t sizes[BENCH_RUN_SIZES_MAX]; /* bytes: whole elements of fp32 */
};

/* Times are those of the slowest rank, from the moment that all ranks have left a barrier. */
struct bench_run_row {
    enum bench_run_call call;
    int64_t bytes; /* of the whole buffer */
    int runs;
    double median_us, best_us;
    int64_t wrong; /* wrong elements, over all ranks */
};

const char *bench_run_name(enum bench_run_call call);
/* bench_run_bus — the bus bandwidth of a row in GB/s (comm/core/bus_bandwidth.h). */
double bench_run_bus(const struct bench_run_row *row, int ranks, double us);

/* bench_run — fp32, in place in memory of comm_alloc (of dev, where that is apart; NULL: the
 * host's). All ranks get the same rows. */
enum status bench_run(struct comm *comm, struct dev *dev, const struct bench_run_question *question,
                      struct bench_run_row *rows, int *rows_n);

#endif
