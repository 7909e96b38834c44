/* checkpoint_async — see checkpoint/async.h.
 *
 * Each write has a thread, started with it and joined when it has ended. The fields of the write
 * belong to the thread until it sets `done`, and to the caller before and after. */
#include "train/checkpoint/async.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/assert.h"
#include "base/text.h"
#include "train/feature/step_local.h"
#include "train/step/memory.h"

/* stays free next to the copy, for the writer's buffer and the kernel's page cache */
#define RESERVE_BYTES ((int64_t)256 << 20)
#define WAIT_MS 2

struct checkpoint_async {
    struct checkpoint_async_config config;
    char *copy; /* NULL: training waits for the disk */
    int64_t copy_bytes;
    bool is_async; /* written while training continues, if there is a copy */
    /* the write in progress */
    bool is_writing;
    pthread_t thread;
    struct checkpoint_progress progress;
    int64_t begin_ms;
    char path[FILE_PATH_MAX];
    enum status st;
    struct status_saved why;
    _Atomic int64_t bytes; /* written so far, for heartbeats */
    atomic_bool done;
};

static int64_t array_bytes(const struct checkpoint_async *s)
{
    return step_whole_table(s->config.step)->total_elems * (int64_t)sizeof(float);
}

static int64_t copy_bytes(const struct checkpoint_async *s)
{
    return array_bytes(s) * state_count(step_state(s->config.step), true);
}

/* ---- open and close ---- */

static enum status allocate_copy(struct checkpoint_async *s)
{
    char need[32], have[32], step[32];
    int64_t bytes = copy_bytes(s), free_bytes = s->config.memory_bytes;
    void *copy;
    text_format_bytes(need, sizeof need, (double)bytes);
    text_format_bytes(have, sizeof have, (double)free_bytes);
    if (free_bytes >= 0 && free_bytes - RESERVE_BYTES < bytes)
        return FAIL(memory_status(bytes + RESERVE_BYTES),
                    "a copy of the state needs %s, but only %s of memory are free (256 MiB are "
                    "kept in reserve)",
                    need, have);
    /* Host memory, which the writer's thread reads: touched, and pinned for a device's copies. */
    int64_t begin_ms = clock_ms();
    TRY(dev_is_discrete(s->config.dev) ? dev_pin(s->config.dev, (size_t)bytes, &copy)
                                       : dev_alloc(s->config.dev, (size_t)bytes, &copy));
    if (dev_is_discrete(s->config.dev))
        memset(copy, 0, (size_t)bytes);
    s->copy = copy;
    s->copy_bytes = bytes;
    LOG_INFO("memory: %s for training, %s more (of %s free) for the copy that is written while "
             "training continues, allocated in %.2f s",
             text_format_bytes(step, sizeof step, (double)step_memory_bytes(s->config.step)), need,
             free_bytes < 0 ? "unknown" : have, (double)(clock_ms() - begin_ms) / 1000);
    return ST_OK;
}

/* plan_copy — Decides whether there is a copy. */
static enum status plan_copy(struct checkpoint_async *s)
{
    enum checkpoint_async_mode mode = s->config.mode;
    int64_t bytes = copy_bytes(s);
    s->is_async = s->config.is_periodic && mode != CHECKPOINT_ASYNC_MODE_OFF &&
                  (mode != CHECKPOINT_ASYNC_MODE_AUTO || bytes >= CHECKPOINT_ASYNC_MIN_BYTES);
    if (!s->is_async)
        return ST_OK;
    enum status st = allocate_copy(s);
    if (st == ST_OK)
        return ST_OK;
    if (mode == CHECKPOINT_ASYNC_MODE_ON)
        return FAIL(ST_BAD_SETTING,
                    "CHECKPOINT_ASYNC=on: %s; free some, or set CHECKPOINT_ASYNC=auto",
                    status_message());
    LOG_WARN("training will wait while checkpoints are written: %s", status_message());
    status_clear();
    return ST_OK;
}

enum status checkpoint_async_open(const struct checkpoint_async_config *config,
                                  struct checkpoint_async **out)
{
    struct checkpoint_async *s = memory_new(1, sizeof *s);
    s->config = *config;
    enum status st = plan_copy(s);
    if (st == ST_OK)
        *out = s;
    else
        checkpoint_async_close(s);
    return st;
}

/* ---- one write ---- */

static void count_bytes(void *arg, int64_t bytes)
{
    struct checkpoint_async *s = arg;
    atomic_fetch_add_explicit(&s->bytes, bytes, memory_order_relaxed);
}

static void *write_copy(void *arg)
{
    struct checkpoint_async *s = arg;
    struct heartbeat heartbeat = {count_bytes, s};
    s->st =
        checkpoint_save(s->config.checkpoint, &s->progress, (const float *)(const void *)s->copy,
                        &heartbeat, s->path, sizeof s->path);
    status_save(&s->why);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

/* start_thread — Starts the thread. It blocks signals, which are for the training thread; faults
 * stay with the thread that caused them. */
static int start_thread(struct checkpoint_async *s)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    sigset_t set, old_mask;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, &old_mask);
    atomic_store_explicit(&s->done, false, memory_order_relaxed);
    int error = pthread_create(&s->thread, NULL, write_copy, s);
    pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
    s->is_writing = error == 0;
    return error;
}

