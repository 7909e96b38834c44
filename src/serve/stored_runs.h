/* stored_runs — the file that outlives a run's process, CHECKPOINT_DIR/history.json: how it is
 * written, and how `convoy view` reads it, for runs that are finished, failed, copied from another
 * machine, or still training. It is the answer of GET /history with one more member, `record`, the
 * last answers of /status, /settings and /log:
 *
 *   {"schema":1, …, "record":{"written":1763900000.5,"status":{…},"settings":{…},"log":"…"}}
 *
 * `written` is in seconds since 1970. STORED_RUNS_RANKS ranks and nodes of the status are kept, so
 * the file stays below ARCHIVE_BYTES_MAX.
 *
 * The folders are untrusted. A file is read whole, up to ARCHIVE_BYTES_MAX, never through a
 * symbolic link in the folder, and only if it is a regular file. Served answers are written anew
 * from the interpreted values. A file that has changed is read again. It must not know HTTP. */
#ifndef CONVOY_SERVE_STORED_RUNS_H
#define CONVOY_SERVE_STORED_RUNS_H

#include "base/status.h"
#include "base/text.h"
#include "serve/view.h"

#define STORED_RUNS_MAX 16
#define STORED_RUNS_RANKS 128

struct stored_runs;

/* stored_runs_open — reads the runs in these folders; the names are borrowed until
 * stored_runs_close. Fails ST_NO_INPUT: a folder is not there, cannot be read or is not a run's;
 * ST_BAD_DATA: its file is damaged; ST_USAGE: more than STORED_RUNS_MAX. */
enum status stored_runs_open(char *const *dirs, int n, struct stored_runs **out);
void stored_runs_close(struct stored_runs *runs); /* accepts NULL */
/* stored_runs_view — fills a view with the run in the path: run i for /runs/i/…, else the first.
 * Returns the path within that run, such as /status. The view borrows from runs until the next
 * call. */
const char *stored_runs_view(struct stored_runs *runs, const char *path, struct view *out);

/* stored_runs_write — appends the file of a run as one line. Reduces the view's ranks and nodes to
 * STORED_RUNS_RANKS. */
void stored_runs_write(struct view *view, struct text *t);

#endif
