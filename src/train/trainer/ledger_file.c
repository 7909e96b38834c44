/* ledger_file — see ledger_file.h. */
#include "train/trainer/ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define LINES_BYTES_MAX ((size_t)1 << 20)

struct ledger_file {
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    int fd;
    int64_t bytes;             /* size of the whole lines on the disk */
    struct ledger_start start; /* to write before the first step */
    struct ledger_run run;     /* steps that are not in `lines` yet; steps 0: none */
    int64_t again;             /* lines wait until this step is done again; 0: no step */
    struct text provenance;    /* to write after it */
    struct text lines;         /* not written yet */
    uint64_t hash;             /* hash of the last of these lines, or of the last on the disk */
    bool has_started, is_warned, is_dirty;
};

/* ---- open ---- */

/* read_old — Reads the end of the lines of earlier processes. */
static enum status read_old(struct ledger_file *f, struct ledger_audit *out)
{
    *out = (struct ledger_audit){.generations = 0};
    if (!file_exists(f->path))
        return ST_OK;
    enum status st = ledger_audit(f->path, out);
    if (st == ST_BAD_DATA) {
        *out = (struct ledger_audit){.generations = 0};
        /* A damaged file is never overwritten. */
        const char *path = f->path;
        char to[FILE_PATH_MAX], why[512];
        text_copy(why, sizeof why, status_message());
        if (!text_format(to, sizeof to, "%s.damaged-%" PRId64, path, clock_wall_ms()) ||
            rename(path, to) != 0)
            return FAIL(ST_STORE, "cannot move the damaged %s aside: %s; move it away", path,
                        strerror(errno));
        LOG_WARN("the ledger of samples was damaged, and is now %s; a new one begins: %s", to, why);
        status_clear();
        return ST_OK;
    }
    return st;
}

/* add_missing — Adds the steps that an earlier process did and did not write. */
static void add_missing(struct ledger_file *f, const struct ledger_audit *old,
                        const struct ledger_run *done)
{
    struct ledger_run run = *done;
    char line[LEDGER_LINE_MAX];
    if (done->steps == 0 ||
        !(old->generations > 0 && old->last < f->start.after && done->step <= old->last + 1 &&
          done->step + done->steps == f->start.after + 1 &&
          done->sample + (old->last + 1 - done->step) * done->samples == old->end)) {
        /* The state is newer than its ledger. last: the ledger's last step. */
        int64_t last = old->generations > 0 ? old->last : 0;
        if (f->start.after > last)
            LOG_WARN("%s does not have steps %" PRId64 " to %" PRId64
                     " of this run; `verify` will report this",
                     f->path, last + 1, f->start.after);
        return;
    }
    run.generation = old->generations;
    run.step = old->last + 1;
    run.steps = f->start.after - old->last;
    run.sample = old->end;
    ledger_write_run(&run, &f->hash, line);
    text_add(&f->lines, "%s", line);
}

/* begin_file — Reads and opens the file, and adds the steps that it lacks. */
static enum status begin_file(struct ledger_file *f, const struct ledger_run *done)
{
    struct ledger_audit old;
    TRY(file_join(f->path, sizeof f->path, f->dir, LEDGER_NAME));
    TRY(read_old(f, &old));
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0666);
    if (f->fd < 0)
        return FAIL(ST_STORE, "cannot open %s: %s; check CHECKPOINT_DIR", f->path, strerror(errno));
    if (old.is_torn && ftruncate(f->fd, (off_t)old.bytes) != 0) /* else lines would follow in it */
        return FAIL(ST_STORE, "cannot cut the incomplete last line of %s: %s; check the disk",
                    f->path, strerror(errno));
    f->bytes = (int64_t)old.bytes;
    f->hash = old.hash;
    f->start.generation = old.generations + 1;
    /* A checkpoint may be newer than the copies from which this process continues, and a later
     * start may be from it. Its steps must not be superseded before they are done again. */
    if (done->steps > 0 && old.generations > 0 && old.last > f->start.after)
        f->again = old.last;
    add_missing(f, &old, done);
    ledger_audit_free(&old);
    return ST_OK;
}

enum status ledger_file_open(const char *dir, const struct ledger_start *start,
                             const char *provenance, const struct ledger_run *done,
                             struct ledger_file **out)
{
    struct ledger_file *f = memory_new(1, sizeof *f);
    f->fd = -1;
    f->start = *start;
    f->lines.limit = LINES_BYTES_MAX;
    text_add(&f->provenance, "%s", provenance);
    text_copy(f->dir, sizeof f->dir, dir);
    enum status st = begin_file(f, done);
    if (st == ST_OK)
        *out = f;
    else
        ledger_file_close(f);
    return st;
}

