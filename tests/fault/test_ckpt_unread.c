/* What cannot be read proves nothing: a checkpoint without permission, or of another schema, is
 * neither passed over for an older one nor replaced, and is removed by no CHECKPOINT_KEEP. A folder
 * that goes away is made again. (EIO, and each call of a resume: test_resume_calls.pl.) */
#include "harness.h"

#include "ckpt_sample.h"

static char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
static struct ckpt_lock *lock;

static int setup(void **state)
{
    static int n;
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    text_format(dir, sizeof(dir), "%s/%d", harness_tmpdir(), n++);
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(sample_save(lock, 1, 0, path), ST_OK);
    assert_int_equal(sample_save(lock, 2, 0, path), ST_OK);
    return 0;
}

static int teardown(void **state)
{
    ckpt_lock_release(lock);
    lock = NULL;
    return 0;
}

static const char *in(const char *folder, const char *name)
{
    static char out[FILE_PATH_MAX];
    assert_int_equal(file_join(out, sizeof(out), folder, name), ST_OK);
    return out;
}

/* as_user — fn as a user that permissions bind. */
static int as_user(int (*fn)(void))
{
    int ended = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(setuid(65534) == 0 ? fn() : 99);
    assert_true(waitpid(pid, &ended, 0) == pid && WIFEXITED(ended));
    return WEXITSTATUS(ended);
}

static int open_as_user(void)
{
    struct ckpt *ckpt = NULL;
    enum status st = ckpt_open_newest(dir, NULL, &ckpt),
                lazy = ckpt_find_newest(dir, INT64_MAX, NULL, &ckpt);
    bool says =
        strstr(status_message(), "step-00000002") && strstr(status_message(), "Permission denied");
    return st != lazy ? 90 : !says ? 91 : (int)st;
}

TEST_WITH(test_permission, setup, teardown)
{
    static const char *const name[] = {"manifest.json", "model.safetensors", "optim_v.safetensors",
                                       "."};
    if (getuid() != 0) {
        HARNESS_SKIP("only root can become another user");
    }
    assert_int_equal(chmod(harness_tmpdir(), 0755), 0);
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        assert_int_equal(chmod(in(path, name[i]), 0), 0);
        assert_int_equal(as_user(open_as_user), ST_STORE);
        assert_int_equal(chmod(in(path, name[i]), 0755), 0);
    }
}

static void replace_text(const char *name, const char *from, const char *to)
{
    char *bytes, *at;
    size_t n;
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(file_read(name, 1 << 20, &bytes, &n), ST_OK);
    at = strstr(bytes, from);
    assert_true(at && strlen(from) == strlen(to) && fd >= 0);
    memcpy(at, to, strlen(to));
    assert_int_equal(pwrite(fd, bytes, n, 0), n);
    close(fd);
    free(bytes);
}

TEST_WITH(test_other_schema, setup, teardown)
{
    struct ckpt *ckpt = NULL;
    char *before, *after;
    size_t before_n, after_n;
    replace_text(in(path, "manifest.json"), "\"schema\": 1,", "\"schema\": 2,");
    assert_int_equal(file_read(in(path, "manifest.json"), 1 << 20, &before, &before_n), ST_OK);
    assert_int_equal(ckpt_open(path, NULL, &ckpt), ST_SCHEMA);
    assert_int_equal(ckpt_open_newest(dir, NULL, &ckpt), ST_SCHEMA);
    assert_int_equal(ckpt_find_newest(dir, INT64_MAX, NULL, &ckpt), ST_SCHEMA);
    harness_assert_message("schema 2");
    assert_int_equal(ckpt_find_newest(dir, 2, NULL, &ckpt), ST_OK); /* asked for an older one */
    ckpt_close(ckpt);
    assert_int_equal(sample_save(lock, 2, 1, path), ST_SCHEMA);
    harness_assert_message("is not replaced");
    for (int step = 3; step < 6; step++)
        assert_int_equal(sample_save(lock, step, 1, path), ST_OK);
    assert_true(file_exists(in(dir, "step-00000005")) && !file_exists(in(dir, "step-00000004")));
    assert_int_equal(file_read(in(dir, "step-00000002/manifest.json"), 1 << 20, &after, &after_n),
                     ST_OK);
    assert_true(after_n == before_n && memcmp(before, after, after_n) == 0);
    assert_true(file_exists(in(dir, "step-00000002/model.safetensors")));
    free(before);
    free(after);
}

static int lock_as_other(void)
{
    struct ckpt_lock *other;
    return ckpt_lock(dir, &other) == ST_BAD_SETTING ? 0 : 1;
}

static int fork_and(int (*fn)(void))
{
    int ended = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(fn());
    assert_true(pid > 0 && waitpid(pid, &ended, 0) == pid && WIFEXITED(ended));
    return WEXITSTATUS(ended);
}

TEST_WITH(test_folder_deleted, setup, teardown)
{
    struct ckpt *ckpt = NULL;
    assert_int_equal(file_remove_tree(dir), ST_OK);
    assert_int_equal(sample_save(lock, 3, 2, path), ST_OK);
    assert_int_equal(ckpt_open_newest(dir, NULL, &ckpt), ST_OK);
    assert_true(ckpt && ckpt_meta(ckpt)->step == 3 && sample_is_whole(ckpt));
    ckpt_close(ckpt);
    assert_int_equal(fork_and(lock_as_other), 0); /* locked as before */
    assert_int_equal(unlink(in(dir, ".lock")), 0);
    assert_int_equal(sample_save(lock, 4, 2, path), ST_OK);
    assert_int_equal(fork_and(lock_as_other), 0);
}

TEST_WITH(test_folder_of_another, setup, teardown)
{
    struct ckpt_lock *other;
    assert_int_equal(file_remove_tree(dir), ST_OK);
    assert_int_equal(ckpt_lock(dir, &other), ST_OK); /* another run made it anew meanwhile */
    assert_int_equal(sample_save(lock, 3, 2, path), ST_STORE);
    harness_assert_message("is in use by process");
    assert_false(file_exists(in(dir, "step-00000003")));
    ckpt_lock_release(other);
    assert_int_equal(sample_save(lock, 3, 2, path), ST_OK);
}

TEST_WITH(test_file_in_its_place, setup, teardown)
{
    assert_int_equal(file_remove_tree(dir), ST_OK);
    assert_int_equal(file_replace(dir, "x", 1), ST_OK);
    assert_int_equal(sample_save(lock, 3, 2, path), ST_STORE);
    harness_assert_message("Not a directory");
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(sample_save(lock, 3, 2, path), ST_OK);
}

HARNESS_RUN_ALL()
