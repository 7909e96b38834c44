/* bucket_put — uploads checkpoints and the records of a run, and removes old checkpoints from the
 * bucket. The manifest is uploaded last and removed first. */
#include "node/bucket/bucket_inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/ckpt_dir.h"
#include "format/ledger.h"
#include "format/manifest.h"

/* One file of a checkpoint. */
struct put_file {
    struct manifest_file of; /* its name, size and checksum */
    int fd;
    struct timespec changed; /* time of its last change, when it was opened */
    bool is_sent;
};

struct bucket_put {
    int64_t step;
    char path[FILE_PATH_MAX]; /* its folder, for messages */
    struct put_file file[MANIFEST_FILES_MAX];
    int files_n;
    char *manifest;
    size_t manifest_bytes;
    bool was_there;
    bool is_verified, is_damaged; /* the files have the manifest's checksums, or one has not */
    bool is_begun; /* the bucket has none of this checkpoint's files that do not belong to it */
};

/* ---- the local folder ---- */

static enum status open_file(int dir_fd, const char *path, const struct manifest_file *of,
                             struct put_file *out)
{
    struct stat info;
    out->of = *of;
    out->fd = openat(dir_fd, of->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (out->fd < 0 || fstat(out->fd, &info) != 0)
        return FAIL(errno == EMFILE || errno == ENFILE ? ST_RETRY : ST_NO_INPUT,
                    "cannot open %s/%s: %s", path, of->name, strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size != of->bytes)
        return FAIL(ST_BAD_DATA, "%s/%s is not the file that was written", path, of->name);
    out->changed = info.st_mtim;
    return ST_OK;
}

/* open_files — reads the manifest of the folder, and opens the files that it lists. */
static enum status open_files(int dir_fd, struct bucket_put *put)
{
    char name[FILE_PATH_MAX];
    struct manifest *manifest = memory_new(1, sizeof *manifest);
    enum status st;
    TRY_OR(file_join(name, sizeof name, put->path, CKPT_DIR_MANIFEST), free_manifest);
    TRY_OR(file_read(name, MANIFEST_BYTES_MAX, &put->manifest, &put->manifest_bytes),
           free_manifest);
    TRY_OR(manifest_parse(put->manifest, put->manifest_bytes, name, manifest), free_manifest);
    for (int i = 0; i < manifest->files_n; i++) {
        put->file[i].fd = -1;
        put->files_n = i + 1;
        TRY_OR(open_file(dir_fd, put->path, &manifest->file[i], &put->file[i]), free_manifest);
    }
free_manifest:
    free(manifest);
    return st;
}

enum status bucket_put_open(const char *path, int64_t step, struct bucket_put **out)
{
    const int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir_fd < 0)
        return FAIL(errno == EMFILE || errno == ENFILE ? ST_RETRY : ST_NO_INPUT,
                    "cannot open checkpoint %s: %s", path, strerror(errno));
    struct bucket_put *put = memory_new(1, sizeof *put);
    put->step = step;
    text_copy(put->path, sizeof put->path, path);
    const enum status st = open_files(dir_fd, put);
    close(dir_fd);
    if (st != ST_OK) {
        bucket_put_close(put);
        return st;
    }
    *out = put;
    return ST_OK;
}

void bucket_put_close(struct bucket_put *put)
{
    if (put == NULL)
        return;
    for (int i = 0; i < put->files_n; i++)
        if (put->file[i].fd >= 0)
            close(put->file[i].fd);
    free(put->manifest);
    free(put);
}

int64_t bucket_put_bytes(const struct bucket_put *put)
{
    int64_t bytes = (int64_t)put->manifest_bytes;
    for (int i = 0; i < put->files_n; i++)
        bytes += put->file[i].of.bytes;
    return bytes;
}

int64_t bucket_put_left(const struct bucket_put *put)
{
    int64_t bytes = (int64_t)put->manifest_bytes;
    for (int i = 0; i < put->files_n; i++)
        bytes += put->file[i].is_sent ? 0 : put->file[i].of.bytes;
    return bytes;
}

bool bucket_put_was_there(const struct bucket_put *put) { return put->was_there; }

bool bucket_put_is_damaged(const struct bucket_put *put)
{
    struct stat info;
    if (put->is_damaged)
        return true;
    for (int i = 0; i < put->files_n; i++) {
        const struct put_file *file = &put->file[i];
        if (fstat(file->fd, &info) == 0 &&
            (info.st_size != file->of.bytes || info.st_mtim.tv_sec != file->changed.tv_sec ||
             info.st_mtim.tv_nsec != file->changed.tv_nsec))
            return true;
    }
    return false;
}

