/* shard — see shard.h for the format. */
#include "data/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/text.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "token files are mapped as they are: little-endian");

/* Header words; from SHARD_WORD_TAG on they are our own. */
enum {
    SHARD_WORD_MAGIC,
    SHARD_WORD_VERSION,
    SHARD_WORD_COUNT,
    SHARD_WORD_TAG,
    SHARD_WORD_SUM,                     /* 2 words */
    SHARD_WORD_KEY = SHARD_WORD_SUM + 2 /* 4 words */
};
#define SHARD_TAG 0x59564e43 /* "CNVY" */
#define SHARD_MAGIC_LLMC_MODEL 20240326
#define SHARD_MAGIC_LLMC_LLAMA 20240801

static int32_t shard_word(const uint8_t *bytes, int word)
{
    int32_t v;
    memcpy(&v, bytes + 4 * (size_t)word, 4);
    return v;
}

static enum status shard_wrong_magic(const char *name, int32_t magic)
{
    const char *guess = "make a token file with `convoy tokenize DATA=text OUT=tokens.bin`";
    if (magic == SHARD_MAGIC_LLMC_MODEL)
        guess = "this is an llm.c model file, not tokens";
    if (magic == SHARD_MAGIC_LLMC_LLAMA)
        guess =
            "this is an llm.c Llama token file with 32-bit ids; only GPT-2 token files are read";
    return FAIL(ST_BAD_DATA, "%s is not a token file: the first word is %d, expected %d; %s", name,
                magic, SHARD_MAGIC, guess);
}

enum status shard_parse(const uint8_t *bytes, size_t size, const char *name, struct shard_info *out)
{
    struct shard_info info = {0};
    if (size < 4)
        return FAIL(
            ST_BAD_DATA,
            "%s is not a token file: it has %zu bytes, the header alone has %d; make it again",
            name, size, SHARD_HEADER_BYTES);
    if (shard_word(bytes, SHARD_WORD_MAGIC) != SHARD_MAGIC)
        return shard_wrong_magic(name, shard_word(bytes, SHARD_WORD_MAGIC));
    if (size < SHARD_HEADER_BYTES)
        return FAIL(ST_BAD_DATA,
                    "token file %s is cut off: it has %zu bytes, the header alone has %d; copy or "
                    "make it again",
                    name, size, SHARD_HEADER_BYTES);
    if (shard_word(bytes, SHARD_WORD_VERSION) != 1)
        return FAIL(ST_BAD_DATA,
                    "token file %s has version %d, expected 1 (uint16 ids); make it again with "
                    "`convoy tokenize`",
                    name, shard_word(bytes, SHARD_WORD_VERSION));
    info.tokens = shard_word(bytes, SHARD_WORD_COUNT);
    if (info.tokens < 0 || size != SHARD_HEADER_BYTES + 2 * (uint64_t)info.tokens)
        return FAIL(ST_BAD_DATA,
                    "token file %s is damaged: its header counts %lld tokens, so %lld bytes are "
                    "expected, but it has %zu; copy or make it again",
                    name, (long long)info.tokens, (long long)(SHARD_HEADER_BYTES + 2 * info.tokens),
                    size);
    info.has_sum = shard_word(bytes, SHARD_WORD_TAG) == SHARD_TAG;
    if (info.has_sum) {
        memcpy(&info.sum, bytes + 4 * SHARD_WORD_SUM, sizeof info.sum);
        memcpy(&info.key, bytes + 4 * SHARD_WORD_KEY, sizeof info.key);
    }
    *out = info;
    return ST_OK;
}

enum status shard_open(const char *path, struct shard *out)
{
    struct shard shard = {0};
    TRY(file_map_open(path, &shard.map));
    enum status st = shard_parse(shard.map.data, shard.map.bytes, path, &shard.info);
    if (st != ST_OK) {
        file_map_close(&shard.map);
        return status_trace_at(__FILE__, __LINE__, st);
    }
    shard.ids = (const uint16_t *)(const void *)(shard.map.data + SHARD_HEADER_BYTES);
    *out = shard;
    return ST_OK;
}

void shard_close(struct shard *shard)
{
    file_map_close(&shard->map);
    *shard = (struct shard){0};
}

/* ---- one pass over the ids ---- */

struct shard_scan {
    XXH3_state_t *hash;
    int64_t vocab;
    int64_t seen;
    int64_t bad_i;
    uint32_t bad_id;
};

enum status shard_scan_begin(int64_t vocab, struct shard_scan **out)
{
    struct shard_scan *scan = calloc(1, sizeof *scan);
    XXH3_state_t *hash = XXH3_createState();
    if (scan == NULL || hash == NULL) {
        free(scan);
        XXH3_freeState(hash);
        return FAIL(ST_RETRY, "out of memory for checking tokens");
    }
    *scan = (struct shard_scan){.hash = hash, .vocab = vocab, .bad_i = -1};
    XXH3_64bits_reset(hash);
    *out = scan;
    return ST_OK;
}

/* shard_max — with vectors, because the compiler does not vectorise this loop at -O2. */
static uint16_t shard_max(const uint16_t *ids, int64_t n)
{
    enum { LANES = 16 };
    typedef uint16_t lanes __attribute__((vector_size(2 * LANES)));
    lanes a = {0}, v;
    uint16_t max = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        memcpy(&v, ids + i, sizeof v);
        const lanes is_more = (lanes)(v > a);
        a = (v & is_more) | (a & ~is_more);
    }
    for (; i < n; i++)
        max = max > ids[i] ? max : ids[i];
    for (int k = 0; k < LANES; k++)
        max = max > a[k] ? max : a[k];
    return max;
}

