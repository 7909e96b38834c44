/* file: all or nothing, never through planted links; failures name path, reason and remedy. */
#include "harness.h"

#include <sys/resource.h>

static char path_text[8][1200];
static int path_i;
static const char *in_tmp(const char *name)
{
    char *out = path_text[path_i++ % 8];
    text_format(out, sizeof(path_text[0]), "%s/%s", harness_tmpdir(), name);
    return out;
}

static void assert_says(const char *a, const char *b)
{
    assert_non_null(strstr(status_message(), a));
    assert_non_null(strstr(status_message(), b));
}

/* How many entries of the test's folder begin so. */
static int count_beside(const char *prefix)
{
    char command[1400];
    text_format(command, sizeof(command), "exit $(ls -A '%s' | grep -c '^%s')", harness_tmpdir(),
                prefix);
    return WEXITSTATUS(system(command));
}

TEST(replace_and_read)
{
    const char *path = in_tmp("plain");
    char *data = NULL;
    size_t bytes = 99;
    assert_int_equal(file_replace(path, "hello\0x", 7), ST_OK);
    assert_int_equal(file_read(path, 7, &data, &bytes), ST_OK);
    assert_int_equal(bytes, 7);
    assert_memory_equal(data, "hello\0x", 8); /* and a 0 behind it */
    free(data);
    assert_int_equal(file_replace(path, "", 0), ST_OK);
    assert_int_equal(file_read(path, 0, &data, &bytes), ST_OK);
    assert_int_equal(bytes, 0);
    assert_string_equal(data, "");
    free(data);
    assert_int_equal(file_bytes(path), 0);
    assert_int_equal(count_beside("plain"), 1);
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
}

TEST(reading_refuses)
{
    char *data = NULL;
    size_t bytes;
    assert_int_equal(file_read(in_tmp("missing"), 10, &data, &bytes), ST_NO_INPUT);
    assert_says("missing", strerror(ENOENT));
    assert_int_equal(file_read(harness_tmpdir(), 10, &data, &bytes), ST_NO_INPUT);
    assert_says(harness_tmpdir(), "folder");
    assert_int_equal(file_read("/dev/zero", 10, &data, &bytes), ST_NO_INPUT);
    assert_int_equal(file_read("", 10, &data, &bytes), ST_NO_INPUT);
    assert_int_equal(file_replace(in_tmp("eleven"), "12345678901", 11), ST_OK);
    assert_int_equal(file_read(in_tmp("eleven"), 10, &data, &bytes), ST_BAD_DATA);
    assert_says("11 bytes", "at most 10");
    assert_int_equal(mkfifo(in_tmp("fifo"), 0600), 0);
    /* without hanging */
    assert_int_equal(file_read(in_tmp("fifo"), 10, &data, &bytes), ST_NO_INPUT);
    assert_int_equal(file_read(in_tmp("eleven/x"), 10, &data, &bytes), ST_NO_INPUT);
    assert_says("eleven/x", strerror(ENOTDIR));
    assert_null(data);
}

