/* megatron — an index is accepted only if every word of it is right; written files are read
 * back; damage is refused. */
#include "harness.h"

#include <sys/resource.h>

#include "base/rand.h"
#include "data/megatron.h"

static uint8_t idx[4096];
static size_t idx_n;

static void add(const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(idx + idx_n, bytes, n);
    idx_n += n;
}

/* An index of these sequences and document entries. */
static void make(uint8_t type, const int32_t *lengths, uint64_t sequences, const int64_t *list,
                 uint64_t entries)
{
    const uint64_t version = 1;
    int64_t offset = 0;
    idx_n = 0;
    add("MMIDIDX\0\0", 9);
    add(&version, 8);
    add(&type, 1);
    add(&sequences, 8);
    add(&entries, 8);
    add(lengths, 4 * sequences);
    for (uint64_t i = 0; i < sequences; i++) {
        add(&offset, 8);
        offset += lengths[i] * (type == 8 ? 2 : 4);
    }
    add(list, 8 * entries);
}

static enum status parse(int64_t bin_bytes, struct megatron_info *info)
{
    uint8_t *exact = malloc(idx_n + 1); /* so that reading beyond is seen */
    memcpy(exact, idx, idx_n);
    const enum status st = megatron_parse(exact, idx_n, bin_bytes, "x.idx", info);
    free(exact);
    return st;
}

static void refuse(int64_t bin_bytes, const char *word)
{
    struct megatron_info info;
    assert_int_equal(parse(bin_bytes, &info), ST_BAD_DATA);
    if (strstr(status_message(), word) == NULL || strstr(status_message(), "x.idx") == NULL)
        fail_msg("\"%s\", expected \"%s\"", status_message(), word);
}

static void usual(void) { make(8, (int32_t[]){3, 0, 4}, 3, (int64_t[]){0, 2, 3}, 3); }

TEST(test_good)
{
    struct megatron_info info;
    usual();
    assert_int_equal(megatron_parse(idx, idx_n, 14, "x.idx", &info), ST_OK);
    assert_true(info.type == MEGATRON_TYPE_U16 && info.sequences == 3 && info.documents == 2 &&
                info.tokens == 7);
    assert_int_equal(megatron_length(&info, 2), 4);
    assert_int_equal(megatron_offset(&info, 2), 6);
    assert_int_equal(megatron_first(&info, 1), 2);
    add("abc", 3); /* modes, one byte a sequence */
    assert_int_equal(parse(14, &info), ST_OK);
    make(4, (int32_t[]){5}, 1, (int64_t[]){0, 1}, 2);
    assert_int_equal(parse(20, &info), ST_OK);
    assert_int_equal(info.type, MEGATRON_TYPE_I32);
    make(8, NULL, 0, (int64_t[]){0}, 1);
    assert_int_equal(parse(0, &info), ST_OK);
    assert_int_equal(info.documents, 0);
}

static void set64(size_t at, int64_t v) { memcpy(idx + at, &v, 8); }

TEST(test_refusals)
{
    idx_n = 0;
    refuse(0, "not a Megatron index");
    usual(), idx[0] = 'm';
    refuse(14, "not a Megatron index");
    usual(), idx[9] = 2;
    refuse(14, "version 2");
    usual(), idx[17] = 5;
    refuse(14, "type 5");
    usual();
    refuse(13, "do not fit its .bin");
    usual(), set64(18, -1);
    refuse(14, "cut off");
    usual(), set64(18, INT64_MAX / 12);
    refuse(14, "cut off");
    usual(), set64(26, 0);
    refuse(14, "list is empty");
    usual(), set64(26, -1);
    refuse(14, "cut off");
    usual(), set64(26, 2);
    refuse(14, "need");
    usual(), memcpy(idx + 34, &(int32_t){-1}, 4);
    refuse(14, "lengths");
    usual(), memcpy(idx + 34, &(int32_t){INT32_MAX}, 4);
    refuse(14, "lengths");
    usual(), set64(46 + 8, -2);
    refuse(14, "inside its .bin");
    usual(), set64(46 + 16, 8);
    refuse(14, "inside its .bin");
    usual(), set64(46 + 16, 5);
    refuse(14, "inside its .bin");
    usual(), set64(46 + 8, 4);
    refuse(14, "right after");
    usual();
    refuse(16, "do not belong together");
    usual(), set64(70, 1);
    refuse(14, "does not ascend");
    usual(), set64(70 + 8, 4);
    refuse(14, "does not ascend");
    usual(), set64(70 + 8, -1);
    refuse(14, "does not ascend");
    usual(), set64(70 + 16, 2);
    refuse(14, "before its sequences");
}

