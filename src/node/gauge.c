/* gauge — see gauge.h. */
#include "node/gauge.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "dev/nvml.h"

#define CLOSE_MS 2000 /* for a reading under way; on a GPU in trouble it may never end */

struct gauge {
    struct board *board;
    int worker_i, every_ms;
    struct nvml *nvml;
    int64_t xids;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;  /* of both sides */
    bool is_closing;      /* the board is looked at no more */
    bool is_done;         /* the thread has ended its last reading */
    bool is_left;         /* nobody waits for it: it frees the gauge */
};

static void release(struct gauge *gauge)
{
    pthread_mutex_destroy(&gauge->lock);
    pthread_cond_destroy(&gauge->wake);
    nvml_close(gauge->nvml);
    free(gauge);
}

/* post — under the lock. */
static void post(struct gauge *gauge, struct nvml_reading now)
{
    if (now.xids > gauge->xids)
        LOG_WARN(
            "the driver reports Xid %lld on this worker's GPU (%lld since the start); see dmesg",
            (long long)now.xid_last, (long long)now.xids);
    gauge->xids = now.xids;
    board_gpu_post(gauge->board, gauge->worker_i,
                   &(struct board_gpu){.busy = now.busy,
                                       .memory_busy = now.memory_busy,
                                       .memory_used = now.memory_used,
                                       .memory_total = now.memory_total,
                                       .temperature = now.temperature,
                                       .power = now.power,
                                       .power_limit = now.power_limit,
                                       .clock = now.clock,
                                       .memory_clock = now.memory_clock,
                                       .ecc_corrected = now.ecc_corrected,
                                       .ecc_uncorrected = now.ecc_uncorrected,
                                       .xids = now.xids,
                                       .xid_last = now.xid_last,
                                       .posted_ms = clock_ms()});
}

static struct timespec after_ms(int ms)
{
    int64_t at_ns = clock_ns() + (int64_t)ms * 1000000;
    return (struct timespec){.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
}

static void *watch(void *arg)
{
    struct gauge *gauge = arg;
    struct nvml_reading now;
    pthread_mutex_lock(&gauge->lock);
    while (!gauge->is_closing) {
        pthread_mutex_unlock(&gauge->lock);
        nvml_read(gauge->nvml, &now);
        pthread_mutex_lock(&gauge->lock);
        struct timespec until = after_ms(gauge->every_ms);
        if (!gauge->is_closing) {
            post(gauge, now);
            pthread_cond_timedwait(&gauge->wake, &gauge->lock, &until);
        }
    }
    gauge->is_done = true;
    bool is_left = gauge->is_left;
    pthread_cond_signal(&gauge->wake);
    pthread_mutex_unlock(&gauge->lock);
    if (is_left)
        release(gauge);
    return NULL;
}

static enum status start(struct gauge *gauge)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* clock_ns's */
    pthread_cond_init(&gauge->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&gauge->lock, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&gauge->thread, NULL, watch, gauge);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return ST_OK;
    pthread_mutex_destroy(&gauge->lock);
    pthread_cond_destroy(&gauge->wake);
    return FAIL(ST_RETRY,
                "cannot start the thread that watches the GPU: %s; raise the limit of processes "
                "(ulimit -u)",
                strerror(error));
}

enum status gauge_open(struct board *board, int worker_i, const char *bus, bool speaks,
                       int every_ms, struct gauge **out)
{
    struct nvml *nvml = NULL;
    *out = NULL;
    if (nvml_open(bus, &nvml) != ST_OK) {
        if (speaks)
            LOG_INFO("no numbers of GPUs in /status and /metrics: %s", status_message());
        status_clear();
        return ST_OK;
    }
    struct gauge *gauge = calloc(1, sizeof *gauge);
    if (gauge == NULL) {
        nvml_close(nvml);
        return FAIL(ST_RETRY, "out of memory: what watches a GPU");
    }
    *gauge =
        (struct gauge){.board = board, .worker_i = worker_i, .every_ms = every_ms, .nvml = nvml};
    enum status st = start(gauge);
    if (st == ST_OK) {
        *out = gauge;
        return ST_OK;
    }
    nvml_close(nvml);
    free(gauge);
    return st;
}

void gauge_close(struct gauge *gauge)
{
    if (gauge == NULL)
        return;
    struct timespec until = after_ms(CLOSE_MS);
    pthread_t thread = gauge->thread;
    pthread_mutex_lock(&gauge->lock);
    gauge->is_closing = true;
    pthread_cond_signal(&gauge->wake);
    while (!gauge->is_done && pthread_cond_timedwait(&gauge->wake, &gauge->lock, &until) == 0)
        ;
    bool is_left = gauge->is_left = !gauge->is_done;
    pthread_mutex_unlock(&gauge->lock);
    if (is_left) {
        pthread_detach(thread);
        LOG_WARN("the GPU's driver (NVML) has not answered for %d s; its watcher is left behind",
                 CLOSE_MS / 1000);
        return;
    }
    pthread_join(thread, NULL);
    release(gauge);
}
