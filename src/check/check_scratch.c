/* check_scratch — see check_scratch.h. */
#include "check/check_scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "check/check_disk.h"
#include "check/check_file.h"

#define PREFIX ".convoy-check-"
#define BOOT_CHARS 8
#define OLD_S 86400
#define AGAIN_MS 20
#define TRIES 4 /* a sweep may take a folder away before it is locked */

/* boot_of — this start of this machine, the same in all its containers; "": unknown. */
static const char *boot_of(char out[BOOT_CHARS + 1])
{
    char text[64];
    out[0] = 0;
    if (check_file_read("", text, sizeof text, "/proc/sys/kernel/random/boot_id") &&
        strlen(text) > BOOT_CHARS)
        text_format(out, BOOT_CHARS + 1, "%.*s", BOOT_CHARS, text);
    return out;
}

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

/* try_open — *again_out: a sweep has removed it meanwhile. */
static enum status try_open(const char *dir, struct check_scratch *out, bool *again_out)
{
    char boot[BOOT_CHARS + 1];
    struct stat about;
    *again_out = false;
    *out = (struct check_scratch){.lock = -1};
    if (!text_format(out->path, sizeof out->path, "%s/" PREFIX "%s-XXXXXX", dir, boot_of(boot)))
        return FAIL(ST_BAD_SETTING, "the path of CHECKPOINT_DIR is too long: %.64s…", dir);
    if (!mkdtemp(out->path)) {
        out->path[0] = 0;
        return FAIL(ST_STORE, "cannot make a folder in %s: %s", dir, strerror(errno));
    }
    out->lock = open_lock(out->path, O_CREAT);
    if (out->lock < 0 && errno != ENOENT)
        return FAIL(ST_STORE, "cannot create %s/lock: %s", out->path, strerror(errno));
    /* a file system without locks is one whose folders wait for a day */
    if (out->lock >= 0)
        (void)flock(out->lock, LOCK_EX | LOCK_NB);
    *again_out = out->lock < 0 || fstat(out->lock, &about) != 0 || about.st_nlink == 0;
    return ST_OK;
}

enum status check_scratch_open(const char *dir, struct check_scratch *out)
{
    bool again = true;
    for (int i = 0; i < TRIES && again; i++) {
        enum status st = try_open(dir, out, &again);
        if (st != ST_OK || again)
            check_scratch_leave(out);
        TRY(st);
    }
    return again ? FAIL(ST_STORE, "folders in %s vanish as soon as they are made", dir) : ST_OK;
}

void check_scratch_leave(struct check_scratch *scratch)
{
    if (scratch->path[0] && scratch->lock >= 0)
        close(scratch->lock);
    *scratch = (struct check_scratch){.lock = -1};
}

enum status check_scratch_close(struct check_scratch *scratch)
{
    enum status st = scratch->path[0] ? file_remove_tree(scratch->path) : ST_OK;
    check_scratch_leave(scratch);
    return st;
}

/* ---- those of others ---- */

enum life { ALIVE, DEAD, UNKNOWN };

static bool is_old(const struct stat *about)
{
    return clock_wall_ms() / 1000 - (int64_t)about->st_mtime > OLD_S;
}

/* life_of — of the process that made it. A folder without a lock is being made, or was left between
 * two calls of the system. */
static enum life life_of(const char *path, bool is_own_boot)
{
    struct stat about;
    int fd = open_lock(path, 0);
    if (fd < 0)
        return lstat(path, &about) == 0 && is_old(&about) ? DEAD : UNKNOWN;
    enum life life = UNKNOWN;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
        bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (!is_free && errno == EWOULDBLOCK)
            life = ALIVE;
        else if ((is_free && is_own_boot) || is_old(&about))
            life = DEAD;
    }
    close(fd);
    return life;
}

static bool is_own_folder(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid();
}

/* sweep_one — 1: removed. *alive: set where a process of this machine holds it. */
static int sweep_one(const char *base, const char *name, bool *alive)
{
    char path[FILE_PATH_MAX], boot[BOOT_CHARS + 1];
    if (!text_starts(name, PREFIX) || !text_format(path, sizeof path, "%s/%s", base, name) ||
        !is_own_folder(path))
        return 0;
    boot_of(boot);
    const bool is_own_boot = boot[0] && text_starts(name + strlen(PREFIX), boot);
    const enum life life = life_of(path, is_own_boot);
    *alive = *alive || (life == ALIVE && is_own_boot);
    if (life != DEAD)
        return 0;
    if (file_remove_tree(path) == ST_OK)
        return 1;
    status_clear();
    return 0;
}

static int sweep_once(const char *base, bool *alive)
{
    int removed = 0;
    DIR *all = opendir(base);
    const struct dirent *item;
    *alive = false;
    while (all && (item = readdir(all)) != NULL)
        removed += sweep_one(base, item->d_name, alive);
    if (all)
        closedir(all);
    return removed;
}

int check_scratch_sweep(const char *dir, int64_t patience_ms)
{
    const int64_t end_ms = clock_ms() + patience_ms;
    char base[FILE_PATH_MAX];
    bool alive;
    check_disk_folder(dir, base, sizeof base);
    int removed = sweep_once(base, &alive);
    while (alive && clock_ms() < end_ms) {
        clock_sleep_ms(AGAIN_MS);
        removed += sweep_once(base, &alive);
    }
    return removed;
}
