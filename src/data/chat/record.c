/* chat — see chat.h: reads one record, a line of JSON, of any of the five forms. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/chat/chat.h"

enum { IGNORED_LABEL = -100 };

struct form_keys {
    const char *first, *second; /* keys that the form has */
    const char *text;
};

static const struct form_keys forms[] = {
    [CHAT_FORM_NONE] = {NULL, NULL, "no conversation"},
    [CHAT_FORM_MESSAGES] = {"messages", NULL, "messages"},
    [CHAT_FORM_CONVERSATIONS] = {"conversations", NULL, "conversations"},
    [CHAT_FORM_TOKENS] = {"input_ids", "labels", "input_ids and labels"},
    [CHAT_FORM_PROMPT] = {"prompt", "completion", "prompt and completion"},
    [CHAT_FORM_INSTRUCTION] = {"instruction", "output", "instruction and output"},
};
enum { FORMS = sizeof forms / sizeof *forms };

const char *chat_form_text(enum chat_form form) { return forms[form].text; }

/* The messages of a record. Contents of several parts are joined in `joined`. */
struct conversation {
    struct chat_message *messages;
    size_t n, cap;
    bool has_answer;
    char **joined;
    size_t joined_n;
};

static void add_message(struct conversation *c, enum chat_role role, const char *content)
{
    if (c->n == c->cap)
        c->messages = memory_grow(c->messages, c->n, &c->cap, sizeof *c->messages);
    c->messages[c->n++] = (struct chat_message){role, content, strlen(content)};
    c->has_answer = c->has_answer || role == CHAT_ROLE_ASSISTANT;
}

static void free_conversation(struct conversation *c)
{
    for (size_t i = 0; i < c->joined_n; i++)
        free(c->joined[i]);
    free(c->joined);
    free(c->messages);
}

static const char *join_text(struct conversation *c, struct text *all)
{
    c->joined = memory_resize(c->joined, c->joined_n + 1, sizeof *c->joined);
    c->joined[c->joined_n++] = all->data;
    return all->data;
}

/* Finds the form of an object: the first of the list whose keys it has. */
static enum chat_form form_of(const cJSON *root)
{
    for (int i = CHAT_FORM_MESSAGES; i < FORMS; i++)
        if (cJSON_GetObjectItemCaseSensitive(root, forms[i].first) != NULL &&
            (forms[i].second == NULL ||
             cJSON_GetObjectItemCaseSensitive(root, forms[i].second) != NULL))
            return i;
    return CHAT_FORM_NONE;
}

/* Returns true if a member is missing or holds nothing, such as [], "" and "[]". */
static bool is_empty(const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    if (text != NULL)
        return text[0] == '\0' || strcmp(text, "[]") == 0;
    return item == NULL || cJSON_IsNull(item) || cJSON_IsFalse(item) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL);
}

/* Returns the first of the keys, ended by NULL, that an object has and that is not empty; NULL:
 * none. */
static const char *find_member(const cJSON *object, const char *const *keys)
{
    while (*keys != NULL && is_empty(cJSON_GetObjectItemCaseSensitive(object, *keys)))
        keys++;
    return *keys;
}

/* ---- messages ---- */

static enum status read_role(const char *text, int message_i, enum chat_role *out)
{
    static const struct {
        const char *text;
        enum chat_role role;
    } roles[] = {{"system", CHAT_ROLE_SYSTEM},
                 {"user", CHAT_ROLE_USER},
                 {"assistant", CHAT_ROLE_ASSISTANT},
                 {"human", CHAT_ROLE_USER},
                 {"gpt", CHAT_ROLE_ASSISTANT}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(text, roles[i].text) == 0) {
            *out = roles[i].role;
            return ST_OK;
        }
    return FAIL(ST_BAD_DATA,
                "message %d has the role \"%.40s\"; supported are system, user and assistant "
                "(human and gpt), not tools or functions",
                message_i + 1, text);
}

/* Joins a content that is a list of {"type": "text", "text": …}. */
static enum status join_content(struct conversation *c, const cJSON *list, int message_i,
                                const char **out)
{
    struct text all = {.limit = (size_t)128 << 20};
    const cJSON *item;
    text_add(&all, "%s", "");
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "type");
        const char *kind = cJSON_IsString(type) ? type->valuestring : "?",
                   *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "text"));
        if (text == NULL || strcmp(kind, "text") != 0) {
            text_free(&all);
            return FAIL(ST_BAD_DATA,
                        "message %d has content of type \"%.40s\"; only text is supported",
                        message_i + 1, kind);
        }
        text_add_bytes(&all, text, strlen(text));
    }
    *out = join_text(c, &all);
    return ST_OK;
}

static enum status read_message(struct conversation *c, const cJSON *item, int message_i,
                                const char *role_key, const char *content_key)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, role_key));
    static const char *const unsupported[] = {"tool_calls", "function_call", "reasoning_content",
                                              "thinking", NULL};
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(item, content_key),
                *weight = cJSON_GetObjectItemCaseSensitive(item, "weight");
    const char *member = find_member(item, unsupported);
    const char *text = cJSON_GetStringValue(content);
    enum chat_role role = CHAT_ROLE_USER;
    if (name == NULL)
        return FAIL(ST_BAD_DATA, "message %d has no \"%s\"", message_i + 1, role_key);
    TRY(read_role(name, message_i, &role));
    if (member != NULL)
        return FAIL(ST_BAD_DATA, "message %d has %s, which are not supported", message_i + 1,
                    member);
    if (cJSON_IsNumber(weight) && weight->valuedouble != 1)
        return FAIL(ST_BAD_DATA,
                    "message %d has a weight of %g, which is not supported; the loss counts the "
                    "answers that LOSS_ON names",
                    message_i + 1, weight->valuedouble);
    if (cJSON_IsArray(content))
        TRY(join_content(c, content, message_i, &text));
    if (text == NULL)
        return FAIL(ST_BAD_DATA, "message %d has no text in \"%s\"", message_i + 1, content_key);
    add_message(c, role, text);
    return ST_OK;
}

