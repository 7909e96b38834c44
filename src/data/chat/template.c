/* chat_template — see template.h. */
#include "data/chat/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

static const struct chat_template families[] = {
    {.name = "chatml",
     .special = {"<|im_start|>", "<|im_end|>"},
     .system = {"<|im_start|>system\n", "<|im_end|>\n"},
     .user = {"<|im_start|>user\n", "<|im_end|>\n"},
     .assistant = "<|im_start|>assistant\n",
     .turn_end = "<|im_end|>",
     .after = "\n"},
    {.name = "qwen3",
     .special = {"<|im_start|>", "<|im_end|>", "<think>", "</think>"},
     .system = {"<|im_start|>system\n", "<|im_end|>\n"},
     .user = {"<|im_start|>user\n", "<|im_end|>\n"},
     .assistant = "<|im_start|>assistant\n",
     .last = "<think>\n\n</think>\n\n",
     .turn_end = "<|im_end|>",
     .after = "\n"},
    {.name = "llama-2",
     .special = {"<s>", "</s>"},
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {"<s>[INST] ", " [/INST]"},
     .assistant = " ",
     .turn_end = " </s>",
     .is_system_in_user = true,
     .strip = CHAT_STRIP_TURN},
    {.name = "llama-3",
     .special = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     .assistant = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .turn_end = "<|eot_id|>",
     .strip = CHAT_STRIP_CONTENT},
    {.name = "llama-3.1",
     .special = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .system = {"<|start_header_id|>system<|end_header_id|>\n\n"
                "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
                "<|eot_id|>"},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     .assistant = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .turn_end = "<|eot_id|>",
     .default_system = "",
     .strip = CHAT_STRIP_CONTENT},
    {.name = "mistral",
     .special = {"<s>", "</s>"},
     .begin = "<s>",
     .system = {"", "\n\n"},
     .user = {" [INST] ", " [/INST]"},
     .assistant = " ",
     .turn_end = "</s>",
     .is_system_in_user = true},
    {.name = "zephyr",
     .special = {"{eos}", "?<|system|>", "?<|user|>", "?<|assistant|>"},
     .system = {"<|system|>\n", "{eos}\n"},
     .user = {"<|user|>\n", "{eos}\n"},
     .assistant = "<|assistant|>\n",
     .turn_end = "{eos}",
     .after = "\n"},
    {.name = "phi-3",
     .special = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"},
     .system = {"<|system|>\n", "<|end|>\n"},
     .user = {"<|user|>\n", "<|end|>\n"},
     .assistant = "<|assistant|>\n",
     .turn_end = "<|end|>",
     .after = "\n",
     .finish = "<|endoftext|>"},
    {.name = "phi-3.5",
     .special = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"},
     .system = {"<|system|>\n", "<|end|>\n"},
     .user = {"<|user|>\n", "<|end|>\n"},
     .assistant = "<|assistant|>\n",
     .turn_end = "<|end|>",
     .after = "\n",
     .finish = "<|endoftext|>",
     .omits_empty_system = true},
    {.name = "gemma",
     .special = {"<bos>", "<start_of_turn>", "<end_of_turn>"},
     .begin = "<bos>",
     .system = {"", "\n\n"},
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
     .assistant = "<start_of_turn>model\n",
     .turn_end = "<end_of_turn>",
     .after = "\n",
     .is_system_in_user = true,
     .strip = CHAT_STRIP_CONTENT},
};
enum { FAMILIES = sizeof families / sizeof *families };

void chat_template_free(struct chat_template *template)
{
    cJSON_Delete(template->document);
    *template = (struct chat_template){0};
}

/* ---- names ---- */

