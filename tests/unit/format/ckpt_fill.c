/* ckpt_fill — contents arrive in the memory of their tensors, and only if every byte is right;
 * a byte changed anywhere is found, also in arrays that are not wanted. */
#include "harness.h"

#include "ckpt_sample.h"

/* 6 MB a file: several chunks, written and read past the page cache where that is possible */
#define ELEMS 1500000

static char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
static float *target[SAMPLE_ARRAYS][2];

static void *find_target(void *arg, const char *array, const struct safetensors_entry *entry)
{
    int wanted = *(const int *)arg;
    for (int p = 0; p < wanted; p++)
        if (strcmp(array, sample_array_name[p]) == 0)
            return target[p][strcmp(entry->name, "bias") == 0];
    return NULL;
}

static int setup(void **state)
{
    struct ckpt_lock *lock;
    for (int p = 0; p < SAMPLE_ARRAYS; p++) {
        target[p][0] = calloc(ELEMS, sizeof(float));
        target[p][1] = calloc(4, sizeof(float));
    }
    if (file_join(dir, sizeof(dir), harness_tmpdir(), "run") != ST_OK ||
        ckpt_lock(dir, &lock) != ST_OK)
        return 1;
    enum status st = sample_save(lock, 3, 0, path);
    if (st == ST_OK)
        st = sample_save_big(lock, 5, 0, ELEMS, path);
    ckpt_lock_release(lock);
    return st != ST_OK;
}

static int teardown(void **state)
{
    for (int p = 0; p < SAMPLE_ARRAYS; p++) {
        free(target[p][0]);
        free(target[p][1]);
    }
    return 0;
}

static enum status fill(int64_t below, int wanted)
{
    struct ckpt *ckpt = NULL;
    struct ckpt_fill to = {find_target, &wanted};
    assert_int_equal(ckpt_find_newest(dir, below, NULL, &ckpt), ST_OK);
    assert_non_null(ckpt);
    assert_false(ckpt_is_verified(ckpt));
    enum status st = ckpt_fill(ckpt, &to, NULL);
    ckpt_close(ckpt);
    return st;
}

TEST(test_values)
{
    assert_int_equal(fill(INT64_MAX, 2), ST_OK);
    for (int p = 0; p < SAMPLE_ARRAYS; p++) {
        for (int i = 0; i < ELEMS; i++)
            assert_true(target[p][0][i] == (p < 2 ? sample_value(5, p, i % 64) : 0));
        for (int i = 0; i < 4; i++)
            assert_true(target[p][1][i] == (p < 2 ? sample_value(5, p, (ELEMS + i) % 64) : 0));
    }
    assert_int_equal(fill(5, 3), ST_OK); /* the one before */
    assert_true(target[2][0][7] == sample_value(3, 2, 7));
    struct ckpt *none = NULL;
    assert_int_equal(ckpt_find_newest(dir, 3, NULL, &none), ST_OK);
    assert_null(none);
}

/* flip — changes one byte of a file, or restores it. */
static void flip(const char *array, int64_t at)
{
    char name[FILE_PATH_MAX], byte;
    text_format(name, sizeof(name), "%s/%s.safetensors", path, array);
    int fd = open(name, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

TEST(test_damage)
{
    const int64_t end = (int64_t)ELEMS * 4; /* in the last chunk */
    const int64_t spots[] = {200, 4096, 2 << 20, (2 << 20) - 1, 5000001, end};
    for (int p = 0; p < SAMPLE_ARRAYS; p++)
        for (size_t i = 0; i < sizeof(spots) / sizeof(spots[0]); i++) {
            flip(sample_array_name[p], spots[i]);
            assert_int_equal(fill(INT64_MAX, 1), ST_BAD_DATA);
            assert_non_null(strstr(status_message(), "damaged"));
            assert_non_null(strstr(status_message(), sample_array_name[p]));
            flip(sample_array_name[p], spots[i]);
        }
    assert_int_equal(fill(INT64_MAX, 3), ST_OK);
}

HARNESS_RUN_ALL_WITH(setup, teardown)
