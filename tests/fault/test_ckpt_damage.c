/* Damaged checkpoints: every cut of every file, thousands of random injuries to a whole folder, and
 * hostile ones whose checksums hold. None is taken for good, none crashes the reader; the older
 * whole one is found instead. */
#include "harness.h"

#include <xxhash.h>

#include "base/rand.h"
#include "ckpt_sample.h"
#include "format/manifest.h"

#define FILES 4
#define INJURIES 3000
static const char *const file_name[FILES] = {"manifest.json", "model.safetensors",
                                             "optim_m.safetensors", "optim_v.safetensors"};

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
    struct ckpt_lock *lock;
    char path[FILE_PATH_MAX];
    struct log_config quiet = {.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1};
    log_init(&quiet);
    text_copy(dir, sizeof(dir), harness_tmpdir());
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(sample_save(lock, 1, 0, path), ST_OK);
    assert_int_equal(sample_save(lock, 2, 0, folder), ST_OK);
    ckpt_lock_release(lock);
    for (int f = 0; f < FILES; f++)
        assert_int_equal(file_read(in_folder(file_name[f]), 1 << 20, &good[f], &good_bytes[f]),
                         ST_OK);
    return 0;
}

static int teardown(void **state)
{
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

TEST(test_every_cut)
{
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

/* flip — one bit; swap — two different bytes change places; smear — one byte becomes another.
 * False: nothing changed. */
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

/* injure_folder — a file goes, comes, grows, turns into something else, or takes another's
 * place. */
static bool injure_folder(uint64_t injury)
{
    const char *name = file_name[draw(injury, 2, FILES)],
               *other = file_name[draw(injury, 3, FILES)];
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

TEST(test_random_injuries)
{
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
    print_message("# %d injuries refused, %d draws changed nothing\n", injured_n,
                  INJURIES - injured_n);
}

/* ---- by kind: headers whose checksum the manifest holds, so that only the reader of tensors
 * stands between ---- */

/* bless — the manifest with the size and checksum of these bytes for a file, under a checksum of
 * its own. */
static void bless(int file_i, const void *data, size_t n)
{
    struct manifest m;
    struct text out = {0};
    assert_int_equal(manifest_parse(good[0], good_bytes[0], "good", &m), ST_OK);
    for (int i = 0; i < m.files_n; i++)
        if (strcmp(m.file[i].name, file_name[file_i]) == 0) {
            m.file[i].bytes = (int64_t)n;
            m.file[i].hash = XXH3_64bits(data, n);
        }
    assert_int_equal(manifest_write(&m, &out), ST_OK);
    put(0, out.data, out.len);
    text_free(&out);
}

/* put_blessed — a part of header_bytes as said, this header, and data_bytes of data, listed as it
 * is. */
static void put_blessed(int file_i, uint64_t header_bytes, const char *header, size_t data_bytes)
{
    char bytes[4096] = {0};
    const size_t n = strlen(header);
    memcpy(bytes, &header_bytes, 8);
    memcpy(bytes + 8, header, n);
    put(file_i, bytes, 8 + n + data_bytes);
    bless(file_i, bytes, 8 + n + data_bytes);
}

#define WTE "\"wte\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[0,32]}"
#define BIAS(offsets) "\"bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":" offsets "}"
static const char *const hostile[] = {
    /* overlap, and the end belongs to nobody */
    "{" WTE "," BIAS("[16,32]") "}",
    "{" WTE "," BIAS("[24,40]") "}",         /* overlap */
    "{" BIAS("[32,48]") "}",                 /* a hole at the start */
    "{" WTE "," BIAS("[33,49]") "}",         /* a hole, and beyond the end */
    "{" WTE "}",                             /* bytes that belong to nobody */
    "{" WTE "," WTE "," BIAS("[32,48]") "}", /* the same key twice */
    "{" WTE "," BIAS("[32,48]") "," BIAS("[32,48]") "}",
    "{" WTE "," BIAS("[-16,0]") "}",
    "{" WTE "," BIAS("[32,-48]") "}",
    "{" WTE "," BIAS("[48,32]") "}", /* ends before it begins */
    "{" WTE "," BIAS("[9223372036854775808,9223372036854775824]") "}",
    "{" WTE "," BIAS("[9223372036854775792,9223372036854775808]") "}",
    "{" WTE "," BIAS("[18446744073709551584,18446744073709551600]") "}",
    "{" WTE "," BIAS("[32,1e999]") "}",
    "{" WTE "," BIAS("[32.5,48.5]") "}",
    "{" WTE "," BIAS("[32]") "}",
    "{" WTE "," BIAS("[32,48,64]") "}",
    "{" WTE "," BIAS("{}") "}",
    "{" WTE "," BIAS("\"32,48\"") "}",
    "{" WTE ",\"bias\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[32,48]}}",
    "{" WTE ",\"bias\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[32,48]}}",
    "{" WTE ",\"bias\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[32,48]}}",
    "{" WTE ",\"bias\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],\"data_"
    "offsets\":[32,48]}}",
    "{" WTE
    ",\"bias\":{\"dtype\":\"F32\",\"shape\":[4611686018427387908],\"data_offsets\":[32,48]}}",
    "{" WTE ",\"bias\":{\"dtype\":\"Q9\",\"shape\":[4],\"data_offsets\":[32,48]}}",
    "{" WTE ",\"bias\":[]}",
    "{" WTE "," BIAS("[32,48]"),
    "{" WTE "," BIAS("[32,48]") "}}",
    "[]",
    "",
};

TEST(test_hostile_headers)
{
    const size_t kinds = sizeof(hostile) / sizeof(hostile[0]);
    const char *whole = "{" WTE "," BIAS("[32,48]") "}";
    const uint64_t lies[] = {0,
                             1,
                             7,
                             strlen(whole) - 1,
                             strlen(whole) + 1,
                             1000,
                             100000001,
                             1ull << 31,
                             (1ull << 32) - 8,
                             1ull << 32,
                             1ull << 53,
                             1ull << 62,
                             INT64_MAX - 7,
                             1ull << 63,
                             UINT64_MAX - 7,
                             UINT64_MAX};
    int refused_n = 0;
    for (int f = 1; f < FILES; f++) {
        for (size_t k = 0; k < kinds; k++, refused_n++) {
            put_blessed(f, strlen(hostile[k]), hostile[k], 48);
            expect(false, hostile[k], (int64_t)k);
        }
        for (size_t k = 0; k < sizeof(lies) / sizeof(lies[0]); k++, refused_n++) {
            put_blessed(f, lies[k], whole, 48);
            expect(false, "a header of so many bytes", (int64_t)lies[k]);
        }
        heal();
    }
    bless(1, good[1], good_bytes[1]); /* the blessing itself is good */
    expect(true, "blessed", 0);
    heal();
    print_message("# %d hostile headers refused\n", refused_n);
}

/* ---- by kind: files of another checkpoint, links ---- */

TEST(test_swapped)
{
    char older[FILE_PATH_MAX], path[FILE_PATH_MAX], *bytes;
    size_t n;
    int refused_n = 0;
    assert_int_equal(file_join(older, sizeof(older), dir, "step-00000001"), ST_OK);
    /* these files are of the one before */
    for (unsigned set = 1; set < 1u << FILES; set++, refused_n++) {
        for (int f = 0; f < FILES; f++)
            if (set >> f & 1) {
                assert_int_equal(file_join(path, sizeof(path), older, file_name[f]), ST_OK);
                assert_int_equal(file_read(path, 1 << 20, &bytes, &n), ST_OK);
                put(f, bytes, n);
                free(bytes);
            }
        if (set + 1 < 1u << FILES) {
            expect(false, "files of another checkpoint", (int64_t)set);
        } else { /* all of them: whole, but under another step's name; the folder is passed over */
            struct ckpt *ckpt = NULL;
            assert_int_equal(ckpt_open_newest(dir, NULL, &ckpt), ST_OK);
            assert_true(ckpt_meta(ckpt)->step == 1 && strcmp(ckpt_path(ckpt), older) == 0);
            ckpt_close(ckpt);
        }
        heal();
    }
    for (int a = 1; a < FILES; a++) /* arrays that change places */
        for (int b = a + 1; b < FILES; b++, refused_n++) {
            put(a, good[b], good_bytes[b]);
            put(b, good[a], good_bytes[a]);
            expect(false, "arrays that changed places", a * 10 + b);
            heal();
        }
    print_message("# %d swaps refused\n", refused_n);
}

TEST(test_links)
{
    char path[FILE_PATH_MAX], away[FILE_PATH_MAX];
    assert_int_equal(file_join(away, sizeof(away), dir, "away"), ST_OK);
    for (int f = 0; f < FILES; f++) {
        text_copy(path, sizeof(path), in_folder(file_name[f]));
        assert_int_equal(rename(path, away), 0);
        assert_int_equal(symlink(away, path), 0);
        expect(false, "a link to the very file", f);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("nowhere", path), 0);
        expect(false, "a link to nowhere", f);
        heal();
    }
    assert_int_equal(unlink(away), 0);
    assert_int_equal(rename(folder, away), 0);
    assert_int_equal(symlink(away, folder), 0);
    expect(false, "a link to the very folder", 0);
    assert_int_equal(unlink(folder), 0);
    assert_int_equal(rename(away, folder), 0);
    expect(true, "whole again", 0);
    print_message("# %d links refused\n", 2 * FILES + 1);
}

int main(void) { return harness_run_all(__FILE__, setup, teardown); }
