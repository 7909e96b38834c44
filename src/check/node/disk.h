/* check_disk — can checkpoints be written where they are to go, and how fast? Writes a file without
 * a name into the folder, so nothing stays there, whatever happens to the process. Must not know
 * what a checkpoint is. */
#ifndef CONVOY_CHECK_CHECK_DISK_H
#define CONVOY_CHECK_CHECK_DISK_H

#include "check/check.h"

/* check_disk — adds one row, "disk write": MEASURED in MB/s, the best slice of written and synced
 * bytes; FAIL with a remedy where the folder cannot be written (full, read-only, an input/output
 * error, no permission); SKIPPED without a folder, or with one that is bad. A folder that is
 * missing would be made by training: its nearest parent is tried. Writes at most `bytes`, and stops
 * after limit_ms. Also removes what killed checks have left there (node/scratch.h). Blocks as the
 * disk does. With a comm it is collective: the first rank of each node writes. A node with a slower
 * disk than the others writes again, up to three times, while they rest. */
enum status check_disk(const struct check_config *config, int64_t bytes, int64_t limit_ms,
                       struct check_rows *rows);
/* check_disk_is_bad — stage static has found that the folder cannot be used, such as one of a
 * server that does not answer: a call there may never return. */
bool check_disk_is_bad(const struct check_config *config);
#define CHECK_DISK_BAD "its folder cannot be used: see disk space"
/* check_disk_folder — where such files go: the folder itself, or its nearest parent that exists. */
void check_disk_folder(const char *dir, char *out, size_t cap);

#endif