/* Cut at every length, every bit flipped: refused, or an index whose sequences all lie inside. */
TEST(test_damage)
{
    struct megatron_info info;
    usual();
    const size_t whole = idx_n;
    for (idx_n = 0; idx_n < whole; idx_n++)
        assert_int_equal(parse(14, &info), ST_BAD_DATA);
    for (size_t bit = 0; bit < 8 * whole; bit++) {
        usual();
        idx[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (megatron_parse(idx, idx_n, 14, "x.idx", &info) != ST_OK)
            continue;
        for (int64_t s = 0; s < info.sequences; s++)
            assert_true(megatron_offset(&info, s) + 2 * megatron_length(&info, s) <= 14);
    }
}

/* Made by another program (struct.pack of Python, after the format's description): a seed of the
 * fuzzer. */
TEST(test_foreign)
{
    char *bytes;
    size_t n;
    struct megatron_info info;
    assert_int_equal(file_read("tests/fuzz/megatron/u16", 4096, &bytes, &n), ST_OK);
    assert_int_equal(megatron_parse((uint8_t *)bytes + 2, n - 2, 20, "x.idx", &info), ST_OK);
    assert_true(info.tokens == 10 && info.documents == 2 && info.type == MEGATRON_TYPE_U16);
    free(bytes);
}

static void check_written(enum megatron_type type, int width)
{
    enum { N = 50000, CHUNKS = 7 };
    static uint32_t ids[N];
    char idx_path[FILE_PATH_MAX], bin_path[FILE_PATH_MAX];
    struct megatron_writer *writer;
    struct megatron megatron = {0};
    int64_t documents = 1;
    text_format(idx_path, sizeof idx_path, "%s/w.idx", harness_tmpdir());
    text_format(bin_path, sizeof bin_path, "%s/w.bin", harness_tmpdir());
    for (int i = 0; i < N; i++) {
        ids[i] = rand_below(1, RAND_STREAM(TEST, 0), (uint64_t)i, 8) == 0 ? 50256 : (uint32_t)i;
        documents += ids[i] == 50256 && i < N - 1;
    }
    assert_int_equal(megatron_create(idx_path, 50256, type, &writer), ST_OK);
    for (int i = 0; i < CHUNKS; i++)
        assert_int_equal(megatron_append(writer, ids + i * (N / CHUNKS),
                                         i < CHUNKS - 1 ? N / CHUNKS : N - i * (N / CHUNKS)),
                         ST_OK);
    assert_true(width == 4 || !file_exists(idx_path));
    assert_int_equal(megatron_commit(writer), ST_OK);
    megatron_abandon(writer);
    assert_int_equal(megatron_open(idx_path, bin_path, &megatron), ST_OK);
    assert_int_equal(megatron.info.tokens, N);
    assert_int_equal(megatron.info.documents, documents);
    assert_int_equal(megatron.bin.bytes, (size_t)N * (size_t)width);
    for (int i = 0; i < N; i++) {
        uint32_t id = 0;
        memcpy(&id, megatron.bin.data + (ptrdiff_t)i * width, (size_t)width);
        assert_int_equal(id, ids[i]);
    }
    for (int64_t d = 0, at = 0; d < documents; d++) {
        assert_int_equal(megatron_first(&megatron.info, d), d);
        assert_int_equal(megatron_offset(&megatron.info, d), width * at);
        at += megatron_length(&megatron.info, d);
        assert_true(ids[at - 1] == 50256 || d == documents - 1);
    }
    megatron_close(&megatron);
    megatron_close(&megatron);
    /* abandoned: what was there stays */
    assert_int_equal(megatron_create(idx_path, 50256, MEGATRON_TYPE_U16, &writer), ST_OK);
    megatron_abandon(writer);
    megatron_abandon(NULL);
    assert_true(file_exists(idx_path) && file_exists(bin_path));
}

TEST(test_written)
{
    check_written(MEGATRON_TYPE_U16, 2);
    check_written(MEGATRON_TYPE_I32, 4);
}

/* Records end documents, whatever ids they have; without records, the end of text does. */
TEST(test_records)
{
    char idx_path[FILE_PATH_MAX], bin_path[FILE_PATH_MAX];
    struct megatron_writer *writer;
    struct megatron megatron = {0};
    const uint32_t text[] = {1, 9, 2, 9}, records[] = {3, 9, 4, 9, 5, 9}, more[] = {6, 9, 7};
    const int64_t begins[] = {0, 2, 4, 8, 10, 12, 13};
    text_format(idx_path, sizeof idx_path, "%s/r.idx", harness_tmpdir());
    text_format(bin_path, sizeof bin_path, "%s/r.bin", harness_tmpdir());
    assert_int_equal(megatron_create(idx_path, 9, MEGATRON_TYPE_U16, &writer), ST_OK);
    assert_int_equal(megatron_begin_record(writer, 0, false), ST_OK);
    assert_int_equal(megatron_append(writer, text, 4), ST_OK);
    assert_int_equal(megatron_begin_record(writer, 4, true), ST_OK);
    assert_int_equal(megatron_begin_record(writer, 8, true), ST_OK); /* ahead of its ids */
    assert_int_equal(megatron_append(writer, records, 6), ST_OK);
    assert_int_equal(megatron_begin_record(writer, 10, false), ST_OK);
    assert_int_equal(megatron_append(writer, more, 3), ST_OK);
    assert_int_equal(megatron_commit(writer), ST_OK);
    megatron_abandon(writer);
    assert_int_equal(megatron_open(idx_path, bin_path, &megatron), ST_OK);
    assert_int_equal(megatron.info.documents, 6);
    for (int d = 0; d <= 6; d++) {
        int64_t first;
        assert_int_equal(megatron_begin(&megatron.info, d, "r.idx", &first), ST_OK);
        assert_int_equal(first, begins[d]);
    }
    megatron_close(&megatron);
}

/* A large index is checked where it is used, and at its ends at once. */
TEST(test_large_index)
{
    enum { N = MEGATRON_CHECKED + 7, BYTES = MEGATRON_HEADER_BYTES + 20 * N + 8, AT = N / 2 };
    uint8_t *bytes = calloc(1, BYTES);
    struct megatron_info info;
    int64_t first;
    memcpy(bytes, MEGATRON_MAGIC "\0\0\1", 10);
    bytes[17] = MEGATRON_TYPE_U16;
    memcpy(bytes + 18, (const uint64_t[]){N, N + 1}, 16);
    int32_t *lengths = (int32_t *)(void *)(bytes + 34);
    for (int64_t i = 0; i <= N; i++) {
        const int64_t offset = 6 * i;
        if (i < N) {
            memcpy(lengths + i, &(int32_t){3}, 4);
            memcpy(bytes + 34 + 4 * N + 8 * i, &offset, 8);
        }
        memcpy(bytes + 34 + 12 * (int64_t)N + 8 * i, &i, 8);
    }
    uint8_t *const damage[] = {bytes + 34 + 4 * AT, bytes + 34 + 4 * N + 8 * AT,
                               bytes + 34 + 12 * N + 8 * AT};
    assert_int_equal(megatron_parse(bytes, BYTES, 6 * N, "x.idx", &info), ST_OK);
    assert_int_equal(info.tokens, 3 * N);
    for (int i = 0; i < 3; i++) {
        damage[i][3] ^= 0x40; /* a length, an offset, an entry of the list */
        assert_int_equal(megatron_parse(bytes, BYTES, 6 * N, "x.idx", &info), ST_OK);
        assert_int_equal(megatron_begin(&info, AT - 1, "x.idx", &first), ST_OK);
        assert_int_equal(first, 3 * (AT - 1));
        assert_int_equal(megatron_begin(&info, AT, "x.idx", &first), ST_BAD_DATA);
        assert_non_null(strstr(status_message(), "Megatron index x.idx is damaged"));
        assert_int_equal(megatron_begin(&info, AT + 2, "x.idx", &first), ST_OK);
        damage[i][3] ^= 0x40;
    }
    for (int i = 0; i < 3; i++) { /* the last length, the last offset, the end of the list */
        uint8_t *last = bytes + 34 + (i == 0 ? 4 * N - 4 : i == 1 ? 12 * N - 8 : 20 * N);
        last[0] ^= 2;
        assert_int_equal(megatron_parse(bytes, BYTES, 6 * N, "x.idx", &info), ST_BAD_DATA);
        last[0] ^= 2;
    }
    free(bytes);
}

HARNESS_RUN_ALL()
