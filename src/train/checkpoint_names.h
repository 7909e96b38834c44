/* checkpoint_names — what the parts of a checkpoint are called. Must not know how they are written
 * or read. */
#ifndef CONVOY_TRAIN_CHECKPOINT_NAMES_H
#define CONVOY_TRAIN_CHECKPOINT_NAMES_H

#include "train/step_local.h"

#define CHECKPOINT_NAMES_BYTES 32

/* The parameters, and the moments of an optimiser. */
extern const char *const checkpoint_names[STEP_PARTS_MAX];

/* checkpoint_names_replica — of a part of a replica's own state. Those of replica 0 have the names
 * of a run without replicas. checkpoint_names_part — of any part of the state. */
void checkpoint_names_replica(int replica, int part, char out[CHECKPOINT_NAMES_BYTES]);
void checkpoint_names_part(const struct step *step, int part, char out[CHECKPOINT_NAMES_BYTES]);

#endif
