/* limited — a call that may never return, such as one to a disk of a server that is gone: made in a
 * thread that is left behind after a limit. Must not know what is called. */
#ifndef CONVOY_BASE_LIMITED_H
#define CONVOY_BASE_LIMITED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* limited_run — fn(arg) for at most limit_ms. fn gets a copy of arg (`bytes` bytes), which comes
 * back when it is done; it must use nothing of the caller's but that. what: what the thread does,
 * for the sentence ("reads the GPUs' health"). Returns fn's status. ST_RETRY: no memory, or no
 * thread. ST_PEER, and *is_late_out: the limit is over; arg is as it was, and fn goes on alone. */
enum status limited_run(enum status (*fn)(void *arg), void *arg, size_t bytes, int64_t limit_ms,
                        const char *what, bool *is_late_out);

#endif
