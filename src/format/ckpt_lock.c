/* ckpt_lock — lets one process at a time write in a folder of checkpoints: a lock on DIR/.lock,
 * which ends with the process. See ckpt.h and ckpt_dir.h. It must not know the contents of a
 * checkpoint. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/ckpt.h"
#include "format/ckpt_dir.h"

#define LOCK_NAME ".lock" /* serve/archive.c looks for it */

static enum status lock_path(char *out, size_t cap, const char *dir)
{
    return file_join(out, cap, dir, LOCK_NAME);
}

/* open_lock — opens and locks the lock file in the existing folder. */
static enum status open_lock(struct ckpt_lock *lock)
{
    char path[FILE_PATH_MAX];
    TRY(lock_path(path, sizeof(path), lock->dir));
    lock->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (lock->fd >= 0) {
        /* flock belongs to the open file, so it ends with the process in any case. */
        char digits[32];
        if (flock(lock->fd, LOCK_EX | LOCK_NB) == 0) {
            text_format(digits, sizeof(digits), "%ld\n", (long)getpid());
            if (ftruncate(lock->fd, 0) != 0 || pwrite(lock->fd, digits, strlen(digits), 0) < 0)
                /* only informs other processes */
                LOG_DEBUG("cannot write the process number to %s/.lock: %s", lock->dir,
                          strerror(errno));
            return ST_OK;
        }
        if (errno != EWOULDBLOCK) { /* some network file systems have no locks */
            LOG_WARN("cannot lock %s: %s; make sure that no other run writes there", lock->dir,
                     strerror(errno));
            return ST_OK;
        }
        /* The process number in the lock file, if it has one. */
        int64_t pid;
        ssize_t n = pread(lock->fd, digits, sizeof(digits) - 1, 0);
        digits[n > 0 ? n : 0] = 0;
        digits[strcspn(digits, "\n")] = 0;
        if (text_parse_i64(digits, 1, INT32_MAX, &pid) == TEXT_OK)
            return FAIL(ST_BAD_SETTING,
                        "checkpoint folder %s is in use by process %" PRId64
                        "; stop that run, or give this one a CHECKPOINT_DIR of its own",
                        lock->dir, pid);
        return FAIL(
            ST_BAD_SETTING,
            "checkpoint folder %s is in use by another process; stop that run, or give this "
            "one a CHECKPOINT_DIR of its own",
            lock->dir);
    }
    enum status st = errno == EMFILE || errno == ENFILE || errno == ENOMEM ? ST_RETRY : ST_STORE;
    return FAIL(st,
                "cannot write in checkpoint folder %s: %s (%s); choose a CHECKPOINT_DIR that can "
                "be written",
                lock->dir, strerror(errno), path);
}

enum status ckpt_lock(const char *dir, struct ckpt_lock **out)
{
    /* Fails if a file is in the place of the folder or of one above it: the setting is wrong, not
     * the disk. */
    struct stat info;
    if (stat(dir, &info) == 0 ? !S_ISDIR(info.st_mode) : errno == ENOTDIR)
        return FAIL(ST_BAD_SETTING,
                    "CHECKPOINT_DIR=%s is not a folder, or a part of its path is a file; set it to "
                    "a folder",
                    dir);
    TRY(file_make_dirs(dir));
    struct ckpt_lock *lock = memory_new(1, sizeof(*lock));
    text_copy(lock->dir, sizeof(lock->dir), dir);
    enum status st = open_lock(lock);
    if (st == ST_OK)
        st = ckpt_lock_renew(lock); /* a former holder may have discarded it since it was opened */
    if (st != ST_OK) {
        ckpt_lock_release(lock);
        return st;
    }
    ckpt_dir_clean(dir);
    *out = lock;
    return ST_OK;
}

void ckpt_lock_release(struct ckpt_lock *lock)
{
    if (!lock)
        return;
    if (lock->fd >= 0)
        close(lock->fd);
    free(lock);
}

/* is_same — returns true if the name still leads to the locked file. */
static bool is_same(const struct ckpt_lock *lock, const char *path)
{
    struct stat ours, there;
    return fstat(lock->fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

/* is_alone — returns true if the folder holds the lock and no other file. */
static bool is_alone(const char *dir)
{
    enum status st = ST_OK;
    bool is = true;
    DIR *listing = opendir(dir);
    if (!listing)
        return false;
    for (struct dirent *entry; is && (entry = ckpt_dir_next(listing, dir, &st)) != NULL;)
        is = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
             !strcmp(entry->d_name, LOCK_NAME);
    closedir(listing);
    return is && st == ST_OK;
}

void ckpt_lock_discard(struct ckpt_lock *lock)
{
    char path[FILE_PATH_MAX];
    struct status_saved why;
    status_save(&why);
    /* rmdir leaves a folder in which another process made a lock by now */
    if (lock_path(path, sizeof(path), lock->dir) == ST_OK && is_same(lock, path) &&
        is_alone(lock->dir) && (unlink(path) != 0 || rmdir(lock->dir) != 0))
        LOG_DEBUG("%s is not removed: %s", lock->dir, strerror(errno));
    status_restore(&why);
    ckpt_lock_release(lock);
}

enum status ckpt_lock_renew(struct ckpt_lock *lock)
{
    char path[FILE_PATH_MAX];
    struct stat info;
    TRY(lock_path(path, sizeof(path), lock->dir));
    if (lock->fd >= 0 && is_same(lock, path))
        return ST_OK;
    if (stat(lock->dir, &info) != 0)
        LOG_WARN("checkpoint folder %s was deleted; it is created again, without the checkpoints "
                 "that it held",
                 lock->dir);
    TRY(file_make_dirs(lock->dir));
    if (lock->fd >= 0)
        close(lock->fd);
    enum status st = open_lock(lock);
    /* not at start: another run holds it now */
    return st == ST_BAD_SETTING ? FAIL(ST_STORE, "%s", status_message()) : st;
}
