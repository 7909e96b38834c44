/* plan_machine_time — how times are taken: a warm run, then stretches of as many runs as fill a
 * slice, begun by all ranks together. The fastest stretch counts, which other processes disturbed
 * least; where workers share cores, all together. */
#include <stdlib.h>

#include "base/clock.h"
#include "plan/plan_machine_inside.h"

#define STRETCHES 9
#define STRETCHES_FEW 3 /* of a run that takes several slices, or within a small budget */
#define SLICE_LEAST 1e-3
#define RUNS_MAX 1000000

static enum status stretch(const struct plan_machine *m, plan_machine_work work, const void *args,
                           int64_t runs, double *seconds_out)
{
    int64_t begin = clock_ns();
    for (int64_t i = 0; i < runs; i++)
        TRY(work(m, args));
    TRY(dev_sync(m->stream));
    *seconds_out = (double)(clock_ns() - begin) * 1e-9;
    return ST_OK;
}

static enum status meet(const struct plan_machine *m)
{
    return m->ranks > 1 ? comm_barrier(m->config->comm) : ST_OK;
}

enum status plan_machine_time_largest(const struct plan_machine *m, double *value)
{
    double all[COMM_RANKS_MAX] = {0};
    struct tensor values = {all, DTYPE_F64};
    if (m->ranks == 1)
        return ST_OK;
    all[m->rank] = *value;
    TRY(comm_all_reduce(m->config->comm, values, values, m->ranks));
    for (int i = 0; i < m->ranks; i++)
        *value = all[i] > *value ? all[i] : *value;
    return ST_OK;
}

/* find_runs — so many that a stretch takes about a slice; the same on all ranks, because the work
 * may be a call. seconds_out: of what was tried last. */
static enum status find_runs(const struct plan_machine *m, plan_machine_work work, const void *args,
                             int64_t *runs_out, double *seconds_out)
{
    double seconds;
    TRY(stretch(m, work, args, 1, &seconds));
    for (int64_t runs = 1;; runs *= 4) {
        TRY(stretch(m, work, args, runs, &seconds));
        TRY(plan_machine_time_largest(m, &seconds));
        if (seconds < m->slice / 8 && runs < RUNS_MAX)
            continue;
        double more = seconds > 0 ? m->slice / seconds : 1;
        *runs_out = more > 1 ? (int64_t)((double)runs * more) : runs;
        *seconds_out = seconds;
        return ST_OK;
    }
}

int plan_machine_time_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* time_all — where workers share cores, the fastest stretch is one that had a core to itself: all
 * stretches count. */
static enum status time_all(const struct plan_machine *m, plan_machine_work work, const void *args,
                            int64_t runs, double *seconds_out)
{
    TRY(meet(m));
    TRY(stretch(m, work, args, runs, seconds_out));
    *seconds_out /= (double)runs;
    return plan_machine_time_largest(m, seconds_out);
}

enum status plan_machine_time(const struct plan_machine *m, plan_machine_work work,
                              const void *args, double *seconds_out)
{
    double seconds[STRETCHES], long_s = 0;
    int64_t runs = 1;
    TRY(meet(m));
    TRY(find_runs(m, work, args, &runs, &long_s));
    bool is_short = m->slice < SLICE_LEAST || long_s > 3 * m->slice;
    int n = is_short ? STRETCHES_FEW : STRETCHES;
    if (m->shares_cores)
        return time_all(m, work, args, n * runs, seconds_out);
    for (int i = 0; i < n; i++) {
        TRY(meet(m));
        TRY(stretch(m, work, args, runs, &seconds[i]));
    }
    qsort(seconds, (size_t)n, sizeof *seconds, plan_machine_time_by_value);
    *seconds_out = seconds[0] / (double)runs;
    return plan_machine_time_largest(m, seconds_out);
}
