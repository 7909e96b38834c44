/* ckpt_dir — see ckpt_dir.h. */
#include "format/ckpt_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define STEP_PREFIX "step-"
#define TEMP_PREFIX ".tmp-"
#define OLD_SUFFIX "-old"

bool ckpt_dir_step_of(const char *name, int64_t *out)
{
    char again[64];
    if (!text_starts(name, STEP_PREFIX) ||
        text_parse_i64(name + strlen(STEP_PREFIX), 0, INT64_MAX, out) != TEXT_OK)
        return false;
    return text_format(again, sizeof(again), STEP_PREFIX "%08" PRId64, *out) &&
           strcmp(again, name) == 0;
}

/* is_temp — returns true for ".tmp-<pid>-<step>", or the same with "-old". */
static bool is_temp(const char *name)
{
    static const char digits[] = "0123456789";
    if (!text_starts(name, TEMP_PREFIX))
        return false;
    name += strlen(TEMP_PREFIX);
    size_t pid = strspn(name, digits);
    if (pid == 0 || name[pid] != '-')
        return false;
    name += pid + 1;
    size_t step = strspn(name, digits);
    return step > 0 && (name[step] == 0 || strcmp(name + step, OLD_SUFFIX) == 0);
}

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

struct dirent *ckpt_dir_next(DIR *listing, const char *dir, enum status *st)
{
    errno = 0;
    struct dirent *entry = readdir(listing);
    if (!entry && errno != 0)
        *st = FAIL(ST_STORE, "cannot list checkpoint folder %s: %s; check the disk", dir,
                   strerror(errno));
    return entry;
}

enum status ckpt_dir_list(const char *dir, struct ckpt_dir_steps *out)
{
    struct ckpt_dir_steps steps = {.steps_n = 0};
    enum status st = ST_OK;
    int64_t step;
    int cap = 0;
    DIR *listing = opendir(dir);
    if (!listing && errno == ENOENT) {
        *out = steps;
        return ST_OK;
    }
    if (!listing && errno == ENOTDIR)
        return FAIL(ST_BAD_SETTING,
                    "checkpoint folder %s is not a folder; set CHECKPOINT_DIR to one", dir);
    if (!listing)
        return FAIL(errno == EMFILE || errno == ENFILE || errno == ENOMEM ? ST_RETRY : ST_STORE,
                    "cannot list checkpoint folder %s: %s; give this user permission to read it",
                    dir, strerror(errno));
    for (struct dirent *entry; st == ST_OK && (entry = ckpt_dir_next(listing, dir, &st)) != NULL;)
        if (ckpt_dir_step_of(entry->d_name, &step)) {
            if (steps.steps_n == cap) {
                cap = cap > 0 ? cap * 2 : 64;
                steps.step = memory_resize(steps.step, (size_t)cap, sizeof *steps.step);
            }
            steps.step[steps.steps_n++] = step;
        }
    closedir(listing);
    if (st != ST_OK) {
        free(steps.step);
        return st;
    }
    if (steps.steps_n > 0)
        qsort(steps.step, (size_t)steps.steps_n, sizeof(steps.step[0]), compare_steps);
    *out = steps;
    return ST_OK;
}

enum status ckpt_dir_step_path(char *out, size_t cap, const char *dir, int64_t step)
{
    char name[64];
    text_format(name, sizeof(name), STEP_PREFIX "%08" PRId64, step);
    return file_join(out, cap, dir, name);
}

enum status ckpt_dir_temp_path(char *out, size_t cap, const char *dir, int64_t step, bool is_old)
{
    char name[64];
    text_format(name, sizeof(name), TEMP_PREFIX "%ld-%" PRId64 "%s", (long)getpid(), step,
                is_old ? OLD_SUFFIX : "");
    return file_join(out, cap, dir, name);
}

void ckpt_dir_clean(const char *dir)
{
    DIR *listing = opendir(dir);
    if (!listing)
        return; /* the next write reports it */
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        const char *name = entry->d_name;
        char path[FILE_PATH_MAX];
        struct stat info;
        if (!is_temp(name) || fstatat(dirfd(listing), name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(info.st_mode))
            continue;
        if (file_join(path, sizeof(path), dir, name) != ST_OK || file_remove_tree(path) != ST_OK)
            LOG_WARN("cannot remove a folder that an earlier process left: %s", status_message());
        else
            LOG_INFO("removed %s, left by an earlier process", path);
    }
    closedir(listing);
}
