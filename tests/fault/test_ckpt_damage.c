/* Damaged checkpoints: every cut of every file, and thousands of random injuries to a whole folder. None is
 * taken for good, none crashes the reader; the older whole one is found instead. */
#include "harness.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/rand.h"
#include "ckpt_sample.h"

#define FILES 4
#define INJURIES 3000
static const char *const file_name[FILES] = {"manifest.json", "model.safetensors", "optim_m.safetensors",
                                             "optim_v.safetensors"};

static char dir[FILE_PATH_MAX], folder[FILE_PATH_MAX];
static char *good[FILES]; /* the files' bytes before any injury */
static size_t good_bytes[FILES];

static const char *in_folder(const char *name)
{
    static char out[FILE_PATH_MAX];
    assert_int_equal(file_join(out, sizeof(out), folder, name), ST_OK);
    return out;
}

static void put(int file_i, const void *data, size_t n)
{
    int fd = open(in_folder(file_name[file_i]), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    assert_int_equal(close(fd), 0);
}

static int setup(void **state)
{
    (void)state;
    struct ckpt_lock *lock;
    char path[FILE_PATH_MAX];
    struct log_config quiet = {.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1};
    log_init(&quiet);
    text_copy(dir, sizeof(dir), harness_tmpdir());
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(sample_save(lock, 1, 0, path), ST_OK);
    assert_int_equal(sample_save(lock, 2, 0, folder), ST_OK);
    ckpt_unlock(lock);
    for (int f = 0; f < FILES; f++)
        assert_int_equal(file_read(in_folder(file_name[f]), 1 << 20, &good[f], &good_bytes[f]), ST_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++)
        free(good[f]);
    return 0;
}

static void heal(void)
{
    assert_int_equal(file_remove_tree(folder), ST_OK);
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int f = 0; f < FILES; f++)
        put(f, good[f], good_bytes[f]);
}

/* expect — the folder is taken or refused, and the newest is it or the one before. */
static void expect(bool is_good, const char *what, int64_t detail)
{
    struct ckpt *ckpt = NULL;
    enum status st = ckpt_open(folder, NULL, &ckpt);
    if ((st == ST_OK) != is_good || (st != ST_OK && st != ST_BAD_DATA))
        fail_msg("%s %lld: got %s: %s", what, (long long)detail, status_name(st),
                 st == ST_OK ? "" : status_message());
    if (st == ST_OK && !sample_is_whole(ckpt))
        fail_msg("%s %lld: opened with wrong content", what, (long long)detail);
    ckpt_close(st == ST_OK ? ckpt : NULL);
    ckpt = NULL;
    assert_int_equal(ckpt_open_newest(dir, NULL, &ckpt), ST_OK);
    assert_non_null(ckpt);
    assert_int_equal(ckpt_meta(ckpt)->step, is_good ? 2 : 1);
    ckpt_close(ckpt);
}

static void test_every_cut(void **state)
{
    (void)state;
    int cuts_n = 0;
    for (int f = 0; f < FILES; f++) {
        for (size_t n = 0; n < good_bytes[f]; n++, cuts_n++) {
            put(f, good[f], n);
            expect(false, file_name[f], (int64_t)n);
        }
        put(f, good[f], good_bytes[f]);
    }
    expect(true, "whole again", 0);
    print_message("# %d cuts refused\n", cuts_n);
}

static uint64_t draw(uint64_t injury, uint64_t i, uint64_t n)
{
    return rand_below(20260101, RAND_STREAM(TEST, 1), injury * 16 + i, n);
}

/* flip — one bit; swap — two different bytes change places; smear — one byte becomes another. False: nothing
 * changed. */
static bool injure_bytes(uint64_t injury, char *data, size_t n)
{
    size_t a = draw(injury, 2, n), b = draw(injury, 3, n);
    char kept = data[a];
    switch (draw(injury, 4, 3)) {
    case 0:
        data[a] = (char)(data[a] ^ (1 << draw(injury, 5, 8)));
        return true;
    case 1:
        data[a] = data[b];
        data[b] = kept;
        return data[a] != data[b];
    default:
        data[a] = (char)draw(injury, 5, 256);
        return data[a] != kept;
    }
}

/* injure_folder — a file goes, comes, grows, turns into something else, or takes another's place. */
static bool injure_folder(uint64_t injury)
{
    const char *name = file_name[draw(injury, 2, FILES)], *other = file_name[draw(injury, 3, FILES)];
    char from[FILE_PATH_MAX], to[FILE_PATH_MAX], extra[64];
    text_copy(from, sizeof(from), in_folder(name));
    text_copy(to, sizeof(to), in_folder(other));
    switch (draw(injury, 4, 6)) {
    case 0:
        return unlink(from) == 0;
    case 1:
        text_format(extra, sizeof(extra), "%s%llu", draw(injury, 5, 2) ? "." : "extra",
                    (unsigned long long)injury);
        return close(open(in_folder(extra), O_CREAT | O_WRONLY, 0666)) == 0;
    case 2:
        return unlink(from) == 0 && mkdir(from, 0777) == 0;
    case 3:
        return unlink(from) == 0 && mkfifo(from, 0666) == 0;
    case 4:
        return truncate(from, file_bytes(from) + 1 + (int64_t)draw(injury, 5, 100000)) == 0;
    default:
        return strcmp(from, to) != 0 && rename(from, to) == 0;
    }
}

static void test_random_injuries(void **state)
{
    (void)state;
    int injured_n = 0;
    for (uint64_t injury = 0; injury < INJURIES; injury++) {
        bool is_hurt;
        if (draw(injury, 0, 4) == 0) {
            is_hurt = injure_folder(injury);
            expect(!is_hurt, "folder injury", (int64_t)injury);
            heal();
        } else {
            int f = (int)draw(injury, 1, FILES);
            char copy[4096];
            assert_true(good_bytes[f] <= sizeof(copy));
            memcpy(copy, good[f], good_bytes[f]);
            is_hurt = injure_bytes(injury, copy, good_bytes[f]);
            put(f, copy, good_bytes[f]);
            expect(!is_hurt, file_name[f], (int64_t)injury);
            put(f, good[f], good_bytes[f]);
        }
        injured_n += is_hurt;
    }
    assert_true(injured_n >= 2000);
    print_message("# %d injuries refused, %d draws changed nothing\n", injured_n, INJURIES - injured_n);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_cut),
    cmocka_unit_test(test_random_injuries),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(__FILE__, tests, setup, teardown);
}
