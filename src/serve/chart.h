/* chart — a node's /history in a few lines of text, for `convoy status`: curves of block
 * characters, the last events.
 *
 * A pure function of bytes from outside, which never reach a terminal raw. Must not know HTTP. */
#ifndef CONVOY_SERVE_CHART_H
#define CONVOY_SERVE_CHART_H

#include <stddef.h>

#include "base/json.h"
#include "base/text.h"

/* chart_write — append loss and speed since the start and what happened last. Nothing where the
 * bytes are no history or an empty one. */
void chart_write(const char *bytes, size_t n, struct text *t);
/* chart_strip_controls — take out of all strings of this item, those beside and those within it
 * what could command a terminal: C0 and C1 controls and DEL become '?'. */
void chart_strip_controls(cJSON *item);

#endif
