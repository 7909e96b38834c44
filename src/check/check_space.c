/* check_space — may checkpoints be written where they go: the folder's file system, its free space,
 * its free inodes. How fast it is, check_disk measures. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/thread.h"
#include "check/check_static.h"

#define LEFT_BYTES_MIN (64ll << 20) /* the smallest checkpoint has some MB */
#define LEFT_BYTES_GOOD (10ll << 30)
#define LEFT_SHARE 0.05
#define LIMIT_MS 10000 /* a network file system whose server is gone never answers */

/* Asked in a thread, which may be left behind. */
struct space {
    struct thread thread; /* its lock guards what follows */
    char dir[FILE_PATH_MAX];
    struct statvfs about;
    int error, access_error; /* errno; 0: none */
    bool is_done, is_left;
};

/* The folder itself need not exist yet: then the nearest one above it. */
static void nearest(char *dir)
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

static void *ask(void *arg)
{
    struct space *space = arg;
    char dir[FILE_PATH_MAX];
    text_copy(dir, sizeof dir, space->dir);
    nearest(dir);
    struct statvfs about = {0};
    int error = statvfs(dir, &about) == 0 ? 0 : errno;
    int access_error = access(dir, W_OK | X_OK) == 0 ? 0 : errno;
    pthread_mutex_lock(&space->thread.lock);
    text_copy(space->dir, sizeof space->dir, dir);
    space->about = about;
    space->error = error;
    space->access_error = access_error;
    space->is_done = true;
    bool is_left = space->is_left;
    pthread_cond_signal(&space->thread.wake);
    pthread_mutex_unlock(&space->thread.lock);
    if (is_left) {
        thread_free(&space->thread);
        free(space);
    }
    return NULL;
}

static bool wait_for(struct space *space)
{
    struct timespec until = thread_deadline(LIMIT_MS);
    pthread_mutex_lock(&space->thread.lock);
    while (!space->is_done &&
           pthread_cond_timedwait(&space->thread.wake, &space->thread.lock, &until) == 0)
        ;
    bool is_done = space->is_done;
    space->is_left = !is_done;
    pthread_mutex_unlock(&space->thread.lock);
    return is_done;
}

static void add(struct check_static *s, enum check_verdict verdict, const char *why,
                const char *remedy)
{
    check_static_add(
        s, check_static_found(s, CHECK_POINT_CHECKPOINT, "disk space", verdict, "%s", why), "",
        remedy);
}

/* What makes writing impossible; false: nothing. */
static bool is_closed(struct check_static *s, const struct space *space)
{
    char why[256], remedy[192];
    text_format(remedy, sizeof remedy, "# set CHECKPOINT_DIR to another folder");
    if (space->error)
        text_format(why, sizeof why, "%.150s: %s", space->dir, strerror(space->error));
    else if (space->about.f_flag & ST_RDONLY) {
        text_format(why, sizeof why, "%.150s is on a file system that is mounted read-only",
                    space->dir);
        text_format(
            remedy, sizeof remedy,
            "mount -o remount,rw \"$(findmnt -nT %.100s -o TARGET)\"; dmesg | tail # has the "
            "reason",
            space->dir);
    } else if (space->access_error) {
        text_format(why, sizeof why, "%.150s may not be written by user %d: %s", space->dir,
                    (int)getuid(), strerror(space->access_error));
        text_format(remedy, sizeof remedy, "chown %d %.70s && chmod u+rwx %.70s", (int)getuid(),
                    space->dir, space->dir);
    } else if (space->about.f_files > 0 && space->about.f_favail == 0) {
        text_format(why, sizeof why, "%.150s has no free inode of %llu", space->dir,
                    (unsigned long long)space->about.f_files);
        text_format(remedy, sizeof remedy, "du --inodes -x %.100s | sort -n | tail", space->dir);
    } else
        return false;
    add(s, CHECK_VERDICT_FAIL, why, remedy);
    return true;
}

static void judge(struct check_static *s, const struct space *space)
{
    const struct statvfs *about = &space->about;
    double left = (double)about->f_bavail * (double)about->f_frsize;
    double all = (double)about->f_blocks * (double)about->f_frsize;
    char why[256], remedy[192] = "", left_text[24], all_text[24];
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
        text_format(remedy, sizeof remedy,
                    "du -xh %.100s | sort -h | tail # then delete what is old", space->dir);
    add(s, verdict, why, remedy);
}

void check_space_rows(struct check_static *s)
{
    const char *dir = s->config->dir ? s->config->dir : "";
    if (dir[0] == 0) {
        add(s, CHECK_VERDICT_SKIPPED, "no folder for checkpoints is set", "");
        return;
    }
    struct space *space = calloc(1, sizeof *space);
    if (space == NULL)
        return;
    text_copy(space->dir, sizeof space->dir, dir);
    if (thread_start(&space->thread, ask, space, "asks for the space of a disk") != ST_OK) {
        status_clear();
        free(space);
        return;
    }
    pthread_t id = space->thread.id;
    if (!wait_for(space)) {
        pthread_detach(id);
        add(s, CHECK_VERDICT_FAIL, "its file system has not answered for 10 s: a server is gone?",
            "mount | grep nfs # then umount -l the folder that hangs, and mount it again");
        return;
    }
    pthread_join(id, NULL);
    judge(s, space);
    thread_free(&space->thread);
    free(space);
}
