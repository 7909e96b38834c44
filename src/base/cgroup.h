/* cgroup — the CPU quota and the memory limit that control groups (v2 and v1) set for this process.
 * Reads only the kernel's files; nothing that it finds is an error, because having no limit is
 * normal. Must not know threads. */
#ifndef CONVOY_BASE_CGROUP_H
#define CONVOY_BASE_CGROUP_H

#include <stdint.h>

/* cgroup_cpus — returns the tightest CPU quota between this process's group and the root, in CPUs
 * rounded up, at least 1; 0: no quota. proc_file is "/proc/self/cgroup" and sys_root
 * "/sys/fs/cgroup", except in tests. */
int cgroup_cpus(const char *proc_file, const char *sys_root);
/* cgroup_quota — returns the same quota, not rounded: 0.5 is half of a CPU; 0: no quota. */
double cgroup_quota(const char *proc_file, const char *sys_root);
/* cgroup_stopped_us — returns the microseconds for which a quota has stopped these groups so far:
 * the most of any group on that path, added up over its CPUs; -1: the kernel does not count it. */
int64_t cgroup_stopped_us(const char *proc_file, const char *sys_root);
/* cgroup_memory_free — returns the bytes that the tightest memory limit on that path leaves, at
 * least 0; -1: no limit. File pages that can be dropped count as free. */
int64_t cgroup_memory_free(const char *proc_file, const char *sys_root);
/* cgroup_memory_limit — returns the tightest memory limit itself; -1: none. */
int64_t cgroup_memory_limit(const char *proc_file, const char *sys_root);

#endif
