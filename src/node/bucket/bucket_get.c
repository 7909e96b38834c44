/* bucket_get — downloads checkpoints and the records of a run. A checkpoint is downloaded to
 * DIR/.get-<step>/, verified and renamed; the folder's files are complete by rename, so a download
 * that was cut continues with the file that is missing. */
#include "node/bucket/bucket_inside.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/ckpt.h"
#include "format/ckpt_dir.h"
#include "format/ledger.h"
#include "format/manifest.h"

#define GET_PREFIX ".get-"

/* ---- a checkpoint ---- */

/* One download. */
struct get {
    struct bucket *bucket;
    const struct bucket_listing *listing;
    const struct bucket_step *step;
    const char *dir;
    char target[FILE_PATH_MAX], temp[FILE_PATH_MAX];
    struct manifest manifest;
};

static const struct s3_object *object_of(const struct get *g, const char *file)
{
    for (int64_t i = g->step->first; i < g->step->first + g->step->n; i++)
        if (strcmp(strrchr(g->listing->objects.item[i].key, '/') + 1, file) == 0)
            return &g->listing->objects.item[i];
    return NULL;
}

/* get_file — downloads one file, unless an earlier download has completed it. */
static enum status get_file(const struct get *g, const char *file, int64_t bytes)
{
    char path[FILE_PATH_MAX];
    const struct s3_object *object = object_of(g, file);
    if (object == NULL || (bytes >= 0 && object->bytes != bytes))
        return FAIL(ST_BAD_DATA, "%s/step-%08lld is damaged: its file %s is missing or cut",
                    g->bucket->name, (long long)g->step->step, file);
    TRY(file_join(path, sizeof path, g->temp, file));
    if (bytes >= 0 && file_bytes(path) == bytes)
        return ST_OK;
    g->bucket->is_receiving = true;
    const enum status st = s3_download(g->bucket->s3, object, path);
    g->bucket->is_receiving = false;
    return st;
}

/* read_manifest — downloads the manifest, and parses it. */
static enum status read_manifest(struct get *g)
{
    char path[FILE_PATH_MAX], *data = NULL;
    size_t n = 0;
    TRY(file_join(path, sizeof path, g->temp, CKPT_DIR_MANIFEST));
    TRY(file_remove_tree(path)); /* an earlier one may be of another checkpoint with this step */
    TRY(get_file(g, CKPT_DIR_MANIFEST, -1));
    TRY(file_read(path, MANIFEST_BYTES_MAX, &data, &n));
    const enum status st = manifest_parse(data, n, path, &g->manifest);
    free(data);
    return st;
}

/* check_space — fails with ST_STORE if the disk has no room for the checkpoint. */
static enum status check_space(const struct get *g)
{
    const int64_t room = file_space_bytes(g->dir);
    if (room < 0 || room >= g->step->bytes)
        return ST_OK;
    return FAIL(ST_STORE,
                "no space for %s/step-%08lld: it has %lld bytes, and %lld are free in %s; free "
                "some, or set CACHE_DIR to a larger disk",
                g->bucket->name, (long long)g->step->step, (long long)g->step->bytes,
                (long long)room, g->dir);
}

/* commit_folder — verifies the folder and renames it. Another process may have done so before. */
static enum status commit_folder(const struct get *g)
{
    struct ckpt *ckpt = NULL;
    TRY(ckpt_open(g->temp, NULL, &ckpt));
    ckpt_close(ckpt);
    TRY(file_sync_dir(g->temp));
    if (rename(g->temp, g->target) != 0 && !file_is_dir(g->target))
        return FAIL(ST_STORE, "cannot rename %s to %s: %s; check the disk", g->temp, g->target,
                    strerror(errno));
    return file_sync_dir(g->dir);
}

/* get_all — downloads the files of the manifest to the temporary folder, and commits it. */
static enum status get_all(struct get *g)
{
    TRY(check_space(g));
    TRY(file_make_dirs(g->temp));
    TRY(read_manifest(g));
    if (g->manifest.meta.step != g->step->step)
        return FAIL(ST_BAD_DATA, "%s/step-%08lld has step %lld in its manifest", g->bucket->name,
                    (long long)g->step->step, (long long)g->manifest.meta.step);
    for (int i = 0; i < g->manifest.files_n; i++)
        TRY(get_file(g, g->manifest.file[i].name, g->manifest.file[i].bytes));
    return commit_folder(g);
}

