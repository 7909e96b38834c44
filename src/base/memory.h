/* memory — small allocations that end the process if memory is missing; the machine's memory that
 * this process holds (read at most once a second) and may still allocate; and whether a refused
 * request can ever be met. Must not know the use of the memory. */
#ifndef CONVOY_BASE_MEMORY_H
#define CONVOY_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Small memory: settings, plans, lists, objects. If it is missing, the process writes one sentence
 * with the file and line of the call and ends with exit code 75: nothing that it could do instead
 * would work, either. The memory of models and of files, and sizes that a peer or a file states,
 * are allocated with malloc and checked by the caller. All of it is freed with free(). Any
 * thread. */

/* memory_new — returns n objects of `bytes` bytes each, zeroed. */
#define memory_new(n, bytes) memory_new_at(__FILE__, __LINE__, n, bytes)
/* memory_resize — returns data, which may be NULL, with room for n objects; new ones are not
 * zeroed. */
#define memory_resize(data, n, bytes) memory_resize_at(__FILE__, __LINE__, data, n, bytes)
/* memory_grow — returns data with room for more than n objects; *cap is its room in objects, which
 * is doubled if it is full. */
#define memory_grow(data, n, cap, bytes) memory_grow_at(__FILE__, __LINE__, data, n, cap, bytes)
/* memory_text — returns a copy of a text. */
#define memory_text(text) memory_text_at(__FILE__, __LINE__, text)
/* memory_new_at — does memory_new for a call at file:line. Use the macros instead of these four. */
void *memory_new_at(const char *file, int line, size_t n, size_t bytes)
    __attribute__((malloc, returns_nonnull));
/* memory_resize_at — does memory_resize for a call at file:line. */
void *memory_resize_at(const char *file, int line, void *data, size_t n, size_t bytes)
    __attribute__((returns_nonnull, warn_unused_result));
/* memory_grow_at — does memory_grow for a call at file:line. */
void *memory_grow_at(const char *file, int line, void *data, size_t n, size_t *cap, size_t bytes)
    __attribute__((warn_unused_result));
/* memory_text_at — does memory_text for a call at file:line. */
char *memory_text_at(const char *file, int line, const char *text)
    __attribute__((malloc, returns_nonnull));

/* Ends the process for n objects of `bytes` bytes each that were refused at file:line. */
_Noreturn void memory_end(const char *file, int line, size_t n, size_t bytes);

struct memory {
    int64_t read_ms; /* now_ms of the last read */
    int64_t bytes;
};

int64_t memory_resident(struct memory *memory, int64_t now_ms); /* bytes; -1: unknown (no /proc) */

/* The memory that this process and its children may allocate. -1: unknown, or no limit. */
struct memory_limits {
    /* bytes that are free now, without swapping or being killed: machine and control groups */
    int64_t free_bytes;
    /* most bytes, if nothing else runs: the machine, or the tightest control group */
    int64_t total_bytes;
    int64_t process_bytes; /* one process: bytes that RLIMIT_AS and RLIMIT_DATA leave */
    bool is_group;         /* total_bytes is the limit of a control group */
};
/* memory_limits — reads the limits of this process. */
void memory_limits(struct memory_limits *out);
/* memory_limits_in — for tests: reads them from other files than /proc/meminfo, /proc/self/cgroup
 * and /sys/fs/cgroup. */
void memory_limits_in(const char *meminfo, const char *proc_cgroup, const char *sys_cgroup,
                      struct memory_limits *out);
int64_t memory_free(void); /* memory_limits's free_bytes */

/* memory_status — returns the status for a refused request of `bytes` bytes. ST_BAD_SETTING: it can
 * never be met here, because it exceeds the machine, a control group's limit or this process's.
 * ST_RETRY: it may be met later. */
enum status memory_status(int64_t bytes);

/* memory_row — returns the bytes of a row such as "MemAvailable: 12 kB" in a text like
 * /proc/meminfo; -1: there is no such row. Pure. Called here, and for tests. */
int64_t memory_row(const char *meminfo, const char *name);

#endif
