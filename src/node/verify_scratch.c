/* verify_scratch — see verify_scratch.h. */
#include "node/verify_scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "format/ckpt_dir.h"
#include "format/manifest.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define CHECKPOINTS_N 2 /* at a time: the one that is read, and the next one */

static enum status fail_write(const char *path, int error)
{
    return FAIL(ST_STORE, "cannot write %s: %s; set TMPDIR to a folder with space", path,
                strerror(error));
}

enum status verify_scratch_make(const char *tmp, char out[FILE_PATH_MAX])
{
    char path[FILE_PATH_MAX];
    out[0] = 0;
    TRY(file_join(path, sizeof path, tmp, "convoy-verify-XXXXXX"));
    if (!mkdtemp(path))
        return FAIL(ST_STORE,
                    "cannot make a folder in TMPDIR=%s: %s; set TMPDIR to a folder that can be "
                    "written",
                    tmp, strerror(errno));
    text_copy(out, FILE_PATH_MAX, path);
    return ST_OK;
}

static enum status copy_bytes(int from, int to, const char *path, const char *target)
{
    char *chunk = malloc(CHUNK_BYTES);
    enum status st = chunk ? ST_OK : FAIL(ST_RETRY, "out of memory: a copy of %s", path);
    int64_t at = 0;
    ssize_t n = 1;
    while (st == ST_OK && (n = read(from, chunk, CHUNK_BYTES)) > 0) {
        st = file_write_at(to, target, chunk, (size_t)n, at);
        at += n;
    }
    if (st == ST_OK && n < 0)
        st = file_read_fail(path, "read");
    free(chunk);
    return st;
}

static enum status copy_file(const char *path, const char *target)
{
    const int from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (from < 0)
        return file_read_fail(path, "open");
    const int to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    enum status st = to < 0 ? fail_write(target, errno) : copy_bytes(from, to, path, target);
    close(from);
    if (to >= 0)
        close(to);
    if (st == ST_STORE)
        return FAIL(st, "%s; set TMPDIR to a folder with space", status_message());
    return st;
}

/* take_file — a link costs no space; not across file systems, nor of another user's file. */
static enum status take_file(const char *from, const char *to, const char *name)
{
    char path[FILE_PATH_MAX], target[FILE_PATH_MAX];
    TRY(file_join(path, sizeof path, from, name));
    TRY(file_join(target, sizeof target, to, name));
    return link(path, target) == 0 ? ST_OK : copy_file(path, target);
}

static enum status check_space(const char *scratch, const struct manifest *m)
{
    char need[32], have[32];
    int64_t bytes = 0;
    const int64_t space = file_space_bytes(scratch);
    for (int i = 0; i < m->files_n; i++)
        bytes += CHECKPOINTS_N * m->file[i].bytes;
    if (space < 0 || space >= bytes)
        return ST_OK;
    return FAIL(ST_STORE,
                "to repeat steps, %s of temporary files are needed, and %s has %s; set TMPDIR to a "
                "folder with more",
                text_format_bytes(need, sizeof need, (double)bytes), scratch,
                text_format_bytes(have, sizeof have, (double)space));
}

static enum status take_files(const char *from, const char *to, const struct manifest *m)
{
    if (mkdir(to, 0700) != 0)
        return fail_write(to, errno);
    for (int i = 0; i < m->files_n; i++)
        TRY(take_file(from, to, m->file[i].name));
    return take_file(from, to, CKPT_DIR_MANIFEST);
}

enum status verify_scratch_copy(const char *scratch, const struct ckpt *ckpt)
{
    char to[FILE_PATH_MAX];
    struct manifest *m = calloc(1, sizeof *m);
    if (!m)
        return FAIL(ST_RETRY, "out of memory: the manifest of %s", ckpt_path(ckpt));
    enum status st = ckpt_dir_step_path(to, sizeof to, scratch, ckpt_meta(ckpt)->step);
    if (st == ST_OK)
        st = ckpt_peek(ckpt_path(ckpt), m);
    if (st == ST_OK)
        st = check_space(scratch, m);
    if (st == ST_OK)
        st = take_files(ckpt_path(ckpt), to, m);
    free(m);
    return st;
}

void verify_scratch_remove(const char *scratch)
{
    struct status_saved why;
    status_save(&why);
    if (scratch[0] && file_remove_tree(scratch) != ST_OK)
        LOG_WARN("cannot remove %s: %s; remove it", scratch, status_message());
    status_restore(&why);
}
