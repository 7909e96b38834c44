/* conf_write — prints the settings: `convoy config`, JSON, --help, and the tables of the
 * documentation.
 *
 * All of it is derived from conf.def, so it cannot differ from the parser. It must not know a
 * setting by name, except BACKEND, one value of which has two spellings. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/memory.h"
#include "conf/conf_row.h"

#define HELP_WIDTH 100
#define HELP_INDENT 32
#define SETTING_BYTES 1024 /* most bytes of a value on the status page; a prompt may be longer */
#define VALUE_WIDTH_MAX 40 /* longer values shift the rest of their line */

static const char *const origin_names[] = {"default", "scheduler", "environment", "argument"};

/* ---- the settings of a run ---- */

/* shown_text — returns the text that is shown: for a secret only whether it is set. The value
 * "none" is no secret and is shown. */
static const char *shown_text(const struct conf *conf, int key)
{
    const char *text = conf_given(conf, (enum conf_key)key);
    bool is_hidden =
        conf_rows[key].kind == CONF_KIND_SECRET && text[0] != 0 && strcmp(text, "none") != 0;
    return is_hidden ? "(set, not shown)" : text;
}

static const char *shown_value(const struct conf *conf, int key, char *out, size_t cap)
{
    const char *text = shown_text(conf, key);
    return text[0] == 0 ? "-" : conf_clean(text, out, cap);
}

static bool is_number(const struct conf_row *row)
{
    return row->kind == CONF_KIND_INT || row->kind == CONF_KIND_REAL ||
           row->kind == CONF_KIND_DURATION || row->kind == CONF_KIND_BOOL;
}

/* is_default — returns true for the default, also in another spelling: LR=0.0003 is 3e-4. */
static bool is_default(const struct conf *conf, int key)
{
    struct conf plain = {0};
    const struct conf_row *row = &conf_rows[key];
    const struct conf_value *value = &conf->values[key], *other = &plain.values[key];
    enum status st =
        conf_set(&plain, (enum conf_key)key, row->initial, CONF_ORIGIN_DEFAULT, "default");
    bool is_same = st == ST_OK && (is_number(row) ? value->f64 == other->f64
                                                  : strcmp(value->text, other->text) == 0);
    conf_drop(&plain.values[key], (enum conf_key)key);
    return is_same;
}

/* is_shown — returns true for settings, and for hooks that are set. */
static bool is_shown(const struct conf *conf, int key)
{
    return key < CONF_SETTINGS_N || conf_is_set(conf, (enum conf_key)key);
}

void conf_write_table(const struct conf *conf, struct text *out)
{
    char value[4096];
    int name_width = (int)strlen("NAME"), value_width = (int)strlen("VALUE");
    for (int key = 0; key < CONF_N; key++) {
        if (!is_shown(conf, key))
            continue;
        int name_n = (int)strlen(conf_rows[key].name);
        int value_n = (int)strlen(shown_value(conf, key, value, sizeof value));
        name_width = name_n > name_width ? name_n : name_width;
        value_width = value_n > value_width && value_n <= VALUE_WIDTH_MAX ? value_n : value_width;
    }
    text_add(out, "%-*s  %-*s  %s\n", name_width, "NAME", value_width, "VALUE", "ORIGIN");
    for (int key = 0; key < CONF_N; key++)
        if (is_shown(conf, key))
            text_add(out, "%-*s  %-*s  %s\n", name_width, conf_rows[key].name, value_width,
                     shown_value(conf, key, value, sizeof value),
                     conf_source(conf, (enum conf_key)key));
}

static bool add_value(cJSON *object, const struct conf *conf, int key)
{
    const struct conf_value *value = &conf->values[key];
    switch (conf_rows[key].kind) {
    case CONF_KIND_INT:
        json_add_i64(object, "value", value->i64);
        break;
    case CONF_KIND_REAL:
        json_add_number(object, "value", value->f64);
        break;
    case CONF_KIND_DURATION:
        json_add_number(object, "value", value->f64 / 1000);
        break;
    case CONF_KIND_BOOL:
    case CONF_KIND_PRESENT:
        cJSON_AddBoolToObject(object, "value", value->i64 != 0);
        break;
    case CONF_KIND_CHOICE:
    case CONF_KIND_TEXT:
    case CONF_KIND_HOST:
    case CONF_KIND_MULTILINE:
    case CONF_KIND_FAULT:
    case CONF_KIND_SECRET: {
        /* Bytes that are not UTF-8 become U+FFFD: a path may contain such bytes, JSON may not. */
        const char *text = shown_text(conf, key);
        size_t cap = strlen(text) * 6 + 3; /* every byte as \\u00XX, quotes, 0 */
        char *quoted = memory_new(1, cap);
        bool is_added =
            json_quote(quoted, cap, text) && cJSON_AddRawToObject(object, "value", quoted) != NULL;
        free(quoted);
        return is_added;
    }
    }
    return true;
}

