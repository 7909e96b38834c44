/* config_map — from settings to the structs of the modules below: the only file that knows both.
 * Settings that can be checked only with the model's dimensions are checked here. Must not know
 * what is in files beyond a model's dimensions. */
#ifndef CONVOY_NODE_CONFIG_MAP_H
#define CONVOY_NODE_CONFIG_MAP_H

#include "base/board.h"
#include "base/text.h"
#include "comm/core/comm.h"
#include "conf/conf.h"
#include "data/feed.h"
#include "model/model.h"
#include "train/trainer/trainer.h"

/* config_map_dims — the dimensions of MODEL (a preset, a Hugging Face folder, a model file of llm.c
 * or a checkpoint) with LAYERS, HEADS, EMBED, CONTEXT, VOCAB and TASK. *has_weights_out: the
 * initial weights come from MODEL too. Fails ST_BAD_SETTING, ST_NO_INPUT or ST_BAD_DATA. */
enum status config_map_dims(const struct conf *conf, struct model_dims *out, bool *has_weights_out);
/* config_map_trainer — everything but dev, board, feeds and settings_json. Strings are borrowed
 * from conf. */
enum status config_map_trainer(const struct conf *conf, const struct model_dims *dims,
                               bool has_weights, struct trainer_config *out);
/* Returns whether each worker of a node gets memory for copies of the state (PEER_COPIES), which
 * outlives it (BOARD_PEER_COPY_FD). */
bool config_map_copies_memory(const struct conf *conf);
/* config_map_place — the ranks of the job, and which of them worker_i of this node is. */
struct comm_place config_map_place(const struct conf *conf, int worker_i);
/* config_map_mesh — how the ranks of the job are arranged. */
enum status config_map_mesh(const struct conf *conf, struct mesh *out);
/* config_map_feed — the feed of DATA, or of VAL_DATA, which is never shuffled. */
void config_map_feed(const struct conf *conf, const struct trainer_config *trainer,
                     bool is_validation, struct feed_config *out);
/* config_map_cache — check the default CACHE_DIR in /tmp, which another user might have made: it
 * must be a folder of this user's alone, else ST_BAD_SETTING. Makes it when it is missing. A
 * CACHE_DIR that was set is not checked. */
enum status config_map_cache(const struct conf *conf);
/* config_map_name_setting — put DATA or VAL_DATA before the sentence of a failure to read it: the
 * modules below know paths, not settings. Returns st. */
enum status config_map_name_setting(enum status st, bool is_validation);
/* config_map_settings — Writes the settings that decide the losses (column RESULT of conf.def), as
 * JSON for a checkpoint (base/config_diff.h). With the model and the fingerprint of the data they
 * determine the sequence of losses. STEPS and EPOCHS are not here: a run is resumed to go on for
 * longer, and a constant or warm-up rate does not change by it. tokenizer: NULL is GPT-2's. */
void config_map_settings(const struct conf *conf, const struct trainer_config *trainer,
                         const struct tokenizer *tokenizer, struct text *out);
/* config_map_layout — Writes the settings that decide only the order and precision of sums, as JSON
 * for the ledger. The ledger has nodes, workers and devices by itself. */
void config_map_layout(const struct conf *conf, const struct trainer_config *trainer,
                       struct text *out);
/* config_map_agreement — a JSON object of what all nodes must have in common before they train:
 * settings, version, model, kind of device. Data are compared later, by the workers that have read
 * them. */
enum status config_map_agreement(const struct conf *conf, struct text *out);
void config_map_board_model(const struct model_dims *dims, struct board_model *out);

#endif
