/* ckpt — what is saved can be opened, the newest valid checkpoint is found, old ones are
 * removed, and obstacles give a message. (Damage and failing disks: tests/fault.) */
#include "harness.h"

#include "ckpt_sample.h"

static char dir[FILE_PATH_MAX];
static struct ckpt_lock *lock;
static char path[FILE_PATH_MAX];

static int setup(void **state)
{
    static int n;
    text_format(dir, sizeof(dir), "%s/%d/deep", harness_tmpdir(), n++);
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    return 0;
}

static int teardown(void **state)
{
    ckpt_lock_release(lock);
    return 0;
}

static char *below(const char *name)
{
    static char out[4][FILE_PATH_MAX];
    static int i;
    i = (i + 1) % 4;
    assert_int_equal(file_join(out[i], FILE_PATH_MAX, dir, name), ST_OK);
    return out[i];
}

static void expect_newest(int64_t step)
{
    struct ckpt *ckpt = NULL;
    assert_int_equal(ckpt_open_newest(dir, NULL, &ckpt), ST_OK);
    if (step < 0) {
        assert_null(ckpt);
        return;
    }
    assert_non_null(ckpt);
    assert_int_equal(ckpt_meta(ckpt)->step, step);
    assert_true(sample_is_whole(ckpt));
    ckpt_close(ckpt);
}

TEST_WITH(test_save_and_open, setup, teardown)
{
    struct ckpt *ckpt = NULL;
    expect_newest(-1);
    assert_int_equal(sample_save(lock, 100, 3, path), ST_OK);
    assert_string_equal(path, below("step-00000100"));
    assert_int_equal(ckpt_open(path, NULL, &ckpt), ST_OK);
    assert_true(sample_is_whole(ckpt));
    assert_string_equal(ckpt_path(ckpt), path);
    const struct safetensors_entry *entry;
    assert_int_equal(ckpt_tensor(ckpt, "model", "wte", 2, (int64_t[]){4, 2}, &entry), ST_OK);
    assert_int_equal(ckpt_tensor(ckpt, "model", "wte", 2, (int64_t[]){5, 2}, &entry), ST_BAD_DATA);
    harness_assert_message("(4, 2), expected (5, 2)");
    assert_int_equal(ckpt_tensor(ckpt, "model", "wpe", 2, (int64_t[]){5, 2}, &entry), ST_BAD_DATA);
    harness_assert_message("wpe");
    assert_int_equal(ckpt_tensor(ckpt, "optim_x", "wte", 2, (int64_t[]){4, 2}, &entry),
                     ST_BAD_DATA);
    harness_assert_message("optim_x");
    ckpt_close(ckpt);
    ckpt_close(NULL);
    assert_int_equal(harness_entries(dir) - 1 /* .lock */, 1);
}

TEST_WITH(test_keep, setup, teardown)
{
    for (int64_t step = 1; step <= 6; step++)
        assert_int_equal(sample_save(lock, step, 3, path), ST_OK);
    assert_int_equal(harness_entries(dir) - 1 /* .lock */, 3);
    assert_true(file_is_dir(below("step-00000004")));
    expect_newest(6);
    assert_int_equal(truncate(below("step-00000006/model.safetensors"), 9), 0);
    expect_newest(5);
    /* the damaged one does not count, and stays */
    assert_int_equal(sample_save(lock, 7, 3, path), ST_OK);
    assert_true(file_is_dir(below("step-00000004")));
    assert_true(file_is_dir(below("step-00000006")));
    assert_int_equal(sample_save(lock, 8, 1, path), ST_OK);
    assert_int_equal(harness_entries(dir) - 1 /* .lock */, 2);
    assert_int_equal(sample_save(lock, 2, 1, path), ST_OK); /* never the one just saved */
    assert_true(file_is_dir(below("step-00000002")));
    expect_newest(8);
    for (int64_t step = 20; step < 25; step++)
        assert_int_equal(sample_save(lock, step, 0, path), ST_OK);
    assert_int_equal(harness_entries(dir) - 1 /* .lock */, 8);
}

