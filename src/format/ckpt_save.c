/* ckpt_save — writes a checkpoint. At every moment DIR holds the old checkpoints whole, and the new
 * one whole or not at all. It must not know devices or training.
 *
 * A checkpoint is written as DIR/.tmp-<pid>-<step>. Every file is synced (tensors by sink.c, the
 * manifest by file_replace), then the folder. The folder is renamed, and DIR is synced. Old
 * checkpoints are renamed before they are removed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"
#include "format/ckpt.h"
#include "format/ckpt_dir.h"
#include "format/manifest.h"

#define METADATA "{\"format\":\"pt\"}" /* other readers of safetensors require it */
#define SLACK_BYTES (256 << 10)        /* for manifest, folder and the file system's own blocks */

/* One save in progress. */
struct job {
    const char *dir;
    const struct ckpt_array *array;
    int arrays_n;
    const struct heartbeat *heartbeat;
    struct manifest manifest;
    char target[FILE_PATH_MAX], temp[FILE_PATH_MAX], old[FILE_PATH_MAX];
};

static bool is_same_run(const struct ckpt_meta *a, const struct ckpt_meta *b)
{
    return a->step == b->step && a->samples == b->samples && a->tokens == b->tokens &&
           a->seed == b->seed && a->data_fingerprint == b->data_fingerprint &&
           a->loss_scale == b->loss_scale && a->loss_scale_steps == b->loss_scale_steps &&
           a->outer_steps == b->outer_steps && a->skipped == b->skipped &&
           a->trained == b->trained && a->schedule_step_samples == b->schedule_step_samples &&
           a->schedule_samples == b->schedule_samples &&
           strcmp(a->spike_history, b->spike_history) == 0 &&
           strcmp(a->model_json, b->model_json) == 0 &&
           strcmp(a->settings_json, b->settings_json) == 0 &&
           strcmp(a->commits_json, b->commits_json) == 0;
}

/* find_existing — finds out whether the checkpoint exists already and is valid. A file or link of
 * that name is not removed. */
static enum status find_existing(const struct job *job, bool *done_out)
{
    struct stat info;
    struct ckpt *ckpt = NULL;
    *done_out = false;
    if (lstat(job->target, &info) != 0)
        return ST_OK;
    if (!S_ISDIR(info.st_mode))
        return FAIL(ST_STORE,
                    "cannot write checkpoint %s: a %s of that name is in the way; move it",
                    job->target, S_ISLNK(info.st_mode) ? "symbolic link" : "file");
    enum status st = ckpt_open(job->target, job->heartbeat, &ckpt);
    if (st != ST_OK && st != ST_BAD_DATA)
        return FAIL(st, "%s; the existing checkpoint is not replaced", status_message());
    if (st != ST_OK) {
        LOG_WARN("replacing a damaged checkpoint: %s", status_message());
        return ST_OK;
    }
    *done_out = is_same_run(ckpt_meta(ckpt), &job->manifest.meta);
    if (!*done_out)
        LOG_WARN("replacing %s, which another run wrote (seed, data, model or settings differ)",
                 job->target);
    ckpt_close(ckpt);
    return ST_OK;
}

static enum status write_arrays(struct job *job)
{
    char path[FILE_PATH_MAX];
    for (int i = 0; i < job->arrays_n; i++) {
        const struct ckpt_array *array = &job->array[i];
        struct manifest_file *file = &job->manifest.file[i];
        bool fits = text_format(file->name, sizeof(file->name), "%s.safetensors", array->name);
        ASSERTF(fits, "array %s", array->name);
        TRY(file_join(path, sizeof(path), job->temp, file->name));
        TRY(safetensors_write(path, array->source, array->sources_n, METADATA, job->heartbeat,
                              &file->hash, &file->bytes));
    }
    job->manifest.files_n = job->arrays_n;
    return ST_OK;
}

/* write_manifest — parses the text before it is written: a committed checkpoint can be opened. */
static enum status write_manifest(struct job *job)
{
    char path[FILE_PATH_MAX];
    struct text text = {.data = NULL};
    struct manifest again;
    enum status st;
    TRY(file_join(path, sizeof(path), job->temp, CKPT_DIR_MANIFEST));
    TRY_OR(manifest_write(&job->manifest, &text), free_text);
    TRY_OR(manifest_parse(text.data, text.len, path, &again), free_text);
    ASSERT(is_same_run(&again.meta, &job->manifest.meta));
    TRY_OR(file_replace(path, text.data, text.len), free_text); /* syncs the file and its folder */
free_text:
    text_free(&text);
    return st;
}

/* Renames the folder. A folder in its place is not a valid checkpoint of this run; it is moved back
 * if the rename fails. */
static enum status commit_folder(const struct job *job)
{
    struct stat info;
    bool is_replacing = lstat(job->target, &info) == 0;
    if (is_replacing && rename(job->target, job->old) != 0)
        return FAIL(ST_STORE, "cannot move %s out of the way: %s", job->target, strerror(errno));
    if (rename(job->temp, job->target) != 0) {
        int error = errno;
        if (is_replacing && rename(job->old, job->target) != 0)
            LOG_WARN("cannot move %s back to %s: %s", job->old, job->target, strerror(errno));
        return FAIL(ST_STORE, "cannot rename %s to %s: %s; check the disk", job->temp, job->target,
                    strerror(error));
    }
    TRY(file_sync_dir(job->dir));
    if (is_replacing && file_remove_tree(job->old) != ST_OK)
        LOG_WARN("cannot remove %s: %s", job->old, status_message());
    return ST_OK;
}

