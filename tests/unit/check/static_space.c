/* static_space — the row "disk space": a full, a closed, a read-only file system, in a mount
 * namespace of this program, and folders that a user may not write. */
#include "check/static_trees.h"

#include <sys/mman.h>
#include <sys/mount.h>

static char disk[600];
static bool has_namespace;

/* The row of a check that writes checkpoints to dir. */
static struct check_row row_of(const char *dir)
{
    struct check_rows rows = {0};
    struct check_row found = {0};
    struct check_config config = {.place = {.ranks = 1, .nodes = 1, .locals = 1},
                                  .root = "/nonexistent",
                                  .dir = dir,
                                  .gpus_expected = -1};
    check_static_run(&config, 1000, &rows);
    for (int i = 0; i < rows.n; i++)
        if (strcmp(rows.row[i].name, "disk space") == 0)
            found = rows.row[i];
    check_row_free(&rows);
    assert_string_equal(found.name, "disk space");
    return found;
}

static void expect(const char *dir, enum check_verdict verdict, const char *why, const char *remedy)
{
    struct check_row row = row_of(dir);
    if (row.verdict != verdict || !strstr(row.why, why) || !strstr(row.remedy, remedy))
        print_message("# %s | %s | %s\n", check_row_verdict(row.verdict), row.why, row.remedy);
    assert_int_equal(row.verdict, verdict);
    assert_non_null(strstr(row.why, why));
    assert_non_null(strstr(row.remedy, remedy));
}

/* The remedy, as it stands. */
static void try_remedy(struct check_row row)
{
    char command[256];
    text_format(command, sizeof command, "{ %s\n} >/dev/null 2>&1", row.remedy);
    assert_int_equal(system(command), 0);
}

static bool mount_disk(const char *options)
{
    return mount("none", disk, "tmpfs", 0, options) == 0;
}

static int setup(void **state)
{
    text_format(disk, sizeof disk, "%s/disk", harness_tmpdir());
    assert_int_equal(mkdir(disk, 0755), 0);
    has_namespace = geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
                    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return 0;
}

TEST_WITH(full, setup, NULL)
{
    char file[700];
    if (!has_namespace || !mount_disk("size=100m"))
        HARNESS_SKIP("cannot mount in a namespace of its own");
    expect(disk, CHECK_VERDICT_PASS, "100.0 MiB free of 100.0 MiB", "");
    text_format(file, sizeof file, "%s/data", disk);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0 && posix_fallocate(fd, 0, 40 << 20) == 0);
    close(fd);
    expect(disk, CHECK_VERDICT_FAIL, "60.0 MiB free of 100.0 MiB", "du -xh");
    assert_int_equal(umount(disk), 0);
}

TEST(no_inode)
{
    if (!has_namespace || !mount_disk("size=100m,nr_inodes=1"))
        HARNESS_SKIP("cannot mount in a namespace of its own");
    expect(disk, CHECK_VERDICT_FAIL, "no free inode of 1", "du --inodes");
    assert_int_equal(umount(disk), 0);
}

TEST(read_only)
{
    char below[700];
    text_format(below, sizeof below, "%s/run/checkpoints", disk);
    if (!has_namespace || mount("none", disk, "tmpfs", MS_RDONLY, "size=100m") != 0)
        HARNESS_SKIP("cannot mount in a namespace of its own");
    expect(disk, CHECK_VERDICT_FAIL, "mounted read-only", "mount -o remount,rw");
    expect(below, CHECK_VERDICT_FAIL, "mounted read-only", "mount -o remount,rw");
    try_remedy(row_of(disk));
    expect(disk, CHECK_VERDICT_PASS, "100.0 MiB free", "");
    assert_int_equal(umount(disk), 0);
}

TEST(folders)
{
    char path[700], file[700];
    text_format(path, sizeof path, "%s/not/yet/there", harness_tmpdir());
    assert_true(row_of(path).verdict != CHECK_VERDICT_SKIPPED);
    assert_non_null(strstr(row_of(path).why, harness_tmpdir()));
    text_format(file, sizeof file, "%s/file", harness_tmpdir());
    assert_int_equal(file_replace(file, "x", 1), ST_OK);
    text_format(path, sizeof path, "%s/below", file);
    expect(path, CHECK_VERDICT_FAIL, "Not a directory", "# set CHECKPOINT_DIR");
    expect("", CHECK_VERDICT_SKIPPED, "no folder for checkpoints is set", "");
    assert_true(row_of("relative/not/there").why[0] != 0);
}

/* As another user, because root may write everywhere. */
static struct check_row row_of_user(const char *dir)
{
    int how;
    struct check_row *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(1);
        *shared = row_of(dir);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    struct check_row row = *shared;
    munmap(shared, sizeof *shared);
    return row;
}

/* By a name that begins in its own folder: those above it may be closed to the other user. */
TEST(closed)
{
    const int before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(before >= 0);
    assert_int_equal(chmod(harness_tmpdir(), 0755), 0);
    assert_int_equal(chdir(harness_tmpdir()), 0);
    assert_int_equal(mkdir("it's  closed $(false)", 0555), 0);
    struct check_row row = row_of_user("it's  closed $(false)");
    assert_int_equal(row.verdict, CHECK_VERDICT_FAIL);
    assert_non_null(strstr(row.why, "may not be written by user"));
    try_remedy(row);
    assert_null(strstr(row_of_user("it's  closed $(false)").why, "may not be written"));
    assert_int_equal(fchdir(before), 0);
    close(before);
}

HARNESS_RUN_ALL()
