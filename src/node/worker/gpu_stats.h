/* gpu_stats — a thread of the worker that publishes the numbers of its GPU, once a second. It still
 * does so while the worker hangs in the driver, which is when they are needed. Must not know what
 * is computed. */
#ifndef CONVOY_NODE_GPU_STATS_H
#define CONVOY_NODE_GPU_STATS_H

#include "base/board.h"

struct gpu_stats;

/* gpu_stats_open — bus: the GPU's PCI address. every_ms: the time between two readings. Without
 * NVML there are no numbers: ST_OK, *out is NULL, and the worker with is_logger logs it. */
enum status gpu_stats_open(struct board *board, int worker_i, const char *bus, bool is_logger,
                           int every_ms, struct gpu_stats **out);
/* gpu_stats_close — waits 2 s at most for a reading under way: on a GPU in trouble it may never
 * end. Then the thread is left behind and no longer touches the board. Accepts NULL. */
void gpu_stats_close(struct gpu_stats *stats);

#endif
