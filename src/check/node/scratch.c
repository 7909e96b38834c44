/* check_scratch — see node/scratch.h. */
#include "check/node/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limited.h"
#include "base/text.h"
#include "check/node/disk.h"
#include "check/host/file.h"

#define PREFIX ".convoy-check-"
#define BOOT_CHARS 8
#define OWNER_BYTES 96
#define YOUNG_S 600 /* seconds; a test of a restart needs less */
#define OLD_S 86400
#define AGAIN_MS 20
#define TRIES 4

/* boot_of — returns an identifier of this start of the machine, the same in all its containers; "":
 * unknown. */
static const char *boot_of(char out[BOOT_CHARS + 1])
{
    char text[64];
    out[0] = 0;
    if (check_file_read("", text, sizeof text, "/proc/sys/kernel/random/boot_id") &&
        strlen(text) > BOOT_CHARS)
        text_format(out, BOOT_CHARS + 1, "%.*s", BOOT_CHARS, text);
    return out;
}

/* owner_of — writes the content of a lock: the process that started its maker. Returns false if
 * that is unknown. */
static bool owner_of(char *out, size_t cap, pid_t pid)
{
    char space[64];
    const ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = 0;
    return text_format(out, cap, "%s %ld\n", n > 0 ? space : "unknown", (long)pid) && n > 0;
}

/* Conditions for removing folders and closing locks:
 *
 * A lock is empty until its maker has locked it, and a sweep does not lock an empty one, so the
 * maker always gets its lock. Only the maker holds a lock for long. A lock that is free and not
 * empty therefore stays free: a sweep need not hold it while it removes the folder. Neither the
 * sweep nor the maker may hold it then: if a file is removed while a process has it open, NFS
 * renames it (.nfs…), and the folder cannot be removed because it is not empty.
 *
 * A free lock does not prove that its maker has ended: with FUSE mounts of two pods, and NFS with
 * nolock, one mount does not see the locks of the other. So its age counts too: YOUNG_S. */

/* ---- one folder ---- */

