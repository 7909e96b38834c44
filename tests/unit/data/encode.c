/* encode — files of every kind as DATA: JSON lines, zstd, Megatron pairs, lists of files.
 * The ids are the same as those of the same documents in another form; damage is reported. */
#include "data_folder.h"

#include <zstd.h>

#include "base/rand.h"
#include "data/tokenizer/gpt2.h"

static int64_t last_done, last_total;

static bool note(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    (void)arg;
    assert_in_range(bytes_done, 0, bytes_total);
    last_done = bytes_done;
    last_total = bytes_total;
    return true;
}

static int fresh(void **state)
{
    last_done = last_total = 0;
    return data_folder_make();
}

static struct corpus_config with(const char *data)
{
    return (struct corpus_config){
        .data = data, .cache_dir = cache, .vocab = TOKENIZER_GPT2_VOCAB, .progress = note};
}

static struct corpus *opened(const char *data)
{
    struct corpus *corpus = NULL;
    const struct corpus_config config = with(data);
    if (corpus_open(&config, &corpus) != ST_OK)
        fail_msg("%s", status_message());
    return corpus;
}

static void expect(const char *data, const int32_t *ids, int64_t n)
{
    int32_t got[256];
    struct corpus *corpus = opened(data);
    assert_int_equal(corpus_tokens(corpus), n);
    corpus_read(corpus, 0, n, got);
    for (int64_t i = 0; i < n; i++)
        if (got[i] != ids[i])
            fail_msg("%s: token %lld is %d, expected %d", data, (long long)i, got[i], ids[i]);
    corpus_close(corpus);
}
#define EXPECT(data, ...) \
    expect(data, ((int32_t[]){__VA_ARGS__}), sizeof((int32_t[]){__VA_ARGS__}) / 4)
#define END TOKENIZER_GPT2_END

static void refuse(const char *data, enum status want, const char *word, const char *other)
{
    struct corpus *corpus = NULL;
    const struct corpus_config config = with(data);
    const enum status st = corpus_open(&config, &corpus);
    assert_null(corpus);
    if (st != want || strstr(status_message(), word) == NULL ||
        strstr(status_message(), other) == NULL)
        fail_msg("%s: %s \"%s\", expected %s with \"%s\" and \"%s\"", data, status_name(st),
                 status_message(), status_name(want), word, other);
}

static void pack(const char *name, const void *data, size_t n)
{
    const size_t cap = ZSTD_compressBound(n);
    char *packed = malloc(cap);
    const size_t packed_n = ZSTD_compress(packed, cap, data, n, 3);
    assert_false(ZSTD_isError(packed_n));
    put(name, packed, packed_n);
    free(packed);
}

TEST_WITH(test_lines, fresh, NULL)
{
    put_text("a.jsonl", "{\"text\": \"a\"}\n\n  \t\r\n{\"id\": 7, \"text\": \"\\u0062\", \"more\": "
                        "[{}]}\r\n{\"text\":\"\"}\n"
                        "{\"text\":\"Hello, world!\"}");
    EXPECT(in("a.jsonl"), 64, END, 65, END, END, 15496, 11, 995, 0, END);
    put("b.ndjson", "\xef\xbb\xbf{\"text\":\"a\"}\n", 16); /* with a byte-order mark */
    EXPECT(in("b.ndjson"), 64, END);
    put_text("b.txt", "\xef\xbb\xbf"
                      "a");
    EXPECT(in("b.txt"), 64);
    put_text("later.txt", "a\xef\xbb\xbf"); /* U+FEFF elsewhere is text */
    EXPECT(in("later.txt"), 64, 171, 119, 123);
    put("c.jsonl", "{\"text\":\"a<|endoftext|>\\u0000\"}", 31);
    /* written, it is ordinary text */
    EXPECT(in("c.jsonl"), 64, 27, 91, 437, 1659, 5239, 91, 29, 188, END);
    put_text("d.jsonl", "\n\n");
    refuse(in("d.jsonl"), ST_BAD_DATA, "no tokens", "check the path");
}

