/* checkpoint_aside — RESUME=never: moves what earlier runs left in a folder of checkpoints to
 * DIR/before-<number>/, so that two runs never mix. It must not know what is in the files. */
#ifndef CONVOY_TRAIN_CHECKPOINT_ASIDE_H
#define CONVOY_TRAIN_CHECKPOINT_ASIDE_H

#include "base/status.h"

/* checkpoint_aside — checkpoints, and the ledger of their samples; the caller holds the lock of the
 * folder. ST_STORE: something stayed. */
enum status checkpoint_aside(const char *dir);

#endif
