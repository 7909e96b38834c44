/* archive — the history of a run in a file, so that its curves outlive the process.
 *
 * A thread reads the file once and writes it when it is told to: a disk that hangs holds up nothing
 * else. The file is replaced whole. Must not know what is in it. */
#ifndef CONVOY_SERVE_ARCHIVE_H
#define CONVOY_SERVE_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

#define ARCHIVE_BYTES_MAX ((size_t)1 << 20)

struct archive;

enum status archive_open(const char *path, struct archive **out);
/* archive_read — true once the file has been read, or there is none: then *out has its bytes, to be
 * freed by text_free. One over ARCHIVE_BYTES_MAX, or that cannot be read, counts as none and is
 * told in the log. To be called until it is true, then no more. */
bool archive_read(struct archive *archive, struct text *out);
/* archive_write — these bytes take the file's place soon; what waits to be written is replaced.
 * Takes over t's memory. A failure is told in the log, the first time. */
void archive_write(struct archive *archive, struct text *t);
/* archive_close — what waits is written, unless that takes over 2 s. Accepts NULL. */
void archive_close(struct archive *archive);

#endif
