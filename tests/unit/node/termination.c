/* termination — the sentence is written to a file that exists, and nowhere else. */
#include "harness.h"

#include <sys/stat.h>

#include "node/supervisor/linger.h"

static const char *content(const char *path)
{
    static char text[4096];
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f != NULL)
        fclose(f);
    return text;
}

static void writes_where_the_file_is(void **state)
{
    char dir[] = "/tmp/convoy-termination-XXXXXX", file[64], other[64], longest[5000];
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/log", dir);
    snprintf(other, sizeof other, "%s/link", dir);
    linger_write_termination(file, 78, "LR=fast");
    assert_int_not_equal(access(file, F_OK), 0); /* made by others only */
    fclose(fopen(file, "w"));
    linger_write_termination(file, 78, "LR=fast is not a number");
    assert_string_equal(content(file), "exit code 78: LR=fast is not a number\n");
    linger_write_termination(file, 1, "short");
    assert_string_equal(content(file), "exit code 1: short\n");
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    linger_write_termination(file, 1, longest);
    assert_true(strlen(content(file)) < 2048);
    assert_int_equal(symlink(file, other), 0); /* of somebody who would have us write elsewhere */
    linger_write_termination(other, 2, "no");
    assert_null(strstr(content(file), "no\n"));
    unlink(other);
    assert_int_equal(mkfifo(other, 0600), 0); /* without a reader: does not wait */
    linger_write_termination(other, 2, "no");
    linger_write_termination(dir, 2, "no");
    unlink(other);
    unlink(file);
    rmdir(dir);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(writes_where_the_file_is)};
HARNESS_MAIN(tests)
