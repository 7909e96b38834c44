/* A disk that fails: full, read-only, dead in the middle of a save, or answering EIO at any call.
 * ckpt_save says ST_STORE, the older checkpoint stays, and the next save leaves nothing of the
 * failed one behind. Run with arguments, the program is its own victim: "save DIR STEP" takes the
 * lock, saves, and ends with 0, 10 (ST_STORE) or 11 (anything else). */
#include "harness.h"

#include <sys/mman.h>
#include <sys/mount.h>

#include "base/rand.h"
#include "ckpt_sample.h"

#define MARK "/here-begins-the-save"
#define KILLS 100

static char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
static struct ckpt_lock *lock;

static void be_quiet(void)
{
    struct log_config quiet = {.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1};
    log_init(&quiet);
}

static void new_dir(const char *name)
{
    be_quiet();
    assert_int_equal(file_join(dir, sizeof(dir), harness_tmpdir(), name), ST_OK);
    assert_int_equal(file_make_dirs(dir), ST_OK);
}

/* leftovers — names in DIR that are neither the lock nor a checkpoint. */
static int leftovers(void)
{
    int n = 0;
    DIR *listing = opendir(dir);
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        n += entry->d_name[0] == '.' && strcmp(entry->d_name, ".") != 0 &&
             strcmp(entry->d_name, "..") != 0 && strcmp(entry->d_name, ".lock") != 0;
    closedir(listing);
    return n;
}

/* newest — its step; the content is checked. -1: none. */
static int64_t newest(int elems)
{
    struct ckpt *ckpt = NULL;
    assert_int_equal(ckpt_open_newest(dir, NULL, &ckpt), ST_OK);
    if (!ckpt)
        return -1;
    int64_t step = ckpt_meta(ckpt)->step;
    assert_true(sample_is_whole_big(ckpt, elems));
    ckpt_close(ckpt);
    return step;
}

/* mount_small — a file system of its own on DIR, in a mount namespace of its own; false when that
 * is not permitted. */
