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

/* The chat template of a run, as Jinja. */
struct chat_source_export {
    char *jinja;       /* NULL: there is none; the caller frees it */
    bool is_new;       /* it is not the template at the tokenizer's path */
    uint32_t turn_end; /* token that ends a turn; TOKENIZER_NONE: unknown */
};
/* chat_source_export — finds the template of a run with these settings (a JSON object): the
 * run's CHAT_TEMPLATE if its task was chat, else the template at the tokenizer's path ("": the
 * built-in tokenizer). Logs a warning if the template cannot be read any more. */
enum status chat_source_export(const char *settings_json, const char *path,
                               const struct tokenizer *tokenizer, struct chat_source_export *out);

#endif