void shard_scan_add(struct shard_scan *scan, const uint16_t *ids, int64_t n)
{
    enum { BLOCK = 32768 }; /* stays in the L1 cache between the two passes */
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t len = n - at < BLOCK ? n - at : BLOCK;
        XXH3_64bits_update(scan->hash, ids + at, (size_t)len * sizeof *ids);
        if (scan->bad_i >= 0 || shard_max(ids + at, len) < scan->vocab)
            continue;
        int64_t i = at;
        while (ids[i] < scan->vocab)
            i++;
        scan->bad_i = scan->seen + i;
        scan->bad_id = ids[i];
    }
    scan->seen += n;
}

struct shard_facts shard_scan_facts(const struct shard_scan *scan)
{
    return (struct shard_facts){XXH3_64bits_digest(scan->hash), scan->bad_i, scan->bad_id};
}

void shard_scan_end(struct shard_scan *scan)
{
    if (scan == NULL)
        return;
    XXH3_freeState(scan->hash);
    free(scan);
}

enum status shard_check(const struct shard *shard, const char *path, int64_t vocab,
                        struct shard_facts *out)
{
    struct shard_scan *scan;
    TRY(shard_scan_begin(vocab, &scan));
    shard_scan_add(scan, shard->ids, shard->info.tokens);
    const struct shard_facts facts = shard_scan_facts(scan);
    shard_scan_end(scan);
    if (shard->info.has_sum && shard->info.sum != facts.sum)
        return FAIL(ST_BAD_DATA,
                    "token file %s is damaged: its ids have checksum %016llx, expected %016llx; "
                    "copy or make it again",
                    path, (unsigned long long)facts.sum, (unsigned long long)shard->info.sum);
    *out = facts;
    return ST_OK;
}

/* ---- writing ---- */

struct shard_writer {
    int fd;
    bool is_committed;
    int64_t tokens;
    struct shard_scan *scan;
    char path[FILE_PATH_MAX];
    char tmp_path[FILE_PATH_MAX];
};

enum status shard_create(const char *path, int64_t vocab, struct shard_writer **out)
{
    enum status st;
    struct shard_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to write %s", sizeof *writer, path);
    writer->fd = -1;
    TRY_OR(file_check_target(path), out_abandon);
    TRY_OR(shard_scan_begin(vocab, &writer->scan), out_abandon);
    if (!text_copy(writer->path, sizeof writer->path, path) ||
        !text_format(writer->tmp_path, sizeof writer->tmp_path, "%s.%ld-%llx.tmp", path,
                     (long)getpid(), (unsigned long long)clock_ns())) {
        writer->tmp_path[0] = '\0';
        TRY_OR(FAIL(ST_BAD_SETTING, "the path %.80s… is over %d bytes long; choose a shorter one",
                    path, FILE_PATH_MAX - 40),
               out_abandon);
    }
    writer->fd = open(writer->tmp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (writer->fd < 0) {
        TRY_OR(FAIL(ST_STORE, "cannot create %s: %s; check that the folder is there and writable",
                    path, strerror(errno)),
               out_abandon);
    }
    *out = writer;
    return ST_OK;
out_abandon:
    if (writer->fd < 0)
        writer->tmp_path[0] = '\0';
    shard_abandon(writer);
    return st;
}

enum status shard_append(struct shard_writer *writer, const uint16_t *ids, int64_t n)
{
    if (n > SHARD_TOKENS_MAX - writer->tokens)
        return FAIL(ST_BAD_DATA,
                    "%s would hold more than %d tokens, which is all a token file can count; split "
                    "the data into files of at most 2 GB and give their folder as DATA",
                    writer->path, SHARD_TOKENS_MAX);
    TRY(file_write_at(writer->fd, writer->tmp_path, ids, (size_t)n * sizeof *ids,
                      SHARD_HEADER_BYTES + 2 * writer->tokens));
    shard_scan_add(writer->scan, ids, n);
    writer->tokens += n;
    return ST_OK;
}

int64_t shard_written(const struct shard_writer *writer) { return writer->tokens; }
struct shard_facts shard_writer_facts(const struct shard_writer *writer)
{
    return shard_scan_facts(writer->scan);
}

/* The header is written last: a file left by a crash has no magic number. */
enum status shard_commit(struct shard_writer *writer, struct shard_key key)
{
    int32_t header[SHARD_HEADER_BYTES / 4] = {SHARD_MAGIC, 1, (int32_t)writer->tokens, SHARD_TAG};
    const uint64_t sum = shard_scan_facts(writer->scan).sum;
    char dir[FILE_PATH_MAX];
    memcpy(header + SHARD_WORD_SUM, &sum, sizeof sum);
    memcpy(header + SHARD_WORD_KEY, &key, sizeof key);
    TRY(file_write_at(writer->fd, writer->tmp_path, header, sizeof header, 0));
    if (fsync(writer->fd) != 0 || rename(writer->tmp_path, writer->path) != 0)
        return FAIL(ST_STORE, "cannot finish %s: %s; check the disk", writer->path,
                    strerror(errno));
    writer->is_committed = true;
    text_copy(dir, sizeof dir, writer->path);
    char *slash = strrchr(dir, '/');
    if (slash != NULL)
        slash[slash == dir ? 1 : 0] = '\0';
    return file_sync_dir(slash != NULL ? dir : ".");
}

void shard_abandon(struct shard_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    if (!writer->is_committed && writer->tmp_path[0] != '\0')
        unlink(writer->tmp_path);
    shard_scan_end(writer->scan);
    free(writer);
}

#ifdef FUZZ
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shard_info info;
    if (shard_parse(data, size, "fuzz", &info) == ST_OK)
        ASSERT(info.tokens >= 0 && size == SHARD_HEADER_BYTES + 2 * (uint64_t)info.tokens);
    return 0;
}
#endif
