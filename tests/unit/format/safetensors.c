/* safetensors — reads PyTorch's files, reads what it writes, and refuses everything else with
 * a message. */
#include "harness.h"

#include <xxhash.h>

#include "format/safetensors.h"

/* wrap — header text and data_bytes of data as one file image, allocated to the exact size so that
 * sanitizers see overreads. */
static uint8_t *wrap(const char *header, uint64_t header_bytes, size_t data_bytes, size_t *n_out)
{
    size_t len = strlen(header);
    uint8_t *image = calloc(1, 8 + len + data_bytes);
    assert_non_null(image);
    for (int i = 0; i < 8; i++)
        image[i] = (uint8_t)(header_bytes >> (8 * i));
    memcpy(image + 8, header, len);
    *n_out = 8 + len + data_bytes;
    return image;
}

static enum status parse(const char *header, size_t data_bytes, struct safetensors *out)
{
    size_t n;
    uint8_t *image = wrap(header, strlen(header), data_bytes, &n);
    enum status st = safetensors_parse(image, n, "image", out);
    free(image);
    return st;
}

TEST(test_golden)
{
    struct file_map map = {.data = NULL};
    struct safetensors st = {.entry = NULL};
    assert_int_equal(file_map_open("tests/golden/lm/model.safetensors", &map), ST_OK);
    assert_int_equal(safetensors_parse(map.data, map.bytes, "lm", &st), ST_OK);
    assert_int_equal(st.entries_n, 40);
    const struct safetensors_entry *wte = safetensors_find(&st, "transformer.wte.weight");
    assert_non_null(wte);
    assert_int_equal(wte->dtype, DTYPE_F32);
    assert_int_equal(wte->dims_n, 2);
    assert_int_equal(wte->dim[0], 311);
    assert_int_equal(wte->dim[1], 64);
    assert_int_equal(wte->elems, 311 * 64);
    assert_int_equal(wte->bytes, 311 * 64 * 4);
    assert_null(safetensors_find(&st, "wte"));
    float pair[2];
    safetensors_to_f32(wte, 311 * 64 - 2, 2, pair);
    assert_memory_equal(pair, wte->data + wte->bytes - 8, 8);
    safetensors_free(&st);
    safetensors_free(&st);
    file_map_close(&map);
}

TEST(test_every_cut_is_refused)
{
    struct file_map map = {.data = NULL};
    struct safetensors st = {.entry = NULL};
    assert_int_equal(file_map_open("tests/golden/qa/model.safetensors", &map), ST_OK);
    for (size_t n = 0; n < map.bytes; n += n < 5000 ? 1 : 4999) {
        uint8_t *copy = malloc(n + 1);
        assert_non_null(copy);
        memcpy(copy + 1, map.data, n);
        assert_int_equal(safetensors_parse(copy + 1, n, "cut", &st), ST_BAD_DATA);
        free(copy);
    }
    file_map_close(&map);
}

static const struct {
    const char *header;
    size_t data_bytes;
    const char *says; /* part of the message; NULL: valid */
} case_list[] = {
    {"{}", 0, NULL},
    {"{}      ", 0, NULL},
    {"{}", 1, "no tensor"},
    {"[]", 0, "begin with '{'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, NULL},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, NULL},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "3 elements of 4 bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "cut short"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "no tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
     "3 elements of 32 bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "lies at bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.5]}}", 8, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,1e300]}}", 8,
     "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551615]}}", 8,
     "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[\"0\",8]}}", 8,
     "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
     "dimension 0 of tensor a"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "\"shape\""},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "\"shape\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
     "2^63"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4503599627370496,1024],\"data_offsets\":[0,0]}}", 0,
     "elements of 32 bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
     "more than 8 dimensions"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "safetensors does not have"},
    {"{\"a\":{\"dtype\":5,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "\"dtype\""},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "\"dtype\""},
    {"{\"a\":7}", 0, "not an object"},
    {"{\"a\":null}", 0, "not an object"},
    {"{\"a\\n\":{}}", 0, "control byte"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\","
     "\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, "twice"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, "overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[2],\"data_offsets\":[0,2]}}",
     2, "overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[0],\"data_offsets\":[1,1]}}",
     2, "overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[0],\"data_offsets\":[2,2]}}",
     2, NULL},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[1],\"data_offsets\":[2,3]}}",
     3, "[1, 2) before tensor b"},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},\"a\":{\"dtype\":\"U8\","
     "\"shape\":[1],\"data_offsets\":[0,1]}}",
     2, NULL},
    {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, NULL},
    {"{\"__metadata__\":{\"format\":1}}", 0, "not a string"},
    {"{\"__metadata__\":[]}", 0, "not an object"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
    {"{\"a\":", 0, "image"},
    {"{} x", 0, "image"},
};

