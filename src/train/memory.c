/* memory — see memory.h. */
#include "train/memory.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/text.h"

#define READ_EVERY_MS 1000

/* read_resident — the second number of /proc/self/statm, in pages. */
static int64_t read_resident(void)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return -1;
    text[n] = 0;
    char *save = NULL;
    strtok_r(text, " ", &save);
    const char *word = strtok_r(NULL, " ", &save);
    int64_t pages;
    if (!word || text_i64(word, 0, INT64_MAX / 65536, &pages) != TEXT_OK)
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

int64_t memory_available(const char *meminfo)
{
    static const char key[] = "MemAvailable:";
    const char *at = strstr(meminfo, key);
    char digits[32];
    int64_t kib;
    if (!at)
        return -1;
    at += strlen(key);
    at += strspn(at, " \t");
    size_t n = strspn(at, "0123456789");
    if (!text_format(digits, sizeof digits, "%.*s", (int)(n < sizeof digits ? n : 0), at) ||
        text_i64(digits, 0, INT64_MAX / 1024, &kib) != TEXT_OK)
        return -1;
    return kib * 1024;
}

int64_t memory_free(void)
{
    char text[4096];
    int64_t machine = -1, group = cgroup_memory_free("/proc/self/cgroup", "/sys/fs/cgroup");
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (n >= 0) {
        text[n] = 0;
        machine = memory_available(text);
    }
    if (fd >= 0)
        close(fd);
    return machine < 0 || (group >= 0 && group < machine) ? group : machine;
}
