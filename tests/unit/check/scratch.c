/* scratch — folders that checks leave: those of processes that were killed are removed; those
 * that a process holds, and those of other machines and other programs, stay. */
#include "harness.h"

#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <time.h>

#include "check/host/file.h"
#include "check/node/scratch.h"

static char dir[FILE_PATH_MAX];

static int set_up(void **state)
{
    return text_format(dir, sizeof dir, "%s/XXXXXX", harness_tmpdir()) && mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state) { return file_remove_tree(dir) == ST_OK ? 0 : -1; }

static bool knows_boot(void)
{
    char text[64];
    return check_file_read("", text, sizeof text, "/proc/sys/kernel/random/boot_id") &&
           access("/proc/self/ns/pid", F_OK) == 0;
}
#define NEEDS_BOOT     \
    if (!knows_boot()) \
    HARNESS_SKIP("/proc does not tell the start of the machine or the namespace of processes")

static int sweep_own(int64_t patience_ms)
{
    int removed = -1;
    const int64_t limit_ms = patience_ms + harness_patience_ms(20000);
    assert_int_equal(check_scratch_sweep_own(dir, patience_ms, limit_ms, &removed), ST_OK);
    return removed;
}

/* A process that holds a scratch folder, with a checkpoint in it, until it is killed. */
static pid_t hold(char *path)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct check_scratch s;
        char inner[FILE_PATH_MAX];
        if (check_scratch_open(dir, &s) != ST_OK)
            _exit(1);
        text_format(inner, sizeof inner, "%s/step-00000002", s.path);
        if (mkdir(inner, 0700) != 0 || write(fd[1], s.path, sizeof s.path) != sizeof s.path)
            _exit(1);
        for (;;)
            pause();
    }
    close(fd[1]);
    assert_int_equal(read(fd[0], path, FILE_PATH_MAX), FILE_PATH_MAX);
    close(fd[0]);
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void set_age(const char *path, int64_t seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= seconds;
    const struct timespec times[2] = {now, now};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void lock_of(const char *path, char *lock)
{
    assert_true(text_format(lock, FILE_PATH_MAX, "%s/lock", path));
}

TEST_WITH(test_own, set_up, tear_down)
{
    struct check_scratch a, b;
    assert_int_equal(check_scratch_open(dir, &a), ST_OK);
    assert_int_equal(check_scratch_open(dir, &b), ST_OK);
    assert_string_not_equal(a.path, b.path);
    assert_int_equal(check_scratch_sweep(dir), 0);
    assert_true(file_is_dir(a.path) && file_is_dir(b.path));
    char path[FILE_PATH_MAX];
    strcpy(path, a.path);
    assert_int_equal(check_scratch_close(&a), ST_OK);
    assert_int_equal(check_scratch_close(&a), ST_OK);
    assert_false(file_exists(path));
    assert_int_equal(file_remove_tree(b.path), ST_OK); /* by another process */
    assert_int_equal(check_scratch_close(&b), ST_OK);
}

/* The lock is removed last, so that a sweep sees whose folder it is if the process is killed before
 * that; and it is closed then, because NFS renames a file that is removed while it is open. */
TEST_WITH(test_lock_is_removed_last, set_up, tear_down)
{
    struct check_scratch s;
    _Alignas(struct inotify_event) char events[4096];
    char data[FILE_PATH_MAX], order[64] = "";
    assert_int_equal(check_scratch_open(dir, &s), ST_OK);
    text_format(data, sizeof data, "%s" CHECK_SCRATCH_DATA, s.path);
    assert_int_equal(mkdir(data, 0700), 0);
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    assert_true(inotify_add_watch(fd, s.path, IN_CLOSE_WRITE | IN_DELETE) >= 0);
    assert_int_equal(check_scratch_close(&s), ST_OK);
    const ssize_t n = read(fd, events, sizeof events);
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(events + at);
        if (event->len > 0)
            strcat(strcat(order, event->mask & IN_DELETE ? " remove " : " close "), event->name);
        at += (ssize_t)(sizeof *event + event->len);
    }
    assert_string_equal(order, " close lock remove data remove lock");
    close(fd);
}