static enum status read_messages(struct conversation *c, const cJSON *root, const char *key,
                                 const char *role_key, const char *content_key)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, key), *item;
    int i = 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) == 0)
        return FAIL(ST_BAD_DATA, "\"%s\" is not a list with a message", key);
    cJSON_ArrayForEach(item, list) TRY(read_message(c, item, i++, role_key, content_key));
    return ST_OK;
}

/* ---- pairs ---- */

static enum status read_string(const cJSON *root, const char *key, bool is_needed, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    *out = !is_needed && (item == NULL || cJSON_IsNull(item)) ? "" : cJSON_GetStringValue(item);
    return *out != NULL ? ST_OK : FAIL(ST_BAD_DATA, "\"%s\" is not a text", key);
}

static enum status read_pair(struct conversation *c, const cJSON *root, const char *question_key,
                             const char *answer_key)
{
    const char *question, *answer, *input = "";
    TRY(read_string(root, question_key, true, &question));
    TRY(read_string(root, answer_key, true, &answer));
    if (strcmp(question_key, "instruction") == 0)
        TRY(read_string(root, "input", false, &input));
    if (input[0] != '\0') {
        struct text all = {.limit = (size_t)128 << 20};
        text_add_bytes(&all, question, strlen(question));
        text_add_bytes(&all, "\n\n", 2);
        text_add_bytes(&all, input, strlen(input));
        question = join_text(c, &all);
    }
    add_message(c, CHAT_ROLE_USER, question);
    add_message(c, CHAT_ROLE_ASSISTANT, answer);
    return ST_OK;
}

/* ---- tokens ---- */

static enum status add_label(struct chat_ids *out, const cJSON *id_item, const cJSON *label_item,
                             int at)
{
    int64_t id, label;
    TRY(json_item_i64(id_item, "input_ids", 0, CHAT_TRAINED - 1, &id));
    TRY(json_item_i64(label_item, "labels", IGNORED_LABEL, CHAT_TRAINED - 1, &label));
    if (label != id && label != IGNORED_LABEL)
        return FAIL(ST_BAD_DATA,
                    "label %d is %lld, neither -100 nor the token at its position, %lld; labels "
                    "are not shifted",
                    at + 1, (long long)label, (long long)id);
    out->ids[out->n++] = (uint32_t)id | (label == id ? CHAT_TRAINED : 0);
    return ST_OK;
}

static enum status add_tokens(const cJSON *root, struct chat_ids *out)
{
    const cJSON *ids, *labels;
    TRY(json_get_array(root, "input_ids", &ids));
    TRY(json_get_array(root, "labels", &labels));
    const int n = cJSON_GetArraySize(ids);
    if (n == 0 || n != cJSON_GetArraySize(labels))
        return FAIL(ST_BAD_DATA, "%d input_ids and %d labels; each id needs one label", n,
                    cJSON_GetArraySize(labels));
    chat_reserve_ids(out, (size_t)n);
    const cJSON *id = ids->child, *label = labels->child;
    for (int i = 0; i < n; i++, id = id->next, label = label->next)
        TRY(add_label(out, id, label, i));
    return ST_OK;
}

/* ---- records ---- */

static enum status read_conversation(struct conversation *c, const cJSON *root, enum chat_form form)
{
    static const char *const unsupported[] = {"tools", "functions", "system", "history", NULL};
    const char *member = find_member(root, unsupported);
    if (member != NULL)
        return FAIL(ST_BAD_DATA,
                    "\"%s\" next to %s is not supported; write it as messages, or remove it",
                    member, forms[form].text);
    if (form == CHAT_FORM_MESSAGES)
        TRY(read_messages(c, root, "messages", "role", "content"));
    else if (form == CHAT_FORM_CONVERSATIONS)
        TRY(read_messages(c, root, "conversations", "from", "value"));
    else
        TRY(read_pair(c, root, forms[form].first, forms[form].second));
    return c->has_answer ? ST_OK
                         : FAIL(ST_BAD_DATA, "the conversation has no message of the assistant");
}

static enum status add_record(const struct chat *chat, const struct encode_watch *watch,
                              const cJSON *root, enum chat_form *form, struct chat_ids *out)
{
    const enum chat_form found = form_of(root);
    struct conversation c = {0};
    if (found == CHAT_FORM_NONE)
        return FAIL(ST_BAD_DATA,
                    "not a conversation; a line is an object with messages, conversations, prompt "
                    "and completion, instruction and output, or input_ids and labels");
    if (*form != CHAT_FORM_NONE && *form != found)
        return FAIL(ST_BAD_DATA, "a record with %s among records with %s; put them into two files",
                    forms[found].text, forms[*form].text);
    *form = found;
    if (found == CHAT_FORM_TOKENS)
        return add_tokens(root, out);
    enum status st = read_conversation(&c, root, found);
    if (st == ST_OK)
        st = chat_write(chat, watch, c.messages, c.n, false, out);
    free_conversation(&c);
    return st;
}

enum status chat_record(const struct chat *chat, const struct encode_watch *watch, const char *line,
                        size_t n, enum chat_form *form, struct chat_ids *out)
{
    cJSON *root;
    const size_t before = out->n;
    TRY(json_parse(line, n, "the line", &root));
    const enum status st = add_record(chat, watch, root, form, out);
    cJSON_Delete(root);
    if (st != ST_OK)
        out->n = before;
    return st;
}
