/* stored_runs — runs that are read from their folders (record.h), for `convoy view`: finished,
 * failed, copied from elsewhere, or still training.
 *
 * The folders are untrusted. A file is read whole, up to ARCHIVE_BYTES_MAX, never through a
 * symbolic link in the folder, and only if it is a regular file. What is served is written anew
 * from what was understood. A file that has changed is read again. It must not know HTTP. */
#ifndef CONVOY_SERVE_STORED_RUNS_H
#define CONVOY_SERVE_STORED_RUNS_H

#include "base/status.h"
#include "serve/view.h"

#define STORED_RUNS_MAX 16

struct stored_runs;

/* Reads the runs in these folders; the names are borrowed until stored_runs_close. Fails
 * ST_NO_INPUT: a folder is not there, cannot be read or is not a run's; ST_BAD_DATA: its file is
 * damaged; ST_USAGE: more than STORED_RUNS_MAX. */
enum status stored_runs_open(char *const *dirs, int n, struct stored_runs **out);
void stored_runs_close(struct stored_runs *runs); /* accepts NULL */
/* Fills a view with the run that the path names: run i for /runs/i/…, else the first. Returns the
 * path within that run, such as /status. The view borrows from runs until the next call. */
const char *stored_runs_view(struct stored_runs *runs, const char *path, struct view *out);

#endif
