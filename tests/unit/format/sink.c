/* sink — all bytes arrive in order, whatever chunks they came in, and whether the buffer was
 * filled never, exactly or with a rest; hash and number are those of the file; an existing file is
 * not overwritten. */
#include "harness.h"

#include <xxhash.h>

#include "format/sink.h"

#define MIB (1 << 20)

static char path[600];
static int64_t told_bytes;

static void told(void *arg, int64_t bytes)
{
    (void)arg;
    told_bytes += bytes;
}

static void write_one(const char *data, int64_t n, int64_t chunk)
{
    struct heartbeat heartbeat = {told, NULL};
    struct sink *sink;
    struct file_map map;
    uint64_t hash;
    int64_t bytes;
    text_format(path, sizeof path, "%s/file", harness_tmpdir());
    unlink(path);
    told_bytes = 0;
    assert_int_equal(sink_open(path, n, &heartbeat, &sink), ST_OK);
    for (int64_t at = 0; at < n; at += chunk)
        assert_int_equal(sink_add(sink, data + at, n - at < chunk ? n - at : chunk), ST_OK);
    assert_int_equal(sink_end(sink, &hash, &bytes), ST_OK);
    assert_int_equal(sink_close(sink), ST_OK);
    assert_int_equal(bytes, n);
    assert_int_equal(told_bytes, n);
    assert_int_equal(file_map_open(path, &map), ST_OK);
    assert_int_equal(map.bytes, n);
    assert_true(n == 0 || memcmp(map.data, data, (size_t)n) == 0);
    assert_true(hash == XXH3_64bits(data, (size_t)n));
    file_map_close(&map);
}

TEST(test_sizes)
{
    static const int64_t sizes[] = {0,           1,       4095,        4096,    MIB,
                                    4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 8 * MIB, 21 * MIB + 4097};
    int64_t most = 22 * MIB;
    char *data = malloc((size_t)most);
    assert_non_null(data);
    for (int64_t i = 0; i < most; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_one(data, sizes[i], most);
        write_one(data, sizes[i], 999983);
    }
    write_one(data, 10000, 7);
    free(data);
}

TEST(test_in_the_way)
{
    struct sink *sink = NULL;
    text_format(path, sizeof path, "%s/there", harness_tmpdir());
    assert_int_equal(file_replace(path, "x", 1), ST_OK);
    assert_int_equal(sink_open(path, 1, NULL, &sink), ST_STORE);
    assert_non_null(strstr(status_message(), "File exists"));
    assert_null(sink);
    assert_int_equal(sink_close(NULL), ST_OK);
    assert_int_equal(file_bytes(path), 1);
    unlink(path);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_equal(sink_open(path, 1, NULL, &sink), ST_STORE);
    unlink(path);
}

HARNESS_RUN_ALL()
