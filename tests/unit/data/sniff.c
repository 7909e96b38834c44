/* sniff — sniff, and its use in data_file. A zstd frame is found after frames that zstd
 * skips. Archives, programs, documents, other encodings, zeros and noise are refused with a
 * remedy; a few odd bytes are not. */
#include "harness.h"

#include <zstd.h>

#include "base/rand.h"
#include "data/corpus.h"
#include "data/sniff.h"
#include "data/data_file.h"

enum { N = 100000 };
static char text[N + 1];

static const char *in(const char *name)
{
    static char out[FILE_PATH_MAX];
    assert_int_equal(file_join(out, sizeof out, harness_tmpdir(), name), ST_OK);
    return out;
}

static void put(const char *name, const void *bytes, size_t n)
{
    assert_int_equal(file_replace(in(name), bytes, n), ST_OK);
}

static enum status find(const char *name, struct data_file *out)
{
    struct data_file_list list = {0};
    const struct data_file_config config = {.data = in(name), .cache_dir = harness_tmpdir()};
    const enum status st = data_file_find(&config, &list);
    if (st == ST_OK && out != NULL)
        *out = *list.item;
    data_file_free(&list);
    return st;
}

static void refuse(const char *name, const char *what, const char *remedy)
{
    const enum status st = find(name, NULL);
    if (st != ST_BAD_DATA || !strstr(status_message(), what) || !strstr(status_message(), remedy) ||
        !strstr(status_message(), name))
        fail_msg("%s: %s; expected \"%s\" and \"%s\" in: %s", name, status_name(st), what, remedy,
                 status_message());
}

__attribute__((constructor)) static void fill_text(void)
{
    for (int i = 0; i < N; i++)
        text[i] = "It was the best of times, it was the worst of times.\n"[i % 53];
}

TEST(test_magics)
{
    static const struct {
        const char *name, *magic;
        size_t n;
        const char *what, *remedy;
    } row[] = {
        {"a.gz", "\x1f\x8b\x08", 3, "gzip", "gunzip"},
        {"a.txt", "PK\x03\x04", 4, "zip", "unzip"},
        {"a.xz",
         "\xfd"
         "7zXZ",
         5, "xz", "unxz"},
        {"a.bz2", "BZh9", 4, "bzip2", "bunzip2"},
        {"a.lz4", "\x04\x22\x4d\x18", 4, "lz4", "unlz4"},
        {"a.7z", "7z\xbc\xaf\x27\x1c", 6, "7-Zip", "7z"},
        {"a.parquet", "PAR1", 4, "Parquet", "JSON lines"},
        {"a.arrow", "ARROW1", 6, "Arrow", "JSON lines"},
        {"a.npy", "\x93NUMPY", 6, "NumPy", "tokenize"},
        {"a.pdf", "%PDF-1.7", 8, "PDF", "pdftotext"},
        {"a.jsonl",
         "\x7f"
         "ELF\x02",
         5, "ELF", "text"},
        {"a.exe", "MZ\x90\x00", 4, "PE", "text"},
        {"a.pkl", "\x80\x04\x95", 3, "pickle", "JSON lines"},
        {"a.gguf", "GGUF\x03\x00", 6, "GGUF", "text"},
        {"a.h5", "\x89HDF\r\n", 6, "HDF5", "JSON lines"},
        {"a.json", "\x1f\x8b\x08", 3, "gzip", "gunzip"},
        {"u16", "\xff\xfeh\0i\0", 6, "UTF-16", "iconv"},
        {"u16b", "\xfe\xff\0h\0i", 6, "UTF-16", "iconv"},
        {"u32", "\xff\xfe\0\0h\0\0\0", 8, "UTF-32", "iconv"},
        {"u32b", "\0\0\xfe\xff\0\0\0h", 8, "UTF-32", "iconv"},
        {"m.st", "\x24\0\0\0\0\0\0\0{\"a\":", 13, "safetensors", "MODEL"},
    };
    char bytes[600];
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        memcpy(bytes, text, sizeof bytes);
        memcpy(bytes, row[i].magic, row[i].n);
        put(row[i].name, bytes, sizeof bytes);
        refuse(row[i].name, row[i].what, row[i].remedy);
    }
    memcpy(bytes, text, sizeof bytes);
    memcpy(bytes + 257, "ustar", 5);
    put("a.tar", bytes, sizeof bytes);
    refuse("a.tar", "tar archive", "tar -xf");
}

static size_t pack(char *out, size_t cap, const char *from, size_t n)
{
    const size_t got = ZSTD_compress(out, cap, from, n, 3);
    assert_false(ZSTD_isError(got));
    return got;
}

