/* check_scratch — a folder of a check's own below the folder of checkpoints, and what is done with
 * those of checks that were killed. Several nodes, containers and jobs may share the folder.
 *
 * The process that made such a folder holds a lock on a file in it (flock), which the kernel drops
 * when the process and those it has forked are gone, however they ended. The file names the process
 * that started the maker. Must not know what a check keeps there. */
#ifndef CONVOY_CHECK_CHECK_SCRATCH_H
#define CONVOY_CHECK_CHECK_SCRATCH_H

#include "base/file.h"

struct check_scratch {
    char path[FILE_PATH_MAX]; /* "": none */
    int lock;                 /* a descriptor, which a forked process inherits */
};

/* check_scratch_open — dir: exists. Makes "dir/.convoy-check-XXXXXXXX-YYYYYY", X being of this
 * start of the machine; what was made is removed where it fails. Errors: ST_STORE, ST_BAD_SETTING:
 * the path is too long.
 * check_scratch_close — removes it with all that it holds; one that is gone is ST_OK. May be called
 * after a failed open. */
enum status check_scratch_open(const char *dir, struct check_scratch *out);
enum status check_scratch_close(struct check_scratch *scratch);
/* check_scratch_leave — where its disk does not answer: left to a later sweep. */
void check_scratch_leave(struct check_scratch *scratch);

/* check_scratch_sweep — removes the folders of killed checks in dir (or in its nearest parent that
 * exists): those of this user that no process holds, if they are of this start of this machine and
 * ten minutes old, or a day old, because not every file system has locks that other mounts and
 * machines see. What cannot be removed stays. Blocks as the disk does.
 * check_scratch_sweep_own — those alone that were made by processes which this one has started, of
 * any age. What such a process holds is looked at again for patience_ms: it may be about to end.
 * ST_PEER: the disk has not answered within limit_ms; the thread that asks it is left behind.
 * Both give how many were removed. */
int check_scratch_sweep(const char *dir);
enum status check_scratch_sweep_own(const char *dir, int64_t patience_ms, int64_t limit_ms,
                                    int *removed_out);

#endif
