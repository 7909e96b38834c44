/* chat_source — opens the chat template that CHAT_TEMPLATE names; auto: the template of the model's
 * tokenizer. Must not know its use. */
#ifndef CONVOY_NODE_CHAT_SOURCE_H
#define CONVOY_NODE_CHAT_SOURCE_H

#include "base/status.h"
#include "conf/conf.h"
#include "data/chat/chat.h"

/* chat_source_open — opens the template for the tokenizer, which is borrowed until chat_close.
 * settings_json: settings of a checkpoint, whose CHAT_TEMPLATE counts if this command sets none;
 * NULL: there is no checkpoint. Fails with ST_BAD_SETTING if the model has no template, one of no
 * known family, or one whose tokens the tokenizer lacks; ST_BAD_DATA: a damaged file. */
enum status chat_source_open(const struct conf *conf, const struct tokenizer *tokenizer,
                             const char *settings_json, struct chat **out);

/* chat_source_jinja — reads the Jinja template of the tokenizer at a path: in the keys of a GGUF
 * file, or in chat_template.jinja or tokenizer_config.json of the folder. *out NULL: it has none;
 * the caller frees it. */
enum status chat_source_jinja(const char *path, char **out);

#endif
