/* s3_download — see s3.h. Ranges arrive in any order, each in its place of PATH.part. PATH.ranges
 * has a line about the object and a digit for each range, '1' if it is complete. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "remote/s3_parallel.h"

enum { DOWNLOAD_RANGES_MAX = 10000, DOWNLOAD_THREADS = 8, DOWNLOAD_HEAD_MAX = 256 };
#define DOWNLOAD_RANGE_LEAST ((int64_t)8 << 20)
#define DOWNLOAD_RANGE_MOST ((int64_t)64 << 20)

struct download {
    const struct s3_object *object;
    struct curl_client_partial partial;
    char ranges_path[FILE_PATH_MAX];
    int ranges_fd;
    int64_t range_bytes, ranges_n;
    size_t head_bytes; /* bytes of the line before the digits */
    char *done;        /* the digits */
    struct s3_parallel parallel;
};

/* Writes the line about the object. It has the boot of this machine: after a power failure the disk
 * may lack bytes that a digit counts. */
static void write_head(const struct download *d, char out[DOWNLOAD_HEAD_MAX])
{
    char *boot = NULL;
    size_t n;
    if (file_read("/proc/sys/kernel/random/boot_id", 64, &boot, &n) != ST_OK)
        status_clear();
    else
        boot[strcspn(boot, "\n")] = '\0';
    text_format(out, DOWNLOAD_HEAD_MAX, "%s %lld %lld %s\n", d->object->etag,
                (long long)d->object->bytes, (long long)d->range_bytes, boot != NULL ? boot : "-");
    free(boot);
}

/* Returns the bytes of a range; the last one may be shorter. */
static int64_t count_bytes(const struct download *d, int64_t i)
{
    const int64_t left = d->object->bytes - i * d->range_bytes;
    return left < d->range_bytes ? left : d->range_bytes;
}

/* Opens PATH.ranges, and reads the ranges that an earlier call completed. If they are of another
 * object, the download begins again. */
