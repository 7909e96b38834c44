/* machine_stats — the load of the machine of a node: processors, memory, disks, network. The
 * numbers come from the kernel's counters in /proc, so they describe the whole machine, also in a
 * container; only the network is the container's own.
 *
 * - Disks are devices with hardware (or a hypervisor) under them: partitions, RAID and encryption
 *   over them are not counted again. File systems over the network count as network.
 * - Network is every interface with a device under it; without any, every interface but lo. RDMA
 *   bypasses the kernel and is not counted.
 *
 * An unknown number is NAN, or -1 for whole numbers. Reading the files costs less than a
 * millisecond and never waits for a device. It must not know HTTP or pages. */
#ifndef CONVOY_BASE_MACHINE_STATS_H
#define CONVOY_BASE_MACHINE_STATS_H

#include <stdint.h>

#include "base/rank_stats.h"

struct machine_stats {
#define MACHINE_STAT(field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
};

/* The kernel's counters at one moment; all zero: not read yet. */
struct machine_counters {
    int64_t at_ms; /* clock_ms */
    uint64_t cpu_busy, cpu_total, disk_read, disk_written, net_received, net_sent;
    uint32_t seen; /* bits of the counters that could be read */
};

/* Returns statistics in which every number is unknown. */
struct machine_stats machine_stats_unknown(void);
/* Reads the counters under proc and sys ("/proc" and "/sys", except in tests) and writes to out the
 * changes since `last`, which then holds the new counters. Rates are available from the second call
 * on. */
void machine_stats_read(struct machine_counters *last, const char *proc, const char *sys,
                        int64_t now_ms, struct machine_stats *out);

#endif
