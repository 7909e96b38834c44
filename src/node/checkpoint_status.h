/* checkpoint_status — `convoy status DIR`: what a folder of checkpoints tells about its run,
 * whether that still trains or not.
 *
 * Reads manifests, sizes and headers, not the content of every file, and holds no lock: it disturbs
 * no run. Must not know HTTP. */
#ifndef CONVOY_NODE_CHECKPOINT_STATUS_H
#define CONVOY_NODE_CHECKPOINT_STATUS_H

#include <stdbool.h>

#include "base/status.h"

/* checkpoint_status_main — dir: CHECKPOINT_DIR, or one checkpoint in it; its report, or JSON, on
 * stdout. ST_UNHEALTHY: no valid checkpoint, or one that is damaged. */
enum status checkpoint_status_main(const char *dir, bool as_json);

#endif
