/* gpu_stats — see gpu_stats.h. */
#include "node/worker/gpu_stats.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/thread.h"
#include "dev/gpu_sensors.h"

#define CLOSE_MS 2000 /* limit for a reading in progress; on a GPU in trouble it may never end */

struct gpu_stats {
    struct board *board;
    int worker_i, every_ms;
    struct gpu_sensors sensors;
    int64_t xids;
    struct thread thread; /* its lock guards the fields below; both sides wait on its condition */
    bool is_closing;      /* the thread no longer touches the board */
    bool is_done;         /* the thread has ended its last reading */
    bool is_left;         /* gpu_stats_close no longer waits: the thread frees it */
};

static void free_stats(struct gpu_stats *stats)
{
    thread_free(&stats->thread);
    gpu_sensors_close(&stats->sensors);
    free(stats);
}

/* publish_reading — publishes one reading. Called with the lock held. */
static void publish_reading(struct gpu_stats *stats, struct gpu_reading now)
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

static void *sample_loop(void *arg)
{
    struct gpu_stats *stats = arg;
    struct gpu_reading now;
    pthread_mutex_lock(&stats->thread.lock);
    while (!stats->is_closing) {
        pthread_mutex_unlock(&stats->thread.lock);
        gpu_sensors_read(&stats->sensors, &now);
        pthread_mutex_lock(&stats->thread.lock);
        struct timespec until = thread_deadline(stats->every_ms);
        if (!stats->is_closing) {
            publish_reading(stats, now);
            pthread_cond_timedwait(&stats->thread.wake, &stats->thread.lock, &until);
        }
    }
    stats->is_done = true;
    bool is_left = stats->is_left;
    pthread_cond_signal(&stats->thread.wake);
    pthread_mutex_unlock(&stats->thread.lock);
    if (is_left)
        free_stats(stats);
    return NULL;
}

enum status gpu_stats_open(struct board *board, int worker_i, const char *bus, const char *amd_root,
                           bool is_logger, int every_ms, struct gpu_stats **out)
{
    struct gpu_stats *stats = memory_new(1, sizeof *stats);
    *stats = (struct gpu_stats){.board = board, .worker_i = worker_i, .every_ms = every_ms};
    *out = NULL;
    if (gpu_sensors_open(bus, amd_root, &stats->sensors) != ST_OK) {
        if (is_logger)
            LOG_INFO("/status and /metrics have no numbers of GPUs: %s", status_message());
        status_clear();
        free(stats);
        return ST_OK;
    }
    enum status st = thread_start(&stats->thread, sample_loop, stats, "reads the GPU's numbers");
    if (st == ST_OK) {
        *out = stats;
        return ST_OK;
    }
    gpu_sensors_close(&stats->sensors);
    free(stats);
    return st;
}

void gpu_stats_close(struct gpu_stats *stats)
{
    if (stats == NULL)
        return;
    struct timespec until = thread_deadline(CLOSE_MS);
    pthread_t id = stats->thread.id;
    pthread_mutex_lock(&stats->thread.lock);
    stats->is_closing = true;
    pthread_cond_signal(&stats->thread.wake);
    while (!stats->is_done &&
           pthread_cond_timedwait(&stats->thread.wake, &stats->thread.lock, &until) == 0)
        ;
    bool is_left = stats->is_left = !stats->is_done;
    pthread_mutex_unlock(&stats->thread.lock);
    if (is_left) {
        pthread_detach(id);
        LOG_WARN("the GPU's driver has not answered for %d s; the thread that reads it is "
                 "abandoned",
                 CLOSE_MS / 1000);
        return;
    }
    pthread_join(id, NULL);
    free_stats(stats);
}
