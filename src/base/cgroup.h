/* cgroup — what a container manager lets this process use of the machine: CPU quota and memory of
 * control groups v2 and v1.
 *
 * Reads the kernel's files only; nothing it finds is an error (no quota is the normal case). Must
 * not know threads. */
#ifndef CONVOY_BASE_CGROUP_H
#define CONVOY_BASE_CGROUP_H

#include <stdint.h>

/* cgroup_cpus — the tightest CPU quota on the way from this process's group to the root, in CPUs
 * rounded up, at least 1; 0: no quota. proc_file is "/proc/self/cgroup", sys_root "/sys/fs/cgroup";
 * tests give their own. */
int cgroup_cpus(const char *proc_file, const char *sys_root);
/* cgroup_memory_free — bytes left of the tightest memory limit on that way, pages of files that can
 * be dropped counted as left; 0 at least; -1: no limit. */
int64_t cgroup_memory_free(const char *proc_file, const char *sys_root);
/* cgroup_memory_limit — the tightest memory limit itself; -1: none. */
int64_t cgroup_memory_limit(const char *proc_file, const char *sys_root);

#endif
