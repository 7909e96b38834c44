/* memory — how much of the machine's memory this process holds (read at most once a second), how
 * much it may still take, and whether a refused request can ever be met. Must not know what the
 * memory is for. */
#ifndef CONVOY_BASE_MEMORY_H
#define CONVOY_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct memory {
    int64_t read_ms; /* when it was read */
    int64_t bytes;
};

int64_t memory_resident(struct memory *memory, int64_t now_ms); /* bytes; -1: unknown (no /proc) */

/* What this process and its children may take. -1: unknown, or no limit. */
struct memory_limits {
    int64_t free_bytes; /* now, without swapping or being killed: machine and control groups */
    /* at most, when nothing else runs: the machine, or the tightest control group */
    int64_t total_bytes;
    int64_t process_bytes; /* one process: what RLIMIT_AS and RLIMIT_DATA leave */
    bool is_group;         /* total_bytes is the limit of a control group */
};
/* memory_limits — of this process. memory_limits_in — the same from other files than /proc/meminfo,
 * /proc/self/cgroup and /sys/fs/cgroup, for tests. */
void memory_limits(struct memory_limits *out);
void memory_limits_in(const char *meminfo, const char *proc_cgroup, const char *sys_cgroup,
                      struct memory_limits *out);
int64_t memory_free(void); /* memory_limits's free_bytes */

/* memory_status — for a request of so many bytes that was refused. ST_BAD_SETTING: it can never be
 * met here, because it exceeds the machine, a control group's limit or this process's. ST_RETRY: it
 * may be met later. */
enum status memory_status(int64_t bytes);

/* memory_row — the bytes of a row such as "MemAvailable: 12 kB" in a text like /proc/meminfo; -1:
 * it is not there. Pure. Called here, and for tests. */
int64_t memory_row(const char *meminfo, const char *name);

#endif
