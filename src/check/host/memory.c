/* check_host_memory — a node's memory: total and free memory, swap, hugepages, /dev/shm. */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"

#define GIB (1024.0 * 1024 * 1024)
/* share of memory; if less is free, the next allocation may end a process */
#define FREE_SHARE 0.05
#define RESERVED_SHARE 0.1         /* share of memory in hugepages that no process uses */
#define SHM_BYTES_MIN (64ll << 20) /* Docker's default, too small for NCCL with eight GPUs */
#define SHM_BYTES_GOOD (1ll << 30)

/* ---- total and free ---- */

static void add_memory(struct check_static *s, const struct memory_limits *limits)
{
    if (limits->total_bytes <= 0)
        return;
    if (limits->free_bytes >= 0 &&
        (double)limits->free_bytes < FREE_SHARE * (double)limits->total_bytes) {
        char left[24], all[24];
        check_static_add(
            s,
            check_static_found(s, CHECK_POINT_HOST, "memory", CHECK_VERDICT_WARN, "%s free of %s%s",
                               text_format_bytes(left, sizeof left, (double)limits->free_bytes),
                               text_format_bytes(all, sizeof all, (double)limits->total_bytes),
                               limits->is_group ? ", the limit of the control group" : ""),
            "",
            limits->is_group ? check_static_flag(s, "raise memory.max of its control group",
                                                 "docker run --memory=<more>",
                                                 "resources: {limits: {memory: <more>}}")
                             : "ps aux --sort=-rss | head # end the processes of earlier jobs");
        return;
    }
    struct check_row row = check_static_found(
        s, CHECK_POINT_HOST, "memory", CHECK_VERDICT_MEASURED, "%s",
        limits->is_group ? "the limit of the control group" : "all of the machine's");
    check_static_measured(s, row, (double)limits->total_bytes / GIB, "GiB", "",
                          limits->is_group
                              ? "raise the memory limit of its container or control group"
                              : "dmidecode -t memory # compare with another node");
}

static void add_swap(struct check_static *s, const char *meminfo,
                     const struct memory_limits *limits)
{
    int64_t total = memory_row(meminfo, "SwapTotal"), left = memory_row(meminfo, "SwapFree");
    int64_t available = memory_row(meminfo, "MemAvailable");
    char used_text[24], all[24];
    if (total < 0 || left < 0 || left > total)
        return;
    /* memory that was swapped out once and is not needed does no harm */
    bool is_thrashing = total - left > 1ll << 30 && available >= 0 && limits->total_bytes > 0 &&
                        (double)available < 2 * FREE_SHARE * (double)limits->total_bytes;
    check_static_add(
        s,
        check_static_found(s, CHECK_POINT_HOST, "swap",
                           is_thrashing ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
                           "%s of %s in use%s",
                           text_format_bytes(used_text, sizeof used_text, (double)(total - left)),
                           text_format_bytes(all, sizeof all, (double)total),
                           is_thrashing ? ", and memory is short" : ""),
        "", is_thrashing ? "swapoff -a # after ending the processes that use the memory" : "");
}

/* ---- /dev/shm ---- */

struct shm {
    bool is_mounted;
    int64_t bytes; /* bytes in the option "size="; -1: the kernel's default */
};

static int64_t size_option(const char *options)
{
    const char *at = strstr(options, "size=");
    char digits[24];
    int64_t n;
    if (at == NULL)
        return -1;
    at += strlen("size=");
    size_t length = strspn(at, "0123456789");
    text_format(digits, sizeof digits, "%.*s", (int)length, at);
    if (text_parse_i64(digits, 0, INT64_MAX / 1024, &n) != TEXT_OK)
        return -1;
    return at[length] == 'k' ? n * 1024 : n;
}

/* Reads "shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0"; the last mount hides the earlier ones. */
static void mount_line(void *arg, char *line)
{
    struct shm *shm = arg;
    char *rest = line;
    if (check_file_word(&rest) == NULL)
        return;
    const char *mount = check_file_word(&rest), *kind = mount ? check_file_word(&rest) : NULL;
    if (kind == NULL || strcmp(mount, "/dev/shm") != 0)
        return;
    const char *options = check_file_word(&rest);
    *shm = (struct shm){strcmp(kind, "tmpfs") == 0, options ? size_option(options) : -1};
}

