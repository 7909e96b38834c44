/* bucket_fetch — see bucket_fetch.h. */
#include "node/bucket/bucket_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "format/ckpt_dir.h"
#include "node/bucket/bucket.h"

#define RUNS_DIR "runs"
#define LOCK_NAME ".download"
#define CHECKPOINTS_DIR "checkpoints"
#define LOCK_PAUSE_MS 50

/* One fetch: the request, and its results. */
struct fetch {
    const struct conf *conf;
    enum bucket_fetch_what what;
    bool is_optional; /* a name without checkpoints is no failure */
    bucket_fetch_progress *progress;
    void *progress_arg;
    struct bucket_address address;
    char dir[FILE_PATH_MAX]; /* the local folder */
    bool is_found;           /* there are checkpoints */
};

/* local_folder — writes CACHE_DIR/KIND/STORE/bucket/prefix. */
static enum status local_folder(const struct conf *conf, const char *kind,
                                const struct bucket_address *address, char out[FILE_PATH_MAX])
{
    char store[S3_STORE_MAX], name[S3_STORE_MAX + 32], root[FILE_PATH_MAX];
    TRY(s3_store_name(store));
    text_format(name, sizeof name, "%s/%s", kind, store);
    TRY(file_join(root, sizeof root, conf_text(conf, CONF_CACHE_DIR), name));
    return bucket_local(root, address, out);
}

/* fetch_one — downloads one checkpoint, whose number the name has. */
static enum status fetch_one(struct bucket *bucket, const struct bucket_listing *listing,
                             int64_t step, const char *dir)
{
    for (int i = 0; i < listing->steps_n; i++)
        if (listing->step[i].step == step && listing->step[i].is_complete)
            return bucket_get_step(bucket, listing, &listing->step[i], dir);
    return FAIL(ST_NO_INPUT,
                "%s has no complete checkpoint of step %lld; `convoy status %s` lists them",
                bucket_name(bucket), (long long)step, bucket_name(bucket));
}

/* mark_damaged — makes an empty folder for a checkpoint that is damaged in the bucket, so that an
 * audit counts it; the next fetch removes the folder. The reason is status_message. */
static enum status mark_damaged(int64_t step, const char *dir)
{
    char path[FILE_PATH_MAX];
    LOG_WARN("%s", status_message());
    status_clear();
    TRY(ckpt_dir_step_path(path, sizeof path, dir, step));
    return file_make_dirs(path);
}

/* fetch_all — downloads every complete checkpoint. */
static enum status fetch_all(struct bucket *bucket, const struct bucket_listing *listing,
                             const char *dir)
{
    const struct bucket_step *step = bucket_newest(listing, INT64_MAX);
    for (; step != NULL; step = bucket_newest(listing, step->step)) {
        enum status st = bucket_get_step(bucket, listing, step, dir);
        if (st == ST_BAD_DATA)
            st = mark_damaged(step->step, dir);
        TRY(st);
    }
    return ST_OK;
}

/* lock_folder — waits until no other process downloads to the folder. The lock ends when *fd_out is
 * closed. */