TEST_WITH(test_killed, set_up, tear_down)
{
    char path[FILE_PATH_MAX], other[FILE_PATH_MAX];
    NEEDS_BOOT;
    pid_t dead = hold(path), held = hold(other);
    assert_int_equal(sweep_own(0), 0);
    end(dead);
    assert_int_equal(sweep_own(0), 1);
    assert_true(!file_exists(path) && file_is_dir(other));
    end(held);
    assert_int_equal(sweep_own(0), 1);
}

/* A process that is about to end: the sweep waits for it. */
TEST_WITH(test_patience, set_up, tear_down)
{
    char path[FILE_PATH_MAX];
    NEEDS_BOOT;
    pid_t pid = hold(path), killer = fork();
    if (killer == 0) {
        usleep(100000);
        kill(pid, SIGKILL);
        _exit(0);
    }
    assert_int_equal(sweep_own(harness_patience_ms(20000)), 1);
    assert_false(file_exists(path));
    waitpid(killer, NULL, 0);
    waitpid(pid, NULL, 0);
}

/* A lock that is free here may be held by a process that sees the folder through another mount. */
TEST_WITH(test_young, set_up, tear_down)
{
    char path[FILE_PATH_MAX], other[FILE_PATH_MAX], lock[FILE_PATH_MAX];
    NEEDS_BOOT;
    pid_t dead = hold(path), held = hold(other);
    end(dead);
    assert_int_equal(check_scratch_sweep(dir), 0);
    assert_true(file_is_dir(path));
    lock_of(path, lock);
    set_age(lock, 660);
    lock_of(other, lock);
    set_age(lock, 100000); /* held: its age does not count */
    assert_int_equal(check_scratch_sweep(dir), 1);
    assert_true(!file_exists(path) && file_is_dir(other));
    end(held);
}

/* Its maker may be about to lock it. */
TEST_WITH(test_empty_lock, set_up, tear_down)
{
    char path[FILE_PATH_MAX], lock[FILE_PATH_MAX];
    NEEDS_BOOT;
    end(hold(path));
    lock_of(path, lock);
    assert_int_equal(truncate(lock, 0), 0);
    set_age(lock, 660);
    assert_int_equal(check_scratch_sweep(dir), 0);
    assert_int_equal(sweep_own(0), 0);
    set_age(lock, 100000);
    assert_int_equal(check_scratch_sweep(dir), 1);
}

/* What processes of other parents have made is not this process's own. */
TEST_WITH(test_of_another_parent, set_up, tear_down)
{
    char path[FILE_PATH_MAX], lock[FILE_PATH_MAX];
    int wait_status = 0;
    NEEDS_BOOT;
    end(hold(path));
    pid_t pid = fork();
    if (pid == 0)
        _exit(sweep_own(0));
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_int_equal(wait_status, 0);
    assert_true(file_is_dir(path));
    lock_of(path, lock);
    int fd = open(lock, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "0", 1), 1);
    close(fd);
    assert_int_equal(sweep_own(0), 0);
}

