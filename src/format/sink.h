/* sink — writes a new file from beginning to end, hashes it on the way, and syncs it.
 *
 * Bytes collect in a buffer that bypasses the page cache if the file system allows it: the kernel
 * copies nothing, and evicts no pages of other files. After a failure the file is incomplete, and
 * the caller removes it; it is never synced again. It must not know the meaning of the bytes. */
#ifndef CONVOY_FORMAT_SINK_H
#define CONVOY_FORMAT_SINK_H

#include <stdint.h>

#include "base/status.h"

/* The callback of a long job on files that reports its progress: called at least every 8 MiB, with
 * the bytes done since the last call. NULL, or fn NULL: not called. */
struct heartbeat {
    void (*fn)(void *arg, int64_t bytes);
    void *arg;
};

struct sink;
/* sink_open — creates a file; path must not exist; no link is followed. total_bytes: the planned
 * size, for messages. heartbeat may be NULL. ST_STORE, ST_RETRY. */
enum status sink_open(const char *path, int64_t total_bytes, const struct heartbeat *heartbeat,
                      struct sink **out);
/* sink_add — appends bytes and hashes them; writes when its buffer is full. Fails ST_STORE. */
enum status sink_add(struct sink *sink, const void *data, int64_t bytes);
/* sink_end — writes the rest and syncs; returns XXH3-64 and the number of all bytes. */
enum status sink_end(struct sink *sink, uint64_t *hash_out, int64_t *bytes_out);
/* sink_close — closes the file; ST_STORE if the system reports an error only now. Accepts NULL. */
enum status sink_close(struct sink *sink);

#endif