enum status bucket_read_manifest(struct bucket *bucket, int64_t step, struct manifest *out)
{
    char name[96], key[S3_KEY_MAX];
    struct text text = {.limit = MANIFEST_BYTES_MAX + 1};
    bool is_found = false;
    bucket_step_name(name, sizeof name, step, CKPT_DIR_MANIFEST);
    TRY(bucket_key(bucket, name, key));
    enum status st = s3_read(bucket->s3, key, MANIFEST_BYTES_MAX, &text, &is_found);
    if (st == ST_OK)
        st = manifest_parse(text.data != NULL ? text.data : "", text.len, key, out);
    text_free(&text);
    return st;
}

/* remove_temp — removes the temporary folder. The failure stays the message. */
static void remove_temp(const struct get *g)
{
    struct status_saved why;
    status_save(&why);
    (void)file_remove_tree(g->temp);
    status_restore(&why);
}

enum status bucket_get_step(struct bucket *bucket, const struct bucket_listing *listing,
                            const struct bucket_step *step, const char *dir)
{
    struct get *g = memory_new(1, sizeof *g);
    char name[64], bytes[32], span[32];
    const int64_t begin_ms = clock_ms();
    enum status st;
    *g = (struct get){.bucket = bucket, .listing = listing, .step = step, .dir = dir};
    text_format(name, sizeof name, GET_PREFIX "%lld", (long long)step->step);
    TRY_OR(ckpt_dir_step_path(g->target, sizeof g->target, dir, step->step), free_get);
    TRY_OR(file_join(g->temp, sizeof g->temp, dir, name), free_get);
    if (file_is_dir(g->target))
        goto free_get;
    const bool is_resumed = file_is_dir(g->temp);
    st = get_all(g);
    if (st == ST_BAD_DATA)
        remove_temp(g);
    if (st == ST_BAD_DATA && is_resumed) { /* its files were of another checkpoint with this step */
        st = get_all(g);
        if (st == ST_BAD_DATA)
            remove_temp(g);
    }
    if (st == ST_OK)
        LOG_INFO("downloaded %s/step-%08lld: %s in %s", bucket->name, (long long)step->step,
                 text_format_bytes(bytes, sizeof bytes, (double)step->bytes),
                 text_format_ms(span, sizeof span, (double)(clock_ms() - begin_ms)));
free_get:
    free(g);
    return st;
}

