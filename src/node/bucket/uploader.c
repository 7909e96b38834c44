/* uploader — see uploader.h. Read run_thread first, at the foot of the thread's part. */
#include "node/bucket/uploader.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/arc4random.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "format/ckpt.h"
#include "format/ckpt_dir.h"
#include "node/bucket/bucket.h"

#define LOOK_MS 1000 /* between two looks at the local folder */
#define WAIT_MS 1000 /* before the second attempt; doubled for each further one */
#define WAIT_MS_MAX 60000
#define WAIT_MS_MAX_AT_END 5000
#define CLOSE_MS 10000
#define PRUNE_MS 10000 /* a waiting upload ends the removal of old checkpoints after this time */
#define NICE 10
#define BAD_FOLDERS_MAX 16

/* A local checkpoint. Another folder with the same step is another one. */
struct folder {
    int64_t step;
    ino_t inode;
    struct timespec changed; /* zeros: there is none */
};

struct uploader {
    struct uploader_config config;
    char name[S3_NAME_MAX], dir[FILE_PATH_MAX];
    struct bucket *bucket;
    atomic_bool is_cancelled;
    _Atomic int64_t bytes_done; /* uploaded bytes of the checkpoint in progress */
    struct thread thread;       /* its lock guards the fields below */
    struct uploader_stats stats;
    int64_t bytes_all;            /* all bytes of the checkpoint in progress */
    int64_t bytes_most;           /* largest bytes_done of the checkpoint in progress */
    int64_t received;             /* last number of bytes of a file that is downloaded */
    int64_t noticed_step, unsent; /* last checkpoint of uploader_notice, and their number since the
                                      last choice */
    bool is_finishing, is_ended;
    /* the thread's own */
    struct bucket_listing listing;
    struct ckpt_lock *lock;             /* until the download is done */
    int64_t local_step;                 /* newest local checkpoint at the start; -1: none */
    struct bucket_put *put;             /* NULL: nothing is waiting */
    struct folder put_folder;           /* the folder of put */
    struct folder bad[BAD_FOLDERS_MAX]; /* local checkpoints that are damaged; the newest ones */
    int64_t bad_n;                      /* number of them so far */
    int64_t tries;                      /* attempts in a row that failed */
    int64_t begin_ms;                   /* time at which the upload of put began */
    int64_t prune_end_ms;  /* time at which a waiting upload ends the removal of old checkpoints; 0:
                             none is being removed */
    char prune_error[512]; /* reason why its last try failed; "": it did not */
    bool has_prune_failed; /* the last removal of old checkpoints */
};

static void free_uploader(struct uploader *u)
{
    bucket_put_close(u->put);
    bucket_listing_free(&u->listing);
    ckpt_lock_release(u->lock);
    bucket_close(u->bucket);
    free(u);
}

/* ---- the thread ---- */

/* fail_for_good — ends the uploads. The reason is status_message. */
static void fail_for_good(struct uploader *u, enum status st)
{
    pthread_mutex_lock(&u->thread.lock);
    u->stats.phase = UPLOADER_PHASE_FAILED;
    u->stats.st = st;
    text_copy(u->stats.error, sizeof u->stats.error, status_message());
    pthread_mutex_unlock(&u->thread.lock);
}

/* go_on — returns false to stop the current transfer. Bytes that have never been sent before, or
 * that arrive, show that the last failure is over. Called by the uploader's thread. */
static bool go_on(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    struct uploader *u = arg;
    (void)bytes_total;
    pthread_mutex_lock(&u->thread.lock);
    if (u->stats.phase == UPLOADER_PHASE_DOWNLOAD && bytes_done > 0 && bytes_done != u->received) {
        u->received = bytes_done;
        u->stats.error[0] = 0;
    }
    if (u->bytes_done > u->bytes_most) {
        u->bytes_most = u->bytes_done;
        u->stats.error[0] = 0;
    }
    const bool is_next = u->unsent > 0 || u->is_finishing;
    pthread_mutex_unlock(&u->thread.lock);
    const bool is_late = is_next && u->prune_end_ms != 0 && clock_ms() >= u->prune_end_ms;
    return !u->is_cancelled && !is_late;
}

