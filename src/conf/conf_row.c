/* conf_row — the columns of a row, as conf_row.h and conf.h describe them. */
#include "conf/conf_row.h"

#include <string.h>

const char *const conf_row_headings[CONF_GROUP_N + 1] = {
    [CONF_GROUP_MODEL] = "Model",
    [CONF_GROUP_DATA] = "Data and batches",
    [CONF_GROUP_OPTIM] = "Optimiser",
    [CONF_GROUP_CHECKPOINT] = "Checkpoints, evaluation, metrics",
    [CONF_GROUP_NODE] = "Nodes, device, recovery",
    [CONF_GROUP_STATUS] = "Status and logs",
    [CONF_GROUP_COMMAND] = "Other commands",
};

const char *const conf_row_topics[CONF_GROUP_N] = {
    [CONF_GROUP_MODEL] = "model",      [CONF_GROUP_DATA] = "data",
    [CONF_GROUP_OPTIM] = "optimiser",  [CONF_GROUP_CHECKPOINT] = "checkpoints",
    [CONF_GROUP_NODE] = "network",     [CONF_GROUP_STATUS] = "logs",
    [CONF_GROUP_COMMAND] = "commands",
};

const char *const conf_row_results[CONF_RESULT_LENGTH + 1] = {
    [CONF_RESULT_NO] = "",
    [CONF_RESULT_MODEL] = "model",
    [CONF_RESULT_DATA] = "data",
    [CONF_RESULT_LOSSES] = "losses",
    [CONF_RESULT_ROUNDING] = "rounding",
    [CONF_RESULT_LENGTH] = "length",
};

const char *conf_row_topic(int i) { return i >= 0 && i < CONF_GROUP_N ? conf_row_topics[i] : NULL; }

const char *conf_row_shown(const struct conf_row *row, char *out, size_t cap)
{
    if (row->kind == CONF_KIND_TEXT || row->kind == CONF_KIND_HOST ||
        row->kind == CONF_KIND_MULTILINE)
        return "text";
    if (row->kind == CONF_KIND_FAULT)
        return "kill@step=N:rank=R …";
    if (row->kind == CONF_KIND_BOOL)
        return "1, 0";
    return conf_allowed(row, out, cap);
}

const char *conf_row_name(enum conf_key key) { return conf_rows[key].name; }

const char *conf_row_heading(enum conf_key key) { return conf_row_headings[conf_rows[key].group]; }

const char *conf_row_default(enum conf_key key) { return conf_rows[key].initial; }

const char *conf_row_help(enum conf_key key) { return conf_rows[key].help; }

enum conf_result conf_row_result(enum conf_key key) { return conf_rows[key].result; }

bool conf_row_is_of(enum conf_key key, const char *command)
{
    const size_t command_n = strlen(command);
    const char *at = conf_rows[key].commands;
    for (size_t n; at[0] != 0; at += n + (at[n] == ' ')) {
        n = strcspn(at, " ");
        if (n == command_n && strncmp(at, command, n) == 0)
            return true;
    }
    return false;
}

const char *conf_row_choices(enum conf_key key)
{
    const struct conf_row *row = &conf_rows[key];
    return row->kind == CONF_KIND_CHOICE ? row->words : row->kind == CONF_KIND_BOOL ? "1|0" : "";
}

const char *conf_row_allowed(enum conf_key key, char *out, size_t cap)
{
    return conf_row_shown(&conf_rows[key], out, cap);
}
