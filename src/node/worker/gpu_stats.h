/* gpu_stats — a thread of the worker that publishes the numbers of its GPU once a second. It goes
 * on while the worker hangs in the driver, which is when they are needed. Must not know the
 * computation. */
#ifndef CONVOY_NODE_GPU_STATS_H
#define CONVOY_NODE_GPU_STATS_H

#include "base/board.h"

struct gpu_stats;

/* gpu_stats_open — starts the thread. bus, amd_root: as in gpu_sensors_open. every_ms: the time
 * between two readings. If gpu_sensors_open finds no device there are no numbers: returns ST_OK,
 * *out is NULL, and the worker with is_logger logs it. */
enum status gpu_stats_open(struct board *board, int worker_i, const char *bus, const char *amd_root,
                           bool is_logger, int every_ms, struct gpu_stats **out);
/* gpu_stats_close — ends the thread. Waits at most 2 s for a reading in progress, which may never
 * end on a GPU in trouble. After that the thread is abandoned; it no longer touches the board.
 * Accepts NULL. */
void gpu_stats_close(struct gpu_stats *stats);

#endif
