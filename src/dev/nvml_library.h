/* nvml_library — where NVML is found, for its two users: the numbers of a worker's GPU (nvml.h) and
 * the health of all GPUs (nvml_health.h), which need other symbols of it. Must not know what these
 * do. */
#ifndef CONVOY_DEV_NVML_LIBRARY_H
#define CONVOY_DEV_NVML_LIBRARY_H

#include "dev/library.h"

/* nvml_library_open — as library_open; closed by library_close. */
enum status nvml_library_open(const struct library_symbol *symbols, size_t symbols_n,
                              struct library *out, void *table);

#endif
