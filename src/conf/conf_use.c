/* conf_use — what a command reads the settings for. The same environment often holds a job's
 * settings and runs other commands as well: those take no part in a mesh of workers, so its
 * settings get their defaults there, before relations are checked. It must not know commands. */
#include "conf/conf_row.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"

/* What WORKERS do not read, and what ALONE does not read either. is_logged: people may expect it to
 * speed a command up. */
static const struct unused {
    enum conf_key key;
    enum conf_use last; /* that reads it */
    bool is_logged;
} unused[] = {{CONF_TP, CONF_USE_JOB, true},
              {CONF_TP_ACROSS_NODES, CONF_USE_JOB, false},
              {CONF_PP, CONF_USE_JOB, true},
              {CONF_PP_SCHEDULE, CONF_USE_JOB, false},
              {CONF_PP_CHUNKS, CONF_USE_JOB, false},
              {CONF_CP, CONF_USE_JOB, true},
              {CONF_RECOMPUTE, CONF_USE_JOB, false},
              {CONF_SHARD, CONF_USE_JOB, false},
              {CONF_COMPRESS, CONF_USE_JOB, false},
              {CONF_LOCAL_STEPS, CONF_USE_JOB, false},
              {CONF_OUTER_LR, CONF_USE_JOB, false},
              {CONF_OUTER_MOMENTUM, CONF_USE_JOB, false},
              {CONF_PEER_COPIES, CONF_USE_JOB, false},
              {CONF_ON_LOSS, CONF_USE_JOB, false},
              {CONF_MIN_NODES, CONF_USE_JOB, false},
              {CONF_DETERMINISTIC, CONF_USE_JOB, false},
              {CONF_GLOBAL_BATCH, CONF_USE_JOB, false},
              {CONF_FAULT, CONF_USE_JOB, false},
              {CONF_BACKEND, CONF_USE_WORKERS, false},
              {CONF_N_NODES, CONF_USE_WORKERS, true},
              {CONF_NODE_ID, CONF_USE_WORKERS, false},
              {CONF_N_GPU_EACH_NODE, CONF_USE_WORKERS, true}};

/* note — for conf_use_log: a value that differs from the default. */
static void note(struct conf *conf, enum conf_key key)
{
    const struct conf_value *value = &conf->values[key];
    const struct conf_row *row = &conf_rows[key];
    char text[64];
    size_t n = strlen(conf->dropped);
    if (strcmp(value->text, row->initial) != 0)
        text_format(conf->dropped + n, sizeof conf->dropped - n, "%s%s=%s (%s)", n > 0 ? ", " : "",
                    row->name, conf_clean(value->text, text, sizeof text), value->source);
}

void conf_use_drop(struct conf *conf, enum conf_use use)
{
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++) {
        struct conf_value *value = &conf->values[unused[i].key];
        if (use <= unused[i].last || value->text == NULL)
            continue;
        if (unused[i].is_logged)
            note(conf, unused[i].key);
        if (unused[i].key == CONF_FAULT) /* parsed apart */
            conf->fault = CONF_FAULT_NONE, conf->fault_rank = 0;
        conf_drop(value, unused[i].key);
        *value = (struct conf_value){.text = NULL};
    }
}

void conf_use_log(const struct conf *conf, const char *command)
{
    if (conf->dropped[0] != 0)
        LOG_INFO("%s runs in one process and does not use %s", command, conf->dropped);
}
