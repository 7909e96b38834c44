/* cgroup — see cgroup.h. A container often has its own group as the root of /sys/fs/cgroup while
 * /proc/self/cgroup still names the host's path, so every prefix of the path is tried and a missing
 * file is skipped. */
#include "base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

/* Reads the first line of a small file of the kernel, without its end; false: there is none. */
static bool read_line(const char *path, char *out, size_t cap)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool has_line = fgets(out, (int)cap, file) != NULL;
    fclose(file);
    if (has_line)
        out[strcspn(out, "\n")] = 0;
    return has_line;
}

/* Returns the quota in thousandths of a CPU, rounded up; -1: no quota */
static int64_t cpus_of(const char *quota, const char *period)
{
    int64_t quota_us, period_us;
    if (text_parse_i64(quota, 1, INT64_MAX / 1000, &quota_us) !=
            TEXT_OK || /* "max" and -1: no quota */
        text_parse_i64(period, 1, INT64_MAX / 2, &period_us) != TEXT_OK)
        return -1;
    int64_t milli = (1000 * quota_us - 1) / period_us + 1;
    return milli > INT_MAX ? -1 : milli;
}

/* Reads the quota of v2: "max 100000" or "150000 100000". */
static int64_t cpus_v2(const char *dir)
{
    char path[FILE_PATH_MAX], line[128];
    if (!text_format(path, sizeof(path), "%s/cpu.max", dir) || !read_line(path, line, sizeof(line)))
        return -1;
    char *space = strchr(line, ' ');
    if (space == NULL)
        return -1;
    *space = 0;
    return cpus_of(line, space + 1);
}

static int64_t cpus_v1(const char *dir)
{
    char path[FILE_PATH_MAX], quota[64], period[64];
    if (!text_format(path, sizeof(path), "%s/cpu.cfs_quota_us", dir) ||
        !read_line(path, quota, sizeof(quota)))
        return -1;
    if (!text_format(path, sizeof(path), "%s/cpu.cfs_period_us", dir) ||
        !read_line(path, period, sizeof(period)))
        return -1;
    return cpus_of(quota, period);
}

/* ---- how long a quota stopped a group ---- */

/* row_of — returns the number in the row "key 123" of a file of the group; -1: there is none. */
static int64_t row_of(const char *dir, const char *name, const char *key)
{
    char path[FILE_PATH_MAX], line[128];
    int64_t number = -1;
    size_t n = strlen(key);
    FILE *file = text_format(path, sizeof(path), "%s/%s", dir, name) ? fopen(path, "re") : NULL;
    while (file != NULL && number < 0 && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, key, n) == 0 && line[n] == ' ' &&
            text_parse_i64(line + n + 1, 0, INT64_MAX, &number) != TEXT_OK)
            number = -1;
    }
    if (file != NULL)
        fclose(file);
    return number;
}

/* Returns INT64_MAX minus the microseconds: the group that was stopped longest has the tightest
 * quota, and tighter() returns the smaller number. */
static int64_t stopped_v2(const char *dir)
{
    int64_t us = row_of(dir, "cpu.stat", "throttled_usec");
    return us < 0 ? -1 : INT64_MAX - us;
}

static int64_t stopped_v1(const char *dir)
{
    int64_t ns = row_of(dir, "cpu.stat", "throttled_time");
    return ns < 0 ? -1 : INT64_MAX - ns / 1000;
}

/* ---- memory ---- */

static int64_t read_bytes(const char *dir, const char *name)
{
    char path[FILE_PATH_MAX], line[128];
    int64_t bytes;
    /* "max": no limit */
    if (!text_format(path, sizeof(path), "%s/%s", dir, name) ||
        !read_line(path, line, sizeof(line)) ||
        text_parse_i64(line, 0, INT64_MAX, &bytes) != TEXT_OK)
        return -1;
    return bytes;
}

/* read_cache — returns the bytes of file pages in memory.stat. */
static int64_t read_cache(const char *dir, const char *key)
{
    int64_t bytes = row_of(dir, "memory.stat", key);
    return bytes < 0 ? 0 : bytes;
}

/* Returns -1 for no limit, which v1 writes as a number beyond all memory. */
static int64_t limit_of(int64_t limit) { return limit > INT64_MAX / 2 ? -1 : limit; }
static int64_t limit_v2(const char *dir) { return limit_of(read_bytes(dir, "memory.max")); }
static int64_t limit_v1(const char *dir)
{
    return limit_of(read_bytes(dir, "memory.limit_in_bytes"));
}

