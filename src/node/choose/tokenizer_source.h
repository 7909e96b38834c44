/* tokenizer_source — the tokenizer that TOKENIZER names; without it the model's own, else GPT-2's.
 *
 * The model's own is that of a Hugging Face folder, inside a GGUF file, or kept by import and train
 * with the checkpoints. Must not know what it is used for. */
#ifndef CONVOY_NODE_TOKENIZER_SOURCE_H
#define CONVOY_NODE_TOKENIZER_SOURCE_H

#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "conf/conf.h"
#include "data/tokenizer/tokenizer.h"
#include "model/model.h"

/* tokenizer_source_open — dims NULL: no model is concerned. Warns when the model's own has more ids
 * than its vocabulary. Fails ST_BAD_SETTING: TOKENIZER has, or TASK=qa, which needs GPT-2's
 * tokenizer; as tokenizer_file_open. */
enum status tokenizer_source_open(const struct conf *conf, const struct model_dims *dims,
                                  struct tokenizer **out);
/* tokenizer_source_keep — copies the files of the one that was opened to CHECKPOINT_DIR/tokenizer,
 * so that later commands find it; not the built-in one. */
enum status tokenizer_source_keep(const struct conf *conf, const struct tokenizer *tokenizer);
/* tokenizer_source_open_kept — the one with the checkpoints of a folder, and its path; NULL and "":
 * there is none. A path without a tokenizer: it failed to open.
 * tokenizer_source_kept — the same: its path, and its identity, appended as _add does. */
enum status tokenizer_source_open_kept(const char *dir, char path[FILE_PATH_MAX],
                                       struct tokenizer **out);
enum status tokenizer_source_kept(const char *dir, char path[FILE_PATH_MAX], struct text *settings);
/* tokenizer_source_write_json — appends that of a GGUF file as tokenizer.json and
 * tokenizer_config.json. ST_BAD_DATA: they cannot hold it. */
enum status tokenizer_source_write_json(const char *path, int64_t context_tokens, struct text *json,
                                        struct text *config);
/* tokenizer_source_lack — the name of a model that is no GPT-2 and has no tokenizer of its own,
 * where TOKENIZER is not set: texts for it may not get GPT-2's unsaid (tokenizer_gpt2_check). Else
 * NULL. */
const char *tokenizer_source_lack(const struct conf *conf, const struct model_dims *dims);
/* tokenizer_source_warn — where there is such a lack: a warning that `what` (a plural) is read and
 * written with GPT-2's tokens. */
void tokenizer_source_warn(const struct conf *conf, const struct model_dims *dims,
                           const char *what);
/* tokenizer_source_check — is it the one of the run that made a checkpoint with these settings (a
 * JSON object)? ST_BAD_SETTING: no. A warning: they name none, and this is not the built-in one. */
enum status tokenizer_source_check(const struct tokenizer *tokenizer, const char *settings_json);
/* tokenizer_source_add — appends ,"TOKENIZER":"…", its identity, to settings for a checkpoint;
 * nothing for the built-in one. */
void tokenizer_source_add(const struct tokenizer *tokenizer, struct text *out);

#endif
