/* check_collective — one collective of a group of ranks: inputs whose sums are exact in every order
 * and in every dtype, the result compared element by element, the time of the slowest rank. Must
 * not know which groups there are, nor what a good time is. */
#ifndef CONVOY_CHECK_CHECK_COLLECTIVE_H
#define CONVOY_CHECK_CHECK_COLLECTIVE_H

#include "comm/core/bus_bandwidth.h"
#include "comm/core/comm.h"
#include "dev/dev.h"

#define CHECK_COLLECTIVE_RUNS_MAX 32

/* What a group moves: memory of comm_alloc of the comm of all ranks, and a copy for the host. */
struct check_collective_memory {
    void *data, *other; /* `bytes` each; other: the input of all_to_all and send_recv */
    void *host;         /* where it is written and compared; a device: memory of its own */
    int64_t bytes;
    struct stream *stream; /* between host and device; NULL: they are one */
};

/* check_collective_open — collective over all ranks. Errors: ST_RETRY, ST_BAD_SETTING: out of
 * memory. check_collective_close — may be called after a failed open; comm_close frees the rest. */
enum status check_collective_open(struct check_collective_memory *memory, struct comm *comm,
                                  struct dev *dev, int64_t bytes);
void check_collective_close(struct check_collective_memory *memory);

/* Which call. bytes: as bus_bandwidth counts them. */
struct check_collective_call {
    enum bus_collective collective;
    enum dtype dtype; /* F32, BF16, F16 */
    int64_t bytes;
    /* for tests: is_split: an all_reduce is a reduce_scatter and an all_gather, on all ranks of the
     * job; flips: this rank's sum has a wrong bit */
    bool is_split, flips;
};

/* check_collective_right — collective in the group: makes the call once. wrong_out: wrong elements
 * that this rank sees; us_out: what it took here, with a barrier before. */
enum status check_collective_right(const struct check_collective_memory *memory, struct comm *group,
                                   const struct check_collective_call *call, int64_t *wrong_out,
                                   double *us_out);

/* check_collective_time — collective in the group: `runs` timed calls of zeros. best, median: of
 * the slowest rank of each run; the same on all ranks. */
enum status check_collective_time(const struct check_collective_memory *memory, struct comm *group,
                                  const struct check_collective_call *call, int runs,
                                  double *best_us_out, double *median_us_out);

#endif
