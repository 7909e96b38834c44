/* hf_save — see hf_save.h. */
#include "format/hf_save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

#define WEIGHTS "model.safetensors"
#define METADATA "{\"format\":\"pt\"}" /* transformers requires it */
#define SLACK_BYTES (64 << 10)         /* the folder and the file system's own blocks */

/* One folder under way. */
struct job {
    const struct safetensors_source *source;
    int sources_n;
    const struct hf_save_file *file;
    int files_n;
    char target[FILE_PATH_MAX], temp[FILE_PATH_MAX], parent[FILE_PATH_MAX];
};

/* name_paths — TO without trailing slashes, and where it is written first. */
static enum status name_paths(struct job *job, const char *to)
{
    if (!text_copy(job->target, sizeof(job->target), to))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %d: %.64s…", strlen(to),
                    FILE_PATH_MAX - 1, to);
    for (size_t n = strlen(job->target); n > 1 && job->target[n - 1] == '/'; n--)
        job->target[n - 1] = 0;
    char *slash = strrchr(job->target, '/');
    const char *last = slash ? slash + 1 : job->target;
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return FAIL(ST_BAD_SETTING,
                    "\"%s\" is no name for a new folder; give it one, such as exported", to);
    text_copy(job->parent, sizeof(job->parent), slash ? job->target : ".");
    if (slash)
        job->parent[slash == job->target ? 1 : slash - job->target] = 0;
    if (!text_format(job->temp, sizeof(job->temp), "%s.tmp-%ld", job->target, (long)getpid()))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %d: %.64s…", strlen(to),
                    FILE_PATH_MAX - 32, to);
    return ST_OK;
}

/* check_empty — a folder that holds something is not ours. */
static enum status check_empty(const char *target)
{
    int entries_n = 0;
    DIR *dir = opendir(target);
    if (!dir)
        return FAIL(ST_STORE, "cannot list %s: %s; choose another folder", target, strerror(errno));
    while (readdir(dir))
        entries_n++;
    closedir(dir);
    if (entries_n > 2) /* . and .. */
        return FAIL(ST_BAD_SETTING, "%s exists and is not empty; choose a new folder", target);
    return ST_OK;
}

static enum status check_target(const char *target)
{
    struct stat info;
    if (lstat(target, &info) != 0)
        return ST_OK; /* creating it reports the error, if any */
    if (S_ISDIR(info.st_mode))
        return check_empty(target);
    return FAIL(ST_BAD_SETTING, "%s exists, as a %s; choose a new folder", target,
                S_ISLNK(info.st_mode) ? "symbolic link" : "file");
}

enum status hf_save_check(const char *to)
{
    struct job job = {.sources_n = 0};
    TRY(name_paths(&job, to));
    return check_target(job.target);
}

static enum status check_space(const struct job *job)
{
    int64_t need_bytes, free_bytes = file_space_bytes(job->parent);
    TRY(safetensors_bytes(job->source, job->sources_n, METADATA, &need_bytes));
    need_bytes += SLACK_BYTES;
    for (int i = 0; i < job->files_n; i++)
        need_bytes += (int64_t)job->file[i].bytes;
    if (free_bytes >= 0 && free_bytes < need_bytes)
        return FAIL(ST_STORE,
                    "no space for %s: it needs %" PRId64 " bytes, %" PRId64 " are free; make room",
                    job->target, need_bytes, free_bytes);
    return ST_OK;
}

/* make_temp — creates the folder beside the target, locked while *fd_out is open: other processes
 * see that it is in use. */
static enum status make_temp(const struct job *job, int *fd_out)
{
    if (mkdir(job->temp, 0777) != 0)
        return FAIL(ST_STORE, "cannot make %s: %s; check that this folder can be written",
                    job->temp, strerror(errno));
    *fd_out = open(job->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd_out >= 0 && flock(*fd_out, LOCK_EX | LOCK_NB) != 0)
        /* some file systems have no locks */
        LOG_DEBUG("cannot lock %s: %s", job->temp, strerror(errno));
    return ST_OK;
}

/* remove_if_left — removes a folder of ours that no process holds: its process was killed. */
static void remove_if_left(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        LOG_INFO("removing %s, left by an export that was killed", path);
        if (file_remove_tree(path) != ST_OK)
            LOG_WARN("cannot remove %s: %s", path, status_message());
    }
    close(fd);
    status_clear();
}

/* sweep — TARGET.tmp-<number> beside the target, and nothing else. */
static void sweep(const struct job *job)
{
    const char *slash = strrchr(job->target, '/');
    char mark[FILE_PATH_MAX], path[FILE_PATH_MAX];
    DIR *dir = opendir(job->parent);
    if (!dir || !text_format(mark, sizeof(mark), "%s.tmp-", slash ? slash + 1 : job->target)) {
        if (dir)
            closedir(dir);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *number = entry->d_name + strlen(mark);
        if (!text_starts(entry->d_name, mark) || !*number ||
            number[strspn(number, "0123456789")] != 0)
            continue;
        if (file_join(path, sizeof(path), job->parent, entry->d_name) == ST_OK)
            remove_if_left(path);
    }
    closedir(dir);
}

static enum status write_files(const struct job *job)
{
    char path[FILE_PATH_MAX];
    uint64_t hash;
    int64_t bytes;
    TRY(file_join(path, sizeof(path), job->temp, WEIGHTS));
    TRY(safetensors_write(path, job->source, job->sources_n, METADATA, NULL, &hash, &bytes));
    for (int i = 0; i < job->files_n; i++) {
        TRY(file_join(path, sizeof(path), job->temp, job->file[i].name));
        /* syncs the file and its folder */
        TRY(file_replace(path, job->file[i].data, job->file[i].bytes));
    }
    return file_sync_dir(job->temp);
}

/* commit — the rename, which takes the place of an empty folder and of nothing else. */
static enum status commit(const struct job *job)
{
    if (rename(job->temp, job->target) != 0)
        return FAIL(ST_STORE, "cannot rename %s to %s: %s", job->temp, job->target,
                    strerror(errno));
    return file_sync_dir(job->parent);
}

enum status hf_save(const char *to, const struct safetensors_source *source, int sources_n,
                    const struct hf_save_file *file, int files_n)
{
    struct job job = {.source = source, .sources_n = sources_n, .file = file, .files_n = files_n};
    enum status st;
    TRY(name_paths(&job, to));
    TRY(check_target(job.target));
    TRY(file_make_dirs(job.parent));
    sweep(&job);
    TRY(check_space(&job));
    int lock_fd = -1;
    TRY(make_temp(&job, &lock_fd));
    TRY_OR(write_files(&job), remove_temp);
    TRY_OR(commit(&job), remove_temp);
    close(lock_fd);
    return ST_OK;
remove_temp:;
    struct status_saved why;
    status_save(&why);
    if (file_remove_tree(job.temp) != ST_OK)
        LOG_WARN("cannot remove %s: %s", job.temp, status_message());
    status_restore(&why);
    close(lock_fd);
    return st;
}
