/* nvml — what NVIDIA's management library says of one GPU: load, memory, heat, power, clocks,
 * errors. Opened when it is first needed; where it is missing there are no such numbers, and
 * nothing else.
 *
 * A GPU is named by its PCI address, for the library counts GPUs in another order than CUDA does.
 * Must not know who computes there. */
#ifndef CONVOY_DEV_NVML_H
#define CONVOY_DEV_NVML_H

#include <stdint.h>

#include "base/rank_stats.h"
#include "base/status.h"

/* A number that this GPU or its driver does not tell is NAN, or -1. */
struct nvml_reading {
#define GPU_STAT(field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
};

struct nvml;
/* nvml_open — bus: as dev_info gives it. ST_NO_DEVICE: the library is missing, or does not know
 * that GPU: why. */
enum status nvml_open(const char *bus, struct nvml **out);
void nvml_close(struct nvml *n); /* accepts NULL */
/* nvml_read — takes a millisecond or so, and may take longer on a GPU in trouble: not in the thread
 * that trains. */
void nvml_read(struct nvml *n, struct nvml_reading *out);

#endif
