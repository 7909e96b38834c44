/* hf_save — see hf.h. */
#include "format/hf.h"

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
#define INDEX_BYTES_MAX (16 << 20)
#define INDEX WEIGHTS ".index.json"
#define INDEX_ROW_BYTES 1024   /* about the most bytes of a tensor in headers and index */
#define SLACK_BYTES (64 << 10) /* the folder and the file system's own blocks */

/* One folder that is being written. */
struct job {
    const struct safetensors_source *source;
    int sources_n;
    const struct hf_save_file *file;
    int files_n;
    int64_t file_bytes_max;
    char target[FILE_PATH_MAX], temp[FILE_PATH_MAX], parent[FILE_PATH_MAX];
};

/* name_paths — writes TO without trailing slashes, and the path of the temporary folder. */
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
                    "\"%s\" is no name for a new folder; choose a name such as exported", to);
    text_copy(job->parent, sizeof(job->parent), slash ? job->target : ".");
    if (slash)
        job->parent[slash == job->target ? 1 : slash - job->target] = 0;
    if (!text_format(job->temp, sizeof(job->temp), "%s.tmp-%ld", job->target, (long)getpid()))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %d: %.64s…", strlen(to),
                    FILE_PATH_MAX - 32, to);
    return ST_OK;
}

static enum status check_target(const char *target)
{
    struct stat info;
    if (lstat(target, &info) != 0)
        return ST_OK; /* creating it reports the error, if any */
    if (S_ISDIR(info.st_mode)) {
        /* A folder with contents is not ours. */
        int entries_n = 0;
        DIR *dir = opendir(target);
        if (!dir)
            return FAIL(ST_STORE, "cannot list %s: %s; choose another folder", target,
                        strerror(errno));
        while (readdir(dir))
            entries_n++;
        closedir(dir);
        if (entries_n > 2) /* . and .. */
            return FAIL(ST_BAD_SETTING, "%s exists and is not empty; choose a new folder", target);
        return ST_OK;
    }
    return FAIL(ST_BAD_SETTING, "%s exists, as a %s; choose a new folder", target,
                S_ISLNK(info.st_mode) ? "symbolic link" : "file");
}

enum status hf_save_check(const char *to)
{
    struct job job = {.sources_n = 0};
    TRY(name_paths(&job, to));
    return check_target(job.target);
}

/* Removes TARGET.tmp-<number> next to the target, and nothing else. */
static void remove_leftovers(const struct job *job)
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
        if (file_join(path, sizeof(path), job->parent, entry->d_name) != ST_OK)
            continue;
        /* Removes a folder of ours that no process has locked: its process was killed. */
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            LOG_INFO("removing %s, left by an export that was killed", path);
            if (file_remove_tree(path) != ST_OK)
                LOG_WARN("cannot remove %s: %s", path, status_message());
        }
        close(fd);
        status_clear();
    }
    closedir(dir);
}

static int64_t source_bytes(const struct safetensors_source *source)
{
    int64_t bytes = (int64_t)dtype_bytes(source->dtype);
    for (int i = 0; i < source->dims_n; i++)
        bytes *= source->dim[i];
    return bytes;
}

/* weights_end — returns the end of the tensors [first, end) that fit into one file; *bytes: their
 * size. */
static int weights_end(const struct job *job, int first, int64_t *bytes)
{
    int end = first;
    *bytes = 0;
    for (; end < job->sources_n; end++) {
        int64_t more = source_bytes(&job->source[end]);
        if (end > first && *bytes + more > job->file_bytes_max)
            break;
        *bytes += more;
    }
    return end;
}

static enum status write_weights(const struct job *job, const char *name, int first, int end)
{
    char path[FILE_PATH_MAX];
    uint64_t hash;
    int64_t bytes;
    TRY(file_join(path, sizeof(path), job->temp, name));
    return safetensors_write(path, job->source + first, end - first, METADATA, NULL, &hash, &bytes);
}

