/* tfevents — see tfevents.h. The messages are written by hand: eight fields do not need a
 * library. */
#include "format/tfevents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/assert.h"
#include "base/text.h"

#define NAME "events.out.tfevents."
#define SECONDS_DIGITS 10 /* so that names sort as numbers, until 2286 */
#define FLUSH_MS 2000
#define BUFFER_BYTES ((size_t)1 << 16)
/* tag, value, their keys and lengths */
#define SCALAR_BYTES (TFEVENTS_TAG_MAX + 9)
/* wall time, step, and one message */
#define EVENT_BYTES (32 + TFEVENTS_SCALARS_MAX * SCALAR_BYTES)
#define RECORD_BYTES 16 /* around an event */

struct tfevents {
    int fd;
    char path[FILE_PATH_MAX];
    int64_t end_bytes; /* bytes of complete records in the file */
    int64_t flush_ms;  /* time of the next write */
    bool is_failing, has_warned;
    int64_t lost;
    size_t used;
    uint8_t buffer[BUFFER_BYTES];
};

/* ---- checksums ---- */

uint32_t tfevents_crc32c(const void *bytes, size_t n)
{
    /* The remainder of every byte, computed once: reflected, polynomial 0x1EDC6F41. */
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 256; i-- > 0;) { /* [1] last: it marks the table as complete */
            uint32_t rest = i;
            for (int bit = 0; bit < 8; bit++)
                rest = rest >> 1 ^ (rest & 1 ? 0x82F63B78u : 0);
            table[i] = rest;
        }
    const uint8_t *at = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xFF];
    return ~crc;
}

/* Masks a checksum: a record's checksum is rotated and shifted, because a checksum of data that
 * contains its own checksum is weak. */
static uint32_t mask_crc(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8u; }

/* ---- messages ---- */

struct message {
    uint8_t bytes[EVENT_BYTES];
    size_t n;
};

