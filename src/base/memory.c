/* memory — see memory.h. */
#include "base/memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/log.h"
#include "base/text.h"

#define READ_EVERY_MS 1000

/* Uses _exit, because exit handlers would need memory, too. */
_Noreturn void memory_end(const char *file, int line, size_t n, size_t bytes)
{
    LOG_ERROR("out of memory: %zu x %zu bytes at %s:%d; free memory on this machine, or give the "
              "job one with more",
              n, bytes, file, line);
    _exit(status_exit_code(ST_RETRY));
}

void *memory_new_at(const char *file, int line, size_t n, size_t bytes)
{
    void *data = calloc(n ? n : 1, bytes ? bytes : 1);
    if (!data)
        memory_end(file, line, n, bytes);
    return data;
}

void *memory_resize_at(const char *file, int line, void *data, size_t n, size_t bytes)
{
    void *more = reallocarray(data, n ? n : 1, bytes ? bytes : 1);
    if (!more)
        memory_end(file, line, n, bytes);
    return more;
}

void *memory_grow_at(const char *file, int line, void *data, size_t n, size_t *cap, size_t bytes)
{
    if (n < *cap)
        return data;
    *cap = 2 * n + 4;
    return memory_resize_at(file, line, data, *cap, bytes);
}

char *memory_text_at(const char *file, int line, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        memory_end(file, line, 1, strlen(text) + 1);
    return copy;
}

static bool read_text(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, cap - 1) : -1;
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* read_resident — returns the second number of /proc/self/statm, in pages. */
static int64_t read_resident(void)
{
    char text[128], *save = NULL;
    int64_t pages;
    if (!read_text("/proc/self/statm", text, sizeof text))
        return -1;
    strtok_r(text, " ", &save);
    const char *word = strtok_r(NULL, " ", &save);
    if (!word || text_parse_i64(word, 0, INT64_MAX / 65536, &pages) != TEXT_OK)
        return -1;
    return pages * sysconf(_SC_PAGESIZE);
}

int64_t memory_resident(struct memory *memory, int64_t now_ms)
{
    if (!memory->read_ms || now_ms - memory->read_ms >= READ_EVERY_MS) {
        memory->bytes = read_resident();
        memory->read_ms = now_ms;
    }
    return memory->bytes;
}

int64_t memory_row(const char *meminfo, const char *name)
{
    const char *at = strstr(meminfo, name);
    char digits[32];
    int64_t kib;
    if (!at || at[strlen(name)] != ':')
        return -1;
    at += strlen(name) + 1;
    at += strspn(at, " \t");
    size_t n = strspn(at, "0123456789");
    if (!text_format(digits, sizeof digits, "%.*s", (int)(n < sizeof digits ? n : 0), at) ||
        text_parse_i64(digits, 0, INT64_MAX / 1024, &kib) != TEXT_OK)
        return -1;
    return kib * 1024;
}

static int64_t tighter(int64_t a, int64_t b) { return a < 0 ? b : b < 0 || a < b ? a : b; }

/* left_of — returns the bytes that a limit of this process leaves. field: the number in
 * /proc/self/statm, in pages, that counts towards the limit. */
static int64_t left_of(int resource, int field)
{
    struct rlimit limit;
    char text[128], *save = NULL;
    int64_t pages = 0;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT64_MAX)
        return -1;
    read_text("/proc/self/statm", text, sizeof text);
    const char *word = strtok_r(text, " ", &save);
    for (int i = 0; word && i < field; i++)
        word = strtok_r(NULL, " ", &save);
    if (!word || text_parse_i64(word, 0, INT64_MAX / 65536, &pages) != TEXT_OK)
        pages = 0;
    int64_t left = (int64_t)limit.rlim_cur - pages * sysconf(_SC_PAGESIZE);
    return left > 0 ? left : 0;
}

void memory_limits_in(const char *meminfo, const char *proc_cgroup, const char *sys_cgroup,
                      struct memory_limits *out)
{
    enum { SIZE_FIELD = 0, DATA_FIELD = 5 };
    char text[4096];
    int64_t limit = cgroup_memory_limit(proc_cgroup, sys_cgroup);
    read_text(meminfo, text, sizeof text);
    int64_t total = memory_row(text, "MemTotal");
    *out = (struct memory_limits){
        .free_bytes =
            tighter(memory_row(text, "MemAvailable"), cgroup_memory_free(proc_cgroup, sys_cgroup)),
        .total_bytes = tighter(total, limit),
        .process_bytes = tighter(left_of(RLIMIT_AS, SIZE_FIELD), left_of(RLIMIT_DATA, DATA_FIELD)),
        .is_group = limit >= 0 && (total < 0 || limit < total),
    };
}

void memory_limits(struct memory_limits *out)
{
    memory_limits_in("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup", out);
}

int64_t memory_free(void)
{
    struct memory_limits available;
    memory_limits(&available);
    return available.free_bytes;
}

enum status memory_status(int64_t bytes)
{
    struct memory_limits available;
    memory_limits(&available);
    bool is_over = (available.total_bytes >= 0 && bytes > available.total_bytes) ||
                   (available.process_bytes >= 0 && bytes > available.process_bytes);
    return is_over ? ST_BAD_SETTING : ST_RETRY;
}
