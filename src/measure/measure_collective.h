/* measure_collective — one collective of a group of ranks: checks each element of the result, and
 * measures the time of the slowest rank. Buffers lie in memory of comm_alloc; the numbers are exact
 * patterns (measure_pattern.h). Must not know which groups there are, nor which times are good. */
#ifndef CONVOY_MEASURE_COLLECTIVE_H
#define CONVOY_MEASURE_COLLECTIVE_H

#include "comm/core/bus_bandwidth.h"
#include "comm/core/comm.h"

#define MEASURE_COLLECTIVE_RUNS_MAX 1001

/* The buffers of a rank. */
struct measure_collective_memory {
    char *data;  /* the result, and the input of calls in place */
    char *other; /* the input of all_to_all and send_recv; NULL: these are not called */
    /* memory in which the host writes and compares numbers: data itself, or memory of its own */
    char *host;
    int64_t bytes;
    /* stream of copies between host and device; NULL: data lies in host memory */
    struct stream *stream;
};

/* Allocates a buffer of `bytes` bytes, or two with has_other. Collective over all ranks of comm.
 * dev NULL is the host. Errors: ST_RETRY and ST_BAD_SETTING if memory is short. */
enum status measure_collective_open(struct measure_collective_memory *memory, struct comm *comm,
                                    struct dev *dev, int64_t bytes, bool has_other);
/* Frees the buffers that are not from comm_alloc. May be called after a failed open. */
void measure_collective_close(struct measure_collective_memory *memory);

/* The collective to measure. */
struct measure_collective_call {
    enum bus_collective collective;
    enum dtype dtype; /* F32, BF16, F16 */
    int64_t bytes;    /* bytes as bus_bandwidth counts them */
    /* element of the buffers at which the call begins; other than 0 only for
     * measure_collective_make */
    int64_t at_elems;
    /* For tests. is_split: an all_reduce is a reduce_scatter and an all_gather, on all ranks of the
     * job. flips: this rank's sum has a wrong bit. */
    bool is_split, flips;
};

/* Makes the call with the current contents of the buffers. Collective in the group. */
enum status measure_collective_make(const struct measure_collective_memory *memory,
                                    struct comm *group, const struct measure_collective_call *call);

/* Makes the call once with an exact pattern. *wrong_out: number of wrong elements on this rank;
 * *us_out: the time on this rank, with a barrier before the call. Collective in the group. */
enum status measure_collective_right(const struct measure_collective_memory *memory,
                                     struct comm *group, const struct measure_collective_call *call,
                                     int64_t *wrong_out, double *us_out);

/* Times `runs` calls of zeros. *best_us_out, *median_us_out: microseconds of the slowest rank of
 * each run; the same on all ranks. Collective in the group. */
enum status measure_collective_time(const struct measure_collective_memory *memory,
                                    struct comm *group, const struct measure_collective_call *call,
                                    int runs, double *best_us_out, double *median_us_out);

#endif
