/* sink — see sink.h. */
#include "format/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#define CHUNK_BYTES (1 << 20)  /* hashed while it is in the second-level cache */
#define BUFFER_BYTES (4 << 20) /* written at once */
#define FLUSH_BYTES (8 << 20)  /* interval of write-back and heartbeats */
#define FLUSH_LAG (64 << 20)   /* more bytes written but not on disk block the writer */

struct sink {
    int fd;
    char path[FILE_PATH_MAX];
    XXH3_state_t *hash;
    char *buffer; /* BUFFER_BYTES, aligned to a page */
    size_t buffered;
    int64_t at, flushed; /* bytes written; bytes whose write-back was started */
    int64_t total_bytes;
    struct heartbeat heartbeat;
};

static bool is_direct(const struct sink *sink)
{
    int flags = fcntl(sink->fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT);
}

/* Starts the write-back of the written bytes, if the page cache is used, while the next bytes are
 * hashed, and waits for older bytes. So the last fsync is short and heartbeats are steady. A failed
 * write-back is reported once only, so it is never ignored here. */
static enum status flush_written(struct sink *sink)
{
    int64_t n = sink->at - sink->flushed, back = sink->flushed - FLUSH_LAG;
    int rc =
        is_direct(sink) ? 0 : sync_file_range(sink->fd, sink->flushed, n, SYNC_FILE_RANGE_WRITE);
    if (rc == 0 && back >= 0 && !is_direct(sink))
        rc = sync_file_range(sink->fd, back, n,
                             SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                 SYNC_FILE_RANGE_WAIT_AFTER);
    if (rc != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return FAIL(ST_STORE,
                    "cannot write %s, which needs %" PRId64
                    " bytes: %s; free space or replace the disk",
                    sink->path, sink->total_bytes, strerror(errno));
    if (sink->heartbeat.fn)
        sink->heartbeat.fn(sink->heartbeat.arg, n);
    sink->flushed = sink->at;
    return ST_OK;
}

/* Writes the buffer to the file. */
static enum status write_buffer(struct sink *sink)
{
    enum status st = file_write_at(sink->fd, sink->path, sink->buffer, sink->buffered, sink->at);
    if (st != ST_OK) {
        struct status_saved why;
        status_save(&why);
        return FAIL(st, "%s (%" PRId64 " of %" PRId64 " bytes were written)", why.message, sink->at,
                    sink->total_bytes);
    }
    sink->at += (int64_t)sink->buffered;
    sink->buffered = 0;
    return sink->at - sink->flushed >= FLUSH_BYTES ? flush_written(sink) : ST_OK;
}

enum status sink_add(struct sink *sink, const void *data, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        size_t n = bytes - done < CHUNK_BYTES ? (size_t)(bytes - done) : CHUNK_BYTES;
        if (n > BUFFER_BYTES - sink->buffered)
            n = BUFFER_BYTES - sink->buffered;
        char *chunk = sink->buffer + sink->buffered;
        memcpy(chunk, (const char *)data + done, n);
        /* hashes the copy: exactly the bytes that are written */
        XXH3_64bits_update(sink->hash, chunk, n);
        done += (int64_t)n;
        sink->buffered += n;
        if (sink->buffered == BUFFER_BYTES)
            TRY(write_buffer(sink));
    }
    return ST_OK;
}

enum status sink_end(struct sink *sink, uint64_t *hash_out, int64_t *bytes_out)
{
    /* The rest of the buffer is not a whole page, and goes through the page cache. */
    int flags = fcntl(sink->fd, F_GETFL);
    if (is_direct(sink) && fcntl(sink->fd, F_SETFL, flags & ~O_DIRECT) != 0)
        return FAIL(ST_STORE, "cannot switch off O_DIRECT for the end of %s: %s; check the disk",
                    sink->path, strerror(errno));
    TRY(write_buffer(sink));
    TRY(flush_written(sink));
    if (fsync(sink->fd) != 0)
        return FAIL(ST_STORE, "cannot sync %s (%" PRId64 " bytes): %s; check the disk", sink->path,
                    sink->total_bytes, strerror(errno));
    *hash_out = XXH3_64bits_digest(sink->hash);
    *bytes_out = sink->at;
    return ST_OK;
}

enum status sink_close(struct sink *sink)
{
    enum status st = ST_OK;
    if (!sink)
        return ST_OK;
    if (sink->fd >= 0 && close(sink->fd) != 0)
        st = FAIL(ST_STORE, "cannot close %s: %s; check the disk", sink->path, strerror(errno));
    XXH3_freeState(sink->hash);
    free(sink->buffer);
    free(sink);
    return st;
}

static enum status open_new(struct sink *sink)
{
    sink->hash = file_hash_new();
    sink->buffer = aligned_alloc(4096, BUFFER_BYTES);
    if (!sink->buffer)
        return FAIL(ST_RETRY, "out of memory: the buffer of %s", sink->path);
    sink->fd = open(sink->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (sink->fd < 0)
        return FAIL(ST_STORE, "cannot create %s (%" PRId64 " bytes): %s", sink->path,
                    sink->total_bytes, strerror(errno));
    if (sink->total_bytes >= BUFFER_BYTES)
        /* without it, the page cache is used */
        (void)fcntl(sink->fd, F_SETFL, O_DIRECT);
    return ST_OK;
}

enum status sink_open(const char *path, int64_t total_bytes, const struct heartbeat *heartbeat,
                      struct sink **out)
{
    struct sink *sink = memory_new(1, sizeof *sink);
    *sink = (struct sink){.fd = -1, .total_bytes = total_bytes};
    if (heartbeat)
        sink->heartbeat = *heartbeat;
    text_copy(sink->path, sizeof sink->path, path);
    enum status st = open_new(sink);
    if (st == ST_OK) {
        *out = sink;
        return ST_OK;
    }
    struct status_saved why;
    status_save(&why);
    sink_close(sink);
    status_restore(&why);
    return st;
}
