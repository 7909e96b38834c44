/* check_disk — see node/disk.h. */
#include "check/node/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/quantile.h"
#include "base/text.h"
#include "check/node/scratch.h"
#include "check/report/text.h"
#include "measure/measure_pattern.h"
#include "measure/measure_ranks.h"

#define SLICE_BYTES ((int64_t)1 << 20)
#define SLICES_MIN 2
#define ROUNDS 3    /* most repetitions */
#define SUSPECT 0.6 /* share of the nodes' median */

struct disk {
    const struct check_config *config;
    char dir[FILE_PATH_MAX]; /* the folder, or its nearest parent that exists */
    int fd;
    double best; /* seconds of the fastest slice; 0: nothing was written */
    int64_t written;
};

/* disk_row — returns a row. Only a failure is about checkpoints: a disk that can be written does
 * not prove that a checkpoint can be restored. */
static struct check_row disk_row(const struct disk *d, enum check_verdict verdict, const char *why)
{
    const enum check_point point =
        verdict == CHECK_VERDICT_FAIL ? CHECK_POINT_CHECKPOINT : CHECK_POINT_HOST;
    struct check_row row = check_row_found(CHECK_STAGE_NODE, point, d->config->place.node,
                                           "disk write", verdict, "%s", why);
    row.rank = d->config->place.rank;
    text_copy(row.subject, sizeof row.subject, d->config->dir);
    return row;
}

static void add_failed(const struct disk *d, const char *verb, int error, struct check_rows *rows)
{
    char why[256];
    text_format(why, sizeof why, "cannot %s a file in %.120s after %lld bytes: %s", verb, d->dir,
                (long long)d->written, strerror(error));
    struct check_row row = disk_row(d, CHECK_VERDICT_FAIL, why);
    char dir[CHECK_TEXT_WORD], *out = row.remedy;
    const size_t cap = sizeof row.remedy;
    check_text_folder(dir, sizeof dir, d->dir);
    if (error == ENOSPC || error == EDQUOT)
        text_format(
            out, cap,
            "d=%s; df -h \"$d\"; df -i \"$d\" # then delete old files, or set CHECKPOINT_DIR", dir);
    else if (error == EROFS)
        text_format(
            out, cap,
            "mount -o remount,rw \"$(findmnt -nT %s -o TARGET)\"; dmesg | tail # has the reason",
            dir);
    else if (error == EACCES || error == EPERM)
        text_format(out, cap, "chown %d:%d %s # docker: --user, Kubernetes: fsGroup",
                    (int)geteuid(), (int)getegid(), dir);
    else
        text_format(out, cap,
                    "dmesg | grep -i error # and smartctl -a of its disk; or set CHECKPOINT_DIR");
    check_row_add(rows, &row);
}

bool check_disk_is_bad(const struct check_config *config)
{
    bool is_bad = false;
    for (int i = 0; config->found && i < config->found->n; i++) {
        const struct check_row *row = &config->found->row[i];
        is_bad = is_bad || (row->verdict == CHECK_VERDICT_FAIL && !strcmp(row->name, "disk space"));
    }
    return is_bad;
}

void check_disk_folder(const char *dir, char *out, size_t cap)
{
    text_copy(out, cap, dir);
    while (!file_exists(out)) {
        char *slash = strrchr(out, '/');
        if (slash == NULL) {
            text_copy(out, cap, ".");
            return;
        }
        slash[slash == out] = 0;
    }
}

/* open_unnamed — opens a file that disappears when it is closed. On file systems without O_TMPFILE,
 * its name is removed immediately. Returns 0 or errno. */
