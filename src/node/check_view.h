/* check_view — the check of a node as /status and /metrics show it, made once for each result on
 * the board. Must not know HTTP. */
#ifndef CONVOY_NODE_CHECK_VIEW_H
#define CONVOY_NODE_CHECK_VIEW_H

#include "conf/conf.h"
#include "serve/view.h"

struct check_view;

/* check_view_open — both are borrowed. check_view_close — accepts NULL. */
struct check_view *check_view_open(const struct conf *conf, const struct board *board);
void check_view_close(struct check_view *view);
/* check_view_fill — sets check_json and check_metrics; valid until the next call. */
void check_view_fill(struct check_view *view, struct view *out);

#endif