static enum status write_new(struct job *job)
{
    enum status st;
    if (mkdir(job->temp, 0777) != 0)
        return FAIL(ST_STORE, "cannot make %s: %s; check that CHECKPOINT_DIR can be written",
                    job->temp, strerror(errno));
    TRY_OR(write_arrays(job), remove_temp);
    TRY_OR(write_manifest(job), remove_temp);
    TRY_OR(commit_folder(job), remove_temp);
    return ST_OK;
remove_temp:;
    struct status_saved why;
    status_save(&why);
    if (file_remove_tree(job->temp) != ST_OK)
        LOG_WARN("cannot remove %s: %s; the next save tries again", job->temp, status_message());
    status_restore(&why);
    return st;
}

/* remove_old — keeps the newest `keep` checkpoints that look valid, and always the one just saved.
 * Damaged ones do not count, and stay for inspection. */
static void remove_old(const char *dir, int keep, int64_t saved_step)
{
    struct ckpt_dir_steps steps = {.steps_n = 0};
    struct manifest manifest;
    char path[FILE_PATH_MAX];
    int valid_n = 0;
    if (keep < 1)
        return;
    if (ckpt_dir_list(dir, &steps) != ST_OK) {
        LOG_WARN("no old checkpoint is removed: %s", status_message());
        return;
    }
    for (int i = 0; i < steps.steps_n; i++) {
        if (ckpt_dir_step_path(path, sizeof(path), dir, steps.step[i]) != ST_OK ||
            ckpt_peek(path, &manifest) != ST_OK || manifest.meta.step != steps.step[i])
            continue;
        valid_n++;
        if (valid_n > keep && steps.step[i] != saved_step) {
            /* Renames first: a folder that is half removed must never have the name of a
             * checkpoint. The new checkpoint is safe already, so a failure is only warned about. */
            char old[FILE_PATH_MAX];
            if (ckpt_dir_temp_path(old, sizeof(old), dir, steps.step[i], true) != ST_OK)
                continue;
            if (rename(path, old) != 0)
                LOG_WARN("cannot remove old checkpoint %s: %s", path, strerror(errno));
            else if (file_remove_tree(old) != ST_OK)
                LOG_WARN("cannot remove old checkpoint %s: %s", path, status_message());
        }
    }
    free(steps.step);
}

/* save_job — does ckpt_save for a job whose arrays and folder are set. */
static enum status save_job(struct job *job, struct ckpt_lock *lock, const struct ckpt_meta *meta,
                            int keep)
{
    bool is_done;
    ASSERTF(job->arrays_n >= 1 && job->arrays_n <= MANIFEST_FILES_MAX, "arrays %d", job->arrays_n);
    ASSERTF(meta->step >= 0, "step %" PRId64, meta->step);
    job->manifest.meta = *meta;
    TRY(manifest_normalize(&job->manifest.meta));
    TRY(ckpt_dir_step_path(job->target, sizeof(job->target), job->dir, meta->step));
    TRY(ckpt_dir_temp_path(job->temp, sizeof(job->temp), job->dir, meta->step, false));
    TRY(ckpt_dir_temp_path(job->old, sizeof(job->old), job->dir, meta->step, true));
    TRY(ckpt_lock_renew(lock));
    ckpt_dir_clean(job->dir);
    TRY(find_existing(job, &is_done));
    if (!is_done) {
        int64_t need_bytes = SLACK_BYTES, free_bytes = file_space_bytes(job->dir);
        for (int i = 0; i < job->arrays_n; i++) {
            int64_t bytes;
            TRY(safetensors_bytes(job->array[i].source, job->array[i].sources_n, METADATA, &bytes));
            need_bytes += bytes;
        }
        if (free_bytes >= 0 && free_bytes < need_bytes)
            return FAIL(ST_STORE,
                        "no space for checkpoint %s: it needs %" PRId64 " bytes, %" PRId64
                        " are free; free some, or lower CHECKPOINT_KEEP",
                        job->target, need_bytes, free_bytes);
        TRY(write_new(job));
    }
    remove_old(job->dir, keep, meta->step);
    return ST_OK;
}

enum status ckpt_save(struct ckpt_lock *lock, const struct ckpt_meta *meta,
                      const struct ckpt_array *array, int arrays_n, int keep,
                      const struct heartbeat *heartbeat, char *path_out, size_t path_cap)
{
    struct job *job = malloc(sizeof *job);
    if (job == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to save a checkpoint", sizeof *job);
    *job = (struct job){
        .dir = lock->dir, .array = array, .arrays_n = arrays_n, .heartbeat = heartbeat};
    enum status st = save_job(job, lock, meta, keep);
    if (st == ST_OK && !text_copy(path_out, path_cap, job->target))
        st = FAIL(ST_BAD_SETTING, "path %s is longer than %zu bytes", job->target, path_cap - 1);
    free(job);
    return st;
}
