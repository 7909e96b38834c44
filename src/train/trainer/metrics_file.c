/* metrics_file — see metrics_file.h. */
#include "train/trainer/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

#define LOCK_WAIT_MS 2000

/* line_step — Returns the step of a line that begins with {"step":N; -1: another line. */
static int64_t line_step(const char *line, size_t n)
{
    static const char head[] = "{\"step\":";
    char digits[24];
    size_t used = 0;
    if (n < sizeof head || memcmp(line, head, sizeof head - 1))
        return -1;
    for (size_t i = sizeof head - 1;
         i < n && line[i] >= '0' && line[i] <= '9' && used < sizeof digits - 1; i++)
        digits[used++] = line[i];
    digits[used] = 0;
    int64_t step;
    return text_parse_i64(digits, 0, INT64_MAX, &step) == TEXT_OK ? step : -1;
}

bool metrics_file_keep(const char *text, size_t bytes, int64_t step, size_t *keep_out)
{
    size_t at = 0;
    *keep_out = 0;
    while (at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        int64_t found = line_step(text + at, end ? (size_t)(end - text) - at : bytes - at);
        if (at == 0 && found < 0 && (end || text[0] != '{'))
            return false;
        if (!end || found > step)
            break;
        at = (size_t)(end - text) + 1;
    }
    *keep_out = at;
    return true;
}

/* truncate_file — Truncates a regular file; a pipe or /dev/null stays as it is. */
static enum status truncate_file(int fd, const char *path, int64_t step)
{
    struct stat info;
    struct file_map map = {0};
    size_t keep = 0;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode) || info.st_size == 0)
        return ST_OK;
    TRY(file_map_open(path, &map));
    bool is_ours = metrics_file_keep((const char *)map.data, map.bytes, step, &keep);
    size_t bytes = map.bytes;
    file_map_close(&map);
    if (!is_ours)
        return FAIL(ST_BAD_SETTING,
                    "METRICS_FILE=%s exists, and its first line is not a metrics line; it was not "
                    "changed: choose another name",
                    path);
    if (keep == bytes)
        return ST_OK;
    if (ftruncate(fd, (off_t)keep))
        return FAIL(ST_STORE, "cannot truncate METRICS_FILE=%s to step %lld: %s", path,
                    (long long)step, strerror(errno));
    LOG_INFO("metrics file %s truncated to step %lld: %zu bytes of later steps removed", path,
             (long long)step, bytes - keep);
    return ST_OK;
}

/* Locks a regular file for this process until it is closed: another run would cut its lines. Waits
 * a little for the end of an earlier process of this run. */
static enum status lock_file(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return ST_OK;
    for (int64_t until_ms = clock_ms() + LOCK_WAIT_MS; flock(fd, LOCK_EX | LOCK_NB) != 0;) {
        if (errno != EWOULDBLOCK && errno != EINTR) { /* some network file systems have no locks */
            LOG_WARN("cannot lock METRICS_FILE=%s: %s; make sure that no other run writes there",
                     path, strerror(errno));
            return ST_OK;
        }
        if (clock_ms() >= until_ms)
            return FAIL(ST_BAD_SETTING,
                        "METRICS_FILE=%s is in use by another run; stop that run, or give this one "
                        "a file of its own",
                        path);
        clock_sleep_ms(50);
    }
    return ST_OK;
}

enum status metrics_file_open(const char *path, int64_t step, struct metrics_file *out)
{
    memset(out, 0, sizeof *out);
    if (!path[0])
        return ST_OK;
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    /* a write-only file, such as a pipe or a terminal */
    if (fd < 0 && (errno == EACCES || errno == EINVAL || errno == ENXIO))
        fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        enum status st =
            errno == ENOENT || errno == ENOTDIR || errno == EISDIR ? ST_BAD_SETTING : ST_STORE;
        return FAIL(st,
                    "cannot open METRICS_FILE=%s: %s; name a file in a folder that exists and can "
                    "be written",
                    path, strerror(errno));
    }
    enum status st = lock_file(fd, path);
    if (st == ST_OK)
        st = truncate_file(fd, path, step);
    if (st != ST_OK) {
        close(fd);
        return st;
    }
    out->is_open = true;
    out->fd = fd;
    text_copy(out->path, sizeof out->path, path);
    return ST_OK;
}

