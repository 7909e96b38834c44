/* conf_fault — parses FAULT, a failure to inject: KIND@step=N with an optional :rank=R, or
 * flip@check. It must not know the effect of a failure. */
#include "conf/conf_row.h"

#include <string.h>

static const char *const fault_names[] = {
#define FAULT_NAME(row, value, word) [CONF_FAULT_##value] = word,
    CONF_FAULT_LIST(FAULT_NAME)
#undef FAULT_NAME
};
#define FAULT_CHECK "flip@check"
#define FAULTS_N ((int)(sizeof fault_names / sizeof fault_names[0]))

/* set_fault_rank — parses ":rank=R", or nothing. */
static bool set_fault_rank(struct conf *conf, const char *text)
{
    int64_t rank = 0;
    if (text[0] != 0 &&
        (!text_starts(text, ":rank=") || text_parse_i64(text + 6, 0, INT32_MAX, &rank) != TEXT_OK))
        return false;
    conf->fault_rank = (int)rank;
    return true;
}

enum status conf_fault_set(struct conf *conf, const struct conf_row *row, const char *text,
                           const char *source)
{
    conf->fault = CONF_FAULT_NONE;
    conf->fault_step = 0;
    conf->fault_rank = 0;
    if (text[0] == 0)
        return ST_OK;
    if (text_starts(text, FAULT_CHECK)) {
        /* Parse the rest after flip@check, which has no step. */
        conf->fault = CONF_FAULT_FLIP;
        return set_fault_rank(conf, text + strlen(FAULT_CHECK))
                   ? ST_OK
                   : conf_refuse(row, text, source, "needs the number of a rank");
    }
    char digits[32];
    const char *at = strchr(text, '@');
    if (at == NULL || !text_starts(at, "@step="))
        return conf_refuse(row, text, source, "is not of the form KIND@step=N");
    for (int kind = CONF_FAULT_KILL; kind < FAULTS_N; kind++)
        if (strlen(fault_names[kind]) == (size_t)(at - text) &&
            text_starts(text, fault_names[kind]))
            conf->fault = (enum conf_FAULT)kind;
    if (conf->fault == CONF_FAULT_NONE)
        return conf_refuse(row, text, source, "is not a failure that can be injected");
    at += strlen("@step=");
    size_t n = strcspn(at, ":");
    if (!set_fault_rank(conf, at + n))
        return conf_refuse(row, text, source, "needs the number of a rank");
    if (n >= sizeof digits || !text_format(digits, sizeof digits, "%.*s", (int)n, at) ||
        text_parse_i64(digits, 1, INT64_C(1000000000000), &conf->fault_step) != TEXT_OK)
        return conf_refuse(row, text, source, "needs the number of a step, from 1");
    return ST_OK;
}

enum conf_FAULT conf_fault(const struct conf *conf) { return conf->fault; }

int64_t conf_fault_step(const struct conf *conf) { return conf->fault_step; }

int conf_fault_rank(const struct conf *conf) { return conf->fault_rank; }
