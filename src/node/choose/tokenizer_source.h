/* tokenizer_source — opens the tokenizer that TOKENIZER names; without TOKENIZER, the model's own
 * tokenizer, else GPT-2's.
 *
 * The model's own tokenizer is in a Hugging Face folder or a GGUF file, or import and train kept it
 * with the checkpoints; a tokenizer with the checkpoints of its ADAPTER comes first. Must not know
 * its use. */
#ifndef CONVOY_NODE_TOKENIZER_SOURCE_H
#define CONVOY_NODE_TOKENIZER_SOURCE_H

#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "conf/conf.h"
#include "data/tokenizer/tokenizer.h"
#include "model/model.h"

/* tokenizer_source_open — opens the tokenizer. dims NULL: no model is involved. Logs a warning if
 * the model's own tokenizer has more ids than its vocabulary. Fails with ST_BAD_SETTING if
 * TOKENIZER has more ids, or if TASK=qa, which needs GPT-2's tokenizer, has another one; otherwise
 * like tokenizer_file_open. */
enum status tokenizer_source_open(const struct conf *conf, const struct model_dims *dims,
                                  struct tokenizer **out);
/* tokenizer_source_path — returns the path of the tokenizer that tokenizer_source_open opens.
 * false: it is the built-in one. */
bool tokenizer_source_path(const struct conf *conf, char out[FILE_PATH_MAX]);
/* tokenizer_source_keep — copies the files of the open tokenizer to CHECKPOINT_DIR/tokenizer, so
 * that later commands find it. Copies nothing for the built-in tokenizer. */
enum status tokenizer_source_keep(const struct conf *conf, const struct tokenizer *tokenizer);
/* tokenizer_source_open_kept — opens the tokenizer with the checkpoints of a folder, and returns
 * its path; NULL and "": there is none. If it fails to open, the path is set without a
 * tokenizer. */
enum status tokenizer_source_open_kept(const char *dir, char path[FILE_PATH_MAX],
                                       struct tokenizer **out);
/* tokenizer_source_kept — returns the path of that tokenizer, and appends its identity to the
 * settings as tokenizer_source_add does. */
enum status tokenizer_source_kept(const char *dir, char path[FILE_PATH_MAX], struct text *settings);
/* tokenizer_source_write_json — appends the tokenizer of a GGUF file as tokenizer.json and
 * tokenizer_config.json. ST_BAD_DATA: these formats cannot represent it. */
enum status tokenizer_source_write_json(const char *path, int64_t context_tokens, struct text *json,
                                        struct text *config);
/* tokenizer_source_lack — returns the name of the model if it is not a GPT-2 and has no tokenizer
 * of its own, and TOKENIZER is not set. GPT-2's tokenizer must not be used for it without a warning
 * (tokenizer_gpt2_check). Else returns NULL. */
const char *tokenizer_source_lack(const struct conf *conf, const struct model_dims *dims);
/* tokenizer_source_warn — logs a warning that `what` (a plural) is read and written with GPT-2's
 * tokens, if the model lacks a tokenizer. */
void tokenizer_source_warn(const struct conf *conf, const struct model_dims *dims,
                           const char *what);
/* tokenizer_source_check — checks that this is the tokenizer of the run that made a checkpoint with
 * these settings (a JSON object). ST_BAD_SETTING: it is another one. Logs a warning if the settings
 * name no tokenizer and this is not the built-in one. */
enum status tokenizer_source_check(const struct tokenizer *tokenizer, const char *settings_json);
/* tokenizer_source_add — appends its identity, ,"TOKENIZER":"…", to the settings of a checkpoint;
 * appends nothing for the built-in tokenizer. */
void tokenizer_source_add(const struct tokenizer *tokenizer, struct text *out);

#endif
