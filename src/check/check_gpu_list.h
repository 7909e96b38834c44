/* check_gpu_list — the GPUs of a node as NVIDIA's library reports them, read with a time limit: on
 * a GPU in trouble the driver may never answer.
 *
 * With a root, the library, which only knows the machine, is replaced by the file "/nvml.txt" below
 * it. It has a line `key value` for each field of struct nvml_health_gpu; before the first line
 * `gpu ADDRESS` they are of all GPUs, after it of that one. A `gpu` line may come again. Further
 * keys: `driver VERSION`, `error TEXT` (NVML gave no handle), `refused TEXT` (NVML does not start),
 * `hangs`. Must not know which value is good. */
#ifndef CONVOY_CHECK_CHECK_GPU_LIST_H
#define CONVOY_CHECK_CHECK_GPU_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/nvml_health.h"

/* check_gpu_list_read — ST_NO_DEVICE: there is no such library, or it does not start. ST_PEER: no
 * answer within limit_ms; the thread that asked is left behind. */
enum status check_gpu_list_read(const char *root, int64_t limit_ms, struct nvml_health *out);

#endif
