/* mapping — from settings to the structs the rooms below understand; the only place that knows
 * both. Must not know files' contents beyond a model's dimensions. What needs the model's
 * dimensions to be judged is judged here. */
#ifndef CONVOY_NODE_MAPPING_H
#define CONVOY_NODE_MAPPING_H

#include "base/board.h"
#include "base/text.h"
#include "conf/conf.h"
#include "data/feed.h"
#include "model/model.h"
#include "train/trainer.h"

/* mapping_dims — MODEL (preset, Hugging Face folder or llm.c file) with LAYERS, HEADS, EMBED,
 * CONTEXT, VOCAB and TASK. ST_BAD_SETTING, ST_NO_INPUT or ST_BAD_DATA say what does not fit.
 * *has_weights_out: initial weights come from there. */
enum status mapping_dims(const struct conf *conf, struct model_dims *out, bool *has_weights_out);
/* mapping_trainer — everything but dev, board, feeds and settings_json. Strings are borrowed from
 * conf. */
enum status mapping_trainer(const struct conf *conf, const struct model_dims *dims,
                            bool has_weights, struct trainer_config *out);
/* mapping_feed — the feed of DATA, or of VAL_DATA (never shuffled). */
void mapping_feed(const struct conf *conf, const struct trainer_config *trainer, bool is_validation,
                  struct feed_config *out);
/* mapping_cache — CACHE_DIR where it was not set and is a folder in /tmp, where others might have
 * made it: it is this user's alone (made, if it is not there), or ST_BAD_SETTING. */
enum status mapping_cache(const struct conf *conf);
/* mapping_blame — the setting that named the data before the sentence of a failure to read it: the
 * rooms below know paths, not settings. */
enum status mapping_blame(enum status st, bool is_validation);
/* mapping_settings — settings that shape the sequence of losses, for a checkpoint
 * (train/agree.h). */
void mapping_settings(const struct conf *conf, const struct trainer_config *trainer,
                      struct text *out);
/* mapping_agree — the JSON object of what all nodes must agree on before they train: settings,
 * version, model, kind of device. Data are compared later, by those who have read them. */
enum status mapping_agree(const struct conf *conf, struct text *out);
void mapping_board_model(const struct model_dims *dims, struct board_model *out);

#endif
