/* gpu_sensors — reads the numbers of one GPU while it computes: load, memory, temperature, power,
 * clocks and errors. They come from NVIDIA's management library (nvml.h) or from the files of AMD's
 * driver (amd_sysfs.h). Must not know streams or training. */
#ifndef CONVOY_DEV_GPU_SENSORS_H
#define CONVOY_DEV_GPU_SENSORS_H

#include "base/file.h"
#include "base/rank_stats.h"
#include "base/status.h"

struct gpu_sensors {
    struct nvml *nvml; /* NULL: not open, or an AMD GPU */
    char root[FILE_PATH_MAX], bus[24];
};

/* gpu_sensors_open — opens the sensors of a GPU. bus: as in dev_info. amd_root: the folder that
 * contains the sys/ of an AMD GPU, "" except in tests; NULL: an NVIDIA GPU. ST_NO_DEVICE: NVML is
 * missing, or it or /sys does not have that GPU. */
enum status gpu_sensors_open(const char *bus, const char *amd_root, struct gpu_sensors *out);
/* gpu_sensors_read — reads all numbers. Needs about a millisecond, and may block longer when a GPU
 * is in trouble: do not call it in the thread that trains. */
void gpu_sensors_read(const struct gpu_sensors *sensors, struct gpu_reading *out);
void gpu_sensors_close(struct gpu_sensors *sensors); /* also if opening has failed */

#endif