static void add_bytes(struct message *m, const void *bytes, size_t n)
{
    ASSERTF(n <= sizeof m->bytes - m->n, "%zu bytes and %zu more of %zu", m->n, n, sizeof m->bytes);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void add_little(struct message *m, uint64_t value, int bytes_n)
{
    uint8_t bytes[8];
    for (int i = 0; i < bytes_n; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    add_bytes(m, bytes, (size_t)bytes_n);
}

static void add_varint(struct message *m, uint64_t value)
{
    for (; value > 0x7F; value >>= 7)
        add_little(m, (value & 0x7F) | 0x80, 1);
    add_little(m, value, 1);
}

/* A field's key is its number and the encoding of its value. */
enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void add_key(struct message *m, int field, enum wire wire)
{
    add_varint(m, (uint64_t)(field << 3 | (int)wire));
}

static void add_field(struct message *m, int field, const void *bytes, size_t n)
{
    add_key(m, field, WIRE_BYTES);
    add_varint(m, n);
    add_bytes(m, bytes, n);
}

/* Begins an Event: wall_time = 1, step = 2; one of: file_version = 3, summary = 5, session_log =
 * 7. */
static void begin_event(struct message *m, int64_t step)
{
    double wall_seconds = (double)clock_wall_ms() / 1000;
    uint64_t bits;
    memcpy(&bits, &wall_seconds, sizeof bits);
    m->n = 0;
    add_key(m, 1, WIRE_FIXED64);
    add_little(m, bits, 8);
    add_key(m, 2, WIRE_VARINT);
    add_varint(m, (uint64_t)step);
}

/* ---- the file ---- */

static void put_little(struct tfevents *file, uint64_t value, int bytes_n)
{
    for (int i = 0; i < bytes_n; i++)
        file->buffer[file->used++] = (uint8_t)(value >> 8 * i);
}

static void put_record(struct tfevents *file, const struct message *m)
{
    if (m->n + RECORD_BYTES > sizeof file->buffer - file->used) {
        file->lost++;
        return;
    }
    const uint8_t *length = file->buffer + file->used;
    put_little(file, m->n, 8);
    put_little(file, mask_crc(tfevents_crc32c(length, 8)), 4);
    memcpy(file->buffer + file->used, m->bytes, m->n);
    file->used += m->n;
    put_little(file, mask_crc(tfevents_crc32c(m->bytes, m->n)), 4);
}

/* Writes the buffer. A write that failed half-way is repeated whole, at the same position: the
 * bytes that a reader has already seen stay the same. */
void tfevents_flush(struct tfevents *file)
{
    if (file == NULL || file->used == 0)
        return;
    file->flush_ms = clock_ms() + FLUSH_MS;
    enum status st = file_write_at(file->fd, file->path, file->buffer, file->used, file->end_bytes);
    if (st == ST_OK) {
        file->end_bytes += (int64_t)file->used;
        file->used = 0;
        file->is_failing = false;
        return;
    }
    if (!file->has_warned)
        LOG_WARN("TENSORBOARD_DIR: %s; training goes on, scalars may be missing", status_message());
    file->is_failing = file->has_warned = true;
    status_clear();
}

void tfevents_add(struct tfevents *file, int64_t step, const struct tfevents_scalar *scalar, int n)
{
    if (file == NULL)
        return;
    struct message event, summary = {.n = 0};
    ASSERTF(n > 0 && n <= TFEVENTS_SCALARS_MAX, "n %d", n);
    for (int i = 0; i < n; i++)
        if (!isnan(scalar[i].value)) {
            /* Summary: value = 1; Summary.Value: tag = 1, simple_value = 2. */
            struct message value = {.n = 0};
            float narrow = (float)scalar[i].value;
            uint32_t bits;
            size_t tag_bytes = strlen(scalar[i].tag);
            ASSERTF(tag_bytes <= TFEVENTS_TAG_MAX, "tag %s", scalar[i].tag);
            memcpy(&bits, &narrow, sizeof bits);
            add_field(&value, 1, scalar[i].tag, tag_bytes);
            add_key(&value, 2, WIRE_FIXED32);
            add_little(&value, bits, 4);
            add_field(&summary, 1, value.bytes, value.n);
        }
    begin_event(&event, step);
    add_field(&event, 5, summary.bytes, summary.n);
    put_record(file, &event);
    bool is_full = file->used > sizeof file->buffer / 2 && !file->is_failing;
    if (is_full || clock_ms() >= file->flush_ms)
        tfevents_flush(file);
}

/* seconds_of — returns the time in the name of an event file; -1 for other files. */
static int64_t seconds_of(const char *name)
{
    char digits[SECONDS_DIGITS + 1];
    int64_t seconds;
    if (!text_starts(name, NAME))
        return -1;
    text_format(digits, sizeof digits, "%.*s", SECONDS_DIGITS, name + sizeof NAME - 1);
    return text_parse_i64(digits, 0, INT64_MAX, &seconds) == TEXT_OK ? seconds : -1;
}

/* seconds_next — returns the time, but later than every existing file: a run that resumes within
 * the second, or after the clock was set back, must sort after the run that it continues. */
static int64_t seconds_next(const char *dir)
{
    int64_t next = clock_wall_ms() / 1000;
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int64_t seconds = seconds_of(entry->d_name);
        if (seconds >= next)
            next = seconds + 1;
    }
    if (folder != NULL)
        closedir(folder);
    return next;
}

/* Writes this machine's name, with all characters replaced that are unfit for a file name. */
static const char *get_host_name(char *out, size_t cap)
{
    if (gethostname(out, cap) != 0)
        text_copy(out, cap, "localhost");
    out[cap - 1] = 0;
    for (char *c = out; *c != 0; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", *c))
            *c = '-';
    return out;
}

static enum status open_file(const char *dir, struct tfevents *file)
{
    char name[160], host_name[65];
    text_format(name, sizeof name, NAME "%0*lld.%s.%lld.convoy", SECONDS_DIGITS,
                (long long)seconds_next(dir), get_host_name(host_name, sizeof host_name),
                (long long)getpid());
    TRY(file_join(file->path, sizeof file->path, dir, name));
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file->fd >= 0)
        return ST_OK;
    return FAIL((errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG)
                    ? ST_STORE
                    : ST_BAD_SETTING,
                "cannot make %s: %s; set TENSORBOARD_DIR to a folder that can be written",
                file->path, strerror(errno));
}

enum status tfevents_open(const char *dir, int64_t step_next, struct tfevents **out)
{
    *out = NULL;
    if (dir == NULL || dir[0] == 0)
        return ST_OK;
    struct tfevents *file = memory_new(1, sizeof *file);
    enum status st = file_make_dirs(dir);
    if (st == ST_OK)
        st = open_file(dir, file);
    if (st == ST_OK) {
        *out = file;
        /* SessionLog: status = 1, START = 1. TensorBoard discards the scalars of this step and
         * later ones in older files. */
        static const char version[] = "brain.Event:2";
        static const uint8_t start[] = {1 << 3 | WIRE_VARINT, 1};
        struct message event;
        begin_event(&event, 0);
        add_field(&event, 3, version, sizeof version - 1);
        put_record(file, &event);
        begin_event(&event, step_next);
        add_field(&event, 7, start, sizeof start);
        put_record(file, &event);
        tfevents_flush(file);
        return ST_OK;
    }
    free(file);
    if (st != ST_STORE || !file_is_dir(dir))
        return status_trace_at(__FILE__, __LINE__, st);
    LOG_WARN("TENSORBOARD_DIR: %s; training goes on without scalars", status_message());
    status_clear();
    return ST_OK;
}

void tfevents_close(struct tfevents *file)
{
    if (file == NULL)
        return;
    tfevents_flush(file);
    /* the file ends with a whole record */
    if (file->used > 0 && ftruncate(file->fd, (off_t)file->end_bytes) != 0)
        LOG_DEBUG("cannot truncate %s: %s", file->path, strerror(errno));
    if (file->used > 0 || file->lost > 0)
        LOG_WARN("TENSORBOARD_DIR: %s lacks scalars: there was no room for %lld events, and %zu "
                 "bytes could not be written at the end",
                 file->path, (long long)file->lost, file->used);
    close(file->fd);
    free(file);
}

const char *tfevents_path(const struct tfevents *file) { return file->path; }
int64_t tfevents_lost(const struct tfevents *file) { return file->lost; }
