/* verify_scratch — a temporary folder with a copy of one checkpoint, from which a run goes on
 * without touching the run's own folder. It must not know why. */
#ifndef CONVOY_NODE_VERIFY_SCRATCH_H
#define CONVOY_NODE_VERIFY_SCRATCH_H

#include "base/file.h"
#include "base/status.h"
#include "format/ckpt.h"

/* verify_scratch_make — in the folder tmp; out: its path, FILE_PATH_MAX. ST_STORE: it cannot be
 * written; the message says what to do. */
enum status verify_scratch_make(const char *tmp, char out[FILE_PATH_MAX]);
/* verify_scratch_copy — the files of a checkpoint, as a checkpoint of the scratch folder: links
 * where the file system allows them, so that little is copied. ST_STORE: there is no space for the
 * copy and two more of its size. */
enum status verify_scratch_copy(const char *scratch, const struct ckpt *ckpt);
/* verify_scratch_remove — warns about what cannot be removed; keeps the failure under way. "":
 * there is none. */
void verify_scratch_remove(const char *scratch);

#endif
