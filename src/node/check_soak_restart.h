/* check_soak_restart — a checkpoint is written, the process that writes the next one is killed, and
 * the run is restored: point "checkpoint and restart" of a check. Must not know other stages. */
#ifndef CONVOY_NODE_CHECK_SOAK_RESTART_H
#define CONVOY_NODE_CHECK_SOAK_RESTART_H

#include "check/check.h"
#include "model/model.h"

/* check_soak_restart — for one rank; adds one row. A process that it forks trains a model on a CPU,
 * saves after two steps, trains a third, and kills itself while it saves again. This process finds
 * the checkpoint, restores it, compares all bits with what the other process had, and trains the
 * third step to the same weights. In a folder of its own below check->dir, which is removed.
 * SKIPPED without a folder. */
enum status check_soak_restart(const struct check_config *check, const struct model_dims *dims,
                               struct check_rows *rows);

#endif
