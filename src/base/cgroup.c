/* cgroup — see cgroup.h. A container often sees its own group as the root of /sys/fs/cgroup while
 * /proc/self/cgroup still names the host's path, so every prefix of the path is tried and a missing file is
 * passed over. */
#include "base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

/* The first line of a small file of the kernel's, without its end; false when there is none. */
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

static int cpus_of(const char *quota, const char *period)
{
    int64_t quota_us, period_us;
    if (text_i64(quota, 1, INT64_MAX / 2, &quota_us) != TEXT_OK || /* "max" and -1: no quota */
        text_i64(period, 1, INT64_MAX / 2, &period_us) != TEXT_OK)
        return 0;
    int64_t cpus = (quota_us - 1) / period_us + 1;
    return cpus > INT_MAX ? 0 : (int)cpus;
}

/* v2: "max 100000" or "150000 100000" */
static int cpus_v2(const char *dir)
{
    char path[FILE_PATH_MAX], line[128];
    if (!text_format(path, sizeof(path), "%s/cpu.max", dir) || !read_line(path, line, sizeof(line)))
        return 0;
    char *space = strchr(line, ' ');
    if (space == NULL)
        return 0;
    *space = 0;
    return cpus_of(line, space + 1);
}

static int cpus_v1(const char *dir)
{
    char path[FILE_PATH_MAX], quota[64], period[64];
    if (!text_format(path, sizeof(path), "%s/cpu.cfs_quota_us", dir) ||
        !read_line(path, quota, sizeof(quota)))
        return 0;
    if (!text_format(path, sizeof(path), "%s/cpu.cfs_period_us", dir) ||
        !read_line(path, period, sizeof(period)))
        return 0;
    return cpus_of(quota, period);
}

static int tighter(int a, int b) { return a == 0 ? b : b == 0 || a < b ? a : b; }

/* From root/path up to root itself. */
static int cpus_upwards(const char *root, const char *group, int (*cpus)(const char *dir))
{
    char dir[FILE_PATH_MAX];
    if (!text_format(dir, sizeof(dir), "%s%s", root, group))
        return cpus(root);
    int least = 0;
    for (size_t root_n = strlen(root);;) {
        least = tighter(least, cpus(dir));
        char *slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < root_n)
            return least;
        *slash = 0;
    }
}

/* "0::/path" is v2, "4:cpu,cpuacct:/path" v1. */
static int cpus_of_line(char *line, const char *sys_root)
{
    char *kinds = strchr(line, ':');
    char *group = kinds != NULL ? strchr(kinds + 1, ':') : NULL;
    if (group == NULL)
        return 0;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    kinds++;
    if (strcmp(kinds, "") == 0)
        return cpus_upwards(sys_root, group, cpus_v2);
    bool is_cpu = false;
    char names[256], *rest = names;
    text_copy(names, sizeof(names), kinds);
    for (char *name; (name = strsep(&rest, ",")) != NULL;)
        is_cpu = is_cpu || strcmp(name, "cpu") == 0;
    char root[FILE_PATH_MAX];
    if (!is_cpu || !text_format(root, sizeof(root), "%s/cpu", sys_root))
        return 0;
    return cpus_upwards(root, group, cpus_v1);
}

int cgroup_cpus(const char *proc_file, const char *sys_root)
{
    FILE *file = fopen(proc_file, "re");
    if (file == NULL)
        return 0;
    char line[FILE_PATH_MAX];
    int least = 0;
    while (fgets(line, sizeof(line), file) != NULL)
        least = tighter(least, cpus_of_line(line, sys_root));
    fclose(file);
    return least;
}
