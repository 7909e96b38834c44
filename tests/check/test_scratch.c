/* test_scratch — folders that checks leave: those of killed processes go, those of living ones, of
 * other machines and of others' making stay. */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "check/check_scratch.h"

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/convoy-scratch-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return file_remove_tree(dir) == ST_OK ? 0 : -1;
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

static void test_own(void **state)
{
    (void)state;
    struct check_scratch a, b;
    assert_int_equal(check_scratch_open(dir, &a), ST_OK);
    assert_int_equal(check_scratch_open(dir, &b), ST_OK);
    assert_string_not_equal(a.path, b.path);
    assert_int_equal(check_scratch_sweep(dir, 0), 0);
    assert_true(file_is_dir(a.path) && file_is_dir(b.path));
    char path[FILE_PATH_MAX];
    strcpy(path, a.path);
    assert_int_equal(check_scratch_close(&a), ST_OK);
    assert_int_equal(check_scratch_close(&a), ST_OK);
    assert_false(file_exists(path));
    assert_int_equal(check_scratch_close(&b), ST_OK);
}

static void test_killed(void **state)
{
    (void)state;
    char path[FILE_PATH_MAX], other[FILE_PATH_MAX];
    pid_t dead = hold(path), alive = hold(other);
    assert_int_equal(check_scratch_sweep(dir, 0), 0);
    end(dead);
    assert_int_equal(check_scratch_sweep(dir, 0), 1);
    assert_true(!file_exists(path) && file_is_dir(other));
    end(alive);
    assert_int_equal(check_scratch_sweep(dir, 0), 1);
}

/* A process that is about to end: the sweep waits for it. */
static void test_patience(void **state)
{
    (void)state;
    char path[FILE_PATH_MAX];
    pid_t pid = hold(path), killer = fork();
    if (killer == 0) {
        usleep(100000);
        kill(pid, SIGKILL);
        _exit(0);
    }
    assert_int_equal(check_scratch_sweep(dir, harness_patience_ms(20000)), 1);
    assert_false(file_exists(path));
    waitpid(killer, NULL, 0);
    waitpid(pid, NULL, 0);
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
static void test_other_machine(void **state)
{
    (void)state;
    char young[FILE_PATH_MAX], old[FILE_PATH_MAX], bare[FILE_PATH_MAX], held[FILE_PATH_MAX],
        lock[FILE_PATH_MAX];
    make(".convoy-check-ffffffff-AAAAAA", true, false, young);
    make(".convoy-check-ffffffff-BBBBBB", true, true, old);
    make(".convoy-check-4711-0", false, true, bare); /* of an earlier version */
    make(".convoy-check-ffffffff-CCCCCC", true, true, held);
    text_format(lock, sizeof lock, "%s/lock", held);
    int fd = open(lock, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(check_scratch_sweep(dir, 0), 2);
    assert_true(file_is_dir(young) && file_is_dir(held));
    assert_false(file_exists(old) || file_exists(bare));
    close(fd);
}

/* Names that anyone may have put there. */
static void test_hostile(void **state)
{
    (void)state;
    char outside[FILE_PATH_MAX], link[FILE_PATH_MAX], pipe_dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    make("precious", true, true, outside);
    text_format(link, sizeof link, "%s/.convoy-check-link", dir);
    assert_int_equal(symlink(outside, link), 0);
    make(".convoy-check-ffffffff-DDDDDD", false, true, pipe_dir); /* its lock is a pipe */
    text_format(path, sizeof path, "%s/lock", pipe_dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    text_format(path, sizeof path, "%s/.convoy-check-file", dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(check_scratch_sweep(dir, 0), 0);
    assert_true(file_exists(link) && file_exists(path) && file_is_dir(outside));
    text_format(path, sizeof path, "%s/precious/lock", dir);
    assert_true(file_exists(path));
    assert_int_equal(check_scratch_sweep("/proc/none/at/all", 0), 0);
}

static void test_cannot(void **state)
{
    (void)state;
    struct check_scratch s;
    assert_int_equal(check_scratch_open("/proc/self", &s), ST_STORE);
    assert_int_equal(check_scratch_close(&s), ST_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {TEST(test_own),      TEST(test_killed),
                                          TEST(test_patience), TEST(test_other_machine),
                                          TEST(test_hostile),  TEST(test_cannot)};
HARNESS_MAIN(tests)