void conf_write_settings(const struct conf *conf, struct text *out)
{
    char masked[SETTING_BYTES], quoted[6 * SETTING_BYTES + 3];
    const char *comma = "";
    text_add(out, "{\"settings\":[");
    for (int key = 0; key < CONF_N; key++) {
        if (!(conf_is_set(conf, (enum conf_key)key) && !is_default(conf, key)) ||
            conf_rows[key].kind == CONF_KIND_SECRET)
            continue;
        json_quote(quoted, sizeof quoted,
                   text_mask(masked, sizeof masked, conf_given(conf, (enum conf_key)key)));
        text_add(out, "%s{\"name\":\"%s\",\"value\":%s,\"source\":\"%s\"}", comma,
                 conf_rows[key].name, quoted, conf_source(conf, (enum conf_key)key));
        comma = ",";
    }
    text_add(out, "]}\n");
}

void conf_write_value(const struct conf *conf, enum conf_key key, struct text *out)
{
    char quoted[6 * 4096 + 3];
    if (is_number(&conf_rows[key])) {
        text_add(out, "%s", text_f64(conf_f64(conf, key)).text);
        return;
    }
    const bool fits = json_quote(quoted, sizeof quoted, conf_given(conf, key));
    ASSERTF(fits, "%s has %zu bytes", conf_rows[key].name, strlen(conf_given(conf, key)));
    text_add(out, "%s", quoted);
}

void conf_write_agree(const struct conf *conf, struct text *out)
{
    char number[64], quoted[6 * 4096 + 3];
    for (int key = 0; key < CONF_N; key++) {
        const struct conf_row *row = &conf_rows[key];
        const struct conf_value *value = &conf->values[key];
        const char *text = value->text;
        if (!row->is_agreed)
            continue;
        if (row->kind == CONF_KIND_REAL)
            text_copy(number, sizeof number, text_f64(value->f64).text);
        else
            text_format(number, sizeof number, "%lld", (long long)value->i64);
        if (is_number(row))
            text = number;
        if (key == CONF_BACKEND && value->i64 == CONF_BACKEND_UCC)
            text = "ucx";
        json_quote(quoted, sizeof quoted, text);
        text_add(out, "\"%s\":%s,", row->name, quoted);
    }
}

void conf_write_json(const struct conf *conf, struct text *out)
{
    char allowed[256];
    cJSON *root = cJSON_CreateObject();
    bool is_whole = root != NULL;
    for (int key = 0; key < CONF_N; key++) {
        const struct conf_row *row = &conf_rows[key];
        if (!is_shown(conf, key))
            continue;
        cJSON *object = cJSON_AddObjectToObject(root, row->name);
        is_whole = is_whole && object != NULL && add_value(object, conf, key);
        cJSON_AddStringToObject(object, "origin", origin_names[conf->values[key].origin]);
        cJSON_AddStringToObject(object, "source", conf->values[key].source);
        cJSON_AddStringToObject(object, "default", row->initial);
        cJSON_AddStringToObject(object, "allowed", conf_allowed(row, allowed, sizeof allowed));
        cJSON_AddStringToObject(object, "unit",
                                (row->kind == CONF_KIND_DURATION ? "seconds"
                                 : row->kind == CONF_KIND_INT    ? row->words
                                                                 : ""));
        cJSON_AddBoolToObject(object, "agree", row->is_agreed);
        cJSON_AddStringToObject(object, "decides", conf_row_results[row->result]);
        cJSON_AddStringToObject(object, "commands", row->commands);
        cJSON_AddStringToObject(object, "help", row->help);
    }
    char *printed = is_whole ? cJSON_Print(root) : NULL;
    if (printed != NULL)
        text_add(out, "%s\n", printed);
    else
        out->overflow = true; /* out of memory: the caller gets a text that is marked as cut */
    cJSON_free(printed);
    cJSON_Delete(root);
}

/* ---- rows ---- */

static const char *shown_default(const struct conf_row *row)
{
    return row->initial[0] != 0 ? row->initial : "empty";
}

static void add_help_row(struct text *out, const struct conf_row *row)
{
    char allowed[256], words[1024];
    if (row->kind == CONF_KIND_CHOICE)
        text_format(words, sizeof words, "(%s) %s", conf_allowed(row, allowed, sizeof allowed),
                    row->help);
    else
        text_copy(words, sizeof words, row->help);
    text_add(out, "  %-17s  %-9s  ", row->name, shown_default(row));
    /* Wrap the words at HELP_WIDTH columns and end the line; the cursor is at column
     * HELP_INDENT. */
    const char *word = words;
    int column = HELP_INDENT;
    while (*word != 0) {
        int n = (int)strcspn(word, " ");
        if (column > HELP_INDENT && column + 1 + n > HELP_WIDTH) {
            text_add(out, "\n%*s", HELP_INDENT, "");
            column = HELP_INDENT;
        }
        text_add(out, "%s%.*s", column > HELP_INDENT ? " " : "", n, word);
        column += n + (column > HELP_INDENT ? 1 : 0);
        word += n;
        word += strspn(word, " ");
    }
    text_add(out, "\n");
}

