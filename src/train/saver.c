/* saver — see saver.h.
 *
 * One writing is one thread, started with its job and joined when it has ended. The job's fields
 * belong to the thread until it sets `done`, and to the caller before and after. */
#include "train/saver.h"

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
#include "base/must.h"
#include "base/text.h"

/* stays free beside the copy: the writer's stage, the kernel's pages */
#define RESERVE_BYTES ((int64_t)256 << 20)
#define WAIT_MS 2

struct saver {
    struct saver_config config;
    char *copy; /* NULL: training waits for the disk */
    int64_t copy_bytes;
    bool is_later; /* written while training goes on, if there is a copy */
    /* the writing under way */
    bool is_writing;
    pthread_t thread;
    struct snapshot_place place;
    int64_t begin_ms;
    char path[FILE_PATH_MAX];
    enum status st;
    struct status_saved why;
    _Atomic int64_t bytes; /* written so far: a sign of life */
    atomic_bool done;
};

static int64_t part_bytes(const struct saver *s)
{
    return step_table(s->config.step)->total_elems * (int64_t)sizeof(float);
}

/* ---- open and close ---- */

/* The writer's thread reads it, so it is the host's, touched, and fit for the device's copies. */
static enum status take_memory(struct saver *s, size_t bytes, void **out)
{
    if (!dev_is_apart(s->config.dev))
        return dev_alloc(s->config.dev, bytes, out);
    TRY(dev_pin(s->config.dev, bytes, out));
    memset(*out, 0, bytes);
    return ST_OK;
}

static void free_memory(struct saver *s)
{
    if (!dev_is_apart(s->config.dev) && s->copy)
        dev_free(s->config.dev, s->copy, (size_t)s->copy_bytes);
    else
        dev_unpin(s->config.dev, s->copy);
}

static enum status take_copy(struct saver *s)
{
    char need[32], have[32], step[32];
    int64_t bytes = part_bytes(s) * step_parts(s->config.step), free_bytes = s->config.memory_bytes;
    void *copy;
    text_human(need, sizeof need, (double)bytes);
    text_human(have, sizeof have, (double)free_bytes);
    if (free_bytes >= 0 && free_bytes - RESERVE_BYTES < bytes)
        return FAIL(
            memory_status(bytes + RESERVE_BYTES),
            "a copy of the state needs %s, of memory %s are free (256 MiB of them are left alone)",
            need, have);
    int64_t begin_ms = clock_ms();
    TRY(take_memory(s, (size_t)bytes, &copy));
    s->copy = copy;
    s->copy_bytes = bytes;
    LOG_INFO("memory: %s for training, %s more (of %s free) for the copy that is written while "
             "training goes on, taken in %.2f s",
             text_human(step, sizeof step, (double)step_memory_bytes(s->config.step)), need,
             free_bytes < 0 ? "unknown" : have, (double)(clock_ms() - begin_ms) / 1000);
    return ST_OK;
}

/* plan — shall there be a copy? */
static enum status plan(struct saver *s)
{
    enum saver_mode mode = s->config.mode;
    int64_t bytes = part_bytes(s) * step_parts(s->config.step);
    s->is_later = s->config.is_periodic && mode != SAVER_MODE_OFF &&
                  (mode != SAVER_MODE_AUTO || bytes >= SAVER_SMALL_BYTES);
    if (s->config.is_apart)
        return take_copy(s);
    if (!s->is_later)
        return ST_OK;
    enum status st = take_copy(s);
    if (st == ST_OK)
        return ST_OK;
    if (mode == SAVER_MODE_ON)
        return FAIL(ST_BAD_SETTING,
                    "CHECKPOINT_ASYNC=on: %s; free some, or set CHECKPOINT_ASYNC=auto",
                    status_message());
    LOG_WARN("training will wait while checkpoints are written: %s", status_message());
    status_clear();
    return ST_OK;
}

enum status saver_open(const struct saver_config *config, struct saver **out)
{
    struct saver *s = calloc(1, sizeof *s);
    if (!s)
        return FAIL(ST_RETRY, "out of memory: the saver of checkpoints");
    s->config = *config;
    enum status st = plan(s);
    if (st == ST_OK)
        *out = s;
    else
        saver_close(s);
    return st;
}

/* ---- one writing ---- */

static void count_bytes(void *arg, int64_t bytes)
{
    struct saver *s = arg;
    atomic_fetch_add_explicit(&s->bytes, bytes, memory_order_relaxed);
}

static void *write_copy(void *arg)
{
    struct saver *s = arg;
    struct safetensors_beat beat = {count_bytes, s};
    s->st = snapshot_save(s->config.snapshot, &s->place, (const float *)(const void *)s->copy,
                          &beat, s->path, sizeof s->path);
    status_keep(&s->why);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

/* start — signals are for the thread that trains; faults stay with the thread that made them. */
static int start(struct saver *s)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    sigset_t set, kept;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, &kept);
    atomic_store_explicit(&s->done, false, memory_order_relaxed);
    int error = pthread_create(&s->thread, NULL, write_copy, s);
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    s->is_writing = error == 0;
    return error;
}

