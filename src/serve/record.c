/* record — see record.h. */
#include "serve/record.h"

#include <stdlib.h>

#include "base/json.h"
#include "serve/history.h"
#include "serve/journal.h"
#include "serve/report.h"

static int min_int(int a, int b) { return a < b ? a : b; }

/* Removes the last n bytes. */
static void drop_end(struct text *t, size_t n)
{
    t->len -= t->len < n ? t->len : n;
    if (t->data != NULL)
        t->data[t->len] = 0;
}

void record_write(struct view *view, struct text *t)
{
    view->peers_n = min_int(view->peers_n, RECORD_RANKS);
    view->nodes_n = min_int(view->nodes_n, RECORD_RANKS);
    history_write(view->history, t);
    drop_end(t, sizeof("}\n") - 1);
    text_add(t, ",\"record\":{\"written\":%.3f,\"status\":", (double)view->wall_ms / 1000);
    report_write(view, t);
    drop_end(t, sizeof("\n") - 1);
    text_add(t, ",\"settings\":%s",
             view->settings != NULL ? view->settings : "{\"settings\":[]}\n");
    drop_end(t, sizeof("\n") - 1);
    /* Appends the log as a JSON string. */
    struct text log = {0};
    journal_write(view->journal, &log);
    const size_t cap = 6 * log.len + 3;
    char *quoted = malloc(cap);
    if (quoted != NULL && !log.overflow)
        json_quote(quoted, cap, log.len > 0 ? log.data : "");
    else
        t->overflow = true;
    text_add(t, ",\"log\":%s", quoted != NULL ? quoted : "\"\"");
    free(quoted);
    text_free(&log);
    text_add(t, "}}\n");
}
