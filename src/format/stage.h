/* stage — a new folder or file, whole or not at all: it is written in a temporary folder next to
 * its target, TARGET.tmp-<pid>, and renamed. The folder is locked while it is in use, so that
 * another process removes only the leftovers of a killed one. It must not know the contents. */
#ifndef CONVOY_FORMAT_STAGE_H
#define CONVOY_FORMAT_STAGE_H

#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

struct stage {
    char target[FILE_PATH_MAX], temp[FILE_PATH_MAX], parent[FILE_PATH_MAX];
    int lock_fd; /* -1: the file system has no locks */
};

/* stage_name — sets the paths, and checks the target: nothing may be there, but for a folder an
 * empty folder. noun: "folder" or "file", the kind of the target, for messages. ST_BAD_SETTING:
 * such a target cannot be written. */
enum status stage_name(struct stage *stage, const char *to, const char *noun);
/* stage_open — makes the folders above the target and the temporary folder, and removes leftovers.
 * ST_STORE: less than need_bytes are free, or the system refuses; nothing is left. Then call
 * stage_commit. */
enum status stage_open(struct stage *stage, int64_t need_bytes);
/* stage_commit — if st is ST_OK, renames the temporary folder, or the file of this name in it, to
 * the target, and syncs. Else, or if that fails, removes the temporary folder. file NULL: the
 * folder. Returns the first failure. */
enum status stage_commit(struct stage *stage, enum status st, const char *file);

#endif