static enum status lock_folder(const struct fetch *f, int *fd_out)
{
    char path[FILE_PATH_MAX];
    const char *dir = f->dir;
    bool is_waiting = false;
    TRY(file_make_dirs(dir));
    TRY(file_join(path, sizeof path, dir, LOCK_NAME));
    *fd_out = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (*fd_out < 0)
        return FAIL(ST_STORE, "cannot write in %s: %s; set CACHE_DIR to another folder", dir,
                    strerror(errno));
    while (flock(*fd_out, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
        if (!is_waiting)
            LOG_INFO("waiting: another process of this machine downloads to %s", dir);
        is_waiting = true;
        if (f->progress != NULL && !f->progress(f->progress_arg, 0, 0))
            return FAIL(ST_RETRY, "stopped while another process downloads to %s", dir);
        clock_sleep_ms(LOCK_PAUSE_MS);
    }
    return ST_OK; /* a file system without locks has none */
}

/* fetch_from — downloads the wanted files from an open bucket. */
static enum status fetch_from(const struct fetch *f, struct bucket *bucket,
                              const struct bucket_listing *listing)
{
    const char *dir = f->dir;
    int64_t step;
    TRY(bucket_drop_stale(bucket, listing, dir));
    TRY(bucket_get_records(bucket, listing, false, dir));
    if (f->what == BUCKET_FETCH_RECORDS)
        return ST_OK;
    if (f->address.step >= 0)
        return fetch_one(bucket, listing, f->address.step, dir);
    if (f->what == BUCKET_FETCH_ALL)
        return fetch_all(bucket, listing, dir);
    TRY(bucket_get_newest(bucket, listing, -1, dir, &step));
    return step >= 0 ? ST_OK
                     : FAIL(ST_NO_INPUT,
                            "%s holds no complete checkpoint; name the CHECKPOINT_DIR of a run",
                            bucket_name(bucket));
}

/* run_fetch — downloads the wanted files of a run in a bucket. If there are no checkpoints and they
 * are optional, nothing is downloaded. */
static enum status run_fetch(struct fetch *f, const char *name)
{
    struct bucket_listing listing = {.steps_n = 0};
    struct bucket *bucket;
    TRY(bucket_address_parse(name, &f->address));
    TRY(local_folder(f->conf, RUNS_DIR, &f->address, f->dir));
    const struct bucket_config config = {.address = &f->address,
                                         .allows_local =
                                             conf_i64(f->conf, CONF_ALLOW_LOCAL_URLS) != 0,
                                         .progress = f->progress,
                                         .arg = f->progress_arg,
                                         .logs_progress = true};
    TRY(bucket_open(&config, &bucket));
    int fd = -1;
    enum status st = bucket_list(bucket, &listing);
    if (st != ST_OK && st != ST_RETRY && f->is_optional) {
        /* perhaps an object of another kind; its reader reports it */
        status_clear();
        st = ST_OK;
    }
    f->is_found = st == ST_OK && bucket_newest(&listing, INT64_MAX) != NULL;
    const bool fetches = st == ST_OK && (f->is_found || !f->is_optional);
    if (fetches)
        st = lock_folder(f, &fd);
    if (st == ST_OK && fetches)
        st = fetch_from(f, bucket, &listing);
    if (fd >= 0)
        close(fd);
    bucket_listing_free(&listing);
    bucket_close(bucket);
    return st;
}

/* write_path — writes the path of the fetched folder or checkpoint. */
static enum status write_path(const struct fetch *f, char out[FILE_PATH_MAX])
{
    if (f->address.step >= 0)
        return ckpt_dir_step_path(out, FILE_PATH_MAX, f->dir, f->address.step);
    text_copy(out, FILE_PATH_MAX, f->dir);
    return ST_OK;
}

enum status bucket_fetch_run(const struct conf *conf, const char *name, enum bucket_fetch_what what,
                             char path_out[FILE_PATH_MAX])
{
    struct fetch f = {.conf = conf, .what = what};
    TRY(run_fetch(&f, name));
    return write_path(&f, path_out);
}

enum status bucket_fetch_setting(struct conf *conf, enum conf_key key, bool is_optional,
                                 bucket_fetch_progress *progress, void *progress_arg)
{
    struct fetch f = {.conf = conf,
                      .what = BUCKET_FETCH_NEWEST,
                      .is_optional = is_optional,
                      .progress = progress,
                      .progress_arg = progress_arg};
    char path[FILE_PATH_MAX];
    const char *name = conf_text(conf, key);
    if (!s3_address_is(name) || (is_optional && strpbrk(name, "*?[") != NULL))
        return ST_OK;
    TRY(run_fetch(&f, name));
    if (!f.is_found)
        return ST_OK;
    TRY(write_path(&f, path));
    conf_set_found(conf, key, path, "");
    return ST_OK;
}

enum status bucket_fetch_map(struct conf *conf)
{
    struct bucket_address address;
    char dir[FILE_PATH_MAX];
    const char *name = conf_text(conf, CONF_CHECKPOINT_DIR);
    if (!s3_address_is(name))
        return strncasecmp(name, "s3:", 3) != 0 && strstr(name, "://") == NULL
                   ? ST_OK
                   : FAIL(ST_BAD_SETTING,
                          "CHECKPOINT_DIR=%s is neither a folder nor s3://bucket/prefix; write "
                          "s3:// "
                          "in lower case, and set AWS_ENDPOINT_URL for other stores",
                          name);
    TRY(bucket_address_parse(name, &address));
    if (address.step >= 0)
        return FAIL(ST_BAD_SETTING,
                    "CHECKPOINT_DIR=%s is one checkpoint; set it to the prefix of the run, without "
                    "step-%08lld",
                    name, (long long)address.step);
    TRY(local_folder(conf, CHECKPOINTS_DIR, &address, dir));
    if (strlen(dir) > 4000)
        return FAIL(ST_BAD_SETTING, "CHECKPOINT_DIR=%.64s… is too long; use a shorter prefix",
                    name);
    conf_set_found(conf, CONF_CHECKPOINT_DIR, dir, "");
    return ST_OK;
}
