/* config_map — maps settings to the structs of the modules below. No other file knows both. It also
 * checks the settings that can be checked only with the model's dimensions. Must not know the
 * contents of files beyond a model's dimensions. */
#ifndef CONVOY_NODE_CONFIG_MAP_H
#define CONVOY_NODE_CONFIG_MAP_H

#include "base/board.h"
#include "base/text.h"
#include "comm/core/comm.h"
#include "conf/conf.h"
#include "data/feed.h"
#include "model/model.h"
#include "train/trainer/trainer.h"

/* config_map_dims — returns the dimensions of MODEL (a preset, a Hugging Face folder, a model file
 * of llm.c or a checkpoint), changed by LAYERS, HEADS, EMBED, CONTEXT, VOCAB and TASK.
 * *has_weights_out: MODEL also supplies the initial weights. Fails with ST_BAD_SETTING, ST_NO_INPUT
 * or ST_BAD_DATA. */
enum status config_map_dims(const struct conf *conf, struct model_dims *out, bool *has_weights_out);
/* config_map_trainer — fills every field but dev, board, feeds and settings_json. Strings are
 * borrowed from conf. */
enum status config_map_trainer(const struct conf *conf, const struct model_dims *dims,
                               bool has_weights, struct trainer_config *out);
/* config_map_copies_memory — returns true if each worker of a node gets memory for copies of the
 * state (PEER_COPIES). That memory outlives the worker (BOARD_PEER_COPY_FD). */
bool config_map_copies_memory(const struct conf *conf);
/* config_map_place — returns the position of worker worker_i of this node among the ranks of the
 * job. */
struct comm_place config_map_place(const struct conf *conf, int worker_i);
/* config_map_mesh — returns the mesh in which the ranks of the job are arranged. */
enum status config_map_mesh(const struct conf *conf, struct mesh *out);
/* config_map_task — returns the task of the model: TASK=chat trains a language model. */
enum model_task config_map_task(const struct conf *conf);
/* config_map_feed — fills the configuration of the feed of DATA, or of VAL_DATA, which is never
 * shuffled. */
void config_map_feed(const struct conf *conf, const struct trainer_config *trainer,
                     bool is_validation, struct feed_config *out);
/* config_map_cache — creates the default CACHE_DIR in /tmp if it is missing. Returns ST_BAD_SETTING
 * unless it is a folder that only this user can access, because another user might have created it.
 * A CACHE_DIR that was set is not checked. */
enum status config_map_cache(const struct conf *conf);
/* config_map_name_setting — puts DATA or VAL_DATA before the message of a failure to read it,
 * because the modules below report paths, not settings. Returns st. */
enum status config_map_name_setting(enum status st, bool is_validation);
/* config_map_settings — writes the settings that decide the losses (column RESULT of conf.def) as
 * JSON for a checkpoint (base/config_diff.h). Together with the model and the fingerprint of the
 * data they determine the sequence of losses. STEPS and EPOCHS are not included: a resumed run may
 * be longer, and a constant or warm-up rate does not depend on them. tokenizer NULL: GPT-2's.
 * arithmetic: of device_arithmetic, which is written with EXACT=layout; "": nothing. */
void config_map_settings(const struct conf *conf, const struct trainer_config *trainer,
                         const struct tokenizer *tokenizer, const char *arithmetic,
                         struct text *out);
/* config_map_layout — writes the settings that decide only the order and precision of sums, as JSON
 * for the ledger. The ledger records nodes, workers and devices itself. */
void config_map_layout(const struct conf *conf, const struct trainer_config *trainer,
                       struct text *out);
/* config_map_agreement — writes a JSON object of the properties that must be equal on all nodes
 * before they train: settings, version, model and kind of device. The workers compare the data
 * later, after they have read them. */
enum status config_map_agreement(const struct conf *conf, struct text *out);
/* config_map_board_model — writes the model's dimensions for the board; the number of parameters is
 * unknown here: -1. */
void config_map_board_model(const struct model_dims *dims, struct board_model *out);

#endif