TEST(test_cases)
{
    for (size_t i = 0; i < sizeof(case_list) / sizeof(case_list[0]); i++) {
        struct safetensors st = {.entry = NULL};
        enum status got = parse(case_list[i].header, case_list[i].data_bytes, &st);
        if ((got == ST_OK) != (case_list[i].says == NULL))
            fail_msg("%s: got %s: %s", case_list[i].header, status_name(got), status_message());
        if (case_list[i].says &&
            (got != ST_BAD_DATA || !strstr(status_message(), case_list[i].says)))
            fail_msg("%s: expected \"%s\" in: %s %s", case_list[i].header, case_list[i].says,
                     status_name(got), status_message());
        safetensors_free(&st);
    }
}

TEST(test_header_length)
{
    static const uint64_t length[] = {
        0, 1, 3, 100000001, UINT64_MAX, UINT64_MAX - 7, INT64_MAX, (uint64_t)1 << 63};
    struct safetensors st = {.entry = NULL};
    for (size_t i = 0; i < sizeof(length) / sizeof(length[0]); i++) {
        size_t n;
        uint8_t *image = wrap("{}", length[i], 0, &n);
        assert_int_equal(safetensors_parse(image, n, "length", &st), ST_BAD_DATA);
        free(image);
    }
    assert_int_equal(safetensors_parse(NULL, 0, "empty", &st), ST_BAD_DATA);
}

TEST(test_long_name_and_depth)
{
    struct safetensors st = {.entry = NULL};
    for (int n = 255; n <= 256; n++) {
        struct text header = {.data = NULL};
        text_add(&header, "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", n,
                 7);
        assert_int_equal(parse(header.data, 0, &st), n == 255 ? ST_OK : ST_BAD_DATA);
        text_free(&header);
        safetensors_free(&st);
    }
    struct text deep = {.data = NULL};
    text_add(&deep, "{\"a\":");
    for (int i = 0; i < 100000; i++)
        text_add(&deep, "[");
    assert_int_equal(parse(deep.data, 0, &st), ST_BAD_DATA);
    text_free(&deep);
}

TEST(test_unused_dtypes_are_left_out)
{
    struct safetensors st = {.entry = NULL};
    assert_int_equal(parse("{\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]},"
                           "\"x\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[3,5]}}",
                           5, &st),
                     ST_OK);
    assert_int_equal(st.entries_n, 1);
    assert_string_equal(st.entry[0].name, "x");
    safetensors_free(&st);
    assert_int_equal(
        parse("{\"ids\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[0,23]}}", 23, &st),
        ST_BAD_DATA);
}