/* clean_folder — removes the unfinished downloads of other steps than this one. */
static void clean_folder(const char *dir, int64_t step)
{
    char keep[64], path[FILE_PATH_MAX];
    text_format(keep, sizeof keep, GET_PREFIX "%lld", (long long)step);
    DIR *listing = opendir(dir);
    if (listing == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (text_starts(entry->d_name, GET_PREFIX) && strcmp(entry->d_name, keep) != 0 &&
            file_join(path, sizeof path, dir, entry->d_name) == ST_OK &&
            file_remove_tree(path) != ST_OK)
            LOG_WARN("%s", status_message());
    closedir(listing);
    status_clear();
}

enum status bucket_get_newest(struct bucket *bucket, const struct bucket_listing *listing,
                              int64_t above, const char *dir, int64_t *step_out)
{
    *step_out = -1;
    const struct bucket_step *step = bucket_newest(listing, INT64_MAX);
    TRY(file_make_dirs(dir));
    clean_folder(dir, step != NULL ? step->step : -1);
    for (; step != NULL && step->step > above; step = bucket_newest(listing, step->step)) {
        const enum status st = bucket_get_step(bucket, listing, step, dir);
        if (st == ST_OK)
            *step_out = step->step;
        if (st != ST_BAD_DATA)
            return st;
        LOG_WARN("skipping a damaged checkpoint: %s", status_message());
        status_clear();
        if (bucket->damaged_n < BUCKET_DAMAGED_MAX)
            bucket->damaged[bucket->damaged_n++] = step->step;
    }
    return ST_OK;
}

/* ---- records ---- */

/* move_aside — renames a file to NAME.before-NUMBER. */
static enum status move_aside(const char *path)
{
    char aside[FILE_PATH_MAX];
    if (!text_format(aside, sizeof aside, "%s.before-%lld", path, (long long)clock_wall_ms()) ||
        rename(path, aside) != 0)
        return FAIL(ST_STORE, "cannot move %s aside: %s; move it away", path, strerror(errno));
    LOG_INFO("%s is older than the bucket's, and is now %s", path, aside);
    return ST_OK;
}

/* is_equal — returns true if two files have the same bytes. */
static bool is_equal(const char *a, const char *b)
{
    struct file_map x = {0}, y = {0};
    const bool is = file_map_open(a, &x) == ST_OK && file_map_open(b, &y) == ST_OK &&
                    x.bytes == y.bytes && (x.bytes == 0 || memcmp(x.data, y.data, x.bytes) == 0);
    file_map_close(&x);
    file_map_close(&y);
    status_clear();
    return is;
}

static enum status get_record(struct bucket *bucket, const struct s3_object *object,
                              const char *name, bool keeps_old, const char *dir)
{
    char path[FILE_PATH_MAX], temp[FILE_PATH_MAX];
    TRY(file_join(path, sizeof path, dir, name));
    if (strchr(name, '/') != NULL) { /* the tokenizer, which a run never changes */
        char folder[FILE_PATH_MAX];
        text_copy(folder, sizeof folder, path);
        *strrchr(folder, '/') = 0;
        TRY(file_make_dirs(folder));
        return file_exists(path) ? ST_OK : s3_download(bucket->s3, object, path);
    }
    TRY(file_join(temp, sizeof temp, dir, GET_PREFIX "record"));
    TRY(file_remove_tree(temp));
    TRY(s3_download(bucket->s3, object, temp));
    if (keeps_old && file_exists(path) && !is_equal(path, temp))
        TRY(move_aside(path));
    if (rename(temp, path) != 0)
        return FAIL(ST_STORE, "cannot rename %s to %s: %s; check the disk", temp, path,
                    strerror(errno));
    return file_sync_dir(dir);
}

enum status bucket_get_records(struct bucket *bucket, const struct bucket_listing *listing,
                               bool keeps_old, const char *dir)
{
    char prefix[S3_KEY_MAX];
    TRY(bucket_key(bucket, "", prefix));
    TRY(file_make_dirs(dir));
    for (int64_t i = 0; i < listing->objects.n; i++) {
        const struct s3_object *object = &listing->objects.item[i];
        const char *name = object->key + strlen(prefix);
        if (text_starts(object->key, prefix) && bucket_is_record(name))
            TRY(get_record(bucket, object, name, keeps_old, dir));
    }
    return ST_OK;
}
/* compare_step — finds out whether the bucket has this checkpoint with the same manifest. */
static enum status compare_step(struct bucket *bucket, const struct bucket_listing *listing,
                                int64_t step, const char *path, bool *is_same_out)
{
    char name[96], key[S3_KEY_MAX], manifest[FILE_PATH_MAX], *data = NULL;
    struct text there = {.limit = MANIFEST_BYTES_MAX + 1};
    bool is_found = false;
    size_t n = 0;
    *is_same_out = false;
    for (int i = 0; i < listing->steps_n; i++)
        is_found = is_found || (listing->step[i].step == step && listing->step[i].is_complete);
    if (!is_found)
        return ST_OK;
    bucket_step_name(name, sizeof name, step, CKPT_DIR_MANIFEST);
    TRY(bucket_key(bucket, name, key));
    TRY(file_join(manifest, sizeof manifest, path, CKPT_DIR_MANIFEST));
    enum status st = s3_read(bucket->s3, key, MANIFEST_BYTES_MAX, &there, &is_found);
    if (st == ST_OK && is_found && file_read(manifest, MANIFEST_BYTES_MAX, &data, &n) == ST_OK)
        *is_same_out = n == there.len && memcmp(data, there.data, n) == 0;
    free(data);
    text_free(&there);
    return st;
}

enum status bucket_drop_stale(struct bucket *bucket, const struct bucket_listing *listing,
                              const char *dir)
{
    struct ckpt_dir_steps steps;
    char path[FILE_PATH_MAX], tokenizer[FILE_PATH_MAX];
    enum status st = ST_OK;
    bool is_same;
    TRY(file_join(tokenizer, sizeof tokenizer, dir, "tokenizer"));
    TRY(ckpt_dir_list(dir, &steps));
    for (int i = 0; i < steps.steps_n && st == ST_OK; i++) {
        st = ckpt_dir_step_path(path, sizeof path, dir, steps.step[i]);
        if (st == ST_OK)
            st = compare_step(bucket, listing, steps.step[i], path, &is_same);
        if (st == ST_OK && !is_same)
            st = file_remove_tree(path);
        if (st == ST_OK && !is_same)
            st = file_remove_tree(tokenizer);
    }
    free(steps.step);
    return st;
}