/* ---- write ---- */

/* warn_once — Logs a warning once. why: a sentence with the path. */
static void warn_once(struct ledger_file *f, const char *why)
{
    if (!f->is_warned)
        LOG_WARN("%s; training goes on, and the ledger of samples is written later", why);
    f->is_warned = true;
}

static void warn_errno(struct ledger_file *f, const char *verb)
{
    char why[FILE_PATH_MAX + 128];
    text_format(why, sizeof why, "cannot %s %s: %s", verb, f->path, strerror(errno));
    warn_once(f, why);
}

/* has_room — Returns true if there is room for three more lines. After a megabyte of lines the disk
 * has failed for long, and the steps are missing in the ledger. */
static bool has_room(const struct ledger_file *f)
{
    return f->lines.len + 3 * LEDGER_LINE_MAX <= LINES_BYTES_MAX;
}

/* begin_generation — Adds the lines that a generation needs before its first step. */
static void begin_generation(struct ledger_file *f)
{
    char line[LEDGER_LINE_MAX];
    if (f->has_started)
        return;
    f->has_started = true;
    ledger_write_start(&f->start, &f->hash, line);
    text_add(&f->lines, "%s", line);
    if (!ledger_write_provenance(f->start.generation, f->provenance.data, &f->hash, line))
        LOG_WARN("the settings that decide the results of this run have %zu bytes, too many for %s",
                 f->provenance.len, f->path);
    else
        text_add(&f->lines, "%s", line);
}

/* add_run — Makes a line of the steps that are kept. */
static void add_run(struct ledger_file *f)
{
    const struct ledger_run run = f->run;
    char line[LEDGER_LINE_MAX];
    f->run.steps = 0;
    if (run.steps == 0 || !has_room(f))
        return;
    begin_generation(f);
    ledger_write_run(&run, &f->hash, line);
    text_add(&f->lines, "%s", line);
}

/* write_lines — Writes all lines. If that fails, the next call writes them again at the same
 * place. */
static void write_lines(struct ledger_file *f)
{
    if (f->lines.len == 0 || f->again > 0)
        return;
    if (file_write_at(f->fd, f->path, f->lines.data, f->lines.len, f->bytes) != ST_OK) {
        warn_once(f, status_message());
        status_clear();
        if (ftruncate(f->fd, (off_t)f->bytes) != 0)
            warn_errno(f, "shorten");
        return;
    }
    f->bytes += (int64_t)f->lines.len;
    f->is_dirty = true;
    text_free(&f->lines);
}

/* The first lines are written with the first step, and a run of equal steps when it ends, so a
 * process that is killed leaves out a part of its last run only (add_missing). */
void ledger_file_add(struct ledger_file *f, const struct ledger_run *step)
{
    if (!f)
        return;
    struct ledger_run one = *step;
    one.generation = f->start.generation;
    begin_generation(f);
    const bool is_again = one.step == f->again;
    if (!ledger_append(&f->run, &one)) {
        add_run(f);
        f->run = one;
    } else if (!is_again)
        return;
    if (one.outcome != LEDGER_OUTCOME_APPLIED || is_again)
        add_run(f);
    f->again = is_again ? 0 : f->again;
    write_lines(f);
}

void ledger_file_checkpoint(struct ledger_file *f, const char *path)
{
    struct ledger_checkpoint c = {.generation = f->start.generation};
    char line[LEDGER_LINE_MAX];
    if (ledger_hash_checkpoint(path, &c) != ST_OK) {
        LOG_WARN("%s; its checksums are not in %s", status_message(), f->path);
        status_clear();
        return;
    }
    if (!has_room(f))
        return;
    begin_generation(f);
    ledger_write_checkpoint(&c, &f->hash, line);
    text_add(&f->lines, "%s", line);
    write_lines(f);
}

void ledger_file_sync(struct ledger_file *f)
{
    if (!f)
        return;
    f->again = 0; /* a checkpoint of these steps follows */
    add_run(f);
    write_lines(f);
    if (f->is_dirty && fdatasync(f->fd) != 0)
        warn_errno(f, "sync");
    f->is_dirty = false;
}

void ledger_file_close(struct ledger_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0) {
        add_run(f);
        write_lines(f);
        close(f->fd);
    }
    text_free(&f->lines);
    text_free(&f->provenance);
    free(f);
}