enum status chat_template_named(const char *name, struct chat_template *out)
{
    char all[256] = "";
    size_t n = 0;
    for (int i = 0; i < FAMILIES; i++) {
        if (strcmp(families[i].name, name) == 0) {
            *out = families[i];
            return ST_OK;
        }
        text_format(all + n, sizeof all - n, "%s%s", i > 0 ? ", " : "", families[i].name);
        n = strlen(all);
    }
    return FAIL(ST_BAD_SETTING,
                "CHAT_TEMPLATE=%s is neither a file nor a family of templates; the families are %s",
                name, all);
}

/* ---- recognition ---- */

/* A family is recognised by its Jinja template's expressions: all of `has`, none of `without`. They
 * are written as canonical_jinja writes them. Templates that look alike differ in a space or in a
 * thought, which a model notices, so an unknown expression is refused. */
static const struct marker {
    const char *name, *has[3], *without[4];
    /* Beginning of a system message that the template writes itself; NULL: it is not checked. */
    const char *system;
} markers[] = {
    {"chatml",
     {"'<|im_start|>'+message.role+'\\n'+", "content+'<|im_end|>'"},
     {"bos_token", "<think>", "|trim", "strip("},
     "<|im_start|>system\\n"},
    {"qwen3",
     {"'\\n<think>\\n'+reasoning_content.strip('\\n')+'\\n</think>\\n\\n'+content.lstrip('\\n')",
      "loop.lastor(notloop.lastandreasoning_content)"},
     {"|trim"},
     "<|im_start|>system\\n"},
    {"llama-2", {"bos_token+'[INST] '+content.strip()+' [/INST]'", "'<<SYS>>\\n'"}, {NULL}, NULL},
    {"llama-3",
     {"message.content|trim+'<|eot_id|>'"},
     {"Cutting Knowledge Date"},
     "<|start_header_id|>system"},
    {"llama-3.1",
     {"message.content|trim+'<|eot_id|>'", "Cutting Knowledge Date: December 2023\\n"},
     {NULL},
     NULL},
    {"mistral",
     {"' [INST] '+message.content+' [/INST]'", "' '+message.content+eos_token"},
     {NULL},
     NULL},
    {"zephyr", {"'<|user|>\\n'+message.content+eos_token"}, {"trim"}, "<|system|>\\n"},
    {"phi-3",
     {"'<|user|>\\n'+message.content+'<|end|>\\n'"},
     {"=='system'andmessage.content"},
     "<|system|>\\n"},
    {"phi-3.5",
     {"'<|user|>\\n'+message.content+'<|end|>\\n'", "=='system'andmessage.content"},
     {NULL},
     "<|system|>\\n"},
    {"gemma", {"'<start_of_turn>'+role+'\\n'+", "message.content|trim"}, {NULL}, NULL},
};

/* Writes a Jinja template without white space outside strings, with strings in single quotes, line
 * ends in them as \\n, and members as .role and .content. out has room for twice its length. */
static void canonical_jinja(const char *jinja, char *out)
{
    char quote = 0;
    for (const char *p = jinja; *p != '\0'; p++) {
        const bool is_quote = quote != 0 ? *p == quote : *p == '\'' || *p == '"';
        const bool may_be_member = quote == 0 && *p == '[' && (p[1] == '\'' || p[1] == '"');
        const size_t member = !may_be_member                      ? 0
                              : strncmp(p + 2, "role", 4) == 0    ? 4
                              : strncmp(p + 2, "content", 7) == 0 ? 7
                                                                  : 0;
        if (member > 0 && p[member + 2] == p[1] && p[member + 3] == ']') {
            *out++ = '.';
            memcpy(out, p + 2, member);
            out += member;
            p += member + 3;
        } else if (is_quote) {
            quote = quote != 0 ? 0 : *p;
            *out++ = '\'';
        } else if (*p == '\n' && quote != 0) {
            *out++ = '\\';
            *out++ = 'n';
        } else if (quote != 0 || strchr(" \t\r\n", *p) == NULL) {
            *out++ = *p;
            if (*p == '\\' && p[1] != '\0')
                *out++ = *++p;
        }
    }
    *out = '\0';
}

