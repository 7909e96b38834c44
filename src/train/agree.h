/* agree — does a checkpoint fit the run that finds it? Compares the two JSON objects of its
 * manifest, key by key. Pure.
 *
 * model: the dimensions (load_dims_json); all but the name must agree. settings: those that shape
 * the sequence of losses, by their names, {"SEED":1,"GLOBAL_BATCH":8,"OPTIMIZER":"adamw",…}, and
 * "moments", how many state arrays the optimiser keeps: told when they differ, but the optimiser's
 * must agree. Must not know files. */
#ifndef CONVOY_TRAIN_AGREE_H
#define CONVOY_TRAIN_AGREE_H

#include <stdbool.h>

#include "base/text.h"

/* agree_differences — add "KEY there 8, here 4" to *out for every key that `which` names and whose
 * values differ, or that is on one side only. Returns how many. Text that is no JSON object counts
 * as an empty object. */
int agree_differences(const char *there, const char *here, bool (*which)(const char *key),
                      struct text *out);
bool agree_is_shape(const char *key); /* all of a model object but its name */
bool agree_is_state(const char *key); /* settings that decide which moments there are */
bool agree_is_any(const char *key);

#endif