static void write_group(int group, struct text *out, bool is_bold)
{
    text_add(out, "%s%s%s\n", is_bold ? "\033[1m" : "", conf_row_headings[group],
             is_bold ? "\033[0m" : "");
    for (int key = 0; key < CONF_N; key++)
        if ((int)conf_rows[key].group == group)
            add_help_row(out, &conf_rows[key]);
}

void conf_write_help(struct text *out, bool is_bold)
{
    for (int group = 0; group < CONF_GROUP_N; group++) {
        text_add(out, "\n");
        write_group(group, out, is_bold);
    }
}

bool conf_write_topic(const char *topic, struct text *out, bool is_bold)
{
    for (int group = 0; group < CONF_GROUP_N; group++)
        if (strcmp(conf_row_topics[group], topic) == 0) {
            write_group(group, out, is_bold);
            return true;
        }
    return false;
}

void conf_write_row(enum conf_key key, struct text *out) { add_help_row(out, &conf_rows[key]); }

bool conf_write_setting(const char *name, struct text *out)
{
    char allowed[256];
    for (int key = 0; key < CONF_N; key++) {
        const struct conf_row *row = &conf_rows[key];
        if (strcasecmp(row->name, name) != 0)
            continue;
        text_add(out, "%s: %s\n", row->name, row->help);
        text_add(out, "  default  %s\n", shown_default(row));
        text_add(out, "  allowed  %s%s%s\n", conf_allowed(row, allowed, sizeof allowed),
                 row->why[0] != 0 ? "; " : "", row->why);
        text_add(out, "  nodes    %s\n",
                 row->is_agreed ? "must be the same on all nodes of a run"
                                : "may differ between nodes");
        if (row->result != CONF_RESULT_NO)
            text_add(out, "  decides  %s\n", conf_row_results[row->result]);
        text_add(out, "  commands %s\n", row->commands);
        return true;
    }
    return false;
}

static void write_markdown_rows(int group, struct text *out)
{
    char allowed[256];
    text_add(out, "| name | default | allowed | nodes | decides | commands | meaning |\n"
                  "|---|---|---|---|---|---|---|\n");
    for (int key = 0; key < CONF_N; key++) {
        const struct conf_row *row = &conf_rows[key];
        if ((int)row->group == group)
            text_add(out, "| `%s` | %s | %s | %s | %s | %s | %s |\n", row->name, shown_default(row),
                     conf_row_shown(row, allowed, sizeof allowed), row->is_agreed ? "same" : "",
                     conf_row_results[row->result], row->commands, row->help);
    }
}

void conf_write_markdown(struct text *out)
{
    for (int group = 0; group < CONF_GROUP_N; group++) {
        text_add(out, "\n### %s\n\n", conf_row_headings[group]);
        write_markdown_rows(group, out);
    }
    text_add(out, "\n");
}

/* add_condition — appends a condition of a pair: `SHARD=hybrid`, `TP` over 1. */
static void add_condition(const struct conf_condition *c, struct text *out)
{
    const struct conf_row *row = &conf_rows[c->key];
    char word[32] = "";
    text_format(word, sizeof word, "%lld", (long long)c->value);
    if (row->kind == CONF_KIND_CHOICE)
        (void)conf_word(row, (int)c->value, word, sizeof word);
    switch (c->kind) {
    case CONF_CONDITION_IS:
        text_add(out, "`%s=%s`", row->name, word);
        break;
    case CONF_CONDITION_NOT:
        text_add(out, "`%s` other than %s", row->name, word);
        break;
    case CONF_CONDITION_OVER:
        if (row->kind != CONF_KIND_CHOICE) {
            text_add(out, row->kind == CONF_KIND_BOOL ? "`%s=1`" : "`%s` over %s", row->name, word);
            break;
        }
        for (int i = (int)c->value + 1; conf_word(row, i, word, sizeof word); i++)
            text_add(out, "%s`%s=%s`", i > c->value + 1 ? ", " : "", row->name, word);
        break;
    case CONF_CONDITION_UNSET:
        text_add(out, "no `%s`", row->name);
        break;
    case CONF_CONDITION_NONE:
        break;
    }
}

void conf_write_pairs_markdown(struct text *out)
{
    text_add(out, "| setting | does not go with | reason, or what to do |\n|---|---|---|\n");
    for (const struct conf_pair *pair = conf_rules_pairs;
         pair < conf_rules_pairs + conf_rules_pairs_n; pair++) {
        text_add(out, "| ");
        add_condition(&pair->a, out);
        for (const struct conf_condition *b = pair->b; b->kind != CONF_CONDITION_NONE; b++) {
            text_add(out, b == pair->b ? " | " : ", ");
            add_condition(b, out);
        }
        text_add(out, " | %s |\n", pair->remedy);
    }
}

void conf_write_hooks_markdown(struct text *out) { write_markdown_rows(CONF_GROUP_HOOK, out); }
