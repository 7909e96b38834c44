/* check_space — whether checkpoints can be written to their folder: its file system, free space and
 * free inodes. check_disk measures its speed. */
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limited.h"
#include "base/text.h"
#include "check/host/static.h"
#include "check/report/text.h"

#define LEFT_BYTES_MIN (64ll << 20) /* the smallest checkpoint has some MB */
#define LEFT_BYTES_GOOD (10ll << 30)
#define LEFT_SHARE 0.05
#define LIMIT_MS 10000 /* milliseconds; a network file system whose server is gone never answers */

/* Results of calls with a time limit (base/limited.h). */
struct space {
    char dir[FILE_PATH_MAX];
    struct statvfs about;
    int error, access_error; /* errno; 0: none */
};

/* Finds the nearest folder that exists: the folder itself need not exist yet. */
static void find_existing_folder(char *dir)
{
    while (access(dir, F_OK) != 0 && errno == ENOENT) {
        char *slash = strrchr(dir, '/');
        if (slash == NULL || slash == dir) {
            text_copy(dir, FILE_PATH_MAX, slash ? "/" : ".");
            return;
        }
        *slash = 0;
    }
}

static enum status ask(void *arg)
{
    struct space *space = arg;
    find_existing_folder(space->dir);
    space->error = statvfs(space->dir, &space->about) == 0 ? 0 : errno;
    space->access_error = access(space->dir, W_OK | X_OK) == 0 ? 0 : errno;
    return ST_OK;
}

static void add_row(struct check_static *s, enum check_verdict verdict, const char *why,
                    const char *remedy)
{
    check_static_add(
        s, check_static_found(s, CHECK_POINT_CHECKPOINT, "disk space", verdict, "%s", why), "",
        remedy);
}

/* Adds a row if writing is impossible; false: it is possible. */
static bool is_closed(struct check_static *s, const struct space *space)
{
    char why[256], remedy[192], dir[CHECK_TEXT_WORD];
    check_text_folder(dir, sizeof dir, space->dir);
    text_format(remedy, sizeof remedy, "# set CHECKPOINT_DIR to another folder");
    if (space->error)
        text_format(why, sizeof why, "%.150s: %s", space->dir, strerror(space->error));
    else if (space->about.f_flag & ST_RDONLY) {
        text_format(why, sizeof why, "%.150s is on a file system that is mounted read-only",
                    space->dir);
        text_format(
            remedy, sizeof remedy,
            "mount -o remount,rw \"$(findmnt -nT %s -o TARGET)\"; dmesg | tail # has the reason",
            dir);
    } else if (space->access_error) {
        text_format(why, sizeof why, "%.150s may not be written by user %d: %s", space->dir,
                    (int)getuid(), strerror(space->access_error));
        text_format(remedy, sizeof remedy, "d=%s; chown %d \"$d\" && chmod u+rwx \"$d\"", dir,
                    (int)getuid());
    } else if (space->about.f_files > 0 && space->about.f_favail == 0) {
        text_format(why, sizeof why, "%.150s has no free inode of %llu", space->dir,
                    (unsigned long long)space->about.f_files);
        text_format(remedy, sizeof remedy, "du --inodes -x %s | sort -n | tail", dir);
    } else
        return false;
    add_row(s, CHECK_VERDICT_FAIL, why, remedy);
    return true;
}

static void judge_space(struct check_static *s, const struct space *space)
{
    const struct statvfs *about = &space->about;
    double left = (double)about->f_bavail * (double)about->f_frsize;
    double all = (double)about->f_blocks * (double)about->f_frsize;
    char why[256], remedy[192] = "", left_text[24], all_text[24], dir[CHECK_TEXT_WORD];
    if (is_closed(s, space))
        return;
    enum check_verdict verdict = left < LEFT_BYTES_MIN ? CHECK_VERDICT_FAIL
                                 : left < LEFT_BYTES_GOOD && left < LEFT_SHARE * all
                                     ? CHECK_VERDICT_WARN
                                     : CHECK_VERDICT_PASS;
    text_format(why, sizeof why, "%s free of %s at %.150s",
                text_format_bytes(left_text, sizeof left_text, left),
                text_format_bytes(all_text, sizeof all_text, all), space->dir);
    if (verdict != CHECK_VERDICT_PASS)
        text_format(remedy, sizeof remedy, "du -xh %s | sort -h | tail # then delete old files",
                    check_text_folder(dir, sizeof dir, space->dir));
    add_row(s, verdict, why, remedy);
}

void check_space_rows(struct check_static *s)
{
    const char *dir = s->config->dir ? s->config->dir : "";
    if (dir[0] == 0) {
        add_row(s, CHECK_VERDICT_SKIPPED, "no folder for checkpoints is set", "");
        return;
    }
    struct space space = {0};
    bool is_late;
    text_copy(space.dir, sizeof space.dir, dir);
    const enum status st = limited_run(ask, &space, sizeof space, LIMIT_MS,
                                       "reads the free space of a disk", &is_late);
    if (st == ST_OK)
        judge_space(s, &space);
    else if (is_late)
        add_row(s, CHECK_VERDICT_FAIL,
                "its file system has not answered for 10 s: is its server gone?",
                "mount | grep nfs # then umount -l the folder that hangs, and mount it again");
    if (st != ST_OK)
        status_clear();
}
