/* run_info — see run_info.h. */
#include "node/run_info.h"

#include <stdlib.h>

#include "base/log.h"

enum status run_info_open(const struct conf *conf, struct run_info **out)
{
    const char *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    struct run_info *info = calloc(1, sizeof *info);
    if (!info)
        return FAIL(ST_RETRY, "out of memory: the run's log lines and settings");
    conf_write_settings(conf, &info->settings);
    if (conf_i64(conf, CONF_NODE_ID) == 0 && dir[0])
        /* dir has 4000 bytes at most */
        text_format(info->archive, sizeof info->archive, "%s/history.json", dir);
    log_tap(log_tail_add, &info->tail);
    *out = info;
    return ST_OK;
}

void run_info_close(struct run_info *info)
{
    if (!info)
        return;
    log_tap(NULL, NULL);
    text_free(&info->settings);
    free(info);
}
