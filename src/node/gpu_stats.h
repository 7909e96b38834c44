/* gpu_stats — a thread of the worker that puts the numbers of its GPU on the board, once a second:
 * also while the worker itself hangs in the driver, which is when they are looked at. Must not know
 * what is computed. */
#ifndef CONVOY_NODE_GPU_STATS_H
#define CONVOY_NODE_GPU_STATS_H

#include "base/board.h"

struct gpu_stats;

/* gpu_stats_open — bus: the GPU's PCI address. Without NVML there is no stats (*out NULL), which is
 * said in the log; is_logger: for the workers of a node one says it. every_ms: between two
 * posts. */
enum status gpu_stats_open(struct board *board, int worker_i, const char *bus, bool is_logger,
                           int every_ms, struct gpu_stats **out);
/* gpu_stats_close — accepts NULL. A reading that a GPU in trouble does not end is waited for 2 s,
 * then left to itself; the board is not touched any more. */
void gpu_stats_close(struct gpu_stats *stats);

#endif
