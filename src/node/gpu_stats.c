/* gpu_stats — see gpu_stats.h. */
#include "node/gpu_stats.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/assert.h"
#include "dev/nvml.h"

#define CLOSE_MS 2000 /* for a reading under way; on a GPU in trouble it may never end */

struct gpu_stats {
    struct board *board;
    int worker_i, every_ms;
    struct nvml *nvml;
    int64_t xids;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;  /* of both sides */
    bool is_closing;      /* the board is looked at no more */
    bool is_done;         /* the thread has ended its last reading */
    bool is_left;         /* nobody waits for it: it frees the stats */
};

static void release(struct gpu_stats *stats)
{
    pthread_mutex_destroy(&stats->lock);
    pthread_cond_destroy(&stats->wake);
    nvml_close(stats->nvml);
    free(stats);
}

/* publish — under the lock. */
static void publish(struct gpu_stats *stats, struct nvml_reading now)
{
    if (now.xids > stats->xids)
        LOG_WARN(
            "the driver reports Xid %lld on this worker's GPU (%lld since the start); see dmesg",
            (long long)now.xid_last, (long long)now.xids);
    stats->xids = now.xids;
    struct board_gpu gpu = {.published_ms = clock_ms()};
#define GPU_STAT(field, ...) gpu.field = now.field;
#include "base/rank_stats.def"
    board_gpu_publish(stats->board, stats->worker_i, &gpu);
}

static struct timespec after_ms(int ms)
{
    int64_t at_ns = clock_ns() + (int64_t)ms * 1000000;
    return (struct timespec){.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
}

static void *sample_loop(void *arg)
{
    struct gpu_stats *stats = arg;
    struct nvml_reading now;
    pthread_mutex_lock(&stats->lock);
    while (!stats->is_closing) {
        pthread_mutex_unlock(&stats->lock);
        nvml_read(stats->nvml, &now);
        pthread_mutex_lock(&stats->lock);
        struct timespec until = after_ms(stats->every_ms);
        if (!stats->is_closing) {
            publish(stats, now);
            pthread_cond_timedwait(&stats->wake, &stats->lock, &until);
        }
    }
    stats->is_done = true;
    bool is_left = stats->is_left;
    pthread_cond_signal(&stats->wake);
    pthread_mutex_unlock(&stats->lock);
    if (is_left)
        release(stats);
    return NULL;
}

static enum status start(struct gpu_stats *stats)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* clock_ns's */
    pthread_cond_init(&stats->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&stats->lock, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&stats->thread, NULL, sample_loop, stats);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return ST_OK;
    pthread_mutex_destroy(&stats->lock);
    pthread_cond_destroy(&stats->wake);
    return FAIL(ST_RETRY,
                "cannot start the thread that watches the GPU: %s; raise the limit of processes "
                "(ulimit -u)",
                strerror(error));
}

enum status gpu_stats_open(struct board *board, int worker_i, const char *bus, bool is_logger,
                           int every_ms, struct gpu_stats **out)
{
    struct nvml *nvml = NULL;
    *out = NULL;
    if (nvml_open(bus, &nvml) != ST_OK) {
        if (is_logger)
            LOG_INFO("no numbers of GPUs in /status and /metrics: %s", status_message());
        status_clear();
        return ST_OK;
    }
    struct gpu_stats *stats = calloc(1, sizeof *stats);
    if (stats == NULL) {
        nvml_close(nvml);
        return FAIL(ST_RETRY, "out of memory: what watches a GPU");
    }
    *stats = (struct gpu_stats){
        .board = board, .worker_i = worker_i, .every_ms = every_ms, .nvml = nvml};
    enum status st = start(stats);
    if (st == ST_OK) {
        *out = stats;
        return ST_OK;
    }
    nvml_close(nvml);
    free(stats);
    return st;
}

void gpu_stats_close(struct gpu_stats *stats)
{
    if (stats == NULL)
        return;
    struct timespec until = after_ms(CLOSE_MS);
    pthread_t thread = stats->thread;
    pthread_mutex_lock(&stats->lock);
    stats->is_closing = true;
    pthread_cond_signal(&stats->wake);
    while (!stats->is_done && pthread_cond_timedwait(&stats->wake, &stats->lock, &until) == 0)
        ;
    bool is_left = stats->is_left = !stats->is_done;
    pthread_mutex_unlock(&stats->lock);
    if (is_left) {
        pthread_detach(thread);
        LOG_WARN("the GPU's driver (NVML) has not answered for %d s; its watcher is left behind",
                 CLOSE_MS / 1000);
        return;
    }
    pthread_join(thread, NULL);
    release(stats);
}