/* write_weight_files — writes the files, and the list of the index. */
static enum status write_weight_files(const struct job *job, int weight_files_n, struct text *index)
{
    char name[64];
    int64_t bytes, total = 0;
    for (int i = 0; i < job->sources_n; i++)
        total += source_bytes(&job->source[i]);
    text_add(index,
             "{\n  \"metadata\": {\n    \"total_size\": %" PRId64 "\n  },\n  \"weight_map\": {",
             total);
    for (int first = 0, end, number = 1; first < job->sources_n; first = end, number++) {
        end = weights_end(job, first, &bytes);
        text_format(name, sizeof(name), "model-%05d-of-%05d.safetensors", number, weight_files_n);
        TRY(write_weights(job, name, first, end));
        /* Tensors [first, end) are in the file. Names need no escapes: they are ours. */
        for (int i = first; i < end; i++)
            text_add(index, "%s\n    \"%s\": \"%s\"", i > 0 ? "," : "", job->source[i].name, name);
    }
    text_add(index, "\n  }\n}\n");
    return index->overflow
               ? FAIL(ST_RETRY, "out of memory: the index of %d tensors", job->sources_n)
               : ST_OK;
}

static enum status write_files(const struct job *job)
{
    char path[FILE_PATH_MAX];
    int weight_files_n = 0;
    int64_t bytes;
    for (int first = 0; first < job->sources_n; first = weights_end(job, first, &bytes))
        weight_files_n++;
    if (weight_files_n > 1) {
        struct text index = {.limit = INDEX_BYTES_MAX};
        enum status st = write_weight_files(job, weight_files_n, &index);
        if (st == ST_OK)
            st = file_join(path, sizeof(path), job->temp, INDEX);
        if (st == ST_OK)
            st = file_replace(path, index.data, index.len);
        text_free(&index);
        TRY(st);
    } else
        TRY(write_weights(job, WEIGHTS, 0, job->sources_n));
    for (int i = 0; i < job->files_n; i++) {
        TRY(file_join(path, sizeof(path), job->temp, job->file[i].name));
        /* syncs the file and its folder */
        TRY(file_replace(path, job->file[i].data, job->file[i].bytes));
    }
    return file_sync_dir(job->temp);
}

/* Renames the folder, which can replace an empty folder and nothing else. */
static enum status commit_folder(const struct job *job)
{
    if (rename(job->temp, job->target) != 0)
        return FAIL(ST_STORE, "cannot rename %s to %s: %s", job->temp, job->target,
                    strerror(errno));
    return file_sync_dir(job->parent);
}

enum status hf_save(const char *to, const struct safetensors_source *source, int sources_n,
                    const struct hf_save_file *file, int files_n, int64_t file_bytes_max)
{
    struct job job = {.source = source,
                      .sources_n = sources_n,
                      .file = file,
                      .files_n = files_n,
                      .file_bytes_max = file_bytes_max};
    enum status st;
    TRY(name_paths(&job, to));
    TRY(check_target(job.target));
    TRY(file_make_dirs(job.parent));
    remove_leftovers(&job);
    int64_t need_bytes, free_bytes = file_space_bytes(job.parent);
    TRY(safetensors_bytes(job.source, job.sources_n, METADATA, &need_bytes));
    need_bytes += SLACK_BYTES + (int64_t)job.sources_n * INDEX_ROW_BYTES;
    for (int i = 0; i < job.files_n; i++)
        need_bytes += (int64_t)job.file[i].bytes;
    if (free_bytes >= 0 && free_bytes < need_bytes)
        return FAIL(ST_STORE,
                    "no space for %s: it needs %" PRId64 " bytes, %" PRId64 " are free; make room",
                    job.target, need_bytes, free_bytes);
    int lock_fd = -1;
    /* The folder next to the target is locked while lock_fd is open: other processes see that it is
     * in use. */
    if (mkdir(job.temp, 0777) != 0)
        return FAIL(ST_STORE, "cannot make %s: %s; check that this folder can be written", job.temp,
                    strerror(errno));
    lock_fd = open(job.temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock_fd >= 0 && flock(lock_fd, LOCK_EX | LOCK_NB) != 0)
        /* some file systems have no locks */
        LOG_DEBUG("cannot lock %s: %s", job.temp, strerror(errno));
    TRY_OR(write_files(&job), remove_temp);
    TRY_OR(commit_folder(&job), remove_temp);
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
