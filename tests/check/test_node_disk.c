/* The disk's part of the node stage: what each failure of a folder is called, and that nothing
 * stays in it. fsync, pwrite and open are replaced to fail as a disk does. */
#include "mesh/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "check/node/disk.h"

static int fail_fsync, fail_pwrite, fail_after;
static _Thread_local int slow_fsyncs; /* so many take long */
static bool has_no_tmpfile;           /* as NFS */

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const unsigned mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, unsigned) : 0;
    va_end(args);
    if (has_no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fsync(int fd)
{
    if (fail_fsync) {
        errno = fail_fsync;
        return -1;
    }
    if (slow_fsyncs-- > 0)
        clock_sleep_ms(200);
    return (int)syscall(SYS_fsync, fd);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    if (fail_pwrite && fail_after-- <= 0) {
        errno = fail_pwrite;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, fail_pwrite ? bytes / 2 + 1 : bytes, offset);
}

static struct check_row disk_of(const char *dir)
{
    struct check_rows rows = {0};
    const struct check_config config = {.place = {.rank = 6, .node = 3, .nodes = 4}, .dir = dir};
    assert_int_equal(check_disk(&config, 4 << 20, 1000, &rows), ST_OK);
    assert_int_equal(rows.n, 1);
    struct check_row row = rows.row[0];
    check_row_free(&rows);
    assert_string_equal(row.name, "disk write");
    assert_int_equal(row.node, 3);
    assert_int_equal(row.rank, 6);
    return row;
}

static int entries(const char *dir)
{
    int n = 0;
    DIR *all = opendir(dir);
    assert_non_null(all);
    while (readdir(all))
        n++;
    closedir(all);
    return n - 2;
}

static void assert_failed(const char *dir, const char *why, const char *remedy)
{
    struct check_row row = disk_of(dir);
    assert_int_equal(row.verdict, CHECK_VERDICT_FAIL);
    if (!strstr(row.why, why) || !strstr(row.why, dir))
        fail_msg("%s: not in: %s", why, row.why);
    if (!strstr(row.remedy, remedy))
        fail_msg("%s: not in: %s", remedy, row.remedy);
}

static void a_good_disk_is_measured(void **state)
{
    char deep[700];
    struct check_row row = disk_of(harness_tmpdir());
    assert_int_equal(row.verdict, CHECK_VERDICT_MEASURED);
    assert_string_equal(row.unit, "MB/s");
    assert_true(row.value > 0 && isfinite(row.value));
    text_format(deep, sizeof deep, "%s/not/yet/there", harness_tmpdir());
    assert_int_equal(disk_of(deep).verdict, CHECK_VERDICT_MEASURED);
    assert_int_equal(entries(harness_tmpdir()), 0);
    row = disk_of("");
    assert_int_equal(row.verdict, CHECK_VERDICT_SKIPPED);
}

/* Of another container, which has the same process number, there is a file already. */
static void a_disk_without_unnamed_files_is_measured(void **state)
{
    char path[700];
    text_format(path, sizeof path, "%s/.convoy-check-%d", harness_tmpdir(), (int)getpid());
    assert_int_equal(file_replace(path, "x", 1), ST_OK);
    has_no_tmpfile = true;
    struct check_row row = disk_of(harness_tmpdir());
    has_no_tmpfile = false;
    assert_int_equal(row.verdict, CHECK_VERDICT_MEASURED);
    assert_int_equal(entries(harness_tmpdir()), 1);
    unlink(path);
}

static void failures_are_named(void **state)
{
    const char *dir = harness_tmpdir();
    fail_fsync = EIO;
    assert_failed(dir, "cannot sync a file in", "smartctl");
    fail_fsync = 0;
    for (fail_after = 0; fail_after < 4;) {
        int after = fail_after;
        fail_pwrite = ENOSPC;
        assert_failed(dir, "No space left on device", "df -h");
        fail_after = after + 1;
    }
    fail_pwrite = EDQUOT;
    fail_after = 1;
    assert_failed(dir, "quota exceeded", "df -i");
    fail_pwrite = EROFS;
    fail_after = 0;
    assert_failed(dir, "Read-only file system", "mount -o remount,rw");
    fail_pwrite = 0;
    assert_int_equal(entries(dir), 0);
}

static void a_folder_of_others_is_named(void **state)
{
    char dir[700];
    if (geteuid() == 0)
        HARNESS_SKIP("root may write everywhere");
    text_format(dir, sizeof dir, "%s/closed", harness_tmpdir());
    assert_int_equal(mkdir(dir, 0500), 0);
    assert_failed(dir, "Permission denied", "chown");
    rmdir(dir);
}

static void a_file_in_the_way_is_named(void **state)
{
    char path[700];
    text_format(path, sizeof path, "%s/file", harness_tmpdir());
    assert_int_equal(file_replace(path, "x", 1), ST_OK);
    assert_failed(path, "Not a directory", "CHECKPOINT_DIR");
    unlink(path);
}

/* A server that is gone: a file of its folder is not even opened. */
static void a_folder_that_is_bad_is_left_alone(void **state)
{
    struct check_rows rows = {0}, found = {0};
    struct check_row bad = check_row_found(CHECK_STAGE_STATIC, CHECK_POINT_CHECKPOINT, 0,
                                           "disk space", CHECK_VERDICT_FAIL, "no answer");
    check_row_add(&found, &bad);
    const struct check_config config = {
        .place = {.nodes = 1}, .dir = harness_tmpdir(), .found = &found};
    fail_pwrite = EIO;
    fail_after = 0;
    assert_int_equal(check_disk(&config, 4 << 20, 1000, &rows), ST_OK);
    fail_pwrite = 0;
    assert_int_equal(rows.n, 1);
    assert_int_equal(rows.row[0].verdict, CHECK_VERDICT_SKIPPED);
    assert_non_null(strstr(rows.row[0].why, "see disk space"));
    check_row_free(&rows);
    check_row_free(&found);
}

/* The first rank of each of four nodes writes; that of node 1 waits for its disk `slow` times. */
struct disks {
    struct check_rows rows;
    int slow;
};

static enum status write_disks(struct ranks_one *one)
{
    struct disks *disks = one->arg;
    const struct check_config config = {
        .place = *comm_place(one->comm), .comm = one->comm, .dir = harness_tmpdir()};
    slow_fsyncs = one->rank == 2 ? disks->slow : 0;
    return check_disk(&config, 2 << 20, 1, &disks->rows);
}

static void check_disks(int slow, double *rate)
{
    struct disks disks[8] = {0};
    for (int i = 0; i < 8; i++)
        disks[i].slow = slow;
    ranks_run(4, 2, write_disks, disks, sizeof *disks);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(disks[i].rows.n, i % 2 == 0);
        if (i % 2 == 0)
            rate[i / 2] = disks[i].rows.row[0].value;
        check_row_free(&disks[i].rows);
    }
}

/* 1 MiB that waits 200 ms is at most 5.2 MB/s. */
static void a_disk_that_was_slow_for_a_moment_is_measured_again(void **state)
{
    double rate[4];
    check_disks(2, rate);
    for (int i = 0; i < 4; i++)
        assert_true(rate[i] > 0);
    if (rate[0] > 20 && rate[2] > 20 && rate[3] > 20)
        assert_true(rate[1] > 5.3);
    check_disks(1000, rate);
    assert_true(rate[1] < 5.3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_good_disk_is_measured),
    cmocka_unit_test(a_disk_without_unnamed_files_is_measured),
    cmocka_unit_test(failures_are_named),
    cmocka_unit_test(a_folder_of_others_is_named),
    cmocka_unit_test(a_file_in_the_way_is_named),
    cmocka_unit_test(a_folder_that_is_bad_is_left_alone),
    cmocka_unit_test(a_disk_that_was_slow_for_a_moment_is_measured_again),
};
HARNESS_MAIN(tests)