/* note_retry — records why a try of a request failed. Uploads log only the first failure. Called
 * by any thread of a transfer. */
static void note_retry(void *arg, const char *message)
{
    struct uploader *u = arg;
    pthread_mutex_lock(&u->thread.lock);
    const bool is_upload = u->stats.phase == UPLOADER_PHASE_UPLOAD;
    if (u->prune_end_ms != 0)
        text_copy(u->prune_error, sizeof u->prune_error, message);
    else
        text_copy(u->stats.error, sizeof u->stats.error, message);
    pthread_mutex_unlock(&u->thread.lock);
    if (!is_upload)
        LOG_WARN("%s; trying again", message);
}

/* find_folder — identifies a local checkpoint. */
static struct folder find_folder(const char *path, int64_t step)
{
    struct stat info;
    struct folder folder = {.step = step};
    if (lstat(path, &info) == 0) {
        folder.inode = info.st_ino;
        folder.changed = info.st_mtim;
    }
    return folder;
}

/* is_bad — returns true if a checkpoint is known to be damaged. */
static bool is_bad(const struct uploader *u, const struct folder *folder)
{
    bool is = false;
    for (int i = 0; i < BAD_FOLDERS_MAX && i < u->bad_n; i++) {
        const struct folder *bad = &u->bad[i];
        is = is || (bad->step == folder->step && bad->inode == folder->inode &&
                    bad->changed.tv_sec == folder->changed.tv_sec &&
                    bad->changed.tv_nsec == folder->changed.tv_nsec);
    }
    return is;
}

/* newest_bad — returns the newest local checkpoint that is damaged; -1: none is. */
static int64_t newest_bad(const struct uploader *u)
{
    int64_t step = -1;
    for (int i = 0; i < BAD_FOLDERS_MAX && i < u->bad_n; i++)
        step = u->bad[i].step > step ? u->bad[i].step : step;
    return step;
}

/* mark_bad — leaves out a local checkpoint until another folder replaces it. The reason is
 * status_message. */
static void mark_bad(struct uploader *u, const struct folder *folder)
{
    u->bad[u->bad_n++ % BAD_FOLDERS_MAX] = *folder;
    LOG_WARN("a damaged checkpoint is not uploaded: %s", status_message());
    status_clear();
}

/* may_look — returns true if the local checkpoints are this run's: with RESUME=never, older ones
 * have been moved aside when the run announces its first. The caller holds the thread's lock. */
static bool may_look(const struct uploader *u)
{
    return !u->config.is_new_run || u->noticed_step >= 0;
}

/* open_next — opens the newest local checkpoint above step `above` that can be read. */
static enum status open_next(struct uploader *u, int64_t above, struct bucket_put **out,
                             struct folder *folder)
{
    struct ckpt_dir_steps steps;
    char path[FILE_PATH_MAX];
    enum status st = ST_OK;
    *out = NULL;
    TRY(ckpt_dir_list(u->dir, &steps));
    for (int i = 0; i < steps.steps_n && steps.step[i] > above && *out == NULL; i++) {
        st = ckpt_dir_step_path(path, sizeof path, u->dir, steps.step[i]);
        if (st != ST_OK)
            break;
        *folder = find_folder(path, steps.step[i]);
        if (is_bad(u, folder))
            continue;
        st = bucket_put_open(path, steps.step[i], out);
        if (st != ST_OK && st != ST_BAD_DATA && st != ST_NO_INPUT)
            break;
        if (st == ST_BAD_DATA)
            mark_bad(u, folder);
        status_clear();
        st = ST_OK;
    }
    free(steps.step);
    return st;
}

