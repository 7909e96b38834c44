/* limited — makes a call that may never return, such as a read from a lost file server, in a
 * thread, and abandons the thread after a time limit. Must not know the called function. */
#ifndef CONVOY_BASE_LIMITED_H
#define CONVOY_BASE_LIMITED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* limited_run — runs fn(arg) for at most limit_ms. fn gets a copy of arg (`bytes` bytes), which is
 * copied back when fn is done; it must use no other memory of the caller. what: the work of the
 * thread, for the message ("reads the GPUs' health"). Returns fn's status. ST_RETRY: no memory, or
 * no thread. ST_PEER with *is_late_out true: the limit has passed; arg is unchanged, and fn still
 * runs in its thread. */
enum status limited_run(enum status (*fn)(void *arg), void *arg, size_t bytes, int64_t limit_ms,
                        const char *what, bool *is_late_out);

#endif
