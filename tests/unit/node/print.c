/* print — an answer reaches stdout whole, in whatever portions the reader takes it, or the
 * failure says why. */
#include "node/process/print.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "harness.h"

/* said — what a child process writes to a stdout that is `fd`; its status is returned as its exit
 * code. */
static int said(int fd, size_t bytes)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct text text = {.limit = bytes + 1};
        char line[101];
        memset(line, 'x', 100);
        line[100] = 0;
        for (size_t i = 0; i < bytes; i += 100)
            text_add(&text, "%s", line);
        dup2(fd, STDOUT_FILENO);
        enum status st = print_text(&text);
        _exit(text.data == NULL ? (int)st : 99);
    }
    return pid;
}

static int end_of(int pid)
{
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    return WEXITSTATUS(how);
}

static void test_whole(void **state)
{
    enum { N = 300000 }; /* more than a pipe holds */
    int ends[2];
    static char got[4096];
    size_t total = 0;
    ssize_t n;
    assert_int_equal(pipe(ends), 0);
    int pid = said(ends[1], N);
    close(ends[1]);
    while ((n = read(ends[0], got, sizeof got)) > 0)
        total += (size_t)n;
    close(ends[0]);
    assert_int_equal(end_of(pid), ST_OK);
    assert_int_equal(total, N);
}

static void test_full_disk(void **state)
{
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    assert_int_equal(end_of(said(full, 100)), ST_STORE);
    assert_int_equal(end_of(said(full, 0)), ST_OK); /* nothing to say */
    close(full);
}

static void test_cut(void **state)
{
    struct text text = {.limit = 4};
    text_add(&text, "longer than that");
    assert_true(text.overflow);
    assert_int_equal(print_text(&text), ST_RETRY);
    assert_null(text.data);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_whole),
    cmocka_unit_test(test_full_disk),
    cmocka_unit_test(test_cut),
};
HARNESS_MAIN(tests)