TEST_WITH(test_bad_lines, fresh, NULL)
{
    static const struct {
        const char *line, *word, *other;
    } cases[] = {
        {"{\"text\": \"a\"", "line 3, byte 13", "'}'"},
        {"{\"text\": 7}", "line 3, byte 10", "not a string"},
        {"{\"txt\": \"a\"}", "line 3, byte 1", "no \"text\""},
        {"[1]", "line 3, byte 1", "not a JSON object"},
        {"text", "line 3, byte 1", "not a JSON object"},
        {"{\"text\":\"a\"} x", "line 3, byte 14", "after the JSON object"},
        {"{\"text\":\"a\",\"text\":\"b\"}", "line 3", "second time"},
        {"{\"text\":\"\xff\"}", "line 3, byte 10", "UTF-8"},
        {"{\"text\":\"a", "line 3", "ends inside a string"},
        {"{\"text\":\"\\x\"}", "line 3", "escape"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        text_format(text, sizeof text, "{\"text\":\"a\"}\n\n%s\n{\"text\":\"a\"}\n", cases[i].line);
        put_text("a.jsonl", text);
        refuse(in("a.jsonl"), ST_BAD_DATA, cases[i].word, cases[i].other);
        assert_non_null(strstr(status_message(), "a.jsonl"));
    }
}

/* Many documents over many blocks: as each alone; the first bad line is named however the work was
 * divided. */
TEST_WITH(test_many_lines, fresh, NULL)
{
    enum { LINES = 30000, BYTES = LINES * 220 };
    char *text = malloc(BYTES), plain[200];
    uint32_t *want = malloc(4 * BYTES);
    size_t n = 0, tokens = 0;
    struct tokenizer *gpt2;
    size_t ids_n;
    assert_int_equal(tokenizer_gpt2_open(&gpt2), ST_OK);
    for (int i = 0; i < LINES; i++) {
        const int words = (int)rand_below(3, RAND_STREAM(TEST, 0), (uint64_t)i, 24);
        plain[0] = '\0';
        for (int w = 0; w < words; w++)
            text_format(plain + strlen(plain), 8, " w%llu",
                        (unsigned long long)rand_below(3, RAND_STREAM(TEST, 1),
                                                       (uint64_t)(i * 32 + w), 99));
        n += (size_t)sprintf(text + n, "{\"n\": %d, \"text\": \"%s\"}\n", i, plain);
        assert_int_equal(tokenizer_encode(gpt2, plain, strlen(plain), true, want + tokens, &ids_n),
                         ST_OK);
        tokens += ids_n;
        want[tokens++] = END;
    }
    put("many.jsonl", text, n);
    pack("many.jsonl.zst", text, n);
    struct corpus *corpus = opened(in("many.jsonl")), *packed = opened(in("many.jsonl.zst"));
    assert_int_equal(corpus_tokens(corpus), tokens);
    assert_true(corpus_fingerprint(corpus) == corpus_fingerprint(packed));
    int32_t *got = malloc(4 * tokens);
    corpus_read(corpus, 0, (int64_t)tokens, got);
    for (size_t i = 0; i < tokens; i++)
        assert_int_equal(got[i], want[i]);
    corpus_close(corpus);
    corpus_close(packed);
    for (int line = 1; line < LINES; line += LINES / 5) {
        char *at = text, word[32];
        for (int i = 1; i < line; i++)
            at = strchr(at, '\n') + 1;
        *at = '(';
        put("many.jsonl", text, n);
        *at = '{';
        text_format(word, sizeof word, "line %d, byte 1:", line);
        refuse(in("many.jsonl"), ST_BAD_DATA, word, "many.jsonl");
    }
    tokenizer_close(gpt2);
    free(text), free(want), free(got);
}

/* A line of 3 MB is one document; one over the limit is refused by its number, not read into memory
 * whole. */
TEST_WITH(test_long_lines, fresh, NULL)
{
    const size_t n = 3000000, huge = (size_t)(70 << 20);
    char *text = malloc(huge);
    memset(text, 'x', n);
    memcpy(text, "{\"text\":\"", 9);
    memcpy(text + n - 3, "\"}\n", 3);
    put("a.jsonl", text, n);
    struct corpus *corpus = opened(in("a.jsonl"));
    int32_t last;
    corpus_read(corpus, corpus_tokens(corpus) - 1, 1, &last);
    assert_int_equal(last, END);
    corpus_close(corpus);
    memset(text, 'x', huge);
    memcpy(text, "{\"text\":\"a\"}\n{\"text\":\"", 22);
    pack("b.jsonl.zst", text, huge); /* also a bomb in its way */
    refuse(in("b.jsonl.zst"), ST_BAD_DATA, "b.jsonl.zst", "");
    memcpy(text, "{\"text\":\"a\"}\n{\"text\":\"", 22);
    put("b.jsonl", text, huge);
    refuse(in("b.jsonl"), ST_BAD_DATA, "line 2", "longer than");
    free(text);
}

TEST_WITH(test_packed_text, fresh, NULL)
{
    pack("a.txt.zst", "Hello, world!", 13);
    EXPECT(in("a.txt.zst"), 15496, 11, 995, 0);
    pack("b.zst", "a", 1);
    EXPECT(in("b.zst"), 64);
    pack("c.zst", "", 0);
    refuse(in("c.zst"), ST_BAD_DATA, "no tokens", "check the path");
    pack("d.bin.zst", "a", 1);
    refuse(in("d.bin.zst"), ST_BAD_DATA, "unpack", "d.bin");
}

/* Text, lines, packed and tokens in one folder, and as a list: joined with one mark between two
 * documents. */
TEST_WITH(test_joined, fresh, NULL)
{
    char list[3 * FILE_PATH_MAX];
    assert_int_equal(file_make_dirs(in("f")), ST_OK);
    put_text("f/1.txt", "a");
    put_text("f/2.jsonl", "{\"text\":\"b\"}\n");
    put_text("f/3.txt", "c");
    pack("f/4.zst", "d", 1);
    pack("f/5.zst", "", 0);
    put_text("f/6.jsonl", "{\"text\":\"\"}\n{\"text\":\"e\"}");
    put_text("f/7.jsonl", "\n");
    put_text("f/8.txt", "f");
    EXPECT(in("f"), 64, END, 65, END, 66, END, 67, END, 68, END, 69);
    text_format(list, sizeof list, "%s,%s,%s", in("f/3.txt"), in("f/1.txt"), in("f/3.txt"));
    EXPECT(list, 66, END, 64, END, 66);
    int64_t tokens;
    const struct corpus_config config = with(in("f"));
    assert_int_equal(corpus_write(&config, in("out.bin"), &tokens), ST_OK);
    assert_int_equal(tokens, 11);
    EXPECT(in("out.bin"), 64, END, 65, END, 66, END, 67, END, 68, END, 69);
    put_text("a,b.txt", "a"); /* a name with a comma is a name */
    EXPECT(in("a,b.txt"), 64);
    text_format(list, sizeof list, "%s,,%s", in("f/3.txt"), in("f/1.txt"));
    refuse(list, ST_BAD_SETTING, "between two commas", "empty");
}

/* The same bytes are other ids under another name, and the cache knows. */
TEST_WITH(test_cache_tells_kinds_apart, fresh, NULL)
{
    put_text("a.txt", "{\"text\":\"a\"}");
    put_text("a.jsonl", "{\"text\":\"a\"}");
    struct corpus *corpus = opened(in("a.txt"));
    assert_true(corpus_tokens(corpus) > 2);
    corpus_close(corpus);
    EXPECT(in("a.jsonl"), 64, END);
    put_text("a.jsonl", "{\"text\":\"b\"}");
    EXPECT(in("a.jsonl"), 65, END);
}

TEST_WITH(test_damaged_packed, fresh, NULL)
{
    enum { N = 20000 };
    char text[N], *packed;
    size_t n;
    for (int i = 0; i < N; i++)
        text[i] = "abc \n"[rand_below(1, RAND_STREAM(TEST, 0), (uint64_t)i, 5)];
    pack("whole.zst", text, N);
    assert_int_equal(file_read(in("whole.zst"), 1 << 20, &packed, &n), ST_OK);
    for (size_t k = 5; k < n; k += 37) {
        put("cut.zst", packed, k);
        refuse(in("cut.zst"), ST_BAD_DATA, "cut.zst", k > 20 ? "cut off" : "");
    }
    memcpy(text, packed, n);
    memcpy(text + n, "more", 4);
    put("more.zst", text, n + 4);
    refuse(in("more.zst"), ST_BAD_DATA, "more.zst", "zstd cannot unpack");
    memcpy(text + n, packed, n); /* two frames are one text */
    put("two.zst", text, 2 * n);
    corpus_close(opened(in("two.zst")));
    free(packed);
}

/* 300 MB of nothing in a few kilobytes: told after the free 64 MiB, in the memory of a few
 * blocks. */
TEST_WITH(test_bomb, fresh, NULL)
{
    const size_t n = (size_t)300 << 20;
    char *text = calloc(1, n);
    memset(text, ' ', n);
    for (size_t i = 0; i < n; i += 64)
        text[i] = 'a';
    pack("bomb.zst", text, n);
    free(text);
    assert_true(file_bytes(in("bomb.zst")) < 100000);
    refuse(in("bomb.zst"), ST_BAD_DATA, "bomb.zst", "more than 1000 times");
}

TEST_WITH(test_megatron, fresh, NULL)
{
    int64_t tokens;
    put_text("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\"}\n{\"text\":\"Hello, world!\"}\n");
    const struct corpus_config config = with(in("a.jsonl"));
    assert_int_equal(corpus_write(&config, in("m.idx"), &tokens), ST_OK);
    assert_int_equal(tokens, 8);
    assert_int_equal(file_bytes(in("m.bin")), 16);
    assert_int_equal(file_bytes(in("m.idx")), 34 + 3 * 12 + 4 * 8);
    EXPECT(in("m.idx"), 64, END, END, 15496, 11, 995, 0, END);
    EXPECT(in("m.bin"), 64, END, END, 15496, 11, 995, 0, END); /* either name */
    assert_int_equal(file_make_dirs(in("g")), ST_OK);
    assert_int_equal(rename(in("m.idx"), in("g/m.idx")), 0);
    assert_int_equal(rename(in("m.bin"), in("g/m.bin")), 0);
    put_text("g/m.c", "b");
    EXPECT(in("g"), 65, END, 64, END, END, 15496, 11, 995, 0, END); /* once, in a folder */
    assert_int_equal(unlink(in("g/m.bin")), 0);
    refuse(in("g/m.idx"), ST_NO_INPUT, "m.bin", "m.idx");
    put_text("g/m.bin", "");
    refuse(in("g/m.idx"), ST_BAD_DATA, "m.bin", "empty");
    put_text("g/m.bin", "123456789012345");
    refuse(in("g/m.idx"), ST_BAD_DATA, "m.idx", "do not fit its .bin");
}

/* An index of two documents, the first of two sequences, over a .bin of int32. */
static void put_wide(const char *idx, const char *bin, const int32_t *ids)
{
    uint8_t bytes[34 + 3 * 12 + 3 * 8] = "MMIDIDX";
    const uint64_t words[] = {3, 3}; /* sequences, entries of the list */
    const int32_t lengths[] = {1, 1, 2};
    const int64_t rest[] = {0, 4, 8, 0, 2, 3};
    bytes[9] = 1;
    bytes[17] = 4;
    memcpy(bytes + 18, words, sizeof words);
    memcpy(bytes + 34, lengths, sizeof lengths);
    memcpy(bytes + 46, rest, sizeof rest);
    put(idx, bytes, sizeof bytes);
    put(bin, ids, 16);
}

TEST_WITH(test_megatron_wide, fresh, NULL)
{
    put_wide("w.idx", "w.bin", (int32_t[]){64, 65, 66, 67});
    EXPECT(in("w.idx"), 64, 65, 66, 67); /* as they are: the index separates them */
    put_wide("x.idx", "x.bin", (int32_t[]){64, END, 66, END});
    EXPECT(in("x.bin"), 64, END, 66, END);
    put_wide("y.idx", "y.bin", (int32_t[]){64, 65536, 66, 67});
    refuse(in("y.idx"), ST_BAD_DATA, "id 65536", "y.bin");
    put_wide("z.idx", "z.bin", (int32_t[]){64, -1, 66, 67});
    refuse(in("z.idx"), ST_BAD_DATA, "id 4294967295", "z.bin");
    put_wide("v.idx", "v.bin", (int32_t[]){64, 60000, 66, 67});
    refuse(in("v.idx"), ST_BAD_DATA, "id 60000", "VOCAB");
}

HARNESS_RUN_ALL()