/* choose_checkpoint — chooses the newest local checkpoint for the next upload, and drops an older
 * one that waited. */
static enum status choose_checkpoint(struct uploader *u)
{
    struct bucket_put *put = NULL;
    struct folder folder;
    pthread_mutex_lock(&u->thread.lock);
    const bool looks = may_look(u);
    pthread_mutex_unlock(&u->thread.lock);
    if (looks)
        TRY(open_next(u, u->put != NULL ? u->put_folder.step : u->stats.step, &put, &folder));
    if (put == NULL) { /* the noticed checkpoint is uploaded already, damaged, or gone */
        pthread_mutex_lock(&u->thread.lock);
        u->unsent = 0;
        pthread_mutex_unlock(&u->thread.lock);
        return ST_OK;
    }
    const int64_t step = folder.step;
    const bool is_dropping = u->put != NULL;
    if (is_dropping)
        LOG_INFO("the checkpoint of step %lld is not uploaded any more: step %lld is newer",
                 (long long)u->put_folder.step, (long long)step);
    bucket_put_close(u->put);
    u->put = put;
    u->put_folder = folder;
    u->begin_ms = clock_ms();
    pthread_mutex_lock(&u->thread.lock);
    const int64_t others = u->unsent - (u->unsent > 0 && u->noticed_step == step);
    u->stats.dropped += others + is_dropping;
    u->unsent = 0;
    u->noticed_step = step > u->noticed_step ? step : u->noticed_step;
    u->stats.waiting_step = step;
    u->bytes_all = bucket_put_bytes(put);
    u->bytes_most = 0;
    u->bytes_done = 0;
    pthread_mutex_unlock(&u->thread.lock);
    return ST_OK;
}

/* close_put — closes the checkpoint in progress: it is uploaded, or damaged. step: the last
 * checkpoint in the bucket now. */
static void close_put(struct uploader *u, int64_t step)
{
    bucket_put_close(u->put);
    u->put = NULL;
    pthread_mutex_lock(&u->thread.lock);
    u->stats.step = step;
    u->stats.waiting_step = -1;
    u->stats.error[0] = 0;
    u->bytes_all = u->bytes_most = 0;
    u->bytes_done = 0;
    pthread_mutex_unlock(&u->thread.lock);
}

/* count_upload — records that the manifest is in the bucket. */
static void count_upload(struct uploader *u)
{
    char bytes[32], span[32], after[64] = "";
    if (u->tries > 0)
        text_format(after, sizeof after, ", after %lld failed attempt%s", (long long)u->tries,
                    u->tries == 1 ? "" : "s");
    if (bucket_put_was_there(u->put))
        LOG_DEBUG("%s has the checkpoint of step %lld already", bucket_name(u->bucket),
                  (long long)u->put_folder.step);
    else
        LOG_INFO("the checkpoint of step %lld is in %s: %s in %s%s", (long long)u->put_folder.step,
                 bucket_name(u->bucket),
                 text_format_bytes(bytes, sizeof bytes, (double)bucket_put_bytes(u->put)),
                 text_format_ms(span, sizeof span, (double)(clock_ms() - u->begin_ms)), after);
    close_put(u, u->put_folder.step);
    u->tries = 0;
}

/* count_failure — counts a failed attempt; the first one in a row is logged. */
static void count_failure(struct uploader *u, const char *what)
{
    if (u->is_cancelled)
        return;
    if (u->tries++ == 0)
        LOG_WARN("%s %s failed; training goes on, and it is tried again: %s", what,
                 bucket_name(u->bucket), status_message());
    pthread_mutex_lock(&u->thread.lock);
    u->stats.failures++;
    text_copy(u->stats.error, sizeof u->stats.error, status_message());
    if (u->put != NULL)
        u->bytes_done = u->bytes_all - bucket_put_left(u->put);
    pthread_mutex_unlock(&u->thread.lock);
    status_clear();
}