/* record_result — Records the end of a write, on the caller's thread. */
static enum status record_result(struct checkpoint_async *s, enum status st)
{
    struct checkpoint_async_last *last = s->config.last;
    double ms = (double)(clock_ms() - s->begin_ms);
    if (st != ST_OK) {
        last->failures++;
        text_copy(last->error, sizeof last->error, status_message());
        return st;
    }
    last->step = s->progress.step;
    last->wall_ms = clock_wall_ms();
    last->save_ms = ms;
    last->error[0] = 0;
    text_copy(last->path, sizeof last->path, s->path);
    LOG_INFO("checkpoint %s in %.1f s, training waited %.0f ms", s->path, ms / 1000,
             last->stall_ms);
    return ST_OK;
}

/* warn_failure — Logs a failed save, and goes on: a disk that is full now may have space later. */
static void warn_failure(const struct checkpoint_async *s)
{
    LOG_WARN("checkpoint of step %" PRId64 " failed, training goes on: %s", s->progress.step,
             status_message());
    status_clear();
}

/* join_thread — Joins the thread, which has ended or is about to. */
static void join_thread(struct checkpoint_async *s)
{
    int error = pthread_join(s->thread, NULL);
    ASSERTF(error == 0, "join: %s", strerror(error));
    s->is_writing = false;
    if (s->st != ST_OK)
        status_restore(&s->why);
    if (record_result(s, s->st) != ST_OK)
        warn_failure(s);
}

static void wait_for_writing(struct checkpoint_async *s)
{
    int64_t seen = -1;
    while (s->is_writing && !atomic_load_explicit(&s->done, memory_order_acquire)) {
        int64_t bytes = atomic_load_explicit(&s->bytes, memory_order_relaxed);
        if (bytes != seen && s->config.heartbeat)
            s->config.heartbeat(s->config.heartbeat_arg);
        seen = bytes;
        clock_sleep_ms(WAIT_MS);
    }
    if (s->is_writing)
        join_thread(s);
}

static enum status copy_state(struct checkpoint_async *s)
{
    struct step *step = s->config.step;
    const struct state *state = step_state(step);
    TRY(step_drain(step));
    for (int array = 0; array < state_count(state, s->progress.is_apart); array++) {
        /* With all threads of the device, if the array is whole in its memory. */
        const struct state_array p = state_describe(state, array, 0);
        char *to = s->copy + array * array_bytes(s);
        TRY(p.here ? dev_copy(step_stream(step), to, p.here, (size_t)array_bytes(s))
                   : state_read(state, array, 0, p.elems, (float *)(void *)to));
    }
    return dev_sync(step_stream(step));
}

/* write_now — Writes while training waits for the disk. */
static enum status write_now(struct checkpoint_async *s)
{
    int64_t begin_ns = clock_ns();
    enum status st = step_drain(s->config.step);
    if (st == ST_OK)
        st = checkpoint_save(s->config.checkpoint, &s->progress, NULL, NULL, s->path,
                             sizeof s->path);
    s->config.last->stall_ms = (double)(clock_ns() - begin_ns) / 1e6;
    return record_result(s, st);
}

static enum status write_async(struct checkpoint_async *s)
{
    int64_t begin_ns = clock_ns();
    enum status st = copy_state(s);
    if (st != ST_OK)
        return record_result(s, st);
    int error = start_thread(s);
    s->config.last->stall_ms = (double)(clock_ns() - begin_ns) / 1e6;
    if (error == 0)
        return ST_OK;
    LOG_WARN("training waits for this checkpoint: cannot start a thread: %s", strerror(error));
    return write_now(s);
}

/* ---- public ---- */

bool checkpoint_async_is_writing(const struct checkpoint_async *s) { return s->is_writing; }

void checkpoint_async_poll(struct checkpoint_async *s)
{
    if (s->is_writing && atomic_load_explicit(&s->done, memory_order_acquire))
        join_thread(s);
}

bool checkpoint_async_save(struct checkpoint_async *s, const struct checkpoint_progress *progress,
                           bool is_asked)
{
    struct checkpoint_async_last *last = s->config.last;
    int64_t begin_ns = clock_ns();
    checkpoint_async_poll(s);
    if (s->is_writing && !is_asked) {
        /* Logs the first, second, fourth … time: a slow disk must not fill the log. */
        int64_t skipped = ++last->skipped;
        if ((skipped & (skipped - 1)) == 0)
            LOG_WARN("no checkpoint of step %" PRId64 ": the checkpoint of step %" PRId64
                     " is still being written (skipped so far: %" PRId64
                     "); raise CHECKPOINT_EVERY, or use a faster disk",
                     progress->step, s->progress.step, skipped);
        return false;
    }
    wait_for_writing(s);
    if (last->step == progress->step)
        return false;
    s->progress = *progress;
    s->begin_ms = clock_ms();
    if ((s->is_async && s->copy ? write_async(s) : write_now(s)) != ST_OK)
        warn_failure(s);
    last->stall_ms = (double)(clock_ns() - begin_ns) / 1e6;
    return true;
}

enum status checkpoint_async_finish(struct checkpoint_async *s,
                                    const struct checkpoint_progress *progress)
{
    wait_for_writing(s);
    if (s->config.last->step == progress->step)
        return ST_OK;
    s->progress = *progress;
    s->begin_ms = clock_ms();
    return write_now(s);
}

void checkpoint_async_close(struct checkpoint_async *s)
{
    if (!s)
        return;
    wait_for_writing(s);
    if (!dev_is_discrete(s->config.dev) && s->copy)
        dev_free(s->config.dev, s->copy, (size_t)s->copy_bytes);
    else
        dev_unpin(s->config.dev, s->copy);
    free(s);
}