static bool has_markers(const char *canonical, const struct marker *m)
{
    for (size_t i = 0; i < 3 && m->has[i] != NULL; i++)
        if (strstr(canonical, m->has[i]) == NULL)
            return false;
    for (size_t i = 0; i < 4 && m->without[i] != NULL; i++)
        if (strstr(canonical, m->without[i]) != NULL)
            return false;
    return true;
}

/* Returns the number of system messages that a template writes and that are not the content of the
 * first message. A message for tools only is not counted: tools are refused. */
static size_t count_own_systems(const char *canonical, const struct marker *m)
{
    size_t n = 0;
    for (const char *p = canonical; m->system != NULL && (p = strstr(p, m->system)) != NULL;) {
        p += strlen(m->system);
        n += strncmp(p, "'+message.content", 17) != 0 &&
             strncmp(p, "'+messages[0].content", 21) != 0 &&
             (strncmp(p, "'}}", 3) != 0 || strstr(canonical, "iftools") == NULL);
    }
    return n;
}

/* Returns true if a chatml template writes a line end after a turn. */
static bool has_line_ends(const char *canonical)
{
    return strstr(canonical, "<|im_end|>\\n") != NULL ||
           strstr(canonical, "<|im_end|>'+'\\n'") != NULL ||
           strstr(canonical, "{{'\\n'}}") != NULL || strstr(canonical, "{{-'\\n'}}") != NULL;
}

/* Finds the system message that a chatml template writes if the conversation has none: a constant
 * between "<|im_start|>system\n" and "<|im_end|>". Returns its length; 0: there is none. */
static size_t find_default_system(const char *jinja, const char **out)
{
    static const char begin[] = "<|im_start|>system", end[] = "<|im_end|>";
    for (const char *p = jinja; (p = strstr(p, begin)) != NULL;) {
        p += sizeof begin - 1;
        p += strncmp(p, "\\n", 2) == 0 ? 2 : *p == '\n';
        const char *stop = strstr(p, end);
        const size_t n = stop != NULL ? (size_t)(stop - p) : 0;
        if (n == 0 || strcspn(p, "'\"{}\\") < n)
            continue;
        *out = p;
        return n;
    }
    return 0;
}

/* Copies a constant of a Jinja template to a document that the template owns. */
static const char *own_text(struct chat_template *template, const char *text, size_t n)
{
    char *copy = memory_new(1, n + 1);
    memcpy(copy, text, n);
    cJSON *item = cJSON_CreateString(copy);
    free(copy);
    template->document = item;
    return cJSON_GetStringValue(item);
}

static enum status refuse_template(const char *from, const char *why)
{
    return FAIL(ST_BAD_SETTING,
                "%s: its chat_template %s; set CHAT_TEMPLATE to a family, such as chatml, or to a "
                "file with the template as a table",
                from, why);
}

/* Finds the only family whose markers a template has. */
static enum status find_family(const char *canonical, const char *from, const struct marker **out)
{
    const struct marker *found[2] = {NULL, NULL};
    size_t n = 0;
    for (size_t i = 0; i < sizeof markers / sizeof *markers && n < 2; i++)
        if (has_markers(canonical, markers + i))
            found[n++] = markers + i;
    if (n == 2)
        return FAIL(ST_BAD_SETTING,
                    "%s: its chat_template has the markers of two families, %s and %s; set "
                    "CHAT_TEMPLATE to one of them, or to a file with the template as a table",
                    from, found[0]->name, found[1]->name);
    if (n == 0 || (found[0] == markers && !has_line_ends(canonical)))
        return refuse_template(from, "is of no known family");
    *out = found[0];
    return ST_OK;
}

/* is_written — returns true if a template is the Jinja that we write for a family. */
static bool is_written(const char *jinja, const struct chat_template *family)
{
    struct text own = {.data = NULL};
    chat_template_jinja(family, &own);
    const bool is_same = own.data != NULL && strcmp(own.data, jinja) == 0;
    text_free(&own);
    return is_same;
}

