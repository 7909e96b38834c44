/* chat — turns conversations into token ids, and marks the ids that the loss counts.
 *
 * A conversation is written by its template (template.h). The origin of every byte is known,
 * so a token is marked if a byte of it is an answer, or the end of the assistant's turn. Names of
 * special tokens in a content stay text. The ids equal the result of apply_chat_template in
 * Hugging Face's transformers (split_special_tokens for contents). Must not know files, samples or
 * models. */
#ifndef CONVOY_DATA_CHAT_H
#define CONVOY_DATA_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "data/chat/template.h"
#include "data/tokenizer/tokenizer.h"

/* Marks an id that the loss counts as a target; ids are below it. */
#define CHAT_TRAINED ((uint32_t)1 << 30)

/* The tokens that the loss counts. */
enum chat_loss {
    CHAT_LOSS_ASSISTANT, /* answers, each with the end of its turn */
    CHAT_LOSS_LAST,      /* the last answer, with the end of its turn */
    CHAT_LOSS_ALL        /* all tokens */
};

enum chat_role { CHAT_ROLE_SYSTEM, CHAT_ROLE_USER, CHAT_ROLE_ASSISTANT };

struct chat_message {
    enum chat_role role;
    const char *content; /* UTF-8, not closed by 0 */
    size_t n;
};

/* The forms of a record; the keys of its object decide. */
enum chat_form {
    CHAT_FORM_NONE,
    CHAT_FORM_MESSAGES,      /* {"messages": [{"role", "content"}]} */
    CHAT_FORM_CONVERSATIONS, /* {"conversations": [{"from", "value"}]} */
    CHAT_FORM_TOKENS,        /* {"input_ids", "labels"}; −100: not counted */
    CHAT_FORM_PROMPT,        /* {"prompt", "completion"} */
    CHAT_FORM_INSTRUCTION    /* {"instruction", "input", "output"} */
};

/* Ids of conversations, which grow. Zero-initialised is empty; free ids. */
struct chat_ids {
    uint32_t *ids;
    size_t n, cap;
};

/* chat_reserve_ids — makes room for `more` ids after the ids so far. */
void chat_reserve_ids(struct chat_ids *out, size_t more);

struct chat;
/* chat_open — prepares a template for a tokenizer, which is borrowed until chat_close. It owns the
 * template from now on, even if it fails. Fails ST_BAD_SETTING: the tokenizer lacks a special token
 * of the template. */
enum status chat_open(const struct tokenizer *tokenizer, const struct chat_template *template,
                      enum chat_loss loss, struct chat **out);
void chat_close(struct chat *chat); /* accepts NULL */
/* chat_identity — computes a hash of everything that ids and marks depend on besides the
 * tokenizer. */
void chat_identity(const struct chat *chat, uint64_t out[2]);

/* chat_record — appends the ids of one line of JSON. *form: the form that the record must have;
 * NONE: any, and it is set. watch: NULL allowed. Fails ST_BAD_DATA: not a conversation; the message
 * lacks file and line; ST_RETRY: out of memory, or stopped by watch. */
enum status chat_record(const struct chat *chat, const struct encode_watch *watch, const char *line,
                        size_t n, enum chat_form *form, struct chat_ids *out);
/* chat_write — appends the ids of a conversation. is_prompt: the beginning of the assistant's next
 * turn follows, which the model continues. Fails as chat_record. */
enum status chat_write(const struct chat *chat, const struct encode_watch *watch,
                       const struct chat_message *messages, size_t n, bool is_prompt,
                       struct chat_ids *out);
/* chat_show — appends ids as text, with trained ones between two marks: terminal colours or
 * brackets. Controls become '?'. */
void chat_show(const struct tokenizer *tokenizer, const int32_t *ids, int64_t n, bool has_color,
               struct text *out);
/* chat_turn_end — returns the id that ends a turn of the assistant: the first special token of its
 * end; NONE: it has none. */
uint32_t chat_turn_end(const struct chat *chat);
/* chat_form_text — returns the keys of a form, for messages. */
const char *chat_form_text(enum chat_form form);

#endif