static void make(const char *name, bool has_lock, bool is_old, char *path)
{
    char lock[FILE_PATH_MAX];
    const struct timespec old = {.tv_sec = 1000000000}, times[2] = {old, old};
    text_format(path, FILE_PATH_MAX, "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    text_format(lock, sizeof lock, "%s/lock", path);
    int fd = has_lock ? open(lock, O_CREAT | O_WRONLY, 0600) : -1;
    if (has_lock && is_old)
        assert_int_equal(futimens(fd, times), 0);
    if (has_lock)
        close(fd);
    if (is_old)
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Of another machine: its lock may not be seen here, so only what is old goes. */
TEST_WITH(test_other_machine, set_up, tear_down)
{
    char young[FILE_PATH_MAX], old[FILE_PATH_MAX], bare[FILE_PATH_MAX], held[FILE_PATH_MAX],
        lock[FILE_PATH_MAX];
    make(".convoy-check-ffffffff-AAAAAA", true, false, young);
    make(".convoy-check-ffffffff-BBBBBB", true, true, old);
    make(".convoy-check-4711-0", false, true, bare); /* of an earlier version */
    make(".convoy-check-ffffffff-CCCCCC", true, true, held);
    text_format(lock, sizeof lock, "%s/lock", held);
    int fd = open(lock, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(check_scratch_sweep(dir), 2);
    assert_true(file_is_dir(young) && file_is_dir(held));
    assert_false(file_exists(old) || file_exists(bare));
    close(fd);
}

/* Names that anyone may have put there. */
TEST_WITH(test_hostile, set_up, tear_down)
{
    char outside[FILE_PATH_MAX], link[FILE_PATH_MAX], pipe_dir[FILE_PATH_MAX],
        lock_dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    make("precious", true, true, outside);
    text_format(link, sizeof link, "%s/.convoy-check-link", dir);
    assert_int_equal(symlink(outside, link), 0);
    make(".convoy-check-ffffffff-DDDDDD", false, true, pipe_dir); /* its lock is a pipe */
    text_format(path, sizeof path, "%s/lock", pipe_dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    make(".convoy-check-ffffffff-EEEEEE", false, true, lock_dir); /* its lock is a folder */
    text_format(path, sizeof path, "%s/lock", lock_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    set_age(lock_dir, 100000);
    text_format(path, sizeof path, "%s/.convoy-check-file", dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(check_scratch_sweep(dir), 0);
    assert_true(file_exists(link) && file_exists(path) && file_is_dir(outside));
    assert_true(file_is_dir(pipe_dir) && file_is_dir(lock_dir));
    text_format(path, sizeof path, "%s/precious/lock", dir);
    assert_true(file_exists(path));
    assert_int_equal(check_scratch_sweep("/proc/none/at/all"), 0);
}

TEST_WITH(test_cannot, set_up, tear_down)
{
    struct check_scratch s;
    assert_int_equal(check_scratch_open("/proc/self", &s), ST_STORE);
    assert_int_equal(check_scratch_close(&s), ST_OK);
}

/* Of a process that may open so many files, and write so many bytes: 0, or the line that failed. */
static int fail_to_open(rlim_t files, rlim_t bytes)
{
    const struct rlimit nofile = {files, files}, fsize = {bytes, bytes};
    struct check_scratch s;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_NOFILE, &nofile) != 0 || setrlimit(RLIMIT_FSIZE, &fsize) != 0)
        return __LINE__;
    if (check_scratch_open(dir, &s) != ST_STORE)
        return __LINE__;
    return rmdir(dir) == 0 ? 0 : __LINE__; /* only an empty one goes */
}

/* As with a quota: the lock cannot be created, or not be written. */
TEST_WITH(test_no_lock, set_up, tear_down)
{
    static const struct rlimit limits[] = {{0, RLIM_INFINITY}, {64, 0}};
    for (int i = 0; i < 2; i++) {
        int wait_status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(fail_to_open(limits[i].rlim_cur, limits[i].rlim_max) & 255);
        assert_int_equal(waitpid(pid, &wait_status, 0), pid);
        assert_int_equal(wait_status, 0);
        assert_int_equal(mkdir(dir, 0700), 0);
    }
}

/* A file system in user space that nothing serves: as one of a server that is gone. Returns its
 * device, whose end ends it; -1: not allowed here. */
static int mount_silent(const char *path)
{
    char options[96];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    text_format(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    if (fd >= 0 && mount("silent", path, "fuse", MS_NOSUID | MS_NODEV, options) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

TEST_WITH(test_no_answer, set_up, tear_down)
{
    int removed = -1, fd = mount_silent(dir);
    if (fd < 0)
        HARNESS_SKIP("no FUSE here");
    const enum status st = check_scratch_sweep_own(dir, 0, 100, &removed);
    close(fd);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    assert_int_equal(st, ST_PEER);
    assert_int_equal(removed, -1);
    assert_non_null(strstr(status_message(), "has not answered for 100 ms"));
}

HARNESS_RUN_ALL()
