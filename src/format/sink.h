/* sink — a new file, written from beginning to end, hashed on the way, synced.
 *
 * Bytes gather in a buffer that goes past the page cache where the file system allows that: no copy
 * by the kernel, no pages of others pushed out. After a failure the file is cut and the caller's to
 * remove; it is never synced again. Must not know what the bytes mean. */
#ifndef CONVOY_FORMAT_SINK_H
#define CONVOY_FORMAT_SINK_H

#include <stdint.h>

#include "base/status.h"
#include "format/safetensors.h"

struct sink;
/* sink_open — path must not exist; no link is followed. total_bytes: what will be written, for
 * failures. heartbeat may be NULL. ST_STORE, ST_RETRY. */
enum status sink_open(const char *path, int64_t total_bytes,
                      const struct safetensors_heartbeat *heartbeat, struct sink **out);
enum status sink_add(struct sink *sink, const void *data, int64_t bytes);
/* sink_end — all is there: synced. XXH3-64 of all bytes, and their number. */
enum status sink_end(struct sink *sink, uint64_t *hash_out, int64_t *bytes_out);
/* sink_close — ST_STORE when the system says only now that something failed. Accepts NULL. */
enum status sink_close(struct sink *sink);

#endif
