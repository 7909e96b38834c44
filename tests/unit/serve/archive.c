/* archive — the file is read once and replaced whole by a thread of its own; errors are
 * logged, no more. */
#include "harness.h"

#include <sys/file.h>

#include "serve/archive.h"

static char path[600];

static void put(const char *bytes, size_t n)
{
    assert_int_equal(file_replace(path, bytes, n), ST_OK);
}

/* What is read; NULL: nothing. Into a buffer of its own. */
static const char *found(struct archive *archive)
{
    static char out[64];
    struct text t;
    while (!archive_read(archive, &t))
        clock_sleep_ms(1);
    text_format(out, sizeof out, "%.*s", (int)t.len, t.data != NULL ? t.data : "");
    const bool has = t.len > 0;
    text_free(&t);
    return has ? out : NULL;
}

static void write_text(struct archive *archive, const char *s)
{
    struct text t = {0};
    text_add(&t, "%s", s);
    archive_write(archive, &t, false);
    assert_null(t.data);
}

static int name_it(void **state)
{
    text_format(path, sizeof path, "%s/history.json", harness_tmpdir());
    return 0;
}

TEST_WITH(read_then_written, name_it, NULL)
{
    struct archive *archive;
    put("before", 6);
    assert_int_equal(archive_open(path, &archive), ST_OK);
    assert_string_equal(found(archive), "before");
    write_text(archive, "one");
    write_text(archive, "two");
    archive_close(archive);
    assert_int_equal(archive_open(path, &archive), ST_OK);
    assert_string_equal(found(archive), "two");
    archive_close(archive);
}

TEST(nothing_there)
{
    struct archive *archive;
    remove(path);
    assert_int_equal(archive_open(path, &archive), ST_OK);
    assert_null(found(archive));
    archive_close(archive);
    assert_false(file_exists(path));
}

TEST(too_large_is_none)
{
    static char large[ARCHIVE_BYTES_MAX + 1];
    struct archive *archive;
    memset(large, '1', sizeof large);
    put(large, sizeof large);
    assert_int_equal(archive_open(path, &archive), ST_OK);
    assert_null(found(archive));
    archive_close(archive);
    remove(path);
}

TEST(a_folder_in_its_place_is_none)
{
    struct archive *archive;
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(archive_open(path, &archive), ST_OK);
    assert_null(found(archive));
    write_text(archive, "one");
    write_text(archive, "two");
    archive_close(archive); /* told once */
    assert_int_equal(remove(path), 0);
}

/* A run that ended before its workers made the folder leaves none behind, and no warning. */
TEST(no_folder_is_made)
{
    struct archive *archive;
    char deep[700], dir[600];
    text_format(dir, sizeof dir, "%s/never", harness_tmpdir());
    text_format(deep, sizeof deep, "%s/history.json", dir);
    assert_int_equal(archive_open(deep, &archive), ST_OK);
    assert_null(found(archive));
    write_text(archive, "one");
    archive_close(archive);
    assert_false(file_exists(dir));
}

/* A run that was refused because another one trains in the folder does not write over its file. */
TEST(a_guest_leaves_a_locked_folder)
{
    struct archive *archive;
    struct text t = {0};
    char lock[700];
    text_format(lock, sizeof lock, "%s/.lock", harness_tmpdir());
    const int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    put("theirs", 6);
    for (int is_held = 1; is_held >= 0; is_held--) {
        assert_int_equal(archive_open(path, &archive), ST_OK);
        assert_string_equal(found(archive), "theirs");
        text_add(&t, "a guest's");
        archive_write(archive, &t, true);
        archive_close(archive);
        assert_int_equal(file_bytes(path), is_held ? 6 : 9);
        close(is_held ? fd : -1);
    }
}

HARNESS_RUN_ALL()
