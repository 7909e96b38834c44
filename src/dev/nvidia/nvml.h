/* nvml — reads one GPU's load, memory, temperature, power, clocks and errors from NVIDIA's
 * management library. The library is loaded at nvml_open; without it there are no such numbers.
 *
 * A GPU is identified by its PCI address, because NVML and CUDA number GPUs differently. Must not
 * know streams or training. */
#ifndef CONVOY_DEV_NVML_H
#define CONVOY_DEV_NVML_H

#include <stdint.h>

#include "base/rank_stats.h"
#include "base/status.h"
#include "dev/nvidia/library.h"

struct nvml;
/* nvml_open — opens a GPU. bus: as in dev_info. ST_NO_DEVICE: the library is missing, or does not
 * have that GPU. */
enum status nvml_open(const char *bus, struct nvml **out);
void nvml_close(struct nvml *n); /* accepts NULL */
/* nvml_read — needs about a millisecond, and may block longer when a GPU is in trouble: do not call
 * it in the thread that trains. */
void nvml_read(struct nvml *n, struct gpu_reading *out);

/* nvml_library_open — loads NVML with a list of other symbols (nvml_health.c); closed by
 * library_close. */
enum status nvml_library_open(const struct library_symbol *symbols, size_t symbols_n,
                              struct library *out, void *table);

#endif
