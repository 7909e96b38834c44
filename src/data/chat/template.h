/* chat_template — how the families of models write a conversation, as data: the text around the
 * content of each role. Must not know tokens.
 *
 * A family's texts come from its published chat_template (Jinja) in tokenizer_config.json.
 * {bos} and {eos} stand for the tokenizer's tokens that begin and end a text. */
#ifndef CONVOY_DATA_CHAT_TEMPLATE_H
#define CONVOY_DATA_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

enum {
    CHAT_TEMPLATE_SPECIAL_MAX = 8,
    CHAT_TEMPLATE_NAME_MAX = 32,   /* bytes of a name, with the closing 0 */
    CHAT_TEMPLATE_TEXT_MAX = 4096, /* bytes of one text */
    CHAT_TEMPLATE_FILE_MAX = 65536
};

enum chat_strip {
    CHAT_STRIP_NONE,
    CHAT_STRIP_CONTENT, /* white space around each content is left out */
    CHAT_STRIP_TURN     /* the same, of a user turn together with the system message in it */
};

struct chat_template {
    char name[CHAT_TEMPLATE_NAME_MAX];
    /* Tokens in the texts; ends with NULL. ?NAME: text if the tokenizer has no such token. */
    const char *special[CHAT_TEMPLATE_SPECIAL_MAX];
    /* Texts; NULL: none. */
    const char *begin;               /* before the first message */
    const char *system[2], *user[2]; /* before and after the content */
    const char *assistant;           /* before the content; generation continues after it */
    const char *turn_end;            /* after it; trained, so that the model ends its turn */
    const char *after;               /* after that */
    const char
        *last; /* after `assistant` in the last turn, if a user turn is before it; not trained */
    const char *finish;         /* after the last message */
    const char *default_system; /* content if a conversation has no system message; NULL: none */
    bool is_system_in_user;     /* the first user turn has the system message before its content */
    bool omits_empty_system;    /* an empty system message is left out */
    enum chat_strip strip;
    void *document; /* owns texts that are not constants; NULL: there are none */
};

/* chat_template_named — finds a built-in family: chatml, qwen3, llama-2, llama-3, llama-3.1,
 * mistral, zephyr, phi-3, phi-3.5,
 * gemma. Fails ST_BAD_SETTING: no such name; the message lists all. */
enum status chat_template_named(const char *name, struct chat_template *out);
/* chat_template_recognise — finds the family of a Jinja template by its expressions, and the
 * default system message of a chatml. from: for messages. Fails ST_BAD_SETTING: no family, or
 * two. */
enum status chat_template_recognise(const char *jinja, const char *from, struct chat_template *out);
/* chat_template_jinja — appends a template as Jinja, for programs that read a chat_template:
 * apply_chat_template of transformers gives the texts of chat_write. chat_template_recognise finds
 * the family of the result. The caller checks out->overflow. */
void chat_template_jinja(const struct chat_template *template, struct text *out);
/* chat_template_parse — reads a table written as JSON: "special", "begin", "system", "user",
 * "assistant" (begin, trained end, rest), "last", "finish", "default_system", "system_in_user",
 * "strip". Fails ST_BAD_DATA. */
enum status chat_template_parse(const char *bytes, size_t n, const char *from,
                                struct chat_template *out);
void chat_template_free(struct chat_template *template); /* accepts a zeroed struct */

#endif