/* clear_failure — records that nothing is left to upload. */
static void clear_failure(struct uploader *u)
{
    u->tries = 0;
    pthread_mutex_lock(&u->thread.lock);
    u->stats.error[0] = 0;
    pthread_mutex_unlock(&u->thread.lock);
}

/* wait_for_work — waits until there may be something to do: after a failure longer each time.
 * is_last: uploader_finish had been called before the last look. Returns false
 * if the thread is to end. */
static bool wait_for_work(struct uploader *u, bool is_last)
{
    pthread_mutex_lock(&u->thread.lock);
    int64_t ms = LOOK_MS;
    if (u->tries > 0) {
        const int64_t most = u->is_finishing ? WAIT_MS_MAX_AT_END : WAIT_MS_MAX;
        ms = u->tries < 8 ? (int64_t)WAIT_MS << (u->tries - 1) : most;
        ms = ms < most ? ms : most;
        ms += (int64_t)(arc4random() % (uint32_t)(ms / 4 + 1));
    }
    const struct timespec until = thread_deadline(ms);
    while (!u->is_cancelled && (u->tries > 0 || u->unsent == 0) && is_last == u->is_finishing &&
           pthread_cond_timedwait(&u->thread.wake, &u->thread.lock, &until) == 0)
        ;
    pthread_mutex_unlock(&u->thread.lock);
    return !u->is_cancelled;
}

/* prune_bucket — removes old checkpoints from the bucket. The first failure in a row is logged; the
 * next upload is followed by another attempt. */
static void prune_bucket(struct uploader *u)
{
    u->prune_error[0] = 0;
    u->prune_end_ms = clock_ms() + PRUNE_MS;
    const enum status st = bucket_prune(u->bucket, u->config.keep, u->stats.step);
    u->prune_end_ms = 0;
    if (st != ST_OK && !u->has_prune_failed && !u->is_cancelled)
        LOG_WARN("%s: old checkpoints stay there (CHECKPOINT_KEEP) until one of the next uploads "
                 "can remove them: %s",
                 u->name, u->prune_error[0] ? u->prune_error : status_message());
    u->has_prune_failed = st != ST_OK;
    status_clear();
}

/* upload_next — uploads the newest checkpoint, and removes old ones. If it is damaged,
 * the next older checkpoint follows. */
static enum status upload_next(struct uploader *u)
{
    for (;;) {
        TRY(choose_checkpoint(u));
        if (u->put == NULL)
            return ST_OK;
        const enum status st = bucket_put_run(u->bucket, u->put, u->dir);
        if (st == ST_OK)
            break;
        /* not by the status: the store may have sent a malformed response */
        if (st == ST_DISAGREE || !bucket_put_is_damaged(u->put))
            return st;
        (void)FAIL(ST_BAD_DATA, "a file of step %lld in %s changed after it was written",
                   (long long)u->put_folder.step, u->dir);
        mark_bad(u, &u->put_folder);
        close_put(u, u->stats.step);
    }
    count_upload(u);
    prune_bucket(u);
    return ST_OK;
}

/* upload_all — uploads until the end of the run. */
static void upload_all(struct uploader *u)
{
    bool is_last;
    do {
        pthread_mutex_lock(&u->thread.lock);
        is_last = u->is_finishing; /* before the look at the folder */
        pthread_mutex_unlock(&u->thread.lock);
        const char *what = "uploading a checkpoint to";
        enum status st = upload_next(u);
        if (st == ST_OK && is_last && u->put == NULL && newest_bad(u) > u->stats.step) {
            fail_for_good(u,
                          FAIL(ST_STORE,
                               "the last checkpoint, of step %lld, is damaged on this machine, so "
                               "it is not in the bucket; check the disk of CACHE_DIR",
                               (long long)newest_bad(u)));
            return;
        }
        if (st == ST_OK && is_last && u->put == NULL) {
            what = "uploading the ledger to";
            st = bucket_put_records(u->bucket, u->dir);
            if (st == ST_OK) {
                pthread_mutex_lock(&u->thread.lock);
                u->stats.phase = UPLOADER_PHASE_DONE;
                u->stats.error[0] = 0;
                pthread_mutex_unlock(&u->thread.lock);
                return;
            }
        }
        if (st == ST_DISAGREE) {
            fail_for_good(u, st);
            return;
        }
        if (st != ST_OK)
            count_failure(u, what);
        else
            clear_failure(u);
    } while (wait_for_work(u, is_last));
}

