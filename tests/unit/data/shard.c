/* shard — token files: the header is parsed from its bytes alone, and a file exists
 * complete or not at all. */
#include "harness.h"

#include "data/shard.h"

static const char *in(const char *name)
{
    static char path[FILE_PATH_MAX];
    text_format(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    return path;
}

TEST(test_parse)
{
    static uint8_t bytes[SHARD_HEADER_BYTES];
    struct shard_info info;
    const int32_t header[3] = {SHARD_MAGIC, 1, 5};
    memcpy(bytes, header, sizeof header);
    assert_int_equal(shard_parse(bytes, SHARD_HEADER_BYTES + 10, "x", &info), ST_OK);
    assert_int_equal(info.tokens, 5);
    assert_false(info.has_sum);
    assert_int_equal(shard_parse(bytes, SHARD_HEADER_BYTES + 9, "x", &info), ST_BAD_DATA);
    assert_int_equal(shard_parse(bytes, SHARD_HEADER_BYTES + 11, "x", &info), ST_BAD_DATA);
    assert_int_equal(shard_parse(bytes, SIZE_MAX, "x", &info), ST_BAD_DATA);
    for (size_t size = 0; size < SHARD_HEADER_BYTES; size++)
        assert_int_equal(shard_parse(bytes, size, "x", &info), ST_BAD_DATA);
    memset(bytes + 8, 0xff, 4); /* a count of -1 */
    assert_int_equal(shard_parse(bytes, SHARD_HEADER_BYTES - 2, "x", &info), ST_BAD_DATA);
    assert_int_equal(shard_parse(bytes, SHARD_HEADER_BYTES, "x", &info), ST_BAD_DATA);
    memset(bytes + 8, 0, 4);
    assert_int_equal(shard_parse(bytes, SHARD_HEADER_BYTES, "x", &info), ST_OK);
    assert_int_equal(info.tokens, 0);
}

static struct shard_facts scan(const struct shard *shard, int64_t vocab)
{
    struct shard_scan *scan = shard_scan_begin(vocab);
    shard_scan_add(scan, shard->ids, shard->info.id_bytes, shard->info.tokens);
    const struct shard_facts facts = shard_scan_facts(scan);
    shard_scan_end(scan);
    return facts;
}

static void check_write_and_read(int id_bytes)
{
    enum { N = 100001 };
    uint32_t *ids = malloc(N * sizeof *ids);
    for (int i = 0; i < N; i++)
        ids[i] = (uint32_t)(i % 50257);
    struct shard_writer *writer;
    struct shard shard = {0};
    struct shard_facts facts;
    const struct shard_key key = {{7, 8}};
    assert_int_equal(shard_create(in("a.bin"), 50256, id_bytes, &writer), ST_OK);
    assert_int_equal(shard_append(writer, ids, 10), ST_OK);
    assert_int_equal(shard_append(writer, ids + 10, N - 10), ST_OK);
    assert_int_equal(shard_written(writer), N);
    facts = shard_writer_facts(writer);
    assert_int_equal(facts.bad_i, 50256);
    assert_int_equal(facts.bad_id, 50256);
    assert_true(id_bytes == 4 || !file_exists(in("a.bin"))); /* not before the commit */
    assert_int_equal(shard_commit(writer, key), ST_OK);
    shard_abandon(writer);
    assert_int_equal(shard_open(in("a.bin"), &shard), ST_OK);
    assert_int_equal(shard.info.tokens, N);
    assert_true(shard.info.has_sum);
    assert_memory_equal(&shard.info.key, &key, sizeof key);
    assert_int_equal(shard.info.id_bytes, id_bytes);
    assert_int_equal(file_bytes(in("a.bin")), SHARD_HEADER_BYTES + (int64_t)N * id_bytes);
    uint32_t *back = malloc(N * sizeof *back);
    shard_copy(&shard, 0, N, back);
    assert_memory_equal(back, ids, N * sizeof *ids);
    assert_int_equal(shard_id(&shard, N - 1), ids[N - 1]);
    free(back);
    for (int64_t vocab = 1; vocab < 50300; vocab += 997) {
        facts = scan(&shard, vocab);
        assert_int_equal(facts.bad_i, vocab < 50257 ? vocab : -1);
    }
    assert_int_equal(shard_check(&shard, "a.bin", NULL), ST_OK);
    shard_close(&shard);
    shard_close(&shard);
    free(ids);
}

TEST(test_write_and_read)
{
    check_write_and_read(2);
    check_write_and_read(4);
    assert_int_equal(shard_width(65536), 2);
    assert_int_equal(shard_width(65537), 4);
}

/* llm.c's file of Llama-3 tokens, whose words after the count are 0. */
TEST(test_llmc_wide)
{
    int32_t words[256 + 3] = {20240801, 7, 3};
    struct shard shard;
    struct shard_facts facts;
    memcpy(words + 256, (const uint32_t[]){128000, 7, 128255}, 12);
    assert_int_equal(file_replace(in("l.bin"), words, sizeof words), ST_OK);
    assert_int_equal(shard_open(in("l.bin"), &shard), ST_OK);
    assert_int_equal(shard.info.id_bytes, 4);
    assert_int_equal(shard_id(&shard, 2), 128255);
    assert_int_equal(shard_check(&shard, "l.bin", NULL), ST_OK);
    facts = scan(&shard, 128255);
    assert_int_equal(facts.bad_i, 2);
    assert_int_equal(facts.bad_id, 128255);
    shard_close(&shard);
}

/* Records behind an odd number of 16-bit ids; every byte of them is covered by the checksum. */
TEST(test_records)
{
    struct shard_writer *writer;
    struct shard shard = {0};
    char *bytes;
    size_t n;
    const uint32_t begins[] = {0, 3, 4};
    assert_int_equal(shard_create(in("r.bin"), 100, 2, &writer), ST_OK);
    for (int i = 0; i < 3; i++)
        shard_begin_record(writer, begins[i]);
    assert_int_equal(shard_append(writer, (const uint32_t[]){1, 2, 3, 4, 5}, 5), ST_OK);
    assert_int_equal(shard_commit(writer, (struct shard_key){{1, 2}}), ST_OK);
    shard_abandon(writer);
    assert_int_equal(file_bytes(in("r.bin")), SHARD_HEADER_BYTES + 12 + 3 * 4);
    assert_int_equal(shard_open(in("r.bin"), &shard), ST_OK);
    assert_int_equal(shard.info.tokens, 5);
    assert_int_equal(shard.info.records, 3);
    assert_memory_equal(shard.records, begins, sizeof begins);
    assert_int_equal(shard_check(&shard, "r.bin", NULL), ST_OK);
    const atomic_bool stop = true;
    assert_int_equal(shard_check(&shard, "r.bin", &stop), ST_RETRY);
    shard_close(&shard);
    assert_int_equal(file_read(in("r.bin"), 1 << 20, &bytes, &n), ST_OK);
    for (size_t i = SHARD_HEADER_BYTES; i < n; i++) {
        bytes[i] ^= 4;
        assert_int_equal(file_replace(in("r.bin"), bytes, n), ST_OK);
        assert_int_equal(shard_open(in("r.bin"), &shard), ST_OK);
        assert_int_equal(shard_check(&shard, "r.bin", NULL), ST_BAD_DATA);
        shard_close(&shard);
        bytes[i] ^= 4;
        assert_int_equal(file_replace(in("r.bin"), bytes, i), ST_OK);
        assert_int_equal(shard_open(in("r.bin"), &shard), ST_BAD_DATA);
    }
    free(bytes);
}

TEST(test_abandoned_leaves_nothing)
{
    struct shard_writer *writer;
    char command[1024];
    assert_int_equal(shard_create(in("gone.bin"), 1, 2, &writer), ST_OK);
    assert_int_equal(shard_append(writer, (const uint32_t[]){1}, 1), ST_OK);
    shard_abandon(writer);
    shard_abandon(NULL);
    text_format(command, sizeof command, "! ls %s | grep -q gone", harness_tmpdir());
    assert_int_equal(system(command), 0);
    assert_int_equal(shard_create("/nonexistent/folder/x.bin", 1, 2, &writer), ST_STORE);
}

HARNESS_RUN_ALL()
