/* stream.c — see stream.h. */
#include "data/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zstd.h>

#include "base/file.h"
#include "base/memory.h"

#define STREAM_RAW_BYTES ((size_t)1 << 17)
#define STREAM_WINDOW_LOG 27 /* 128 MiB: zstd's own default limit */
/* Output over this many times the input, and over this many bytes, is refused. */
#define STREAM_GROWTH_MAX 1000
#define STREAM_GROWTH_FREE ((int64_t)64 << 20)

struct stream {
    const struct data_file *file;
    stream_fn *on_raw;
    void *arg;
    int fd;
    int64_t raw_bytes, out_bytes;
    ZSTD_DCtx *zstd; /* NULL: not compressed */
    uint8_t *raw;    /* bytes read and not yet decompressed: [raw_at, raw_n) */
    size_t raw_at, raw_n;
    size_t hint; /* zstd's last return value; 0: a frame is complete */
};

static enum status open_zstd(struct stream *stream)
{
    stream->raw = memory_new(1, STREAM_RAW_BYTES);
    stream->zstd = ZSTD_createDCtx();
    if (stream->zstd == NULL)
        return FAIL(ST_RETRY, "out of memory for unpacking %s", stream->file->path);
    ZSTD_DCtx_setParameter(stream->zstd, ZSTD_d_windowLogMax, STREAM_WINDOW_LOG);
    return ST_OK;
}