/* find_local — finds the newest local checkpoint that looks valid. */
static enum status find_local(struct uploader *u)
{
    struct ckpt *ckpt = NULL;
    u->local_step = -1;
    TRY(ckpt_find_newest(u->dir, INT64_MAX, NULL, &ckpt));
    if (ckpt != NULL)
        u->local_step = ckpt_meta(ckpt)->step;
    ckpt_close(ckpt);
    return ST_OK;
}

/* compare_sides — compares the bucket and the local folder, and gets the bucket's records if its
 * checkpoint is newer. */
static enum status compare_sides(struct uploader *u)
{
    TRY(bucket_list(u->bucket, &u->listing));
    const struct bucket_step *newest = bucket_newest(&u->listing, INT64_MAX);
    if (newest != NULL && u->config.is_new_run)
        return FAIL(ST_BAD_SETTING,
                    "RESUME=never: %s holds checkpoints up to step %lld, and an object store "
                    "cannot move them aside; use another prefix, such as %s-2, or remove them",
                    u->name, (long long)newest->step, u->name);
    TRY(bucket_try_write(u->bucket));
    TRY(ckpt_lock(u->dir, &u->lock));
    if (u->config.is_new_run)
        return ST_OK;
    TRY(find_local(u));
    if (newest == NULL || newest->step <= u->local_step) {
        if (u->local_step >= 0 && (newest == NULL || newest->step < u->local_step))
            LOG_INFO("%s: the local checkpoint of step %lld in %s is newer than the bucket's",
                     u->name, (long long)u->local_step, u->dir);
        return ST_OK;
    }
    LOG_INFO("%s: its newest checkpoint is of step %lld, which is downloaded to %s", u->name,
             (long long)newest->step, u->dir);
    return bucket_get_records(u->bucket, &u->listing, true, u->dir);
}

/* download_newest — downloads the newest checkpoint of the bucket if it is newer than the local
 * ones. */
static enum status download_newest(struct uploader *u)
{
    int64_t step;
    TRY(compare_sides(u));
    TRY(bucket_get_newest(u->bucket, &u->listing, u->local_step, u->dir, &step));
    if (step < 0 && u->local_step < 0 && bucket_newest(&u->listing, INT64_MAX) != NULL)
        return FAIL(ST_BAD_DATA,
                    "%s holds checkpoints, but all are damaged; use another prefix, or remove them",
                    u->name);
    return ST_OK;
}

static void *run_thread(void *arg)
{
    struct uploader *u = arg;
    const enum status st = download_newest(u);
    ckpt_lock_release(u->lock);
    u->lock = NULL;
    bucket_listing_free(&u->listing);
    if (st != ST_OK) {
        fail_for_good(u, st);
    } else {
        pthread_mutex_lock(&u->thread.lock);
        u->stats.phase = UPLOADER_PHASE_UPLOAD;
        u->stats.error[0] = 0;
        pthread_mutex_unlock(&u->thread.lock);
        /* for this thread and its transfers: training has precedence */
        (void)setpriority(PRIO_PROCESS, 0, NICE);
        upload_all(u);
    }
    pthread_mutex_lock(&u->thread.lock);
    u->is_ended = true;
    pthread_cond_broadcast(&u->thread.wake);
    pthread_mutex_unlock(&u->thread.lock);
    return NULL;
}

/* ---- the caller's side ---- */