TEST(test_half_is_exact)
{
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        uint16_t half = (uint16_t)bits;
        struct safetensors_entry f16 = {
            .dtype = DTYPE_F16, .elems = 1, .data = (const uint8_t *)&half, .bytes = 2};
        struct safetensors_entry bf16 = {
            .dtype = DTYPE_BF16, .elems = 1, .data = (const uint8_t *)&half, .bytes = 2};
        int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
        float got, want = exponent == 31  ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? ldexpf((float)fraction, -24)
                                          : ldexpf((float)(1024 + fraction), exponent - 25);
        safetensors_to_f32(&f16, 0, 1, &got);
        assert_int_equal(signbit(got) != 0, bits >> 15);
        if (isnan(want))
            assert_true(isnan(got));
        else
            assert_true(fabsf(got) == want);
        uint32_t wide = bits << 16, out;
        safetensors_to_f32(&bf16, 0, 1, &got);
        memcpy(&out, &got, 4);
        assert_int_equal(out, wide);
    }
}

static int64_t beat_bytes;
static void count_beat(void *arg, int64_t bytes)
{
    (void)arg;
    beat_bytes += bytes;
}

TEST(test_write_and_read)
{
    static float big[5 << 20];
    for (size_t i = 0; i < sizeof(big) / sizeof(big[0]); i++)
        big[i] = (float)i;
    const uint8_t bytes[3] = {1, 2, 3};
    const uint16_t half[5] = {0x3c00, 1, 2, 3, 4};
    const double wide[1] = {0.1};
    const struct safetensors_source source[] = {
        {"odd \"quoted\" ü", DTYPE_U8, 1, {3}, .data = bytes},
        {"half", DTYPE_F16, 2, {1, 5}, .data = half},
        {"big", DTYPE_F32, 2, {5, 1 << 20}, .data = big},
        {"none", DTYPE_F32, 2, {0, 4}, .data = NULL},
        {"wide", DTYPE_F64, 0, {0}, .data = wide},
    };
    char path[FILE_PATH_MAX];
    uint64_t hash = 0;
    int64_t written = 0, foreseen = 0;
    struct heartbeat heartbeat = {.fn = count_beat};
    assert_int_equal(file_join(path, sizeof(path), harness_tmpdir(), "x.safetensors"), ST_OK);
    assert_int_equal(safetensors_bytes(source, 5, "{\"format\":\"pt\"}", &foreseen), ST_OK);
    assert_int_equal(
        safetensors_write(path, source, 5, "{\"format\":\"pt\"}", &heartbeat, &hash, &written),
        ST_OK);
    assert_int_equal(written, foreseen);
    assert_int_equal(beat_bytes, written);
    struct file_map map = {.data = NULL};
    struct safetensors st = {.entry = NULL};
    assert_int_equal(file_map_open(path, &map), ST_OK);
    assert_int_equal(map.bytes, written);
    assert_true(XXH3_64bits(map.data, map.bytes) == hash);
    assert_int_equal(safetensors_parse(map.data, map.bytes, path, &st), ST_OK);
    assert_int_equal(st.entries_n, 5);
    assert_string_equal(st.metadata_json, "{\"format\":\"pt\"}");
    for (int i = 0; i < 5; i++) {
        const struct safetensors_entry *e = safetensors_find(&st, source[i].name);
        assert_non_null(e);
        assert_int_equal(e->dtype, source[i].dtype);
        assert_int_equal(e->dims_n, source[i].dims_n);
        assert_memory_equal(e->dim, source[i].dim, sizeof(e->dim[0]) * (size_t)e->dims_n);
        if (e->bytes > 0)
            assert_memory_equal(e->data, source[i].data, e->bytes);
        assert_int_equal((size_t)(e->data - map.data) % dtype_bytes(e->dtype), 0);
    }
    safetensors_free(&st);
    file_map_close(&map);
    assert_int_equal(safetensors_write(path, source, 5, NULL, NULL, &hash, &written), ST_STORE);
    assert_non_null(strstr(status_message(), "File exists"));
}

/* A tensor that the writer reads in ranges, and the element whose range fails; -1: none. */
struct ranges {
    int64_t next, fails_at;
    int calls;
};

