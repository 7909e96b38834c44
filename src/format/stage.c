/* stage — see stage.h. */
#include "format/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"

/* name_paths — writes TO without trailing slashes, and the path of the temporary folder. */
static enum status name_paths(struct stage *stage, const char *to, const char *noun)
{
    if (!text_copy(stage->target, sizeof(stage->target), to))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %d: %.64s…", strlen(to),
                    FILE_PATH_MAX - 1, to);
    for (size_t n = strlen(stage->target); n > 1 && stage->target[n - 1] == '/'; n--)
        stage->target[n - 1] = 0;
    char *slash = strrchr(stage->target, '/');
    const char *last = slash ? slash + 1 : stage->target;
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return FAIL(ST_BAD_SETTING,
                    "\"%s\" is no name for a new %s; choose a name such as exported", to, noun);
    text_copy(stage->parent, sizeof(stage->parent), slash ? stage->target : ".");
    if (slash)
        stage->parent[slash == stage->target ? 1 : slash - stage->target] = 0;
    if (!text_format(stage->temp, sizeof(stage->temp), "%s.tmp-%ld", stage->target, (long)getpid()))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %d: %.64s…", strlen(to),
                    FILE_PATH_MAX - 32, to);
    return ST_OK;
}

static enum status check_target(const char *target, const char *noun)
{
    struct stat info;
    if (lstat(target, &info) != 0)
        return ST_OK; /* creating it reports the error, if any */
    if (S_ISDIR(info.st_mode) && strcmp(noun, "folder") == 0) {
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
    return FAIL(ST_BAD_SETTING, "%s exists, as a %s; choose a new %s", target,
                S_ISLNK(info.st_mode)   ? "symbolic link"
                : S_ISDIR(info.st_mode) ? "folder"
                                        : "file",
                noun);
}

/* Removes TARGET.tmp-<number> next to the target, and nothing else. */
static void remove_leftovers(const struct stage *stage)
{
    const char *slash = strrchr(stage->target, '/');
    char mark[FILE_PATH_MAX], path[FILE_PATH_MAX];
    DIR *dir = opendir(stage->parent);
    if (!dir || !text_format(mark, sizeof(mark), "%s.tmp-", slash ? slash + 1 : stage->target)) {
        if (dir)
            closedir(dir);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *number = entry->d_name + strlen(mark);
        if (!text_starts(entry->d_name, mark) || !*number ||
            number[strspn(number, "0123456789")] != 0)
            continue;
        if (file_join(path, sizeof(path), stage->parent, entry->d_name) != ST_OK)
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

enum status stage_name(struct stage *stage, const char *to, const char *noun)
{
    stage->lock_fd = -1;
    TRY(name_paths(stage, to, noun));
    return check_target(stage->target, noun);
}

enum status stage_open(struct stage *stage, int64_t need_bytes)
{
    TRY(file_make_dirs(stage->parent));
    remove_leftovers(stage);
    const int64_t free_bytes = file_space_bytes(stage->parent);
    if (free_bytes >= 0 && free_bytes < need_bytes)
        return FAIL(ST_STORE,
                    "no space for %s: it needs %" PRId64 " bytes, %" PRId64 " are free; make room",
                    stage->target, need_bytes, free_bytes);
    if (mkdir(stage->temp, 0777) != 0)
        return FAIL(ST_STORE, "cannot make %s: %s; check that this folder can be written",
                    stage->temp, strerror(errno));
    stage->lock_fd = open(stage->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (stage->lock_fd >= 0 && flock(stage->lock_fd, LOCK_EX | LOCK_NB) != 0)
        /* some file systems have no locks */
        LOG_DEBUG("cannot lock %s: %s", stage->temp, strerror(errno));
    return ST_OK;
}

/* rename_target — renames the folder, which can replace an empty folder and nothing else, or the
 * file in it. */
static enum status rename_target(const struct stage *stage, const char *file)
{
    char from[FILE_PATH_MAX];
    if (file == NULL)
        text_copy(from, sizeof(from), stage->temp);
    else
        TRY(file_join(from, sizeof(from), stage->temp, file));
    if (rename(from, stage->target) != 0)
        return FAIL(ST_STORE, "cannot rename %s to %s: %s", from, stage->target, strerror(errno));
    return file_sync_dir(stage->parent);
}

enum status stage_commit(struct stage *stage, enum status st, const char *file)
{
    struct status_saved why;
    if (st == ST_OK)
        st = rename_target(stage, file);
    status_save(&why);
    if (st != ST_OK && file_remove_tree(stage->temp) != ST_OK)
        LOG_WARN("cannot remove %s: %s", stage->temp, status_message());
    if (st == ST_OK && file != NULL && rmdir(stage->temp) != 0)
        LOG_WARN("cannot remove %s: %s", stage->temp, strerror(errno));
    status_restore(&why);
    if (stage->lock_fd >= 0)
        close(stage->lock_fd);
    return st;
}