static int open_unnamed(struct disk *d)
{
    char path[FILE_PATH_MAX];
    d->fd = open(d->dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (d->fd >= 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT)
        return errno;
    if (!text_format(path, sizeof path, "%s/.convoy-check-XXXXXX", d->dir))
        return ENAMETOOLONG;
    d->fd = mkostemp(path, O_CLOEXEC); /* a process id is not unique among containers */
    if (d->fd < 0)
        return errno;
    return unlink(path) == 0 ? 0 : errno;
}

/* write_slice — writes and syncs one slice. Returns 0 or errno; *verb_out: the operation that
 * failed. */
static int write_slice(struct disk *d, const char *data, const char **verb_out)
{
    const int64_t begin_ns = clock_ns();
    *verb_out = "write";
    for (int64_t at = 0; at < SLICE_BYTES;) {
        ssize_t n = pwrite(d->fd, data + at, (size_t)(SLICE_BYTES - at), d->written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        at += n;
        d->written += n;
    }
    *verb_out = "sync";
    if (fsync(d->fd) != 0)
        return errno;
    double seconds = (double)(clock_ns() - begin_ns) * 1e-9;
    if (d->best == 0 || seconds < d->best)
        d->best = seconds;
    return 0;
}

/* rate_of — returns the rate in MB/s. */
static double rate_of(const struct disk *d)
{
    return d->best > 0 ? (double)SLICE_BYTES / d->best * 1e-6 : 0;
}

/* write_all — writes in slices. If that fails, it adds a row, and the disk's rate is 0. */
static enum status write_all(struct disk *d, int64_t bytes, int64_t limit_ms,
                             struct check_rows *rows)
{
    const int64_t end_ms = clock_ms() + limit_ms;
    const char *verb;
    char *data = malloc((size_t)SLICE_BYTES);
    int error = data ? 0 : ENOMEM;
    if (data)
        measure_pattern_random(data, DTYPE_U8, SLICE_BYTES, (uint64_t)clock_ns());
    for (int i = 0; error == 0 && i < bytes / SLICE_BYTES; i++) {
        if (i >= SLICES_MIN && clock_ms() > end_ms)
            break;
        error = write_slice(d, data, &verb);
    }
    free(data);
    if (error == ENOMEM)
        return FAIL(ST_RETRY, "out of memory: %lld bytes to write", (long long)SLICE_BYTES);
    if (error == 0)
        return ST_OK;
    d->best = 0;
    add_failed(d, verb, error, rows);
    return ST_OK;
}

/* open_and_write — opens the file and writes it, or adds a row with the reason. */
static enum status open_and_write(struct disk *d, int64_t bytes, int64_t limit_ms,
                                  struct check_rows *rows)
{
    const struct check_config *config = d->config;
    const bool has_dir = config->dir && config->dir[0];
    if (!has_dir || check_disk_is_bad(config)) {
        struct check_row row =
            disk_row(d, CHECK_VERDICT_SKIPPED,
                     has_dir ? CHECK_DISK_BAD : "no folder for checkpoints is set");
        check_row_add(rows, &row);
        return ST_OK;
    }
    (void)check_scratch_sweep(config->dir);
    check_disk_folder(config->dir, d->dir, sizeof d->dir);
    int error = open_unnamed(d);
    if (error == 0)
        return write_all(d, bytes, limit_ms, rows);
    add_failed(d, "create", error, rows);
    return ST_OK;
}

/* ---- comparison with the other nodes ---- */

/* write_again — measures a disk that seems slow again while the other nodes rest, because they may
 * share it, or other processes may have written to it just then. Collective. */
static enum status write_again(struct disk *d, int64_t bytes, int64_t limit_ms, double *rate,
                               struct check_rows *rows)
{
    const int ranks = d->config->place.ranks;
    for (int round = 0; round < ROUNDS; round++) {
        const double own = rate_of(d);
        TRY(measure_ranks_gather(d->config->comm, &own, sizeof own, rate));
        int first = 0;
        quantile_sort(rate, ranks);
        while (first < ranks && rate[first] <= 0) /* skip ranks that do not write */
            first++;
        const double least = SUSPECT * quantile_median(rate + first, ranks - first);
        const bool is_any = first < ranks && rate[first] < least;
        if (!is_any)
            return ST_OK;
        if (own > 0 && own < least)
            TRY(write_all(d, bytes, limit_ms << round, rows));
    }
    return ST_OK;
}

static enum status measure_again(struct disk *d, int64_t bytes, int64_t limit_ms,
                                 struct check_rows *rows)
{
    if (!d->config->comm)
        return ST_OK;
    double *rate = memory_new((size_t)d->config->place.ranks, sizeof *rate);
    enum status st = write_again(d, bytes, limit_ms, rate, rows);
    free(rate);
    return st;
}

enum status check_disk(const struct check_config *config, int64_t bytes, int64_t limit_ms,
                       struct check_rows *rows)
{
    struct disk d = {.config = config, .fd = -1};
    enum status st = ST_OK;
    bytes = bytes < SLICE_BYTES ? SLICE_BYTES : bytes;
    if (config->place.local == 0)
        st = open_and_write(&d, bytes, limit_ms, rows);
    if (st == ST_OK)
        st = measure_again(&d, bytes, limit_ms, rows);
    if (st == ST_OK && d.best > 0) {
        char size[32];
        const double value = rate_of(&d);
        /* if others write to the disk, its speed is halved at times */
        struct check_row row =
            check_row_measured(CHECK_STAGE_NODE, CHECK_POINT_HOST, d.config->place.node,
                               "disk write", "MB/s", value, CHECK_BETTER_HIGHER, value);
        row.rank = d.config->place.rank;
        text_copy(row.subject, sizeof row.subject, d.config->dir);
        text_format(row.why, sizeof row.why, "the best 1 MiB of %s, each written and synced",
                    text_format_bytes(size, sizeof size, (double)d.written));
        text_format(row.remedy, sizeof row.remedy,
                    "iostat -x 1 5 # or set CHECKPOINT_DIR to another disk");
        check_row_add(rows, &row);
    }
    if (d.fd >= 0)
        close(d.fd);
    return st;
}