void metrics_file_close(struct metrics_file *file)
{
    if (file->is_open && file->lost)
        LOG_WARN("%lld lines of METRICS_FILE=%s could not be written", (long long)file->lost,
                 file->path);
    if (file->is_open)
        close(file->fd);
    file->is_open = false;
}

static void add_line(struct metrics_file *file, const char *line)
{
    /* ends a line that a full disk cut short, so that this line is separate */
    char out[640];
    text_format(out, sizeof out, "%s%s\n", file->is_torn ? "\n" : "", line);
    size_t n = strlen(out);
    ssize_t done;
    do {
        done = write(file->fd, out, n);
    } while (done < 0 && errno == EINTR);
    if (done == (ssize_t)n) {
        file->is_torn = false;
        return;
    }
    if (file->lost++ == 0)
        LOG_WARN("cannot write METRICS_FILE=%s: %s; training goes on, lines may be missing",
                 file->path, done < 0 ? strerror(errno) : "a line was written only in part");
    if (done > 0)
        file->is_torn = true;
}

/* format_number — Writes the shortest digits that read back; JSON has no NaN. */
static const char *format_number(char *out, size_t cap, double value)
{
    if (isfinite(value))
        text_copy(out, cap, text_f64(value).text);
    else
        text_copy(out, cap, "null");
    return out;
}

void metrics_file_step(struct metrics_file *file, const struct metrics_file_step *line)
{
    if (!file->is_open)
        return;
    char text[800], loss[32], norm[32], lr[32], stall[80] = "", ranks[160] = "", skipped[48] = "",
                                                trained[48] = "";
    if (line->trained > 0)
        text_format(trained, sizeof trained, ",\"trained_tokens\":%lld", (long long)line->trained);
    if (line->skipped)
        text_format(skipped, sizeof skipped, ",\"skipped\":\"%s\"", line->skipped);
    if (line->stall_ms > 0)
        text_format(stall, sizeof stall, ",\"checkpoint_stall_ms\":%.3f", line->stall_ms);
    if (line->ranks > 1)
        text_format(ranks, sizeof ranks,
                    ",\"compute_ms\":%.3f,\"comm_ms\":%.3f,\"wait_ms\":%.3f,\"sent_bytes\":%lld",
                    line->compute_ms, line->comm_ms, line->wait_ms, (long long)line->sent_bytes);
    text_format(
        text, sizeof text,
        "{\"step\":%lld,\"epoch\":%lld,\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,\"tokens\":%"
        "lld%s,\"step_ms\":%.3f%s%s%s}",
        (long long)line->step, (long long)line->epoch, format_number(loss, sizeof loss, line->loss),
        format_number(norm, sizeof norm, line->grad_norm), format_number(lr, sizeof lr, line->lr),
        (long long)line->tokens, trained, line->step_ms, stall, ranks, skipped);
    add_line(file, text);
}

void metrics_file_eval(struct metrics_file *file, int64_t step, double val_loss,
                       double val_accuracy)
{
    if (!file->is_open)
        return;
    char text[160], loss[32], digits[32], accuracy[64] = "";
    if (isfinite(val_accuracy))
        text_format(accuracy, sizeof accuracy, ",\"val_accuracy\":%s",
                    format_number(digits, sizeof digits, val_accuracy));
    text_format(text, sizeof text, "{\"step\":%lld,\"val_loss\":%s%s}", (long long)step,
                format_number(loss, sizeof loss, val_loss), accuracy);
    add_line(file, text);
}

#ifdef FUZZ
#include "base/assert.h"

/* The first byte is the step to resume from, the rest is the file. The part that is kept ends with
 * a whole line, and keeping it again keeps all of it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t keep, again;
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    if (!metrics_file_keep(text, size - 1, data[0], &keep))
        return 0;
    ASSERT(keep <= size - 1 && (keep == 0 || text[keep - 1] == '\n'));
    ASSERT(metrics_file_keep(text, keep, data[0], &again) && again == keep);
    return 0;
}
#endif
