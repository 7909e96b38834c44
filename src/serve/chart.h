/* chart — a node's /history as a few lines of text, for `convoy status`: curves in block characters
 * and the last events.
 *
 * Pure functions of untrusted bytes, which never reach a terminal raw. It must not know HTTP. */
#ifndef CONVOY_SERVE_CHART_H
#define CONVOY_SERVE_CHART_H

#include <stddef.h>

#include "base/json.h"
#include "base/text.h"

/* chart_write — appends the curves of loss and speed, and the last events. Appends nothing if the
 * bytes are not a history, or an empty one. */
void chart_write(const char *bytes, size_t n, struct text *t);
/* chart_strip_controls — replaces terminal controls (C0, C1, DEL) by '?' in all strings of this
 * item, its siblings and its children. */
void chart_strip_controls(cJSON *item);

#endif
