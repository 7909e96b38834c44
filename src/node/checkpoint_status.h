/* checkpoint_status — `convoy status DIR`: what a folder of checkpoints shows of its run, whether
 * that run still trains or not.
 *
 * Reads manifests, sizes and headers, not all the data, and takes no lock, so it does not disturb a
 * run. Must not know HTTP. */
#ifndef CONVOY_NODE_CHECKPOINT_STATUS_H
#define CONVOY_NODE_CHECKPOINT_STATUS_H

#include <stdbool.h>

#include "base/status.h"

/* checkpoint_status_main — print a report or JSON on stdout. dir: CHECKPOINT_DIR, or one checkpoint
 * in it. ST_UNHEALTHY: there is no valid checkpoint, one is damaged, or the history of the run
 * ends with a failure. */
enum status checkpoint_status_main(const char *dir, bool as_json);

#endif