static enum status read_range(void *arg, int64_t first, int64_t n, void *out)
{
    struct ranges *r = arg;
    if (first != r->next)
        return FAIL(ST_BUG, "element %lld, want %lld", (long long)first, (long long)r->next);
    if (r->fails_at >= first && r->fails_at < first + n)
        return FAIL(ST_PEER, "lost at element %lld", (long long)first);
    for (int64_t i = 0; i < n; i++)
        ((float *)out)[i] = (float)(first + i) / 4;
    r->next += n;
    r->calls++;
    return ST_OK;
}

/* What is read in ranges makes the file that the same numbers in memory make. */
TEST(test_write_by_ranges)
{
    enum { ELEMS = (5 << 20) / 2 + 3 };
    static float all[ELEMS];
    struct ranges ranges = {.fails_at = -1};
    uint64_t hash[2] = {1, 2};
    int64_t bytes[2] = {1, 2};
    char path[FILE_PATH_MAX];
    for (int64_t i = 0; i < ELEMS; i++)
        all[i] = (float)i / 4;
    struct safetensors_source source[] = {
        {.name = "ranges", .dtype = DTYPE_F32, .dims_n = 1, .dim = {ELEMS}, .data = all},
        {.name = "memory", .dtype = DTYPE_F16, .dims_n = 1, .dim = {9}, .data = all}};
    for (int i = 0; i < 2; i++) {
        char name[16];
        text_format(name, sizeof name, "ranges%d", i);
        assert_int_equal(file_join(path, sizeof path, harness_tmpdir(), name), ST_OK);
        assert_int_equal(safetensors_write(path, source, 2, NULL, NULL, &hash[i], &bytes[i]),
                         ST_OK);
        source[0].data = NULL;
        source[0].read = read_range;
        source[0].arg = &ranges;
    }
    assert_true(hash[0] == hash[1] && bytes[0] == bytes[1]);
    assert_int_equal(ranges.next, ELEMS);
    assert_int_equal(ranges.calls, 3); /* of 4 MiB at most */
    ranges = (struct ranges){.fails_at = ELEMS - 1};
    assert_int_equal(file_join(path, sizeof path, harness_tmpdir(), "fails"), ST_OK);
    assert_int_equal(safetensors_write(path, source, 2, NULL, NULL, hash, bytes), ST_PEER);
    assert_non_null(strstr(status_message(), "lost at element"));
}

TEST(test_write_refusals)
{
    char path[FILE_PATH_MAX];
    uint64_t hash;
    int64_t written;
    assert_int_equal(file_join(path, sizeof(path), harness_tmpdir(), "link.safetensors"), ST_OK);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(safetensors_write(path, NULL, 0, NULL, NULL, &hash, &written), ST_STORE);
    assert_int_equal(safetensors_write("/nonexistent/x", NULL, 0, NULL, NULL, &hash, &written),
                     ST_STORE);
    assert_non_null(strstr(status_message(), "No such file"));
    char name[400];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = 0;
    struct safetensors_source source = {.name = name, .dtype = DTYPE_F32, .dims_n = 1};
    assert_int_equal(safetensors_bytes(&source, 1, NULL, &written), ST_BAD_DATA);
}

TEST(test_write_nothing)
{
    char path[FILE_PATH_MAX];
    uint64_t hash;
    int64_t written;
    struct file_map map = {.data = NULL};
    struct safetensors st = {.entry = NULL};
    assert_int_equal(file_join(path, sizeof(path), harness_tmpdir(), "empty.safetensors"), ST_OK);
    assert_int_equal(safetensors_write(path, NULL, 0, NULL, NULL, &hash, &written), ST_OK);
    assert_int_equal(written, 16);
    assert_int_equal(file_map_open(path, &map), ST_OK);
    assert_int_equal(safetensors_parse(map.data, map.bytes, path, &st), ST_OK);
    assert_int_equal(st.entries_n, 0);
    safetensors_free(&st);
    file_map_close(&map);
}

HARNESS_RUN_ALL()
