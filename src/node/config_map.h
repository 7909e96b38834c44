/* config_map — from settings to the structs the modules below understand; the only place that knows
 * both. Must not know files' contents beyond a model's dimensions. What needs the model's
 * dimensions to be judged is judged here. */
#ifndef CONVOY_NODE_CONFIG_MAP_H
#define CONVOY_NODE_CONFIG_MAP_H

#include "base/board.h"
#include "base/text.h"
#include "conf/conf.h"
#include "data/feed.h"
#include "model/model.h"
#include "train/trainer.h"

/* config_map_dims — MODEL (preset, Hugging Face folder or llm.c file) with LAYERS, HEADS, EMBED,
 * CONTEXT, VOCAB and TASK. ST_BAD_SETTING, ST_NO_INPUT or ST_BAD_DATA say what does not fit.
 * *has_weights_out: initial weights come from there. */
enum status config_map_dims(const struct conf *conf, struct model_dims *out, bool *has_weights_out);
/* config_map_trainer — everything but dev, board, feeds and settings_json. Strings are borrowed
 * from conf. */
enum status config_map_trainer(const struct conf *conf, const struct model_dims *dims,
                               bool has_weights, struct trainer_config *out);
/* config_map_feed — the feed of DATA, or of VAL_DATA (never shuffled). */
void config_map_feed(const struct conf *conf, const struct trainer_config *trainer,
                     bool is_validation, struct feed_config *out);
/* config_map_cache — CACHE_DIR where it was not set and is a folder in /tmp, where others might
 * have made it: it is this user's alone (made, if it is not there), or ST_BAD_SETTING. */
enum status config_map_cache(const struct conf *conf);
/* config_map_name_setting — the setting that named the data before the sentence of a failure to
 * read it: the rooms below know paths, not settings. */
enum status config_map_name_setting(enum status st, bool is_validation);
/* config_map_settings — settings that shape the sequence of losses, for a checkpoint
 * (base/config_diff.h). */
void config_map_settings(const struct conf *conf, const struct trainer_config *trainer,
                         struct text *out);
/* config_map_agreement — the JSON object of what all nodes must agree on before they train:
 * settings, version, model, kind of device. Data are compared later, by those who have read
 * them. */
enum status config_map_agreement(const struct conf *conf, struct text *out);
void config_map_board_model(const struct model_dims *dims, struct board_model *out);

#endif
