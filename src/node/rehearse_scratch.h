/* rehearse_scratch — a folder that is gone when this process and those that inherit its descriptor
 * are gone, however they end, kill -9 included. A process of its own waits for that and removes the
 * folder. Must not know what is in it. */
#ifndef CONVOY_NODE_REHEARSE_SCRATCH_H
#define CONVOY_NODE_REHEARSE_SCRATCH_H

#include <sys/types.h>

#include "base/file.h"
#include "base/status.h"

struct rehearse_scratch {
    char path[FILE_PATH_MAX];
    int hold_fd;   /* while any process has it open, the folder stays; outlives exec */
    pid_t remover; /* the process that removes it */
};

/* rehearse_scratch_open — makes PREFIX-XXXXXX, for this user alone. ST_STORE: it cannot be made;
 * ST_RETRY: no process or descriptor is left. */
enum status rehearse_scratch_open(const char *prefix, struct rehearse_scratch *out);
/* rehearse_scratch_close — blocks until the folder is removed: the other holders have ended.
 * Accepts one that was not opened (remover 0). */
void rehearse_scratch_close(struct rehearse_scratch *scratch);

#endif