enum status chat_template_recognise(const char *jinja, const char *from, struct chat_template *out)
{
    for (int i = 0; i < FAMILIES; i++)
        if (is_written(jinja, families + i)) {
            *out = families[i];
            return ST_OK;
        }
    const struct marker *family = NULL;
    const char *text;
    char *canonical = memory_new(2, strlen(jinja) + 1);
    canonical_jinja(jinja, canonical);
    const enum status st = find_family(canonical, from, &family);
    const size_t systems = st == ST_OK ? count_own_systems(canonical, family) : 0;
    free(canonical);
    TRY(st);
    const size_t n = family == markers ? find_default_system(jinja, &text) : 0;
    if (systems != (n > 0))
        return refuse_template(from, "writes a system message that its family does not have");
    TRY(chat_template_named(family->name, out));
    if (n > 0)
        out->default_system = own_text(out, text, n);
    return ST_OK;
}

/* ---- templates as Jinja ---- */

/* add_literal — adds a text of a template as an expression: strings joined by +. */
static void add_literal(struct text *out, const char *text)
{
    text_add(out, "'");
    for (const char *p = text != NULL ? text : ""; *p != '\0'; p++) {
        if (strncmp(p, "{bos}", 5) == 0 || strncmp(p, "{eos}", 5) == 0) {
            text_add(out, "' + %.3s_token + '", p + 1);
            p += 4;
        } else if (*p == '\n') {
            text_add(out, "\\n");
        } else {
            text_add(out, *p == '\'' || *p == '\\' ? "\\%c" : "%c", *p);
        }
    }
    text_add(out, "'");
}

/* print_around — adds the output of a text, an expression and a text; each may be NULL. */
static void print_around(struct text *out, const char *before, const char *expression,
                         const char *after)
{
    if (expression == NULL && (before == NULL || before[0] == '\0'))
        return;
    text_add(out, "{{ ");
    add_literal(out, before);
    if (expression != NULL) {
        text_add(out, " + %s + ", expression);
        add_literal(out, after);
    }
    text_add(out, " }}");
}

/* jinja_system — adds the choice of the system message: has_system, system; turns are the other
 * messages. */
static void jinja_system(const struct chat_template *t, struct text *out)
{
    text_add(out, "{%% if messages and messages[0]['role'] == 'system' %%}");
    if (t->system[0] == NULL)
        text_add(out, "{{ raise_exception('this model has no system message') }}");
    text_add(out,
             "{%% set has_system = true %%}{%% set system = messages[0]['content'] %%}"
             "{%% set turns = messages[1:] %%}{%% else %%}{%% set has_system = %s %%}"
             "{%% set system = ",
             t->default_system != NULL ? "true" : "false");
    add_literal(out, t->default_system);
    text_add(out, " %%}{%% set turns = messages %%}{%% endif %%}");
    if (t->omits_empty_system)
        text_add(out, "{%% if system == '' %%}{%% set has_system = false %%}{%% endif %%}");
}

/* jinja_user — adds a user turn. */
static void jinja_user(const struct chat_template *t, struct text *out)
{
    const char *content =
        t->strip == CHAT_STRIP_NONE ? "message['content']" : "(message['content'] | trim)";
    if (t->is_system_in_user) {
        text_add(out, "{%% if loop.first and has_system %%}{{ ");
        add_literal(out, t->user[0]);
        text_add(out, " + ((");
        add_literal(out, t->system[0]);
        text_add(out, " + system + ");
        add_literal(out, t->system[1]);
        text_add(out, " + %s)%s) + ", t->strip == CHAT_STRIP_TURN ? "message['content']" : content,
                 t->strip == CHAT_STRIP_TURN ? " | trim" : "");
        add_literal(out, t->user[1]);
        text_add(out, " }}{%% else %%}");
    }
    print_around(out, t->user[0], content, t->user[1]);
    if (t->is_system_in_user)
        text_add(out, "{%% endif %%}");
}

