/* config_map_batch — the settings of a step's samples as a step takes them. */
#ifndef CONVOY_NODE_CONFIG_MAP_BATCH_H
#define CONVOY_NODE_CONFIG_MAP_BATCH_H

#include "conf/conf.h"
#include "train/step.h"

/* config_map_batch — batch_samples, global_samples, their warm-up, and what attention masks.
 * out->dims and out->seq_tokens are known. Fails with ST_BAD_SETTING for values that do not go
 * together. */
enum status config_map_batch(const struct conf *conf, struct step_config *out);

#endif
