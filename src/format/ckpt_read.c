/* ckpt_read — see ckpt_read.h. */
#include "format/ckpt_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

#define TRIES 3
#define PAUSE_MS 100 /* before the second try; four times as long before each further one */

enum status ckpt_read_open_folder(const char *path, char *clean, size_t cap, int *fd_out)
{
    struct stat info;
    if (!text_copy(clean, cap, path))
        return FAIL(ST_BAD_SETTING, "path of %zu bytes is too long, at most %zu: %.64s…",
                    strlen(path), cap - 1, path);
    for (size_t n = strlen(clean); n > 1 && clean[n - 1] == '/'; n--)
        clean[n - 1] = 0;
    int fd = open(clean, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        *fd_out = fd;
        return ST_OK;
    }
    int error = errno;
    if (lstat(clean, &info) == 0 && S_ISLNK(info.st_mode))
        return FAIL(ST_BAD_DATA,
                    "%s is a symbolic link, which checkpoints never follow; name the folder itself",
                    clean);
    if (error == ENOENT)
        return FAIL(ST_NO_INPUT, "there is no checkpoint %s; check the path", clean);
    if (error == ENOTDIR)
        return FAIL(ST_BAD_DATA, "cannot open checkpoint %s: %s; a checkpoint is a folder", clean,
                    strerror(error));
    return ckpt_read_error("open checkpoint", clean, error);
}

enum status ckpt_read_open_file(int dir_fd, const char *path, const char *name, int *fd_out,
                                int64_t *bytes_out)
{
    struct stat info;
    char what[FILE_PATH_MAX];
    TRY(file_join(what, sizeof(what), path, name));
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return ckpt_read_error("open", what, errno);
    int error = fstat(fd, &info) == 0 ? 0 : errno;
    if (error != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return error != 0 ? ckpt_read_error("look at", what, error)
                          : FAIL(ST_BAD_DATA, "%s is not a regular file", what);
    }
    *fd_out = fd;
    *bytes_out = info.st_size;
    return ST_OK;
}

/* is_damage — returns true for errors that prove damage: the name is missing or does not lead to a
 * regular file. Any other error may come from the disk or the user. */
static bool is_damage(int error)
{
    return error == ENOENT || error == ENOTDIR || error == EISDIR || error == ELOOP ||
           error == ENXIO;
}

/* is_passing — returns true for errors that go away: memory and files in use by others, a server
 * that recovers. */
static bool is_passing(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN ||
           error == EBUSY || error == ETIMEDOUT || error == ESTALE;
}

enum status ckpt_read_error(const char *verb, const char *path, int error)
{
    const char *remedy = error == EACCES || error == EPERM ? "give this user permission to read it"
                         : error == EMFILE || error == ENFILE
                             ? "raise the limit of open files (ulimit -n)"
                         : error == ENOMEM   ? "free some memory"
                         : is_passing(error) ? "see whether its file system answers"
                         : is_damage(error)  ? "the checkpoint is damaged"
                                             : "check the disk";
    enum status st = is_damage(error) ? ST_BAD_DATA : is_passing(error) ? ST_RETRY : ST_STORE;
    return FAIL(st, "cannot %s %s: %s; %s", verb, path,
                error == ELOOP ? "it is a symbolic link, which checkpoints never follow"
                               : strerror(error),
                remedy);
}

bool ckpt_read_retry(enum status st, int *tries)
{
    if ((st != ST_STORE && st != ST_RETRY) || ++*tries >= TRIES)
        return false;
    LOG_WARN("%s; trying again (%d of %d)", status_message(), *tries + 1, TRIES);
    clock_sleep_ms(PAUSE_MS << (2 * (*tries - 1)));
    return true;
}

enum status ckpt_read_chunk(int fd, const char *path, const char *name, void *out, size_t n,
                            int64_t offset, size_t *got_out)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(offset + (int64_t)done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            char what[FILE_PATH_MAX];
            int error = errno;
            TRY(file_join(what, sizeof(what), path, name));
            return ckpt_read_error("read", what, error);
        }
        if (got == 0)
            break;
        done += (size_t)got;
    }
    *got_out = done;
    return ST_OK;
}