/* jinja_answer — adds a turn of the assistant. */
static void jinja_answer(const struct chat_template *t, struct text *out)
{
    const char *content =
        t->strip == CHAT_STRIP_NONE ? "message['content']" : "(message['content'] | trim)";
    print_around(out, t->assistant, NULL, NULL);
    if (t->last != NULL) {
        text_add(out, "{%% if loop.last %%}{{ ");
        add_literal(out, t->last);
        text_add(out, " + %s.lstrip('\\n') }}{%% else %%}{{ %s }}{%% endif %%}", content, content);
    } else
        text_add(out, "{{ %s }}", content);
    print_around(out, t->turn_end, NULL, NULL);
    print_around(out, t->after, NULL, NULL);
}

void chat_template_jinja(const struct chat_template *t, struct text *out)
{
    const bool strips_system = t->strip == CHAT_STRIP_CONTENT && !t->is_system_in_user;
    jinja_system(t, out);
    print_around(out, t->begin, NULL, NULL);
    if (!t->is_system_in_user && t->system[0] != NULL) {
        text_add(out, "{%% if has_system %%}");
        print_around(out, t->system[0], strips_system ? "(system | trim)" : "system", t->system[1]);
        text_add(out, "{%% endif %%}");
    }
    text_add(out, "{%% for message in turns %%}{%% if message['role'] == 'user' %%}");
    jinja_user(t, out);
    text_add(out, "{%% elif message['role'] == 'assistant' %%}");
    jinja_answer(t, out);
    text_add(out, "{%% endif %%}{%% endfor %%}{%% if add_generation_prompt %%}");
    print_around(out, t->assistant, NULL, NULL);
    print_around(out, t->last, NULL, NULL);
    text_add(out, "{%% else %%}");
    print_around(out, t->finish, NULL, NULL);
    text_add(out, "{%% endif %%}");
}

/* ---- tables in files ---- */

struct table {
    const cJSON *root;
    const char *from;
};

static enum status refuse_field(const struct table *table, const char *key, const char *want)
{
    return FAIL(ST_BAD_DATA, "%s: \"%s\" must be %s; docs/fine-tuning.md has an example",
                table->from, key, want);
}

/* Reads a text, or element i of a list of n texts. A field that is missing leaves *out as it is. */
static enum status read_text(const struct table *table, const char *key, int i, int n,
                             const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(table->root, key);
    if (item == NULL)
        return ST_OK;
    if (n > 1 && (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != n))
        return refuse_field(table, key, n == 2 ? "a list of two texts" : "a list of three texts");
    const char *text = cJSON_GetStringValue(n > 1 ? cJSON_GetArrayItem(item, i) : item);
    if (text == NULL || strlen(text) >= CHAT_TEMPLATE_TEXT_MAX)
        return refuse_field(table, key, "of texts under 4096 bytes");
    *out = text;
    return ST_OK;
}

static enum status read_bool(const struct table *table, const char *key, bool *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(table->root, key);
    if (item != NULL && !cJSON_IsBool(item))
        return refuse_field(table, key, "true or false");
    *out = cJSON_IsTrue(item);
    return ST_OK;
}

static enum status read_special(const struct table *table, struct chat_template *out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(table->root, "special"), *item;
    int n = 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) >= CHAT_TEMPLATE_SPECIAL_MAX)
        return refuse_field(table, "special", "a list of at most 7 tokens");
    cJSON_ArrayForEach(item, list)
    {
        const char *text = cJSON_GetStringValue(item);
        if (text == NULL || text[0] == '\0')
            return refuse_field(table, "special", "a list of tokens, such as \"<|im_end|>\"");
        out->special[n++] = text;
    }
    return ST_OK;
}

