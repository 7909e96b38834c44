/* report — the JSON of GET /status, by contract §4: every field always there, null for what is not
 * known yet.
 *
 * A pure function of a view. Must not know HTTP. */
#ifndef CONVOY_SERVE_REPORT_H
#define CONVOY_SERVE_REPORT_H

#include "base/text.h"
#include "serve/view.h"

#define REPORT_SCHEMA 1

/* report_write — append the document, one line. Memory refused: t->overflow. */
void report_write(const struct view *view, struct text *t);

#endif
