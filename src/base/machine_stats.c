/* machine_stats — see machine_stats.h. A file that is missing or has another form leaves its
 * numbers unknown: a sandbox may hide parts of /proc. */
#include "base/machine_stats.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

#define SECTOR_BYTES 512 /* of /proc/diskstats, whatever the device's own is */
#define LINE_BYTES 1024

/* Bits of machine_counters.seen. */
enum { SEEN_CPU = 1, SEEN_DISK = 2, SEEN_NET = 4 };

static FILE *open_under(const char *root, const char *name)
{
    char path[FILE_PATH_MAX];
    return text_format(path, sizeof path, "%s/%s", root, name) ? fopen(path, "re") : NULL;
}

/* Returns true if the kernel lists a device under this disk or interface. */
static bool has_device(const char *sys, const char *class, const char *name)
{
    char path[FILE_PATH_MAX];
    return strchr(name, '/') == NULL &&
           text_format(path, sizeof path, "%s/%s/%s/device", sys, class, name) &&
           access(path, F_OK) == 0;
}

/* Reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. Time
 * of guests is part of user and nice. */
static void read_cpu(const char *proc, struct machine_counters *out)
{
    uint64_t v[8] = {0};
    FILE *file = open_under(proc, "stat");
    if (file == NULL)
        return;
    const int n = fscanf(file,
                         "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                         " %" SCNu64 " %" SCNu64,
                         &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]);
    fclose(file);
    if (n < 4)
        return;
    for (int i = 0; i < 8; i++)
        out->cpu_total += v[i];
    out->cpu_busy = out->cpu_total - v[3] - v[4];
    out->seen |= SEEN_CPU;
}

static void read_memory(const char *proc, struct machine_stats *out)
{
    char line[LINE_BYTES];
    int64_t total_kib = -1, free_kib = -1;
    FILE *file = open_under(proc, "meminfo");
    while (file != NULL && (total_kib < 0 || free_kib < 0) && fgets(line, sizeof line, file)) {
        (void)!sscanf(line, "MemTotal: %" SCNd64, &total_kib);
        (void)!sscanf(line, "MemAvailable: %" SCNd64, &free_kib);
    }
    if (file != NULL)
        fclose(file);
    if (total_kib <= 0 || total_kib > INT64_MAX / 1024)
        return;
    out->memory_total = total_kib * 1024;
    if (free_kib >= 0 && free_kib <= total_kib)
        out->memory_used = (total_kib - free_kib) * 1024;
}

/* Adds up the lines of /proc/diskstats: major, minor, name, reads, merged, sectors read, ms,
 * writes, merged, sectors written. */
static void read_disks(const char *proc, const char *sys, struct machine_counters *out)
{
    char line[LINE_BYTES], name[64];
    uint64_t read, written;
    FILE *file = open_under(proc, "diskstats");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*u %*u %63s %*u %*u %" SCNu64 " %*u %*u %*u %" SCNu64, name, &read,
                   &written) != 3 ||
            !has_device(sys, "block", name))
            continue;
        out->disk_read += read * SECTOR_BYTES;
        out->disk_written += written * SECTOR_BYTES;
        out->seen |= SEEN_DISK;
    }
    fclose(file);
}

/* Adds up the lines of /proc/net/dev: "  eth0: bytes packets errs drop fifo frame compressed
 * multicast bytes …". */
static void read_net(const char *proc, const char *sys, struct machine_counters *out)
{
    char line[LINE_BYTES], name[64];
    uint64_t received, sent, all_received = 0, all_sent = 0;
    bool has_any = false, has_hardware = false;
    FILE *file = open_under(proc, "net/dev");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, " %63[^: ]: %" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, name,
                   &received, &sent) != 3 ||
            strcmp(name, "lo") == 0)
            continue;
        has_any = true;
        all_received += received;
        all_sent += sent;
        if (!has_device(sys, "class/net", name))
            continue;
        has_hardware = true;
        out->net_received += received;
        out->net_sent += sent;
    }
    fclose(file);
    if (!has_hardware) {
        out->net_received = all_received;
        out->net_sent = all_sent;
    }
    if (has_any)
        out->seen |= SEEN_NET;
}

/* Returns the bytes a second; NAN if the counter went back, as it does when a device is removed. */
static double rate(uint64_t before, uint64_t now, int64_t ms)
{
    return now >= before && ms > 0 ? (double)(now - before) * 1000 / (double)ms : NAN;
}

struct machine_stats machine_stats_unknown(void)
{
    return (struct machine_stats){
#define MACHINE_STAT(field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#include "base/rank_stats.def"
    };
}

void machine_stats_read(struct machine_counters *last, const char *proc, const char *sys,
                        int64_t now_ms, struct machine_stats *out)
{
    struct machine_counters now = {.at_ms = now_ms};
    *out = machine_stats_unknown();
    read_cpu(proc, &now);
    read_memory(proc, out);
    read_disks(proc, sys, &now);
    read_net(proc, sys, &now);
    const uint32_t both = last->seen & now.seen;
    const int64_t ms = now.at_ms - last->at_ms;
    if ((both & SEEN_CPU) != 0 && now.cpu_total > last->cpu_total && now.cpu_busy >= last->cpu_busy)
        out->cpu_busy = fmin(1, (double)(now.cpu_busy - last->cpu_busy) /
                                    (double)(now.cpu_total - last->cpu_total));
    if ((both & SEEN_DISK) != 0) {
        out->disk_read = rate(last->disk_read, now.disk_read, ms);
        out->disk_written = rate(last->disk_written, now.disk_written, ms);
    }
    if ((both & SEEN_NET) != 0) {
        out->net_received = rate(last->net_received, now.net_received, ms);
        out->net_sent = rate(last->net_sent, now.net_sent, ms);
    }
    *last = now;
}