/* ---- a checkpoint ---- */

/* remove_objects — removes the objects of a checkpoint, its manifest first. */
static enum status remove_objects(struct bucket *bucket, const struct bucket_listing *listing,
                                  const struct bucket_step *step)
{
    char name[96], key[S3_KEY_MAX];
    bucket_step_name(name, sizeof name, step->step, CKPT_DIR_MANIFEST);
    TRY(bucket_key(bucket, name, key));
    if (step->is_complete)
        TRY(s3_delete(bucket->s3, key));
    for (int64_t i = step->first; i < step->first + step->n; i++)
        if (strcmp(listing->objects.item[i].key, key) != 0)
            TRY(s3_delete(bucket->s3, listing->objects.item[i].key));
    return ST_OK;
}

/* verify_go_on — returns false to stop the verification of a file. */
static bool verify_go_on(void *arg, int64_t bytes)
{
    const struct bucket_config *c = &((const struct bucket *)arg)->config;
    (void)bytes;
    return c->progress == NULL || c->progress(c->arg, 0, 0);
}

/* verify_files — compares all files with the checksums in the manifest. */
static enum status verify_files(struct bucket *bucket, struct bucket_put *put)
{
    enum status st = ST_OK;
    for (int i = 0; i < put->files_n && st == ST_OK; i++)
        st = ckpt_verify_file(put->file[i].fd, put->path, &put->file[i].of, verify_go_on, bucket);
    put->is_verified = st == ST_OK;
    put->is_damaged = st == ST_BAD_DATA;
    return st;
}

/* prepare_step — compares the manifest in the bucket. If it is another one, verifies the local
 * files, and removes the objects of this step. */
static enum status prepare_step(struct bucket *bucket, struct bucket_put *put, bool *is_done_out)
{
    char name[96], prefix[S3_KEY_MAX], key[S3_KEY_MAX], root[S3_KEY_MAX];
    struct bucket_listing listing;
    struct s3_list objects = {.n = 0};
    struct text manifest = {.limit = MANIFEST_BYTES_MAX + 1};
    bool is_found = false;
    *is_done_out = false;
    bucket_step_name(name, sizeof name, put->step, "");
    TRY(bucket_key(bucket, name, prefix));
    TRY(bucket_key(bucket, "", root));
    bucket_step_name(name, sizeof name, put->step, CKPT_DIR_MANIFEST);
    TRY(bucket_key(bucket, name, key));
    TRY(s3_list(bucket->s3, prefix, &objects));
    bucket_group(&objects, root, &listing);
    enum status st = ST_OK;
    if (listing.steps_n > 0 && listing.step[0].is_complete)
        st = s3_read(bucket->s3, key, MANIFEST_BYTES_MAX, &manifest, &is_found);
    if (st == ST_BAD_DATA) { /* longer than any manifest */
        status_clear();
        st = ST_OK;
    }
    for (int i = 0; i < bucket->damaged_n; i++)
        is_found = is_found && bucket->damaged[i] != put->step;
    *is_done_out = st == ST_OK && is_found && manifest.len == put->manifest_bytes &&
                   memcmp(manifest.data, put->manifest, manifest.len) == 0;
    if (st == ST_OK && !*is_done_out && !put->is_verified)
        st = verify_files(bucket, put);
    if (st == ST_OK && !*is_done_out)
        st = bucket_own(bucket);
    if (st == ST_OK && listing.steps_n > 0 && !*is_done_out) {
        LOG_DEBUG("%s: removing %lld objects of another upload of step %lld", bucket->name,
                  (long long)listing.step[0].n, (long long)put->step);
        st = remove_objects(bucket, &listing, &listing.step[0]);
    }
    text_free(&manifest);
    bucket_listing_free(&listing);
    return st;
}

/* send_file — uploads a file by its descriptor, because the run may have removed its name. */
static enum status send_file(struct bucket *bucket, const struct bucket_put *put,
                             const struct put_file *file)
{
    char name[96 + MANIFEST_NAME_MAX], key[S3_KEY_MAX], path[64];
    bucket_step_name(name, sizeof name, put->step, file->of.name);
    TRY(bucket_key(bucket, name, key));
    text_format(path, sizeof path, "/proc/self/fd/%d", file->fd);
    bucket->is_sending = true;
    const enum status st = s3_upload(bucket->s3, path, key);
    bucket->is_sending = false;
    return st;
}

