/* measure_time — the time that work needs: repeated runs on the clocks of one process, begun by all
 * ranks together if they measure at the same time. The best time counts: on a machine that other
 * processes use too, a mean shows how busy it is, and the best time shows the speed of the
 * hardware.
 *
 * If one thread computes, its processor time counts, which does not advance while the core runs
 * other threads. With several threads, or with a device, wall time counts, and `waited` shows how
 * reliable it is. Must not know the work. */
#ifndef CONVOY_MEASURE_TIME_H
#define CONVOY_MEASURE_TIME_H

#include "comm/core/comm.h"

/* The work that is measured. */
typedef enum status measure_work(void *arg);

/* The settings of a measurement. */
struct measure_timer {
    struct comm *comm; /* comm of the ranks that begin together; NULL: each rank by itself */
    /* stream to wait for after the runs; NULL: the work waits for its device */
    struct stream *stream;
    /* threads that compute; 0: wall time counts, as of a device or a call between ranks */
    int threads_n;
    /* for measure_time_best: least number of slices; most wall time, as a multiple of the limit */
    int slices_min, patience;
};

/* One instant on three clocks. */
struct measure_instant {
    int64_t wall_ns, thread_ns, process_ns;
};

/* The best of several times. Zero-initialised: none yet. */
struct measure_best {
    double seconds; /* 0: not measured */
    double waited; /* share of that time by which other users of the cores may have lengthened it */
    int slices;
};

/* Returns the current instant. */
struct measure_instant measure_time_begin(void);
/* Counts the time since `begin` as one more slice of *best. */
void measure_time_end(const struct measure_timer *timer, struct measure_instant begin,
                      struct measure_best *best);

/* Runs the work n times, each time `runs` runs in a row after the ranks of the comm have waited for
 * each other, and sets seconds[0 … n-1] to this rank's time of all `runs` runs together. Errors:
 * the work's and the comm's. */
enum status measure_time_runs(const struct measure_timer *timer, measure_work *work, void *arg,
                              int64_t runs, double *seconds, int n);

/* Runs the work in slices of one run until the counted time reaches limit_ms, and adds the slices
 * to *best. */
enum status measure_time_best(const struct measure_timer *timer, int64_t limit_ms,
                              measure_work *work, void *arg, struct measure_best *best);

/* Sets *seconds_out to the time of one run on the rank that needs longest, while all ranks of the
 * comm run theirs at the same time: the best of several slices of `slice` seconds each. is_shared:
 * the ranks share cores, so the best slice would be one that had a core to itself; the mean of all
 * slices counts. Collective; the same value on all ranks. */
enum status measure_time_together(const struct measure_timer *timer, double slice, bool is_shared,
                                  measure_work *work, void *arg, double *seconds_out);

/* Returns the difference to a peer's rate that is not significant: `share` of the rate, plus the
 * share that other users of the cores may have cost the best slice. */
double measure_time_slack(const struct measure_best *best, double rate, double share);

#endif