static enum status open_ranges(struct download *d)
{
    char head[DOWNLOAD_HEAD_MAX];
    write_head(d, head);
    d->head_bytes = strlen(head);
    const size_t n = d->head_bytes + (size_t)d->ranges_n;
    char *kept = memory_new(n + 1, 1);
    d->ranges_fd = open(d->ranges_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (d->ranges_fd < 0) {
        free(kept);
        return FAIL(ST_STORE, "cannot create %s: %s", d->ranges_path, strerror(errno));
    }
    const ssize_t got = pread(d->ranges_fd, kept, n + 1, 0);
    const bool is_same = got == (ssize_t)n && memcmp(kept, head, d->head_bytes) == 0 &&
                         d->partial.have == d->object->bytes;
    d->done = memory_new((size_t)d->ranges_n + 1, 1);
    memset(d->done, '0', (size_t)d->ranges_n);
    for (int64_t i = 0; is_same && i < d->ranges_n; i++)
        d->done[i] = kept[d->head_bytes + (size_t)i] == '1' ? '1' : '0';
    free(kept);
    d->partial.have = 0;
    for (int64_t i = 0; i < d->ranges_n; i++)
        d->partial.have += d->done[i] == '1' ? count_bytes(d, i) : 0;
    if (is_same)
        return ST_OK;
    if (ftruncate(d->ranges_fd, 0) != 0 || ftruncate(d->partial.fd, 0) != 0)
        return FAIL(ST_STORE, "cannot empty %s: %s", d->partial.path, strerror(errno));
    TRY(file_write_at(d->ranges_fd, d->ranges_path, d->done, (size_t)d->ranges_n,
                      (int64_t)d->head_bytes));
    return file_write_at(d->ranges_fd, d->ranges_path, head, d->head_bytes, 0);
}

/* Downloads a range, unless an earlier call did. */
static enum status run_range(void *arg, struct s3_connection *connection, int64_t i)
{
    struct download *d = arg;
    if (d->done[i] == '1')
        return ST_OK;
    struct s3_request request = {.verb = "download",
                                 .method = "GET",
                                 .key = d->object->key,
                                 .etag = d->object->etag[0] != '\0' ? d->object->etag : NULL,
                                 .first = i * d->range_bytes,
                                 .n = count_bytes(d, i),
                                 .out_fd = d->partial.fd,
                                 .out_path = d->partial.path,
                                 .moved = &d->parallel.moved};
    TRY(s3_request_send(connection, &request));
    d->done[i] = '1';
    return file_write_at(d->ranges_fd, d->ranges_path, "1", 1, (int64_t)d->head_bytes + i);
}

/* Downloads the missing ranges; the partial file is open and locked. */
static enum status download_ranges(struct s3 *s3, struct download *d)
{
    TRY(open_ranges(d));
    TRY(curl_client_partial_room(&d->partial, d->object->bytes - d->partial.have));
    if (ftruncate(d->partial.fd, (off_t)d->object->bytes) != 0)
        return FAIL(ST_STORE, "cannot make %s %lld bytes long: %s; check CACHE_DIR",
                    d->partial.path, (long long)d->object->bytes, strerror(errno));
    d->parallel.s3 = s3;
    d->parallel.parts_n = d->ranges_n;
    d->parallel.threads_n = DOWNLOAD_THREADS;
    d->parallel.run = run_range;
    d->parallel.arg = d;
    d->parallel.total = d->object->bytes;
    d->parallel.moved = d->partial.have;
    return s3_parallel_run(&d->parallel);
}

/* Picks the size of ranges: enough of them for all connections, but not too short. */
static int64_t choose_range(const struct s3 *s3, int64_t bytes)
{
    int64_t range = bytes / DOWNLOAD_THREADS;
    range = range < DOWNLOAD_RANGE_LEAST ? DOWNLOAD_RANGE_LEAST : range;
    range = range > DOWNLOAD_RANGE_MOST ? DOWNLOAD_RANGE_MOST : range;
    range = s3->config.range_bytes > 0 ? s3->config.range_bytes : range;
    const int64_t least = bytes / DOWNLOAD_RANGES_MAX + 1;
    return range < least ? least : range;
}

/* Waits for the lock of the partial file. *is_done: the file at path is complete. */
static enum status lock_partial(struct download *d, const char *path, bool *is_done)
{
    for (;;) {
        const int64_t here = file_bytes(path);
        *is_done = here == d->object->bytes;
        if (*is_done)
            return ST_OK;
        /* if there was none, another process may have completed the file since */
        if (here >= 0)
            TRY(curl_client_partial_remove(path));
        TRY(curl_client_partial_lock(&d->partial, path, is_done));
        if (!*is_done)
            return ST_OK;
    }
}

enum status s3_download(struct s3 *s3, const struct s3_object *object, const char *path)
{
    char name[S3_NAME_MAX], folder[FILE_PATH_MAX];
    struct download *d = memory_new(1, sizeof *d);
    d->object = object;
    d->ranges_fd = -1;
    d->partial =
        (struct curl_client_partial){.what = s3_request_name(s3, object->key, name, sizeof name),
                                     .cache_dir = folder,
                                     .progress = s3->config.progress,
                                     .progress_arg = s3->config.progress_arg,
                                     .fd = -1,
                                     .total = object->bytes};
    d->range_bytes = choose_range(s3, object->bytes);
    d->ranges_n = (object->bytes + d->range_bytes - 1) / d->range_bytes;
    enum status st = ST_OK;
    bool is_done = false;
    if (!text_format(d->partial.path, sizeof d->partial.path, "%s.part", path) ||
        !text_format(d->ranges_path, sizeof d->ranges_path, "%s.ranges", path) ||
        !text_copy(folder, sizeof folder, path))
        st = FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR", path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[slash == folder] = '\0';
    else
        text_copy(folder, sizeof folder, ".");
    if (st == ST_OK)
        st = lock_partial(d, path, &is_done);
    if (st == ST_OK && !is_done) {
        st = download_ranges(s3, d);
        if (st == ST_OK)
            st = curl_client_partial_commit(&d->partial, path);
        if (st == ST_OK || st == ST_BAD_DATA)
            unlink(d->ranges_path);
        if (st == ST_BAD_DATA)
            unlink(d->partial.path);
        if (st == ST_OK)
            LOG_DEBUG("downloaded %s: %lld bytes", name, (long long)object->bytes);
    }
    if (d->ranges_fd >= 0)
        close(d->ranges_fd);
    curl_client_partial_close(&d->partial);
    free(d->done);
    free(d);
    return st;
}