static enum status send_manifest(struct bucket *bucket, const struct bucket_put *put)
{
    char name[96], key[S3_KEY_MAX];
    bucket_step_name(name, sizeof name, put->step, CKPT_DIR_MANIFEST);
    TRY(bucket_key(bucket, name, key));
    return s3_write(bucket->s3, key, put->manifest, put->manifest_bytes);
}

enum status bucket_put_run(struct bucket *bucket, struct bucket_put *put, const char *dir)
{
    if (!put->is_begun)
        TRY(prepare_step(bucket, put, &put->was_there));
    put->is_begun = true;
    for (int i = 0; i < put->files_n; i++) {
        struct put_file *file = &put->file[i];
        bucket->bytes_before = bucket_put_bytes(put) - bucket_put_left(put);
        if (!put->was_there && !file->is_sent)
            TRY(send_file(bucket, put, file));
        file->is_sent = true;
    }
    TRY(bucket_put_records(bucket, dir));
    if (put->was_there)
        return ST_OK;
    TRY(bucket_own(bucket));
    if (bucket_put_is_damaged(put))
        return FAIL(ST_BAD_DATA, "a file of the checkpoint of step %lld changed during its upload",
                    (long long)put->step);
    return send_manifest(bucket, put);
}

/* ---- records ---- */

/* is_changed — returns true if the record was not uploaded in this state yet; slot: its place among
 * the records. */
static bool is_changed(struct bucket *bucket, const char *name, const struct stat *info, int *slot)
{
    const int64_t ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
    int i = 0;
    while (i < bucket->records_n && strcmp(bucket->record[i].name, name) != 0)
        i++;
    *slot = i;
    return i == bucket->records_n || bucket->record[i].bytes != info->st_size ||
           bucket->record[i].changed_ns != ns;
}

/* put_record — uploads a record if it is there and has changed. It may grow meanwhile: the next
 * call uploads the rest. */
static enum status put_record(struct bucket *bucket, const char *dir, const char *name)
{
    char path[FILE_PATH_MAX], key[S3_KEY_MAX], *data = NULL;
    struct stat info;
    size_t n = 0;
    int slot;
    TRY(file_join(path, sizeof path, dir, name));
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode) ||
        !is_changed(bucket, name, &info, &slot))
        return ST_OK;
    TRY(bucket_key(bucket, name, key));
    TRY(file_read(path, (size_t)1 << 30, &data, &n));
    const enum status st = s3_write(bucket->s3, key, data, n);
    free(data);
    TRY(st);
    if (slot == bucket->records_n && slot < BUCKET_RECORDS_MAX)
        bucket->records_n++;
    if (slot < BUCKET_RECORDS_MAX) {
        text_copy(bucket->record[slot].name, sizeof bucket->record[slot].name, name);
        bucket->record[slot].bytes = info.st_size;
        bucket->record[slot].changed_ns =
            (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    }
    return ST_OK;
}

/* put_tokenizer — uploads the files of DIR/tokenizer. */
static enum status put_tokenizer(struct bucket *bucket, const char *dir)
{
    char folder[FILE_PATH_MAX], name[FILE_PATH_MAX];
    enum status st = ST_OK;
    TRY(file_join(folder, sizeof folder, dir, "tokenizer"));
    DIR *listing = opendir(folder);
    if (listing == NULL)
        return ST_OK;
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(listing)) != NULL;)
        if (text_format(name, sizeof name, "tokenizer/%s", entry->d_name) && bucket_is_record(name))
            st = put_record(bucket, dir, name);
    closedir(listing);
    return st;
}

enum status bucket_put_records(struct bucket *bucket, const char *dir)
{
    if (!bucket->is_owner)
        return ST_OK;
    TRY(put_tokenizer(bucket, dir));
    TRY(put_record(bucket, dir, "history.json"));
    return put_record(bucket, dir, LEDGER_NAME);
}

/* ---- old checkpoints ---- */

enum status bucket_prune(struct bucket *bucket, int keep, int64_t saved)
{
    struct bucket_listing listing;
    enum status st = ST_OK;
    TRY(bucket_list(bucket, &listing));
    for (int i = 0; i < listing.steps_n && st == ST_OK; i++)
        if (bucket_excess(&listing, i, keep, saved))
            st = remove_objects(bucket, &listing, &listing.step[i]);
    bucket_listing_free(&listing);
    return st;
}
