/* measure_time — see measure_time.h. */
#include "measure/measure_time.h"

#include "base/clock.h"
#include "base/quantile.h"
#include "measure/measure_ranks.h"

#define SLICES 9
#define SLICES_FEW 3 /* slices of a run that needs several, or within a small budget */
#define SLICE_LEAST 1e-3
#define RUNS_MAX 1000000

struct measure_instant measure_time_begin(void)
{
    return (struct measure_instant){clock_ns(), clock_thread_ns(), clock_process_ns()};
}

/* Returns the counted time since `begin`. */
static int64_t counted_ns(const struct measure_timer *timer, struct measure_instant begin)
{
    return timer->threads_n == 1 ? clock_thread_ns() - begin.thread_ns : clock_ns() - begin.wall_ns;
}

void measure_time_end(const struct measure_timer *timer, struct measure_instant begin,
                      struct measure_best *best)
{
    const int64_t ns = counted_ns(timer, begin);
    const double seconds = (double)ns * 1e-9;
    best->slices++;
    if (ns <= 0 || (best->seconds > 0 && seconds >= best->seconds))
        return;
    best->seconds = seconds;
    /* Threads of a pool spin for a while, so all of them compute, wait for a core, or spin until a
     * thread that waits for a core has done its part. A single thread may have lost all the time
     * that the threads together were off their cores, and the slice is longer by that. */
    const int64_t off_ns = ns * timer->threads_n - (clock_process_ns() - begin.process_ns);
    const double share = (double)off_ns / (double)ns;
    best->waited = timer->threads_n < 2 || share < 0 ? 0 : share < 1 ? share : 1;
}

enum status measure_time_best(const struct measure_timer *timer, int64_t limit_ms,
                              measure_work *work, void *arg, struct measure_best *best)
{
    const struct measure_instant first = measure_time_begin();
    const int64_t limit_ns = limit_ms * 1000000;
    for (int i = 0;
         i < timer->slices_min || (counted_ns(timer, first) < limit_ns &&
                                   clock_ns() - first.wall_ns < timer->patience * limit_ns);
         i++) {
        const struct measure_instant begin = measure_time_begin();
        TRY(work(arg));
        if (timer->stream != NULL)
            TRY(dev_sync(timer->stream));
        measure_time_end(timer, begin, best);
    }
    return ST_OK;
}

enum status measure_time_runs(const struct measure_timer *timer, measure_work *work, void *arg,
                              int64_t runs, double *seconds, int n)
{
    for (int i = 0; i < n; i++) {
        if (timer->comm != NULL) { /* all ranks leave the second barrier together */
            TRY(comm_barrier(timer->comm));
            TRY(comm_barrier(timer->comm));
        }
        const int64_t begin_ns = clock_ns();
        for (int64_t run = 0; run < runs; run++)
            TRY(work(arg));
        if (timer->stream != NULL)
            TRY(dev_sync(timer->stream));
        seconds[i] = (double)(clock_ns() - begin_ns) * 1e-9;
    }
    return ST_OK;
}

enum status measure_time_together(const struct measure_timer *timer, double slice, bool is_shared,
                                  measure_work *work, void *arg, double *seconds_out)
{
    double seconds[SLICES], trial = 0;
    int64_t runs = 1;
    TRY(measure_time_runs(timer, work, arg, 1, &trial, 1)); /* the first run may load kernels */
    /* Finds the number of runs that need about a slice; the same on all ranks, because the work may
     * be a call. */
    for (;; runs *= 4) {
        TRY(measure_time_runs(timer, work, arg, runs, &trial, 1));
        TRY(measure_ranks_max(timer->comm, &trial, 1));
        if (trial >= slice / 8 || runs >= RUNS_MAX)
            break;
    }
    const double more = trial > 0 ? slice / trial : 1;
    if (more > 1)
        runs = (int64_t)((double)runs * more);
    const int n = slice < SLICE_LEAST || trial > 3 * slice ? SLICES_FEW : SLICES;
    if (is_shared)
        runs *= n;
    TRY(measure_time_runs(timer, work, arg, runs, seconds, is_shared ? 1 : n));
    quantile_sort(seconds, is_shared ? 1 : n);
    *seconds_out = seconds[0] / (double)runs;
    return measure_ranks_max(timer->comm, seconds_out, 1);
}

double measure_time_slack(const struct measure_best *best, double rate, double share)
{
    const double computed = best->waited < 0.95 ? 1 - best->waited : 0.05;
    return rate / computed - (1 - share) * rate;
}
