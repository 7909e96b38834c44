/* config_diff — does a checkpoint fit the run that finds it? Compares the two JSON objects of its
 * manifest, key by key. Pure.
 *
 * model: the dimensions (load_dims_json); all but the name must config_diff. settings: those that
 * shape the sequence of losses, by their names, {"SEED":1,"GLOBAL_BATCH":8,"OPTIMIZER":"adamw",…},
 * and "moments", how many state arrays the optimiser keeps: told when they differ, but the
 * optimiser's must config_diff. Must not know files. */
#ifndef CONVOY_BASE_CONFIG_DIFF_H
#define CONVOY_BASE_CONFIG_DIFF_H

#include <stdbool.h>

#include "base/text.h"

/* config_diff_add — add "KEY there 8, here 4" to *out for every key that `which` names and whose
 * values differ, or that is on one side only. Returns how many. Text that is no JSON object counts
 * as an empty object. */
int config_diff_add(const char *there, const char *here, bool (*which)(const char *key),
                    struct text *out);
bool config_diff_is_shape(const char *key); /* all of a model object but its name */
bool config_diff_is_state(const char *key); /* settings that decide which moments there are */
bool config_diff_is_any(const char *key);

#endif
