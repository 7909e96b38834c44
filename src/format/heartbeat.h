/* heartbeat — the callback by which a long job on files reports that it moves on. Must not know
 * what the job is for. */
#ifndef CONVOY_FORMAT_HEARTBEAT_H
#define CONVOY_FORMAT_HEARTBEAT_H

#include <stdint.h>

/* Called at least every 8 MiB of a long job, with the bytes done since the last call. NULL, or fn
 * NULL: not called. */
struct heartbeat {
    void (*fn)(void *arg, int64_t bytes);
    void *arg;
};

#endif
