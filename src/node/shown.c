/* shown — see shown.h. */
#include "node/shown.h"

#include <stdlib.h>

#include "base/log.h"

static void on_line(void *tail, int64_t wall_ms, const char *line)
{
    tail_add(tail, wall_ms, line);
}

enum status shown_open(const struct conf *conf, struct shown **out)
{
    const char *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    struct shown *shown = calloc(1, sizeof *shown);
    if (!shown)
        return FAIL(ST_RETRY, "out of memory: what is shown of this run");
    conf_write_settings(conf, &shown->settings);
    if (conf_i64(conf, CONF_NODE_ID) == 0 && dir[0])
        /* dir has 4000 bytes at most */
        text_format(shown->archive, sizeof shown->archive, "%s/history.json", dir);
    log_tap(on_line, &shown->tail);
    *out = shown;
    return ST_OK;
}

void shown_close(struct shown *shown)
{
    if (!shown)
        return;
    log_tap(NULL, NULL);
    text_free(&shown->settings);
    free(shown);
}
