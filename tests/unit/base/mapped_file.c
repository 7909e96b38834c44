/* mapped_file, and its use by crash: a file that is cut while it is mapped ends the process with 65
 * and its name, one that cannot be read with 74; an address outside all files is an ordinary
 * crash. */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/file.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "node/process/crash.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

enum { PAGES = 64 };
static char path[FILE_PATH_MAX];
static size_t page;

static void make(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    char *bytes = calloc(PAGES, page);
    assert_int_equal(file_join(path, sizeof path, harness_tmpdir(), "mapped.bin"), ST_OK);
    assert_int_equal(file_replace(path, bytes, PAGES * page), ST_OK);
    free(bytes);
}

static void test_registry(void **state)
{
    char out[512];
    static const char *const where = "/nowhere/file";
    make();
    char *at = mmap(NULL, 300 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    for (int i = 0; i < 300; i++)
        mapped_file_add(i == 150 ? path : where, at + (size_t)i * page, page - 1);
    /* it is as long as ever */
    assert_int_equal(mapped_file_fault(at + 150 * page + 7, out, sizeof out), ST_STORE);
    assert_non_null(strstr(out, path));
    assert_non_null(strstr(out, "at byte 0: input/output error"));
    assert_int_equal(mapped_file_fault(at + 150 * page + page - 1, out, sizeof out), ST_OK);
    mapped_file_remove(at + 150 * page);
    assert_int_equal(mapped_file_fault(at + 150 * page, out, sizeof out), ST_OK);
    for (int i = 0; i < 300; i++)
        mapped_file_remove(at + (size_t)i * page);
    for (int i = 0; i < 300; i++)
        assert_int_equal(mapped_file_fault(at + (size_t)i * page, out, sizeof out), ST_OK);
    munmap(at, 300 * page);
}

static void test_check(void **state)
{
    struct file_map map;
    make();
    assert_int_equal(file_map_open(path, &map), ST_OK);
    assert_int_equal(mapped_file_check(), ST_OK);
    assert_int_equal(truncate(path, PAGES * (off_t)page - 1), 0);
    assert_int_equal(mapped_file_check(), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), path));
    assert_int_equal(file_replace(path, "x", 1), ST_OK); /* another file of this name */
    assert_int_equal(mapped_file_check(), ST_OK);
    file_map_close(&map);
    make();
    assert_int_equal(file_map_open(path, &map), ST_OK);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(mapped_file_check(), ST_BAD_DATA);
    file_map_close(&map);
    assert_int_equal(mapped_file_check(), ST_OK);
}

/* read_cut — the output and end of a child that reads page 40 of the mapping, of a file cut to
 * `pages` and registered under this name. */
static int read_cut(int pages, const char *name, char *out, size_t cap)
{
    int pipe_fd[2];
    make();
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct file_map map;
        dup2(pipe_fd[1], STDERR_FILENO);
        crash_install();
        if (file_map_open(path, &map) != ST_OK || truncate(path, pages * (off_t)page) != 0)
            _exit(1);
        mapped_file_remove(map.data);
        if (name)
            mapped_file_add(name, map.data, map.bytes);
        _exit(*(volatile const uint8_t *)(map.data + 40 * page + 5));
    }
    return harness_child_output(pid, pipe_fd, out, cap);
}

static void test_cut(void **state)
{
    char out[16384];
    if (IS_SANITIZED) {
        HARNESS_SKIP("sanitizers keep their own handlers");
    }
    int end = read_cut(20, path, out, sizeof out);
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 65);
    assert_non_null(strstr(out, path));
    assert_non_null(
        strstr(out, "was cut short while it was in use: it had 262144 bytes, now it has 81920"));
    assert_null(strstr(out, "crash"));
    /* which is as long as ever: so it was the disk */
    end = read_cut(20, "/proc/self/exe", out, sizeof out);
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 74);
    assert_non_null(strstr(out, "cannot read /proc/self/exe at byte 163840: input/output error"));
    end = read_cut(41, path, out, sizeof out);
    assert_true(WIFEXITED(end) && WEXITSTATUS(end) == 0);
    end = read_cut(20, NULL, out, sizeof out);
    assert_true(WIFSIGNALED(end) && WTERMSIG(end) == SIGBUS);
    assert_non_null(strstr(out, "crash: SIGBUS"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_cut), cmocka_unit_test(test_registry), cmocka_unit_test(test_check)};
HARNESS_MAIN(tests)
