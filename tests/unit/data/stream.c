/* stream — the bytes of a file, plain or decompressed, in reads of any size. */
#include "harness.h"

#include <zstd.h>

#include "data/stream.h"

enum { N = 1000000 };
static char text[N], back[N + 10];

static struct data_file source_of(const char *name, const void *data, size_t n, bool is_packed)
{
    static char path[FILE_PATH_MAX];
    text_format(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    assert_int_equal(file_replace(path, data, n), ST_OK);
    return (struct data_file){.path = path, .is_packed = is_packed, .bytes = (int64_t)n};
}

static void count(void *arg, const uint8_t *raw, size_t n) { (void)raw, *(size_t *)arg += n; }

static enum status read_all(const struct data_file *source, size_t step, size_t *n_out)
{
    struct stream *stream;
    size_t raw = 0, n = step;
    enum status st = stream_open(source, count, &raw, &stream);
    *n_out = 0;
    while (st == ST_OK && n == step) {
        st = stream_read(stream, (uint8_t *)back + *n_out, step, &n);
        *n_out += st == ST_OK ? n : 0;
        assert_true(*n_out <= N);
    }
    if (st == ST_OK)
        assert_true(raw == (size_t)source->bytes && stream_raw_bytes(stream) == source->bytes);
    stream_close(stream);
    return st;
}

TEST(test_same_in_any_chunks)
{
    static char packed[ZSTD_COMPRESSBOUND(N)];
    for (int i = 0; i < N; i++)
        text[i] = "abcdefghij \n"[(i * 7 + i / 999) % 12];
    const size_t n = ZSTD_compress(packed, sizeof packed, text, N, 1);
    size_t got;
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        const struct data_file source =
            source_of("a", is_packed ? packed : text, is_packed ? n : N, is_packed);
        for (size_t step = 1000; step <= N; step = step * 7 + 1) {
            memset(back, 0, sizeof back);
            assert_int_equal(read_all(&source, step, &got), ST_OK);
            assert_int_equal(got, N);
            assert_memory_equal(back, text, N);
        }
    }
}

TEST(test_refusals)
{
    size_t got;
    struct stream *stream = NULL;
    struct data_file source = source_of("b", "hello", 5, false);
    source.bytes = 6;
    assert_int_equal(read_all(&source, 100, &got), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "changed while it was read"));
    source.bytes = 5;
    source.is_packed = true;
    assert_int_equal(read_all(&source, 100, &got), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "zstd"));
    source.path = "/nowhere/b";
    assert_int_equal(stream_open(&source, NULL, NULL, &stream), ST_NO_INPUT);
    stream_close(NULL);
}

/* A frame that asks for a window of 2 GiB is not given it. */
TEST(test_window)
{
    /* magic, no content size, window 2^31, one raw block with nothing in it */
    static const char packed[] = {0x28, (char)0xb5, 0x2f, (char)0xfd, 0x00, (char)(21 << 3),
                                  0x01, 0x00,       0x00};
    size_t got;
    const struct data_file source = source_of("c", packed, sizeof packed, true);
    assert_int_equal(read_all(&source, 100, &got), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "128 MiB"));
}

HARNESS_RUN_ALL()
