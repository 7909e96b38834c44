/* gauge — a thread of the worker that puts the numbers of its GPU on the board, once a second: also
 * while the worker itself hangs in the driver, which is when they are looked at. Must not know what
 * is computed. */
#ifndef CONVOY_NODE_GAUGE_H
#define CONVOY_NODE_GAUGE_H

#include "base/board.h"

struct gauge;

/* gauge_open — bus: the GPU's PCI address. Without NVML there is no gauge (*out NULL), which is
 * said in the log; speaks: for the workers of a node one says it. every_ms: between two posts. */
enum status gauge_open(struct board *board, int worker_i, const char *bus, bool speaks,
                       int every_ms, struct gauge **out);
/* gauge_close — accepts NULL. A reading that a GPU in trouble does not end is waited for 2 s, then
 * left to itself; the board is not touched any more. */
void gauge_close(struct gauge *gauge);

#endif