enum status uploader_open(const struct uploader_config *config, struct uploader **out)
{
    struct bucket_address address;
    TRY(bucket_address_parse(config->name, &address));
    struct uploader *u = memory_new(1, sizeof *u);
    u->config = *config;
    u->stats = (struct uploader_stats){.step = -1, .waiting_step = -1};
    u->noticed_step = u->local_step = -1;
    text_copy(u->dir, sizeof u->dir, config->dir);
    const struct bucket_config bucket = {.address = &address,
                                         .allows_local = config->allows_local,
                                         .progress = go_on,
                                         .on_retry = note_retry,
                                         .arg = u,
                                         .bytes_done = &u->bytes_done,
                                         .logs_progress = true};
    enum status st;
    TRY_OR(bucket_open(&bucket, &u->bucket), free_all);
    text_copy(u->name, sizeof u->name, bucket_name(u->bucket));
    TRY_OR(thread_start(&u->thread, run_thread, u, "uploads checkpoints"), free_all);
    *out = u;
    return ST_OK;
free_all:;
    struct status_saved why;
    status_save(&why);
    free_uploader(u);
    status_restore(&why);
    return st;
}

void uploader_notice(struct uploader *u, int64_t step)
{
    pthread_mutex_lock(&u->thread.lock);
    if (step > u->noticed_step) {
        u->noticed_step = step;
        u->unsent++;
        pthread_cond_broadcast(&u->thread.wake);
    }
    pthread_mutex_unlock(&u->thread.lock);
}

void uploader_read(struct uploader *u, struct uploader_stats *out)
{
    pthread_mutex_lock(&u->thread.lock);
    *out = u->stats;
    const int64_t left = u->bytes_all - u->bytes_done;
    out->waiting_bytes = left > 0 ? left : 0;
    pthread_mutex_unlock(&u->thread.lock);
}

void uploader_missing(struct uploader *u, int64_t *step_out, int64_t *bytes_out)
{
    struct uploader_stats stats;
    struct ckpt_dir_steps steps = {.steps_n = 0};
    struct bucket_put *put = NULL;
    char path[FILE_PATH_MAX];
    uploader_read(u, &stats);
    *step_out = stats.waiting_step;
    *bytes_out = stats.waiting_bytes;
    pthread_mutex_lock(&u->thread.lock);
    const bool looks = may_look(u);
    pthread_mutex_unlock(&u->thread.lock);
    if (looks && ckpt_dir_list(u->dir, &steps) == ST_OK && steps.steps_n > 0 &&
        steps.step[0] > stats.step && steps.step[0] > stats.waiting_step &&
        ckpt_dir_step_path(path, sizeof path, u->dir, steps.step[0]) == ST_OK &&
        bucket_put_open(path, steps.step[0], &put) == ST_OK) {
        *step_out = steps.step[0];
        *bytes_out = bucket_put_bytes(put);
    }
    bucket_put_close(put);
    free(steps.step);
    status_clear();
}

void uploader_finish(struct uploader *u)
{
    pthread_mutex_lock(&u->thread.lock);
    u->is_finishing = true;
    pthread_cond_broadcast(&u->thread.wake);
    pthread_mutex_unlock(&u->thread.lock);
}

void uploader_close(struct uploader *u)
{
    if (u == NULL)
        return;
    const struct timespec until = thread_deadline(CLOSE_MS);
    const pthread_t id = u->thread.id;
    u->is_cancelled = true;
    pthread_mutex_lock(&u->thread.lock);
    pthread_cond_broadcast(&u->thread.wake);
    while (!u->is_ended && pthread_cond_timedwait(&u->thread.wake, &u->thread.lock, &until) == 0)
        ;
    const bool is_ended = u->is_ended;
    pthread_mutex_unlock(&u->thread.lock);
    if (!is_ended) { /* it waits for the network; the process ends now */
        pthread_detach(id);
        return;
    }
    pthread_join(id, NULL);
    thread_free(&u->thread);
    free_uploader(u);
}
