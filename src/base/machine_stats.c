/* machine_stats — see machine_stats.h. A file that is missing or has another form leaves its
 * numbers unknown: a sandbox may hide files of /proc. */
#include "base/machine_stats.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

#define SECTOR_BYTES 512 /* sectors of /proc/diskstats, whatever the device's own size is */
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

/* Parses numbers between blanks, at most `cap`, up to the first word that is not a number. Returns
 * how many there are. Changes text. */
static int parse_numbers(char *text, int64_t *out, int cap)
{
    int n = 0;
    char *rest = text, *word;
    while (n < cap && (word = strsep(&rest, " \t\n")) != NULL) {
        if (word[0] == 0)
            continue;
        if (text_parse_i64(word, 0, INT64_MAX, &out[n]) != TEXT_OK)
            break;
        n++;
    }
    return n;
}

/* Reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. Time
 * of virtual machines is included in user and nice. */
static void read_cpu(const char *proc, struct machine_counters *out)
{
    char line[LINE_BYTES];
    int64_t ticks[8] = {0};
    FILE *file = open_under(proc, "stat");
    if (file == NULL)
        return;
    const bool has_line = fgets(line, sizeof line, file) != NULL && text_starts(line, "cpu ");
    fclose(file);
    if (!has_line || parse_numbers(line + strlen("cpu "), ticks, 8) < 4)
        return;
    for (int i = 0; i < 8; i++)
        out->cpu_total += (uint64_t)ticks[i];
    out->cpu_busy = out->cpu_total - (uint64_t)ticks[3] - (uint64_t)ticks[4];
    out->seen |= SEEN_CPU;
}

static void read_memory(const char *proc, struct machine_stats *out)
{
    char line[LINE_BYTES];
    int64_t total_kib = -1, free_kib = -1;
    FILE *file = open_under(proc, "meminfo");
    while (file != NULL && (total_kib < 0 || free_kib < 0) && fgets(line, sizeof line, file)) {
        if (text_starts(line, "MemTotal:"))
            parse_numbers(line + strlen("MemTotal:"), &total_kib, 1);
        else if (text_starts(line, "MemAvailable:"))
            parse_numbers(line + strlen("MemAvailable:"), &free_kib, 1);
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
    char line[LINE_BYTES];
    int64_t numbers[7];
    FILE *file = open_under(proc, "diskstats");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file)) {
        char *name = line;
        for (int i = 0; i < 2; i++) {
            name += strspn(name, " ");
            name += strcspn(name, " ");
        }
        name += strspn(name, " ");
        const size_t name_n = strcspn(name, " ");
        if (name[name_n] == 0 || parse_numbers(name + name_n + 1, numbers, 7) < 7)
            continue;
        name[name_n] = 0;
        if (!has_device(sys, "block", name))
            continue;
        out->disk_read += (uint64_t)numbers[2] * SECTOR_BYTES;
        out->disk_written += (uint64_t)numbers[6] * SECTOR_BYTES;
        out->seen |= SEEN_DISK;
    }
    fclose(file);
}

/* Adds up the lines of /proc/net/dev: "  eth0: bytes packets errs drop fifo frame compressed
 * multicast bytes …". */
static void read_net(const char *proc, const char *sys, struct machine_counters *out)
{
    char line[LINE_BYTES];
    int64_t numbers[9];
    uint64_t all_received = 0, all_sent = 0;
    bool has_any = false, has_hardware = false;
    FILE *file = open_under(proc, "net/dev");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file)) {
        const char *name = line + strspn(line, " ");
        char *colon = strchr(line, ':');
        if (colon == NULL || parse_numbers(colon + 1, numbers, 9) < 9)
            continue;
        *colon = 0;
        if (strcmp(name, "lo") == 0)
            continue;
        has_any = true;
        all_received += (uint64_t)numbers[0];
        all_sent += (uint64_t)numbers[8];
        if (!has_device(sys, "class/net", name))
            continue;
        has_hardware = true;
        out->net_received += (uint64_t)numbers[0];
        out->net_sent += (uint64_t)numbers[8];
    }
    fclose(file);
    if (!has_hardware) {
        out->net_received = all_received;
        out->net_sent = all_sent;
    }
    if (has_any)
        out->seen |= SEEN_NET;
}

/* Returns the bytes per second; NAN if the counter went back, as it does when a device is
 * removed. */
static double compute_rate(uint64_t before, uint64_t now, int64_t ms)
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
        out->disk_read = compute_rate(last->disk_read, now.disk_read, ms);
        out->disk_written = compute_rate(last->disk_written, now.disk_written, ms);
    }
    if ((both & SEEN_NET) != 0) {
        out->net_received = compute_rate(last->net_received, now.net_received, ms);
        out->net_sent = compute_rate(last->net_sent, now.net_sent, ms);
    }
    *last = now;
}