/* Checks that a text uses {bos} and {eos} only if they are in "special": else they are text. */
static enum status check_text(const struct table *table, const struct chat_template *t,
                              const char *text)
{
    static const char *const names[] = {"{bos}", "{eos}"};
    for (size_t i = 0; i < 2; i++) {
        size_t at = 0;
        while (t->special[at] != NULL && strcmp(t->special[at], names[i]) != 0)
            at++;
        if (text != NULL && t->special[at] == NULL && strstr(text, names[i]) != NULL)
            return FAIL(ST_BAD_DATA, "%s: a text has %s, which \"special\" must contain, too",
                        table->from, names[i]);
    }
    return ST_OK;
}

static enum status check_texts(const struct table *table, const struct chat_template *t)
{
    const char *const texts[] = {t->begin,     t->system[0], t->system[1], t->user[0], t->user[1],
                                 t->assistant, t->turn_end,  t->after,     t->last,    t->finish};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        TRY(check_text(table, t, texts[i]));
    if (t->default_system != NULL && t->system[0] == NULL)
        return FAIL(ST_BAD_DATA, "%s: \"default_system\" needs \"system\"", table->from);
    return ST_OK;
}

static enum status read_fields(const struct table *table, struct chat_template *out)
{
    static const char *const known[] = {"special",        "begin", "system", "user",
                                        "assistant",      "last",  "finish", "default_system",
                                        "system_in_user", "strip"};
    const cJSON *item;
    bool strips;
    cJSON_ArrayForEach(item, table->root)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(item->string, known[i]) != 0)
            i++;
        if (i == sizeof known / sizeof *known)
            return FAIL(ST_BAD_DATA, "%s: a chat template has no \"%.40s\"", table->from,
                        item->string);
    }
    TRY(read_special(table, out));
    TRY(read_text(table, "begin", 0, 1, &out->begin));
    for (int i = 0; i < 2; i++) {
        TRY(read_text(table, "system", i, 2, &out->system[i]));
        TRY(read_text(table, "user", i, 2, &out->user[i]));
    }
    TRY(read_text(table, "assistant", 0, 3, &out->assistant));
    TRY(read_text(table, "assistant", 1, 3, &out->turn_end));
    TRY(read_text(table, "assistant", 2, 3, &out->after));
    TRY(read_text(table, "last", 0, 1, &out->last));
    TRY(read_text(table, "finish", 0, 1, &out->finish));
    TRY(read_text(table, "default_system", 0, 1, &out->default_system));
    TRY(read_bool(table, "system_in_user", &out->is_system_in_user));
    TRY(read_bool(table, "strip", &strips));
    out->strip = strips ? CHAT_STRIP_CONTENT : CHAT_STRIP_NONE;
    if (out->user[0] == NULL || out->assistant == NULL)
        return FAIL(ST_BAD_DATA, "%s: a chat template needs \"user\" and \"assistant\"",
                    table->from);
    if (out->turn_end[0] == '\0')
        return FAIL(ST_BAD_DATA,
                    "%s: the second text of \"assistant\" is empty, so that the model would never "
                    "end its turn; give the token that ends it, such as \"<|im_end|>\"",
                    table->from);
    return check_texts(table, out);
}

enum status chat_template_parse(const char *bytes, size_t n, const char *from,
                                struct chat_template *out)
{
    cJSON *root;
    const char *slash = strrchr(from, '/');
    struct chat_template made = {.name = ""};
    text_copy(made.name, sizeof made.name, slash != NULL ? slash + 1 : from);
    TRY(json_parse(bytes, n, from, &root));
    made.document = root;
    const struct table table = {root, from};
    const enum status st = cJSON_IsObject(root)
                               ? read_fields(&table, &made)
                               : FAIL(ST_BAD_DATA, "%s: a chat template is a JSON object", from);
    if (st == ST_OK)
        *out = made;
    else
        chat_template_free(&made);
    return st;
}