enum status stream_open(const struct data_file *file, stream_fn *on_raw, void *arg,
                        struct stream **out)
{
    struct stream *stream = memory_new(1, sizeof *stream);
    *stream = (struct stream){.file = file, .on_raw = on_raw, .arg = arg};
    stream->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    enum status st = ST_OK;
    if (stream->fd < 0)
        st = file_read_fail(file->path, "open");
    else
        posix_fadvise(stream->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (st == ST_OK && file->is_packed)
        st = open_zstd(stream);
    if (st != ST_OK) {
        stream_close(stream);
        return st;
    }
    *out = stream;
    return ST_OK;
}

void stream_close(struct stream *stream)
{
    if (stream == NULL)
        return;
    if (stream->fd >= 0)
        close(stream->fd);
    ZSTD_freeDCtx(stream->zstd);
    free(stream->raw);
    free(stream);
}

int64_t stream_raw_bytes(const struct stream *stream) { return stream->raw_bytes; }

/* read_raw — reads up to cap bytes of the file; fewer only at its end. */
static enum status read_raw(struct stream *stream, uint8_t *out, size_t cap, size_t *n_out)
{
    size_t n = 0;
    while (n < cap) {
        const ssize_t got = read(stream->fd, out + n, cap - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return file_read_fail(stream->file->path, "read");
        if (got == 0)
            break;
        n += (size_t)got;
    }
    if (stream->on_raw != NULL)
        stream->on_raw(stream->arg, out, n);
    stream->raw_bytes += (int64_t)n;
    *n_out = n;
    if (n < cap && stream->raw_bytes != stream->file->bytes)
        return FAIL(ST_BAD_DATA,
                    "%s changed while it was read: it had %lld bytes and has %lld now; start again "
                    "when it is complete",
                    stream->file->path, (long long)stream->file->bytes,
                    (long long)stream->raw_bytes);
    return ST_OK;
}

/* Calls the unpacker once, after reading more of the file if all bytes so far were consumed. False
 * in *more: the end. */
static enum status unpack_some(struct stream *stream, ZSTD_outBuffer *out, bool *more)
{
    const size_t before = out->pos;
    if (stream->raw_at == stream->raw_n) {
        stream->raw_at = 0;
        TRY(read_raw(stream, stream->raw, STREAM_RAW_BYTES, &stream->raw_n));
    }
    const bool is_file_end = stream->raw_n == 0;
    ZSTD_inBuffer in = {stream->raw, stream->raw_n, stream->raw_at};
    if (!is_file_end || stream->hint != 0) {
        const size_t result = ZSTD_decompressStream(stream->zstd, out, &in);
        if (ZSTD_isError(result)) {
            const char *remedy = "copy or make it again";
            if (strstr(ZSTD_getErrorName(result), "memory") != NULL)
                remedy = "it was packed with a window over 128 MiB; pack it again without --long "
                         "or --ultra";
            return FAIL(ST_BAD_DATA, "%s: zstd cannot unpack it after byte %lld of %lld: %s; %s",
                        stream->file->path,
                        (long long)(stream->raw_bytes - (int64_t)(stream->raw_n - stream->raw_at)),
                        (long long)stream->file->bytes, ZSTD_getErrorName(result), remedy);
        }
        stream->raw_at = in.pos;
        stream->hint = result;
        stream->out_bytes += (int64_t)(out->pos - before);
    }
    if (stream->out_bytes > STREAM_GROWTH_FREE &&
        stream->out_bytes / STREAM_GROWTH_MAX > stream->raw_bytes)
        return FAIL(ST_BAD_DATA,
                    "%s: %lld packed bytes unpack to over %lld, more than %d times as much; "
                    "this is not a text",
                    stream->file->path, (long long)stream->raw_bytes, (long long)stream->out_bytes,
                    STREAM_GROWTH_MAX);
    *more = !is_file_end || out->pos > before;
    if (!*more && stream->hint != 0)
        return FAIL(ST_BAD_DATA,
                    "%s is cut off: its %lld bytes end inside a zstd frame; copy or make it again",
                    stream->file->path, (long long)stream->raw_bytes);
    return ST_OK;
}

enum status stream_read(struct stream *stream, uint8_t *out, size_t cap, size_t *n_out)
{
    if (stream->zstd == NULL)
        return read_raw(stream, out, cap, n_out);
    ZSTD_outBuffer to = {out, cap, 0};
    for (bool more = true; more && to.pos < cap;)
        TRY(unpack_some(stream, &to, &more));
    *n_out = to.pos;
    return ST_OK;
}

#ifdef FUZZ
#include <sys/mman.h>

#include "base/assert.h"
#include "base/text.h"

/* The result of reading a file: status, bytes, checksum. */
struct whole {
    enum status st;
    size_t n;
    uint64_t sum;
};

/* Reads all of it, or FUZZ_MOST bytes, `step` bytes at a time. */
enum { FUZZ_MOST = 1 << 16 };
static struct whole read_in_steps(const struct data_file *file, size_t step)
{
    static uint8_t out[1 << 16];
    struct stream *stream;
    struct whole all = {0};
    ASSERT(stream_open(file, NULL, NULL, &stream) == ST_OK);
    for (size_t n = step; n == step && all.n < FUZZ_MOST; all.n += n) {
        all.st = stream_read(stream, out, step, &n);
        if (all.st != ST_OK)
            break;
        ASSERT(n <= step);
        for (size_t i = 0; i < n; i++)
            all.sum = all.sum * 1099511628211u + out[i] + 1;
    }
    stream_close(stream);
    return all;
}

/* The first byte selects plain or zstd, and the size of the reads, which must change nothing. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (size == 0)
        return 0;
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        ASSERT(fd >= 0);
        text_format(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    ASSERT(ftruncate(fd, 0) == 0 && pwrite(fd, data + 1, size - 1, 0) == (ssize_t)size - 1);
    const struct data_file file = {
        .path = path, .is_packed = data[0] % 8 != 0, .bytes = (int64_t)size - 1};
    const struct whole a = read_in_steps(&file, 1 << 16),
                       b = read_in_steps(&file, 1 + (size_t)data[0] * 61);
    if (a.n < FUZZ_MOST && b.n < FUZZ_MOST)
        ASSERT(a.st == b.st && (a.st != ST_OK || (a.n == b.n && a.sum == b.sum)));
    return 0;
}
#endif
