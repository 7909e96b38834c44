/* record — the file that outlives a run's process, CHECKPOINT_DIR/history.json: the answer of GET
 * /history with one more member, `record`, the last answers of /status, /settings and /log.
 *
 *   {"schema":1, …, "record":{"written":1763900000.5,"status":{…},"settings":{…},"log":"…"}}
 *
 * `written` is in seconds since 1970. Of the status RECORD_RANKS ranks and nodes are kept, so the
 * file stays below ARCHIVE_BYTES_MAX. It must not know files. */
#ifndef CONVOY_SERVE_RECORD_H
#define CONVOY_SERVE_RECORD_H

#include "base/text.h"
#include "serve/view.h"

#define RECORD_RANKS 128

/* Appends the document as one line. Reduces the view's ranks and nodes to RECORD_RANKS. */
void record_write(struct view *view, struct text *t);

#endif