/* note — a writing has ended: status and failure text are this thread's. */
static enum status note(struct saver *s, enum status st)
{
    struct saver_kept *kept = s->config.kept;
    double ms = (double)(clock_ms() - s->begin_ms);
    if (st != ST_OK) {
        kept->failures++;
        text_copy(kept->error, sizeof kept->error, status_message());
        return st;
    }
    kept->step = s->place.step;
    kept->wall_ms = clock_wall_ms();
    kept->save_ms = ms;
    kept->error[0] = 0;
    text_copy(kept->path, sizeof kept->path, s->path);
    LOG_INFO("checkpoint %s in %.1f s, training waited %.0f ms", s->path, ms / 1000,
             kept->stall_ms);
    return ST_OK;
}

/* warn — a disk that is full now may have room later. */
static void warn(const struct saver *s)
{
    LOG_WARN("checkpoint of step %" PRId64 " failed, training goes on: %s", s->place.step,
             status_message());
    status_clear();
}

/* collect — the thread has ended, or is about to. */
static void collect(struct saver *s)
{
    int error = pthread_join(s->thread, NULL);
    ASSERTF(error == 0, "join: %s", strerror(error));
    s->is_writing = false;
    if (s->st != ST_OK)
        status_back(&s->why);
    if (note(s, s->st) != ST_OK)
        warn(s);
}

static void wait_for_writing(struct saver *s)
{
    int64_t seen = -1;
    while (s->is_writing && !atomic_load_explicit(&s->done, memory_order_acquire)) {
        int64_t bytes = atomic_load_explicit(&s->bytes, memory_order_relaxed);
        if (bytes != seen && s->config.beat)
            s->config.beat(s->config.beat_arg);
        seen = bytes;
        clock_sleep_ms(WAIT_MS);
    }
    if (s->is_writing)
        collect(s);
}

static enum status copy_state(struct saver *s)
{
    struct stream *stream = step_stream(s->config.step);
    if (s->config.is_apart) {
        for (int part = 0; part < step_parts(s->config.step); part++)
            TRY(step_read(s->config.step, part, 0, step_table(s->config.step)->total_elems,
                          (float *)(void *)(s->copy + part * part_bytes(s))));
        return ST_OK;
    }
    TRY(step_rest(s->config.step));
    for (int part = 0; part < step_parts(s->config.step); part++)
        TRY(dev_copy(stream, s->copy + part * part_bytes(s), step_tensor(s->config.step, part).data,
                     (size_t)part_bytes(s)));
    return dev_sync(stream);
}

/* write_now — training waits for the disk. */
static enum status write_now(struct saver *s)
{
    int64_t begin_ns = clock_ns();
    const float *copy = s->config.is_apart ? (const float *)(const void *)s->copy : NULL;
    enum status st = copy ? copy_state(s) : step_rest(s->config.step);
    if (st == ST_OK)
        st = snapshot_save(s->config.snapshot, &s->place, copy, NULL, s->path, sizeof s->path);
    s->config.kept->stall_ms = (double)(clock_ns() - begin_ns) / 1e6;
    return note(s, st);
}

static enum status write_later(struct saver *s)
{
    int64_t begin_ns = clock_ns();
    enum status st = copy_state(s);
    if (st != ST_OK)
        return note(s, st);
    int error = start(s);
    s->config.kept->stall_ms = (double)(clock_ns() - begin_ns) / 1e6;
    if (error == 0)
        return ST_OK;
    LOG_WARN("training waits for this checkpoint: cannot start a thread: %s", strerror(error));
    return write_now(s);
}

/* ---- public ---- */

bool saver_is_writing(const struct saver *s) { return s->is_writing; }

void saver_look(struct saver *s)
{
    if (s->is_writing && atomic_load_explicit(&s->done, memory_order_acquire))
        collect(s);
}

/* skip — said the first time, the second, the fourth …: a slow disk must not fill the log. */
static void skip(struct saver *s, const struct snapshot_place *place)
{
    int64_t skipped = ++s->config.kept->skipped;
    if ((skipped & (skipped - 1)) == 0)
        LOG_WARN("no checkpoint of step %" PRId64 ": that of step %" PRId64
                 " is still being written (left out so far: %" PRId64
                 "); a greater CHECKPOINT_EVERY or a faster disk helps",
                 place->step, s->place.step, skipped);
}

bool saver_save(struct saver *s, const struct snapshot_place *place, bool is_asked)
{
    struct saver_kept *kept = s->config.kept;
    int64_t begin_ns = clock_ns();
    saver_look(s);
    if (s->is_writing && !is_asked) {
        skip(s, place);
        return false;
    }
    wait_for_writing(s);
    if (kept->step == place->step)
        return false;
    s->place = *place;
    s->begin_ms = clock_ms();
    if ((s->is_later && s->copy ? write_later(s) : write_now(s)) != ST_OK)
        warn(s);
    kept->stall_ms = (double)(clock_ns() - begin_ns) / 1e6;
    return true;
}

enum status saver_finish(struct saver *s, const struct snapshot_place *place)
{
    wait_for_writing(s);
    if (s->config.kept->step == place->step)
        return ST_OK;
    s->place = *place;
    s->begin_ms = clock_ms();
    return write_now(s);
}

void saver_close(struct saver *s)
{
    if (!s)
        return;
    wait_for_writing(s);
    free_memory(s);
    free(s);
}