TEST_WITH(test_same_step_again, setup, teardown)
{
    struct stat before, after;
    assert_int_equal(sample_save(lock, 5, 3, path), ST_OK);
    assert_int_equal(stat(below("step-00000005/manifest.json"), &before), 0);
    assert_int_equal(sample_save(lock, 5, 3, path), ST_OK);
    assert_int_equal(stat(below("step-00000005/manifest.json"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(unlink(below("step-00000005/manifest.json")), 0);
    expect_newest(-1);
    assert_int_equal(sample_save(lock, 5, 3, path), ST_OK);
    expect_newest(5);
    struct ckpt_meta other = sample_meta(5);
    other.seed = 7;
    struct safetensors_source source = {"x", DTYPE_F32, 1, {1}, .data = &(float){1}};
    struct ckpt_array array = {"model", &source, 1};
    struct ckpt *ckpt;
    assert_int_equal(ckpt_save(lock, &other, &array, 1, 3, NULL, path, sizeof(path)), ST_OK);
    assert_int_equal(ckpt_open(path, NULL, &ckpt), ST_OK);
    assert_true(ckpt_meta(ckpt)->seed == 7);
    ckpt_close(ckpt);
    assert_int_equal(harness_entries(dir) - 1 /* .lock */, 1);
}

TEST_WITH(test_leftovers, setup, teardown)
{
    assert_int_equal(mkdir(below(".tmp-999999-4"), 0777), 0);
    assert_int_equal(mkdir(below(".tmp-999999-4/sub"), 0777), 0);
    assert_int_equal(mkdir(below(".tmp-12-4-old"), 0777), 0);
    assert_int_equal(mkdir(below(".tmp-mine"), 0777), 0);
    assert_int_equal(mkdir(below("target"), 0777), 0);
    assert_int_equal(mkdir(below("target/kept"), 0777), 0);
    assert_int_equal(symlink("target", below(".tmp-1-1")), 0);
    assert_int_equal(sample_save(lock, 1, 3, path), ST_OK);
    assert_false(file_exists(below(".tmp-999999-4")));
    assert_false(file_exists(below(".tmp-12-4-old")));
    assert_true(file_is_dir(below(".tmp-mine")));
    assert_true(file_is_dir(below("target/kept")));
    assert_true(file_exists(below(".tmp-1-1")));
}

TEST_WITH(test_links_are_not_followed, setup, teardown)
{
    struct ckpt *ckpt;
    assert_int_equal(sample_save(lock, 3, 3, path), ST_OK);
    assert_int_equal(rename(below("step-00000003"), below("elsewhere")), 0);
    assert_int_equal(symlink("elsewhere", below("step-00000003")), 0);
    expect_newest(-1);
    assert_int_equal(ckpt_open(below("step-00000003"), NULL, &ckpt), ST_BAD_DATA);
    harness_assert_message("symbolic link");
    assert_int_equal(ckpt_open(below("step-00000003//"), NULL, &ckpt), ST_BAD_DATA);
    assert_int_equal(sample_save(lock, 3, 3, path), ST_STORE);
    harness_assert_message("symbolic link of that name is in the way");
    assert_int_equal(ckpt_open(below("elsewhere"), NULL, &ckpt), ST_OK);
    ckpt_close(ckpt);
    assert_int_equal(rename(below("elsewhere/model.safetensors"), below("model")), 0);
    assert_int_equal(symlink("../model", below("elsewhere/model.safetensors")), 0);
    assert_int_equal(ckpt_open(below("elsewhere"), NULL, &ckpt), ST_BAD_DATA);
    harness_assert_message("symbolic link");
}

TEST_WITH(test_names, setup, teardown)
{
    struct ckpt *ckpt;
    assert_int_equal(sample_save(lock, 3, 0, path), ST_OK);
    assert_int_equal(rename(below("step-00000003"), below("step-00000009")), 0);
    expect_newest(-1); /* renamed: its manifest says step 3 */
    assert_int_equal(mkdir(below("step-7"), 0777), 0);
    assert_int_equal(mkdir(below("step-00000007x"), 0777), 0);
    assert_int_equal(sample_save(lock, 123456789012, 0, path), ST_OK);
    expect_newest(123456789012);
    assert_int_equal(ckpt_open(below("nothing"), NULL, &ckpt), ST_NO_INPUT);
    assert_int_equal(close(open(below("step-00000009/extra"), O_CREAT | O_WRONLY, 0666)), 0);
    assert_int_equal(ckpt_open(below("step-00000009"), NULL, &ckpt), ST_BAD_DATA);
    harness_assert_message("extra");
}

TEST_WITH(test_obstacles, setup, teardown)
{
    struct ckpt_lock *other = NULL;
    struct ckpt *ckpt = NULL;
    char file[FILE_PATH_MAX];
    text_format(file, sizeof(file), "%s", below("file"));
    assert_int_equal(close(open(file, O_CREAT | O_WRONLY, 0666)), 0);
    assert_int_equal(ckpt_lock(file, &other), ST_BAD_SETTING);
    harness_assert_message("not a folder");
    assert_int_equal(ckpt_lock(below("file/below"), &other), ST_BAD_SETTING);
    harness_assert_message("a part of its path is a file");
    assert_int_equal(ckpt_open_newest(file, NULL, &ckpt), ST_BAD_SETTING);
    harness_assert_message("not a folder");
    assert_int_equal(ckpt_open_newest(below("missing"), NULL, &ckpt), ST_OK);
    assert_null(ckpt);
    assert_int_equal(close(open(below("step-00000004"), O_CREAT | O_WRONLY, 0666)), 0);
    expect_newest(-1);
    assert_int_equal(sample_save(lock, 4, 3, path), ST_STORE);
    harness_assert_message("file of that name");
    if (getuid() != 0)
        return; /* permissions do not bind root; tests/fault has a read-only mount */
    pid_t pid = fork();
    if (pid == 0) {
        enum status st =
            chmod(dir, 0555) == 0 && setuid(65534) == 0 ? ckpt_lock(below("mine"), &other) : ST_BUG;
        _exit(st == ST_STORE && strstr(status_message(), "Permission denied") ? 0 : 1);
    }
    int ended = 0;
    waitpid(pid, &ended, 0);
    assert_int_equal(ended, 0);
}

TEST_WITH(test_lock, setup, teardown)
{
    struct ckpt_lock *second = NULL;
    char number[64];
    text_format(number, sizeof(number), "in use by process %ld;", (long)getpid());
    assert_int_equal(ckpt_lock(dir, &second), ST_BAD_SETTING);
    harness_assert_message(number);
    ckpt_lock_release(lock);
    assert_int_equal(ckpt_lock(dir, &second), ST_OK);
    ckpt_lock_release(second);
    pid_t pid = fork();
    if (pid == 0) {
        enum status st = ckpt_lock(dir, &second);
        _exit(st == ST_OK ? 0 : 1); /* without unlocking */
    }
    int ended = 0;
    waitpid(pid, &ended, 0);
    assert_int_equal(ended, 0);
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    ckpt_lock_release(NULL);
}

/* The folder goes if nothing else is in it; a lock on one that is gone is a new one. */
TEST_WITH(test_discard, setup, teardown)
{
    char note[FILE_PATH_MAX];
    ckpt_lock_discard(lock);
    assert_false(file_exists(dir));
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(file_join(note, sizeof note, dir, "note"), ST_OK);
    assert_int_equal(file_replace(note, "x", 1), ST_OK);
    ckpt_lock_discard(lock);
    assert_true(file_exists(note));
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
}

TEST_WITH(test_bad_meta, setup, teardown)
{
    struct ckpt_meta meta = sample_meta(1);
    struct safetensors_source source = {"x", DTYPE_F32, 1, {1}, .data = &(float){1}};
    struct ckpt_array array = {"model", &source, 1};
    text_copy(meta.model_json, sizeof(meta.model_json), "[1]");
    assert_int_equal(ckpt_save(lock, &meta, &array, 1, 3, NULL, path, sizeof(path)), ST_BAD_DATA);
    harness_assert_message("not a JSON object");
    assert_int_equal(harness_entries(dir) - 1 /* .lock */, 0);
}

/* A range of a tensor, as a rank of another mesh reads it. */
TEST_WITH(test_range, setup, teardown)
{
    struct ckpt *ckpt = NULL;
    float some[8];
    assert_int_equal(sample_save(lock, 7, 3, path), ST_OK);
    assert_int_equal(ckpt_open(path, NULL, &ckpt), ST_OK);
    assert_int_equal(ckpt_range(ckpt, "optim_m", "wte", 3, 4, some), ST_OK);
    for (int i = 0; i < 4; i++)
        assert_true(some[i] == sample_value(7, 1, 3 + i));
    assert_int_equal(ckpt_range(ckpt, "optim_m", "wte", 8, 0, some), ST_OK);
    static const int64_t bad[][2] = {{-1, 1}, {0, 9},         {8, 1},        {9, 0},
                                     {1, -1}, {INT64_MAX, 1}, {1, INT64_MAX}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(ckpt_range(ckpt, "optim_m", "wte", bad[i][0], bad[i][1], some),
                         ST_BAD_DATA);
    harness_assert_message("do not all lie in tensor wte of 8 elements");
    assert_int_equal(ckpt_range(ckpt, "optim_m", "wpe", 0, 1, some), ST_BAD_DATA);
    assert_int_equal(ckpt_range(ckpt, "optim_x", "wte", 0, 1, some), ST_BAD_DATA);
    ckpt_close(ckpt);
}

HARNESS_RUN_ALL()
