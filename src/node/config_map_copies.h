/* config_map_copies — PEER_COPIES (train/peer_copy.h). Must not know how copies are made. */
#ifndef CONVOY_NODE_CONFIG_MAP_COPIES_H
#define CONVOY_NODE_CONFIG_MAP_COPIES_H

#include "conf/conf.h"
#include "train/trainer.h"

/* config_map_copies — sets the mode, and no memory yet; the step is set. ST_BAD_SETTING:
 * PEER_COPIES=1 where copies cannot be.
 * config_map_copies_memory — does each worker of a node get memory for them, which outlives it
 * (BOARD_PEER_COPY_FD)? */
enum status config_map_copies(const struct conf *conf, struct trainer_config *out);
bool config_map_copies_memory(const struct conf *conf);

#endif
