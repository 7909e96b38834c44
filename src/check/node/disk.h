/* check_disk — checks whether checkpoints can be written to their folder, and how fast. Writes a
 * file without a name into the folder, so nothing stays there, whatever happens to the process.
 * Must not know the content of a checkpoint. */
#ifndef CONVOY_CHECK_CHECK_DISK_H
#define CONVOY_CHECK_CHECK_DISK_H

#include "check/check.h"

/* check_disk — measures the disk and adds one row, "disk write":
 *   MEASURED  MB/s of the best slice of written and synced bytes
 *   FAIL      the folder cannot be written (full, read-only, an input/output error, no permission);
 *             with a remedy
 *   SKIPPED   no folder is set, or it is bad
 *
 * Training would create a missing folder, so its nearest parent is tested. Writes at most `bytes`,
 * and stops after limit_ms. Also removes the remains of killed checks (node/scratch.h). Blocks as
 * long as the disk does. Collective with a comm: the first rank of each node writes. A node whose
 * disk is slower than the others writes again, up to three times, while they rest. */
enum status check_disk(const struct check_config *config, int64_t bytes, int64_t limit_ms,
                       struct check_rows *rows);
/* check_disk_is_bad — returns true if the stage "static" has found that the folder cannot be used,
 * for example because a server does not answer: a call there may never return. */
bool check_disk_is_bad(const struct check_config *config);
#define CHECK_DISK_BAD "its folder cannot be used: see disk space"
/* check_disk_folder — returns the folder for such files: the folder itself, or its nearest parent
 * that exists. */
void check_disk_folder(const char *dir, char *out, size_t cap);

#endif