/* As pzstd writes: before each frame one of 4 bytes that says how long it is. */
TEST(test_skippable)
{
    static char packed[2 * N];
    size_t n = 0;
    for (int k = 0; k < 2; k++) {
        memcpy(packed + n, "\x50\x2a\x4d\x18\x04\x00\x00\x00", 8);
        const size_t frame = pack(packed + n + 12, sizeof packed - n - 12, text + k * N / 2, N / 2);
        memcpy(packed + n + 8, &(uint32_t){(uint32_t)frame}, 4);
        n += 12 + frame;
    }
    struct data_file source;
    put("p.txt.zst", packed, n);
    put("q", packed, n);
    put("p.txt", text, N);
    assert_int_equal(find("p.txt.zst", &source), ST_OK);
    assert_true(source.is_packed && source.kind == DATA_FILE_KIND_TEXT);
    assert_int_equal(find("q", &source), ST_OK); /* whatever its name */
    assert_true(source.is_packed);
    struct corpus *corpus[2];
    for (int i = 0; i < 2; i++) {
        char path[FILE_PATH_MAX];
        text_copy(path, sizeof path, in(i ? "p.txt.zst" : "p.txt"));
        const struct corpus_config config = {
            .data = path, .cache_dir = harness_tmpdir(), .vocab = 50257};
        assert_int_equal(corpus_open(&config, &corpus[i]), ST_OK);
    }
    assert_true(corpus_tokens(corpus[0]) == corpus_tokens(corpus[1]));
    assert_true(corpus_fingerprint(corpus[0]) == corpus_fingerprint(corpus[1]));
    corpus_close(corpus[0]);
    corpus_close(corpus[1]);
}

TEST(test_zst_without_magic)
{
    char frames[24] = "\x5f\x2a\x4d\x18\x04\x00\x00\x00"
                      "abcd"
                      "\x50\x2a\x4d\x18\x04\x00\x00\x00"
                      "abc";
    put("a.zst", text, 100);
    refuse("a.zst", "not zstd data", "copy or make it again");
    put("b.jsonl.zst", "{\"text\": \"x\"}\n", 14);
    refuse("b.jsonl.zst", "not zstd data", "rename");
    put("c.zst", frames, sizeof frames); /* frames that are passed over, and nothing else */
    refuse("c.zst", "not zstd data", "");
    memcpy(frames + 4, "\xff\xff\xff\xff", 4); /* one that leads beyond the end */
    put("d.zst", frames, sizeof frames);
    refuse("d.zst", "not zstd data", "");
    put("e.zst", "\x28\xb5\x2f", 3);
    refuse("e.zst", "not zstd data", "");
}

TEST(test_no_text)
{
    static char bytes[N];
    static const char russian[] = "\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0! "; /* CP1251 */
    for (int i = 0; i < N; i++)
        bytes[i] = i % 2 ? 0 : text[i / 2];
    put("utf16le", bytes, N);
    refuse("utf16le", "UTF-16 (little-endian)", "iconv -f UTF-16LE -t UTF-8");
    put("utf16be", bytes + 1, N - 1);
    refuse("utf16be", "UTF-16 (big-endian)", "iconv -f UTF-16BE -t UTF-8");
    for (int i = 0; i < N; i++)
        bytes[i] = russian[(size_t)i % (sizeof russian - 1)];
    put("cp1251", bytes, N);
    refuse("cp1251", "another encoding", "CP1252");
    for (int i = 0; i < N; i++)
        bytes[i] = (char)rand_below(1, RAND_STREAM(TEST, 1), (uint64_t)i, 256);
    bytes[0] = 'x';
    put("noise", bytes, N);
    refuse("noise", "it looks binary", "UTF-8");
    static char packed[2 * N];
    put("noise.zst", packed, pack(packed, sizeof packed, bytes, N));
    refuse("noise.zst", "it looks binary", "UTF-8");
    memset(bytes, 0, N);
    put("zeros", bytes, N);
    refuse("zeros", "100 %", "it looks binary");
    memcpy(bytes, text, 20000); /* a beginning of text hides nothing */
    put("later", bytes, N);
    refuse("later", "not text in UTF-8", "");
}

TEST(test_text)
{
    static char bytes[N];
    static const char greek[] = "Μῆνιν ἄειδε θεά \xf0\x9f\x98\x80 \t\x1b[1m\f\r\n";
    for (int i = 0; i < N; i++)
        bytes[i] = greek[(size_t)i % (sizeof greek - 1)];
    put("greek", bytes, N);
    assert_int_equal(find("greek", NULL), ST_OK);
    struct sniff_count count = {0};
    /* characters cut at both ends count as whole */
    sniff_add(&count, (const uint8_t *)bytes + 1, 4001);
    assert_true(sniff_bad(&count) == 0);
    for (int i = 0; i < N; i += 33)
        bytes[i] = (char)0xe4; /* some 3 % are of Latin-1: warned about */
    put("some", bytes, N);
    assert_int_equal(find("some", NULL), ST_OK);
    put("bom", "\xef\xbb\xbfHello", 8);
    assert_int_equal(find("bom", NULL), ST_OK);
    assert_null(sniff_magic((const uint8_t *)"", 0));
}

HARNESS_RUN_ALL()