static int open_lock(const char *path, int flags)
{
    char name[FILE_PATH_MAX];
    if (!text_format(name, sizeof name, "%s/lock", path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(name, flags | O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
}

/* lock_file — locks the file. Returns false if a sweep has removed it meanwhile. */
static bool lock_file(int fd)
{
    struct stat about;
    /* on a file system without locks, folders are removed after a day */
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    return fstat(fd, &about) == 0 && about.st_nlink > 0;
}

static bool write_owner(int fd)
{
    char owner[OWNER_BYTES];
    (void)owner_of(owner, sizeof owner, getppid());
    const size_t bytes = strlen(owner);
    ssize_t n;
    while ((n = write(fd, owner, bytes)) < 0 && errno == EINTR)
        ;
    if (n >= 0 && n < (ssize_t)bytes)
        errno = ENOSPC;
    return n == (ssize_t)bytes;
}

/* try_open — makes a folder and locks it. *again_out: a sweep has removed it meanwhile. */
static enum status try_open(const char *dir, struct check_scratch *out, bool *again_out)
{
    char boot[BOOT_CHARS + 1];
    *again_out = false;
    *out = (struct check_scratch){.lock = -1};
    if (!text_format(out->path, sizeof out->path - sizeof CHECK_SCRATCH_DATA,
                     "%s/" PREFIX "%s-XXXXXX", dir, boot_of(boot)))
        return FAIL(ST_BAD_SETTING, "the path of CHECKPOINT_DIR is too long: %.64s…", dir);
    if (!mkdtemp(out->path)) {
        out->path[0] = 0;
        return FAIL(ST_STORE, "cannot make a folder in %s: %s", dir, strerror(errno));
    }
    out->lock = open_lock(out->path, O_CREAT);
    if (out->lock < 0 && errno != ENOENT)
        return FAIL(ST_STORE, "cannot create %s/lock: %s", out->path, strerror(errno));
    *again_out = out->lock < 0 || !lock_file(out->lock);
    if (!*again_out && !write_owner(out->lock))
        return FAIL(ST_STORE, "cannot write %s/lock: %s", out->path, strerror(errno));
    return ST_OK;
}

enum status check_scratch_open(const char *dir, struct check_scratch *out)
{
    bool again = true;
    for (int i = 0; i < TRIES && again; i++) {
        enum status st = try_open(dir, out, &again);
        if (st != ST_OK || again) {
            /* Remove the folder, which holds only its lock, and keep the failure. */
            char path[FILE_PATH_MAX], name[FILE_PATH_MAX];
            text_copy(path, sizeof path, out->path);
            check_scratch_leave(out);
            if (path[0] && text_format(name, sizeof name, "%s/lock", path)) {
                (void)unlink(name);
                (void)rmdir(path);
            }
        }
        TRY(st);
    }
    return again ? FAIL(ST_STORE, "another process removes folders in %s as soon as they are made",
                        dir)
                 : ST_OK;
}

void check_scratch_leave(struct check_scratch *scratch)
{
    if (scratch->path[0] && scratch->lock >= 0)
        close(scratch->lock);
    *scratch = (struct check_scratch){.lock = -1};
}

/* remove_folder — removes the data before the lock: if the process is killed in between, a sweep
 * still sees whose folder it is. */
static enum status remove_folder(const char *path)
{
    char data[FILE_PATH_MAX];
    TRY(text_format(data, sizeof data, "%s" CHECK_SCRATCH_DATA, path) ? file_remove_tree(data)
                                                                      : ST_OK);
    return file_remove_tree(path);
}

/* check_scratch_close — tries several times, because on NFS a sweep of this machine that has the
 * lock open prevents the removal. */
enum status check_scratch_close(struct check_scratch *scratch)
{
    char path[FILE_PATH_MAX];
    text_copy(path, sizeof path, scratch->path);
    check_scratch_leave(scratch);
    enum status st = path[0] ? remove_folder(path) : ST_OK;
    for (int i = 1; i < TRIES && st != ST_OK; i++) {
        status_clear();
        clock_sleep_ms(AGAIN_MS);
        st = remove_folder(path);
    }
    return st;
}

/* ---- folders of other checks ---- */

/* Whether a process holds the lock. */
enum holder { HELD, FREE, UNKNOWN };

struct look {
    bool is_own_boot; /* made on this machine, since its last start */
    bool is_own;      /* made by a process that this one has started */
    enum holder holder;
    int64_t age_s;
};

static int64_t age_of(const struct stat *about)
{
    return clock_wall_ms() / 1000 - (int64_t)about->st_mtime;
}

static bool is_own(int fd)
{
    char mine[OWNER_BYTES], owner[OWNER_BYTES];
    if (!owner_of(mine, sizeof mine, getpid()))
        return false;
    const ssize_t n = pread(fd, owner, sizeof owner, 0);
    return n == (ssize_t)strlen(mine) && memcmp(owner, mine, (size_t)n) == 0;
}

/* look_at_lock — reads the state of a lock. The holder of an empty lock is unknown: its maker may
 * be about to lock it. */
static void look_at_lock(int fd, struct look *look)
{
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        return;
    look->age_s = age_of(&about);
    look->is_own = look->is_own_boot && is_own(fd);
    if (about.st_size == 0 && look->age_s <= OLD_S)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        look->holder = FREE;
    else if (errno == EWOULDBLOCK)
        look->holder = HELD;
}

/* look_at — reads the state of a folder. A folder without a lock is being made, or was abandoned
 * between two system calls. If a lock cannot be opened for another reason, nothing is known. */
static struct look look_at(const char *path, bool is_own_boot)
{
    struct look look = {.is_own_boot = is_own_boot, .holder = UNKNOWN};
    struct stat about;
    int fd = open_lock(path, 0);
    if (fd >= 0) {
        look_at_lock(fd, &look);
        close(fd);
    } else if ((errno == ENOENT || errno == ELOOP) && lstat(path, &about) == 0)
        look.age_s = age_of(&about);
    return look;
}

static bool is_left(const struct look *look, bool wants_own)
{
    if (look->holder == HELD || (wants_own && !look->is_own))
        return false;
    const bool is_known = look->holder == FREE && look->is_own_boot;
    return look->age_s > OLD_S || (is_known && (wants_own || look->age_s > YOUNG_S));
}

static bool is_own_folder(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid();
}

/* sweep_one — removes a folder if that is allowed; returns 1 if it did. *held: set if a process
 * holds a folder that is to be removed. */
static int sweep_one(const char *base, const char *name, bool wants_own, bool *held)
{
    char path[FILE_PATH_MAX], boot[BOOT_CHARS + 1];
    if (!text_starts(name, PREFIX) || !text_format(path, sizeof path, "%s/%s", base, name) ||
        !is_own_folder(path))
        return 0;
    boot_of(boot);
    const struct look look = look_at(path, boot[0] && text_starts(name + strlen(PREFIX), boot));
    *held = *held || (look.holder == HELD && look.is_own);
    if (!is_left(&look, wants_own))
        return 0;
    if (remove_folder(path) == ST_OK)
        return 1;
    status_clear();
    return 0;
}

static int sweep_once(const char *base, bool wants_own, bool *held)
{
    int removed = 0;
    DIR *all = opendir(base);
    const struct dirent *item;
    *held = false;
    while (all && (item = readdir(all)) != NULL)
        removed += sweep_one(base, item->d_name, wants_own, held);
    if (all)
        closedir(all);
    return removed;
}

int check_scratch_sweep(const char *dir)
{
    char base[FILE_PATH_MAX];
    bool held;
    check_disk_folder(dir, base, sizeof base);
    return sweep_once(base, false, &held);
}

struct sweep_own {
    char dir[FILE_PATH_MAX];
    int64_t end_ms;
    int removed;
};

static enum status sweep_own(void *arg)
{
    struct sweep_own *s = arg;
    char base[FILE_PATH_MAX];
    bool held;
    check_disk_folder(s->dir, base, sizeof base);
    s->removed = sweep_once(base, true, &held);
    while (held && clock_ms() < s->end_ms) {
        clock_sleep_ms(AGAIN_MS);
        s->removed += sweep_once(base, true, &held);
    }
    return ST_OK;
}

enum status check_scratch_sweep_own(const char *dir, int64_t patience_ms, int64_t limit_ms,
                                    int *removed_out)
{
    struct sweep_own s = {.end_ms = clock_ms() + patience_ms};
    bool is_late;
    text_copy(s.dir, sizeof s.dir, dir);
    TRY(limited_run(sweep_own, &s, sizeof s, limit_ms, "removes the folders of killed checks",
                    &is_late));
    *removed_out = s.removed;
    return ST_OK;
}
