/* check_scratch — a folder for a check's own files below the folder of checkpoints, and the removal
 * of such folders after checks were killed. Several nodes, containers and jobs may share the
 * folder.
 *
 * The process that made such a folder holds a lock on a file in it (flock). The kernel releases the
 * lock when this process and its forked children have ended, however they ended. The file contains
 * the process that started the maker. It is removed last, after path/data, where the maker has its
 * own files. Must not know these. */
#ifndef CONVOY_CHECK_CHECK_SCRATCH_H
#define CONVOY_CHECK_CHECK_SCRATCH_H

#include "base/file.h"

#define CHECK_SCRATCH_DATA "/data"
struct check_scratch {
    char path[FILE_PATH_MAX]; /* "": none */
    int lock;                 /* a descriptor, which a forked process inherits */
};

/* check_scratch_open — makes "dir/.convoy-check-XXXXXXXX-YYYYYY"; the X identify this start of the
 * machine. dir must exist. Removes the folder if a later step fails. ST_STORE: the folder cannot be
 * made. ST_BAD_SETTING: the path is too long. */
enum status check_scratch_open(const char *dir, struct check_scratch *out);
/* check_scratch_close — removes the folder with all its files; ST_OK if it has already disappeared.
 * May be called after a failed open. */
enum status check_scratch_close(struct check_scratch *scratch);
/* check_scratch_leave — abandons a folder whose disk does not answer; a later sweep removes it. */
void check_scratch_leave(struct check_scratch *scratch);

/* check_scratch_sweep — removes the folders of killed checks in dir (or in its nearest parent that
 * exists), and returns their number. They must belong to this user, and no process may hold them. A
 * folder from this start of the machine must be ten minutes old, any other a day, because not every
 * file system has locks that other mounts and machines see. Folders that cannot be removed stay.
 * Blocks as long as the disk does. */
int check_scratch_sweep(const char *dir);
/* check_scratch_sweep_own — removes only the folders that were made by processes which this one has
 * started, of any age. If such a process still holds one, it tries again for patience_ms, because
 * the process may be about to end. *removed_out: number of removed folders. ST_PEER: the disk did
 * not answer within limit_ms; the waiting thread is abandoned. */
enum status check_scratch_sweep_own(const char *dir, int64_t patience_ms, int64_t limit_ms,
                                    int *removed_out);

#endif
