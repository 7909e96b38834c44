/* bench_run — one rank's part of `convoy bench`: runs every collective at every size, checks the
 * result, then times it. Must not know how ranks were started, nor the output format. */
#ifndef CONVOY_NODE_BENCH_RUN_H
#define CONVOY_NODE_BENCH_RUN_H

#include "comm/core/bus_bandwidth.h"
#include "comm/core/comm.h"

#define BENCH_RUN_SIZES_MAX 16
#define BENCH_RUN_COLLECTIVES 4 /* all_reduce, reduce_scatter, all_gather, broadcast */
#define BENCH_RUN_ROWS_MAX (BENCH_RUN_COLLECTIVES * BENCH_RUN_SIZES_MAX)

struct bench_run_question {
    int64_t bytes_max; /* largest size that is measured */
    int sizes_n;
    int64_t sizes[BENCH_RUN_SIZES_MAX]; /* sizes in bytes: whole elements of fp32 */
};

/* Times of the slowest rank, measured from the moment when all ranks have left a barrier. */
struct bench_run_row {
    enum bus_collective collective;
    int runs;
    int64_t bytes; /* bytes of the whole buffer */
    double median_us, best_us;
    int64_t wrong; /* wrong elements, over all ranks */
};

/* bench_run — measures fp32 in place, in memory of comm_alloc (in the memory of dev if that is
 * discrete; NULL: in host memory). All ranks get the same rows. */
enum status bench_run(struct comm *comm, struct dev *dev, const struct bench_run_question *question,
                      struct bench_run_row *rows, int *rows_n);

#endif