static bool mount_small(const char *options)
{
    static bool is_private;
    if (!is_private &&
        (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        return false;
    is_private = true;
    return mount("none", dir, "tmpfs", 0, options) == 0;
}

TEST(test_full_disk)
{
    new_dir("full");
    if (!mount_small("size=1m")) {
        HARNESS_SKIP("mounting a tmpfs is not permitted here (%s)", strerror(errno));
    }
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(sample_save_big(lock, 1, 0, 40000, path), ST_OK);
    assert_int_equal(sample_save_big(lock, 2, 0, 40000, path), ST_STORE);
    harness_assert_message("it needs 742"); /* 3 × (160,016 + header) + 256 KiB */
    harness_assert_message("are free");
    assert_int_equal(leftovers(), 0);
    assert_int_equal(newest(40000), 1);
    ckpt_lock_release(lock);
    assert_int_equal(umount(dir), 0);
}

TEST(test_no_inodes)
{
    new_dir("inodes");
    if (!mount_small("size=8m,nr_inodes=10")) {
        HARNESS_SKIP("mounting a tmpfs is not permitted here (%s)", strerror(errno));
    }
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(sample_save(lock, 1, 0, path), ST_OK);
    assert_int_equal(sample_save(lock, 2, 0, path), ST_STORE);
    harness_assert_message("No space left on device");
    assert_int_equal(leftovers(), 0);
    assert_int_equal(newest(8), 1);
    ckpt_lock_release(lock);
    assert_int_equal(umount(dir), 0);
}

TEST(test_read_only)
{
    new_dir("readonly");
    if (!mount_small("size=1m")) {
        HARNESS_SKIP("mounting a tmpfs is not permitted here (%s)", strerror(errno));
    }
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(sample_save(lock, 1, 0, path), ST_OK);
    ckpt_lock_release(lock);
    assert_int_equal(mount("none", dir, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(newest(8), 1);
    assert_int_equal(ckpt_lock(dir, &lock), ST_STORE);
    harness_assert_message("Read-only file system");
    assert_int_equal(umount(dir), 0);
}

/* The victim of kill -9: saves one checkpoint after the other and notes how far it came. */
static void save_for_ever(int64_t step, volatile int64_t *done)
{
    if (ckpt_lock(dir, &lock) != ST_OK)
        _exit(1);
    for (;; step++) {
        if (sample_save_big(lock, step, 2, 60000, path) != ST_OK)
            _exit(2);
        *done = step;
    }
}

TEST(test_kill)
{
    new_dir("kill");
    volatile int64_t *done =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(done != MAP_FAILED);
    int died_in_save = 0;
    *done = 0;
    for (uint64_t i = 0; i < KILLS; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            save_for_ever(*done + 1, done);
        clock_sleep_ms((int64_t)rand_below(7, RAND_STREAM(TEST, 2), i, 50));
        kill(pid, SIGKILL);
        int ended;
        assert_int_equal(waitpid(pid, &ended, 0), pid);
        assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
        died_in_save += leftovers() > 0;
        int64_t step = newest(60000);
        if (*done > 0 ? step != *done && step != *done + 1 : step != -1 && step != 1)
            fail_msg("round %d: saved %lld, found %lld", (int)i, (long long)*done, (long long)step);
    }
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(sample_save_big(lock, *done + 2, 2, 60000, path), ST_OK);
    assert_int_equal(leftovers(), 0);
    ckpt_lock_release(lock);
    print_message("# %d kills, %d of them with a folder half written, %lld saves\n", KILLS,
                  died_in_save, (long long)*done);
}

/* run_strace — this program saving `step` under strace with one injection (NULL: none); its exit
 * code, or -1. */
static int run_strace(const char *log, const char *inject, int64_t step)
{
    char self[FILE_PATH_MAX] = "", number[32];
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    text_format(number, sizeof(number), "%lld", (long long)step);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* it cannot trace what strace traces */
        execlp("strace", "strace", "-f", "-o", log, "-e",
               "trace=openat,mkdir,pwrite64,fsync,rename,sync_file_range,unlink,flock,close", "-e",
               inject ? inject : "signal=none", self, "save", dir, number, (char *)NULL);
        _exit(127);
    }
    int ended;
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

/* count_calls — of one name in the log: before the mark, and in all. */
static void count_calls(const char *log, const char *call, int *before_out, int *all_out)
{
    char *data, *rest, name[64];
    size_t n;
    bool is_marked = false;
    text_format(name, sizeof(name), " %s(", call);
    assert_int_equal(file_read(log, 64 << 20, &data, &n), ST_OK);
    *before_out = *all_out = 0;
    for (char *line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        bool is_call = strstr(line, name) != NULL;
        is_marked = is_marked || strstr(line, MARK);
        *all_out += is_call;
        *before_out += is_call && !is_marked;
    }
    free(data);
    if (strcmp(call, "openat") == 0)
        (*before_out)++; /* the mark itself */
}

/* inject_all — every call of one name fails in turn. is_strict: each failure must fail the save. */
static int inject_all(const char *call, const char *error, const char *onward, bool is_strict)
{
    char log[FILE_PATH_MAX], inject[128];
    int before, all, failed_n = 0;
    static int64_t step = 10;
    assert_int_equal(file_join(log, sizeof(log), harness_tmpdir(), "strace.log"), ST_OK);
    assert_int_equal(run_strace(log, NULL, ++step), 0);
    count_calls(log, call, &before, &all);
    assert_true(all > before);
    for (int n = before + 1; n <= all; n++) {
        int64_t older = newest(8);
        text_format(inject, sizeof(inject), "inject=%s:error=%s:when=%d%s", call, error, n, onward);
        int code = run_strace(log, inject, ++step);
        int64_t found = newest(8);
        bool is_right = code == 0 ? found == step : code == 10 && (found == older || found == step);
        if (!is_right || (is_strict && code == 0))
            fail_msg("%s: exit code %d, newest %lld, before %lld, saving %lld", inject, code,
                     (long long)found, (long long)older, (long long)step);
        failed_n += code == 10;
        assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
        assert_int_equal(sample_save(lock, ++step, 3, path), ST_OK);
        ckpt_lock_release(lock);
        assert_int_equal(leftovers(), 0);
        assert_int_equal(newest(8), step);
    }
    print_message("# %s %s%s: %d injections, %d failed the save\n", call, error, onward,
                  all - before, failed_n);
    return failed_n;
}

TEST(test_every_call_fails)
{
    char log[FILE_PATH_MAX];
    new_dir("inject");
    assert_int_equal(file_join(log, sizeof(log), harness_tmpdir(), "strace.log"), ST_OK);
    int code = run_strace(log, NULL, 1);
    if (code != 0) {
        HARNESS_SKIP("strace is not there or may not trace here (exit code %d)", code);
    }
    /* three arrays, manifest, its folder, DIR */
    assert_true(inject_all("fsync", "EIO", "", true) >= 6);
    assert_true(inject_all("fsync", "ENOSPC", "+", true) >= 6);
    assert_true(inject_all("pwrite64", "EIO", "", false) >= 4);
    assert_true(inject_all("pwrite64", "ENOSPC", "+", false) >= 4);
    assert_true(inject_all("mkdir", "ENOSPC", "+", false) >= 1);
    assert_true(inject_all("rename", "EIO", "", false) >= 2);
    assert_true(inject_all("sync_file_range", "EIO", "", true) >= 3);
    assert_true(inject_all("openat", "EIO", "", false) >= 5);
    assert_true(inject_all("close", "EIO", "", false) >= 3);
}

/* save_once — what strace watches. */
static int save_once(const char *to, const char *number)
{
    int64_t step;
    be_quiet();
    if (text_parse_i64(number, 0, INT64_MAX, &step) != TEXT_OK || open(MARK, O_RDONLY) >= 0)
        return 12;
    enum status st = ckpt_lock(to, &lock);
    if (st == ST_OK)
        st = sample_save(lock, step, 3, path);
    ckpt_lock_release(lock);
    return st == ST_OK ? 0 : st == ST_STORE ? 10 : 11;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "save") == 0)
        return save_once(argv[2], argv[3]);
    return harness_run_all(__FILE__, NULL, NULL);
}
