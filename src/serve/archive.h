/* archive — keeps the history of a run in a file, so that its curves outlive the process.
 *
 * A separate thread reads the file once and writes it on request, so a disk that hangs blocks
 * nothing else. The file is replaced atomically. It must not know the contents of the file. */
#ifndef CONVOY_SERVE_ARCHIVE_H
#define CONVOY_SERVE_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

#define ARCHIVE_BYTES_MAX ((size_t)2 << 20)

struct archive;

/* archive_open — starts the thread. path: a file in a folder, DIR/NAME. */
enum status archive_open(const char *path, struct archive **out);
/* archive_read — returns true once the file has been read, or there is none; then *out has its
 * bytes, to be freed with text_free. The first call begins to read: a download may have replaced
 * the file since archive_open. A file that is over ARCHIVE_BYTES_MAX or cannot be read counts
 * as none and is logged. Does not block; call it until it returns true, then no more. */
bool archive_read(struct archive *archive, struct text *out);
/* archive_write — replaces the file with these bytes soon, instead of bytes that still wait to be
 * written. It owns t's memory from now on. Does not block; the first failure is logged. If the
 * folder does not exist, nothing is written: the run ended before its workers made it. is_guest:
 * this run has not held the lock of the folder, and writes only if no other process holds it. */
void archive_write(struct archive *archive, struct text *t, bool is_guest);
/* archive_close — writes the waiting bytes, for at most 2 s. Accepts NULL. */
void archive_close(struct archive *archive);

#endif
