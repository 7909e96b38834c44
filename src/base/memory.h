/* memory — how much of the machine's memory this process holds, read at most once a second, how
 * much it may still take, and whether a request that was refused can ever be met. Must not know
 * what for. */
#ifndef CONVOY_BASE_MEMORY_H
#define CONVOY_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct memory {
    int64_t read_ms; /* when it was read */
    int64_t bytes;
};

int64_t memory_resident(struct memory *memory, int64_t now_ms); /* bytes; -1 unknown (no /proc) */

/* What this process and those it starts may take. -1: unknown, or no limit. */
struct memory_limits {
    int64_t free_bytes; /* now, without swapping or being killed: machine and control groups */
    /* at the most, when nothing else runs: the machine, or the tightest control group */
    int64_t total_bytes;
    int64_t process_bytes; /* of one process: what RLIMIT_AS and RLIMIT_DATA leave it */
    bool is_group;         /* total_bytes is the limit of a control group */
};
/* memory_limits — of this process. memory_limits_in — the same from other files: /proc/meminfo,
 * /proc/self/cgroup, /sys/fs/cgroup. */
void memory_limits(struct memory_limits *out);
void memory_limits_in(const char *meminfo, const char *proc_cgroup, const char *sys_cgroup,
                      struct memory_limits *out);
int64_t memory_free(void); /* memory_limits's free_bytes */

/* memory_status — of a request for so many bytes that was refused: ST_BAD_SETTING when it can never
 * be met here, because it exceeds the machine, a control group's limit, or this process's; ST_RETRY
 * when time may heal it. */
enum status memory_status(int64_t bytes);

/* memory_row — a row such as "MemAvailable: 12 kB" of a text like /proc/meminfo, in bytes; -1 not
 * there. Pure. */
int64_t memory_row(const char *meminfo, const char *name);

#endif
