/* report — the JSON of GET /status. Every field is always present; null: unknown so far. It is a
 * contract with scripts: fields are added, not renamed.
 *
 * A pure function of a view. It must not know HTTP. */
#ifndef CONVOY_SERVE_REPORT_H
#define CONVOY_SERVE_REPORT_H

#include "base/text.h"
#include "serve/view.h"

#define REPORT_SCHEMA 1

/* report_write — appends the document as one line. Out of memory: sets t->overflow. */
void report_write(const struct view *view, struct text *t);
/* report_write_markdown — appends a table of all members, for docs/status.md. The code that adds a
 * member also adds its row. */
void report_write_markdown(struct text *t);

#endif