static int64_t left_of(int64_t limit, int64_t used, int64_t file_bytes_n)
{
    if (limit < 0 || used < 0)
        return -1;
    int64_t held = used > file_bytes_n ? used - file_bytes_n : 0;
    return limit > held ? limit - held : 0;
}

static int64_t memory_v2(const char *dir)
{
    return left_of(limit_v2(dir), read_bytes(dir, "memory.current"),
                   read_cache(dir, "inactive_file") + read_cache(dir, "active_file"));
}

static int64_t memory_v1(const char *dir)
{
    return left_of(limit_v1(dir), read_bytes(dir, "memory.usage_in_bytes"),
                   read_cache(dir, "total_inactive_file") + read_cache(dir, "total_active_file"));
}

/* ---- the way up ---- */

/* The functions that read a number of a group; they return -1 if the group does not limit it. */
struct ask {
    const char *controller; /* v1's name */
    int64_t (*v2)(const char *dir), (*v1)(const char *dir);
};

static int64_t tighter(int64_t a, int64_t b) { return a < 0 ? b : b < 0 || a < b ? a : b; }

/* Reads the number of each group from root/path up to root itself. */
static int64_t ask_upwards(const char *root, const char *group, int64_t (*ask)(const char *dir))
{
    char dir[FILE_PATH_MAX];
    if (!text_format(dir, sizeof(dir), "%s%s", root, group))
        return ask(root);
    int64_t least = -1;
    for (size_t root_n = strlen(root);;) {
        least = tighter(least, ask(dir));
        char *slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < root_n)
            return least;
        *slash = 0;
    }
}

/* Reads the groups of a line: "0::/path" is v2, "4:cpu,cpuacct:/path" is v1. */
static int64_t ask_line(char *line, const char *sys_root, const struct ask *ask)
{
    char *kinds = strchr(line, ':');
    char *group = kinds != NULL ? strchr(kinds + 1, ':') : NULL;
    if (group == NULL)
        return -1;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    kinds++;
    if (strcmp(kinds, "") == 0)
        return ask_upwards(sys_root, group, ask->v2);
    bool is_ours = false;
    char names[256], *rest = names;
    text_copy(names, sizeof(names), kinds);
    for (char *name; (name = strsep(&rest, ",")) != NULL;)
        is_ours = is_ours || strcmp(name, ask->controller) == 0;
    char root[FILE_PATH_MAX];
    if (!is_ours || !text_format(root, sizeof(root), "%s/%s", sys_root, ask->controller))
        return -1;
    return ask_upwards(root, group, ask->v1);
}

static int64_t ask_all(const char *proc_file, const char *sys_root, const struct ask *ask)
{
    FILE *file = fopen(proc_file, "re");
    if (file == NULL)
        return -1;
    char line[FILE_PATH_MAX];
    int64_t least = -1;
    while (fgets(line, sizeof(line), file) != NULL)
        least = tighter(least, ask_line(line, sys_root, ask));
    fclose(file);
    return least;
}

int cgroup_cpus(const char *proc_file, const char *sys_root)
{
    int64_t milli = ask_all(proc_file, sys_root, &(struct ask){"cpu", cpus_v2, cpus_v1});
    return milli < 0 ? 0 : (int)((milli + 999) / 1000);
}

double cgroup_quota(const char *proc_file, const char *sys_root)
{
    int64_t milli = ask_all(proc_file, sys_root, &(struct ask){"cpu", cpus_v2, cpus_v1});
    return milli < 0 ? 0 : (double)milli * 1e-3;
}

int64_t cgroup_stopped_us(const char *proc_file, const char *sys_root)
{
    int64_t left = ask_all(proc_file, sys_root, &(struct ask){"cpu", stopped_v2, stopped_v1});
    return left < 0 ? -1 : INT64_MAX - left;
}

int64_t cgroup_memory_free(const char *proc_file, const char *sys_root)
{
    return ask_all(proc_file, sys_root, &(struct ask){"memory", memory_v2, memory_v1});
}

int64_t cgroup_memory_limit(const char *proc_file, const char *sys_root)
{
    return ask_all(proc_file, sys_root, &(struct ask){"memory", limit_v2, limit_v1});
}