TEST(no_permission_is_no_input)
{
    if (geteuid() == 0) {
        /* As root everything may be read: try as nobody, in a child. */
        /* the test's own folder is closed to nobody as a whole */
        char secret[] = "/tmp/convoy-test-XXXXXX";
        close(mkstemp(secret));
        assert_int_equal(chmod(secret, 0), 0);
        pid_t child = fork();
        if (child == 0) {
            char *data;
            size_t bytes;
            if (setuid(65534) != 0)
                _exit(3);
            bool right = file_read(secret, 10, &data, &bytes) == ST_NO_INPUT &&
                         strstr(status_message(), "permission") != NULL;
            _exit(right ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(unlink(secret), 0);
        assert_int_equal(WEXITSTATUS(status), 0);
        return;
    }
    char *data;
    size_t bytes;
    assert_int_equal(file_replace(in_tmp("secret"), "x", 1), ST_OK);
    assert_int_equal(chmod(in_tmp("secret"), 0), 0);
    assert_int_equal(file_read(in_tmp("secret"), 10, &data, &bytes), ST_NO_INPUT);
}

TEST(maps)
{
    struct file_map map = {0};
    file_map_close(&map);
    assert_int_equal(file_replace(in_tmp("mapped"), "abc", 3), ST_OK);
    assert_int_equal(file_map_open(in_tmp("mapped"), &map), ST_OK);
    assert_int_equal(map.bytes, 3);
    file_map_release(&map, map.data + 1, 2); /* they are read again when needed */
    assert_memory_equal(map.data, "abc", 3);
    file_map_close(&map);
    file_map_release(&map, NULL, 1);
    file_map_close(&map);
    assert_int_equal(file_replace(in_tmp("mapped"), "", 0), ST_OK);
    assert_int_equal(file_map_open(in_tmp("mapped"), &map), ST_OK);
    assert_null(map.data);
    assert_int_equal(map.bytes, 0);
    file_map_close(&map);
    assert_int_equal(file_map_open(in_tmp("nothing"), &map), ST_NO_INPUT);
    assert_int_equal(file_map_open(harness_tmpdir(), &map), ST_NO_INPUT);
}

TEST(a_planted_link_is_replaced_not_followed)
{
    char *data;
    size_t bytes;
    assert_int_equal(file_replace(in_tmp("victim"), "precious", 8), ST_OK);
    assert_int_equal(symlink("victim", in_tmp("planted")), 0);
    assert_int_equal(file_replace(in_tmp("planted"), "ours", 4), ST_OK);
    assert_int_equal(file_read(in_tmp("victim"), 100, &data, &bytes), ST_OK);
    assert_string_equal(data, "precious");
    free(data);
    struct stat info;
    assert_int_equal(lstat(in_tmp("planted"), &info), 0);
    assert_true(S_ISREG(info.st_mode));
}

TEST(failures_leave_the_old_file)
{
    const char *path = in_tmp("kept");
    char *data;
    size_t bytes;
    assert_int_equal(file_replace(path, "old", 3), ST_OK);
    /* a limit on file size stands in for a full disk: the write fails half-way */
    pid_t child = fork();
    if (child == 0) {
        static char big[100000];
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){50000, 50000});
        signal(SIGXFSZ, SIG_IGN);
        bool right = file_replace(path, big, sizeof(big)) == ST_STORE &&
                     strstr(status_message(), path) != NULL &&
                     strstr(status_message(), strerror(EFBIG)) != NULL;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(file_read(path, 100, &data, &bytes), ST_OK);
    assert_string_equal(data, "old");
    free(data);
    assert_int_equal(count_beside("kept"), 1);
    assert_int_equal(file_replace(in_tmp("no/such/folder"), "x", 1), ST_STORE);
    assert_says("no/such/folder", "make the folder first");
    assert_int_equal(file_make_dirs(in_tmp("taken")), ST_OK);
    /* a folder is in the way */
    assert_int_equal(file_replace(in_tmp("taken"), "x", 1), ST_BAD_SETTING);
    assert_int_equal(count_beside("taken"), 1);
    assert_int_equal(file_check_target("/dev/null"), ST_BAD_SETTING);
    assert_says("/dev/null", "device");
}

TEST(a_full_disk_says_how_much)
{
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0)
        HARNESS_SKIP("no /dev/full on this system");
    assert_int_equal(file_write_at(fd, "/dev/full", "xxxx", 4, 0), ST_STORE);
    assert_says("/dev/full", strerror(ENOSPC));
    assert_says("4 B needed", "free; make room");
    close(fd);
}