/* Returns the free bytes. Files that other programs have left there count too; a tree of files has
 * no file system of its own. */
static int64_t shm_free(const struct check_static *s, int64_t bytes)
{
    struct statvfs about;
    if (s->root[0] || statvfs("/dev/shm", &about) != 0 || about.f_blocks == 0)
        return bytes;
    return (int64_t)(about.f_bavail * about.f_frsize);
}

static void add_shm(struct check_static *s, const char *meminfo)
{
    struct shm shm = {0};
    char text[24], left[24];
    check_file_lines(s->root, "/proc/self/mounts", 1 << 20, mount_line, &shm);
    if (shm.bytes < 0)
        shm.bytes = memory_row(meminfo, "MemTotal") / 2;
    int64_t rest = shm.is_mounted ? shm_free(s, shm.bytes) : 0;
    bool is_used = s->gpus.gpus_n > 1; /* used by NCCL or RCCL between the GPUs of a node */
    enum check_verdict verdict = !is_used || rest >= SHM_BYTES_GOOD            ? CHECK_VERDICT_PASS
                                 : rest <= SHM_BYTES_MIN && s->gpus.gpus_n > 3 ? CHECK_VERDICT_FAIL
                                                                               : CHECK_VERDICT_WARN;
    check_static_add(
        s,
        check_static_found(s, CHECK_POINT_HOST, "shm", verdict,
                           shm.is_mounted ? "/dev/shm has %s, %s of it free%s"
                                          : "/dev/shm is not mounted (%s, %s)%s",
                           text_format_bytes(text, sizeof text, (double)shm.bytes),
                           text_format_bytes(left, sizeof left, (double)rest),
                           is_used     ? ""
                           : s->is_amd ? "; only RCCL between several GPUs needs it"
                                       : "; only NCCL between several GPUs needs it"),
        "",
        verdict == CHECK_VERDICT_PASS
            ? ""
            : check_static_flag(s,
                                shm.is_mounted ? "mount -o remount,size=8g /dev/shm; ls -l /dev/shm"
                                               : "mount -t tmpfs -o size=8g shm /dev/shm",
                                "docker run --shm-size=8g",
                                "volumes: [{name: shm, emptyDir: {medium: Memory}}] # mounted at "
                                "/dev/shm"));
}

void check_host_memory_rows(struct check_static *s)
{
    struct memory_limits limits = {-1, -1, -1, false};
    char meminfo[8192];
    char path[FILE_PATH_MAX], proc[FILE_PATH_MAX], sys[FILE_PATH_MAX];
    if (text_format(path, sizeof path, "%s/proc/meminfo", s->root) &&
        text_format(proc, sizeof proc, "%s/proc/self/cgroup", s->root) &&
        text_format(sys, sizeof sys, "%s/sys/fs/cgroup", s->root))
        memory_limits_in(path, proc, sys, &limits);
    add_memory(s, &limits);
    if (check_file_read(s->root, meminfo, sizeof meminfo, "/proc/meminfo")) {
        add_swap(s, meminfo, &limits);
        /* Read the use of pages of 2 MiB, and the reserved pages that no process uses. */
        char transparent[64];
        int64_t page = memory_row(meminfo, "Hugepagesize"), total = memory_row(meminfo, "MemTotal");
        /* a count, which memory_row scales as if it were KiB */
        int64_t idle = memory_row(meminfo, "HugePages_Free") / 1024;
        bool has = check_file_read(s->root, transparent, sizeof transparent,
                                   "/sys/kernel/mm/transparent_hugepage/enabled");
        bool is_never = has && strstr(transparent, "[never]");
        double idle_bytes = page > 0 && idle > 0 ? (double)page * (double)idle : 0;
        bool is_reserved = total > 0 && idle_bytes > RESERVED_SHARE * (double)total;
        char text[24];
        check_static_add(
            s,
            check_static_found(s, CHECK_POINT_HOST, "hugepages",
                               is_never || is_reserved ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
                               "transparent: %s; reserved and unused: %s",
                               has ? transparent : "not in this kernel",
                               text_format_bytes(text, sizeof text, idle_bytes)),
            "",
            is_never      ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
            : is_reserved ? "sysctl vm.nr_hugepages=0"
                          : "");
    }
    add_shm(s, meminfo);
}
