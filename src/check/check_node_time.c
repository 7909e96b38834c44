/* check_node_time — how the node stage takes times. Every figure is the best of many short slices:
 * on a machine that is busy with other processes a mean says how busy it is, and the best slice
 * what the hardware can do.
 *
 * Where one thread computes, its processor time counts, which stands still while the core is taken
 * away. With several threads wall time counts, and `waited` says how far to trust it. */
#include "check/check_node_inside.h"

#include "base/clock.h"

#define SLICES_MIN 8
#define WALL_MAX 8 /* times the limit: a thread that gets little of its core ends, too */

struct lap {
    int64_t wall_ns, thread_ns, process_ns;
};

static struct lap lap_begin(void)
{
    return (struct lap){clock_ns(), clock_thread_ns(), clock_process_ns()};
}

static struct lap lap_end(struct lap begin)
{
    const struct lap now = lap_begin();
    return (struct lap){now.wall_ns - begin.wall_ns, now.thread_ns - begin.thread_ns,
                        now.process_ns - begin.process_ns};
}

/* What counts. A thread that waits for a GPU uses no processor time. */
static int64_t lap_ns(const struct check_node *n, struct lap lap)
{
    int64_t ns = !n->is_gpu && n->info.threads_n == 1 ? lap.thread_ns : lap.wall_ns;
    return ns > 0 ? ns : 1;
}

/* Threads of a pool wait awake for a while, so all of them compute, wait for a core, or spin until
 * one that waits for a core has done its part. One thread alone may have lost all the time that the
 * threads together were off their cores, and the slice is longer by that. */
static double lap_waited(const struct check_node *n, struct lap lap)
{
    const int64_t off_ns = lap_ns(n, lap) * n->info.threads_n - lap.process_ns;
    const double share = (double)off_ns / (double)lap_ns(n, lap);
    return n->is_gpu || n->info.threads_n == 1 || share < 0 ? 0 : share < 1 ? share : 1;
}

enum status check_node_time_best(const struct check_node *n, int64_t limit_ms,
                                 enum status (*work)(void *arg), void *arg,
                                 struct check_node_best *best)
{
    const struct lap first = lap_begin();
    struct lap used = {0};
    for (int i = 0; i < SLICES_MIN || (lap_ns(n, used) < limit_ms * 1000000 &&
                                       used.wall_ns < WALL_MAX * limit_ms * 1000000);
         i++) {
        struct lap slice = lap_begin();
        TRY(work(arg));
        slice = lap_end(slice);
        double seconds = (double)lap_ns(n, slice) * 1e-9;
        if (best->slices++ == 0 || seconds < best->seconds) {
            best->seconds = seconds;
            best->waited = lap_waited(n, slice);
        }
        used = lap_end(first);
    }
    return ST_OK;
}

enum status check_node_time_once(const struct check_node *n, enum status (*work)(void *arg),
                                 void *arg, double *seconds_out)
{
    for (int i = 0; i < 2; i++) {
        struct lap lap = lap_begin();
        TRY(work(arg));
        double seconds = (double)lap_ns(n, lap_end(lap)) * 1e-9;
        if (i == 0 || seconds < *seconds_out)
            *seconds_out = seconds;
    }
    return ST_OK;
}

double check_node_time_slack(const struct check_node_best *best, double value)
{
    double computed = best->waited < 0.95 ? 1 - best->waited : 0.05;
    return value / computed - 0.95 * value;
}

enum status check_node_time_done(const struct check_node *n, double done)
{
    const struct check_config *config = n->config;
    return config->progress ? config->progress(config->arg, CHECK_STAGE_NODE, done) : ST_OK;
}