TEST(write_at_offsets)
{
    char *data;
    size_t bytes;
    int fd = open(in_tmp("holes"), O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(file_write_at(fd, "holes", "end", 3, 5), ST_OK);
    assert_int_equal(file_write_at(fd, "holes", "begin", 5, 0), ST_OK);
    assert_int_equal(file_write_at(fd, "holes", "", 0, 100), ST_OK);
    close(fd);
    assert_int_equal(file_read(in_tmp("holes"), 100, &data, &bytes), ST_OK);
    assert_string_equal(data, "beginend");
    free(data);
    assert_int_equal(file_write_at(-1, "closed", "x", 1, 0), ST_STORE);
    assert_says("closed", strerror(EBADF));
}

TEST(folders)
{
    assert_int_equal(file_make_dirs(in_tmp("a/b//c/")), ST_OK);
    assert_int_equal(file_make_dirs(in_tmp("a/b/c")), ST_OK);
    assert_true(file_is_dir(in_tmp("a/b/c")));
    assert_int_equal(file_make_dirs("/"), ST_OK);
    assert_int_equal(file_make_dirs("."), ST_OK);
    assert_int_equal(file_make_dirs(""), ST_STORE);
    assert_int_equal(file_replace(in_tmp("a/file"), "x", 1), ST_OK);
    assert_int_equal(file_make_dirs(in_tmp("a/file")), ST_STORE);
    assert_says("a/file", strerror(ENOTDIR));
    assert_int_equal(file_make_dirs(in_tmp("a/file/x")), ST_STORE);
    assert_int_equal(file_sync_dir(in_tmp("a")), ST_OK);
    assert_int_equal(file_sync_dir(in_tmp("zzz")), ST_STORE);
    assert_true(file_exists(in_tmp("a/file")) && file_exists(in_tmp("a")) &&
                !file_exists(in_tmp("b")));
    assert_true(!file_is_dir(in_tmp("a/file")));
    assert_int_equal(file_bytes(in_tmp("a/file")), 1);
    assert_int_equal(file_bytes(in_tmp("a")), -1);
    assert_int_equal(file_bytes(in_tmp("b")), -1);
    char *deep = malloc(6000);
    memset(deep, 'd', 5999);
    deep[5999] = 0;
    assert_int_equal(file_make_dirs(deep), ST_BAD_SETTING);
    assert_int_equal(file_replace(deep, "", 0), ST_BAD_SETTING);
    assert_int_equal(file_space_bytes(deep), -1);
    free(deep);
}

TEST(trees_are_removed_without_following)
{
    assert_int_equal(file_make_dirs(in_tmp("tree/x/y/z")), ST_OK);
    assert_int_equal(file_make_dirs(in_tmp("outside")), ST_OK);
    assert_int_equal(file_replace(in_tmp("outside/safe"), "x", 1), ST_OK);
    assert_int_equal(file_replace(in_tmp("tree/x/file"), "x", 1), ST_OK);
    assert_int_equal(symlink("../../outside", in_tmp("tree/x/link")), 0);
    assert_int_equal(symlink("nowhere", in_tmp("tree/dangling")), 0);
    assert_int_equal(file_remove_tree(in_tmp("tree")), ST_OK);
    assert_false(file_exists(in_tmp("tree")));
    assert_true(file_exists(in_tmp("outside/safe")));
    assert_int_equal(file_remove_tree(in_tmp("tree")), ST_OK); /* missing: fine */
    assert_int_equal(symlink("outside", in_tmp("link")), 0);
    /* the link goes, not what it points at */
    assert_int_equal(file_remove_tree(in_tmp("link")), ST_OK);
    assert_true(file_exists(in_tmp("outside/safe")));
    assert_int_equal(file_remove_tree(in_tmp("outside/safe")), ST_OK);
    char path[1200];
    text_format(path, sizeof(path), "%s/deep", harness_tmpdir());
    for (int i = 0; i < 70; i++)
        text_format(path + strlen(path), sizeof(path) - strlen(path), "/d");
    assert_int_equal(file_make_dirs(path), ST_OK);
    assert_int_equal(file_remove_tree(in_tmp("deep")), ST_STORE);
    assert_says("deep", "nested deeper");
}

TEST(space_and_joins)
{
    assert_true(file_space_bytes(harness_tmpdir()) > 0);
    assert_true(file_space_bytes(in_tmp("not/there/yet")) > 0);
    assert_true(file_space_bytes("relative-and-missing") > 0);
    char out[10];
    assert_int_equal(file_join(out, sizeof(out), "abc", "defgh"), ST_OK);
    assert_string_equal(out, "abc/defgh");
    assert_int_equal(file_join(out, sizeof(out), "abc/", "defgh"), ST_OK);
    assert_string_equal(out, "abc/defgh");
    assert_int_equal(file_join(out, sizeof(out), "/", "x"), ST_OK);
    assert_string_equal(out, "/x");
    assert_int_equal(file_join(out, sizeof(out), "abc", "defghi"), ST_BAD_SETTING);
}

/* Past the page cache only whole blocks can go; the rest finds its way all the same. */
TEST(write_at_direct)
{
    char target[700], *back;
    size_t bytes;
    text_format(target, sizeof(target), "%s/direct", harness_tmpdir());
    int fd = open(target, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0) {
        HARNESS_SKIP("no O_DIRECT on this file system");
    }
    assert_int_equal(file_write_at(fd, target, "odd place and length", 20, 3), ST_OK);
    close(fd);
    assert_int_equal(file_read(target, 100, &back, &bytes), ST_OK);
    assert_int_equal(bytes, 23);
    assert_string_equal(back + 3, "odd place and length");
    free(back);
}

HARNESS_RUN_ALL()
