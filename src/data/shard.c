/* shard — see shard.h for the format. */
#include "data/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/cache.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "token files are mapped as they are: little-endian");

/* Header words; from SHARD_WORD_TAG on they are our own. */
enum {
    SHARD_WORD_MAGIC,
    SHARD_WORD_VERSION,
    SHARD_WORD_COUNT,
    SHARD_WORD_TAG,
    SHARD_WORD_SUM,                         /* 2 words */
    SHARD_WORD_KEY = SHARD_WORD_SUM + 2,    /* 4 words */
    SHARD_WORD_RECORDS = SHARD_WORD_KEY + 4 /* number of records */
};
#define SHARD_TAG 0x59564e43 /* "CNVY" */
#define SHARD_MAGIC_LLMC_MODEL 20240326
#define SHARD_VERSION_WIDE 7

static int32_t shard_word(const uint8_t *bytes, int word)
{
    int32_t v;
    memcpy(&v, bytes + 4 * (size_t)word, 4);
    return v;
}

/* Returns the end of the ids; records begin at the next multiple of 4. */
static uint64_t ids_end(const struct shard_info *info)
{
    return SHARD_HEADER_BYTES + (uint64_t)info->id_bytes * (uint64_t)info->tokens;
}

static uint64_t records_at(const struct shard_info *info) { return (ids_end(info) + 3) / 4 * 4; }

static uint64_t file_size(const struct shard_info *info)
{
    return info->records > 0 ? records_at(info) + 4 * (uint64_t)info->records : ids_end(info);
}

enum status shard_parse(const uint8_t *bytes, size_t size, const char *name, struct shard_info *out)
{
    struct shard_info info = {0};
    if (size < 4)
        return FAIL(ST_BAD_DATA,
                    "%s is not a token file: it has %zu bytes, but a header has %d; make it again",
                    name, size, SHARD_HEADER_BYTES);
    const int32_t magic = shard_word(bytes, SHARD_WORD_MAGIC);
    if (magic != SHARD_MAGIC && magic != SHARD_MAGIC_WIDE) {
        const char *guess = "make a token file with `convoy tokenize DATA=text OUT=tokens.bin`";
        if (magic == SHARD_MAGIC_LLMC_MODEL)
            guess = "this is an llm.c model file, not tokens";
        return FAIL(ST_BAD_DATA,
                    "%s is not a token file: the first word is %d, expected %d or %d; %s", name,
                    magic, SHARD_MAGIC, SHARD_MAGIC_WIDE, guess);
    }
    if (size < SHARD_HEADER_BYTES)
        return FAIL(ST_BAD_DATA,
                    "token file %s is cut off: it has %zu bytes, but a header has %d; copy or make "
                    "it again",
                    name, size, SHARD_HEADER_BYTES);
    /* Finds the bytes of an id by magic number and version. */
    const bool is_wide = shard_word(bytes, SHARD_WORD_MAGIC) == SHARD_MAGIC_WIDE;
    const int32_t version = shard_word(bytes, SHARD_WORD_VERSION),
                  expected = is_wide ? SHARD_VERSION_WIDE : 1;
    info.id_bytes = is_wide ? 4 : 2;
    if (version != expected)
        return FAIL(ST_BAD_DATA,
                    "token file %s has version %d, expected %d (%s ids); make it again with "
                    "`convoy tokenize`",
                    name, version, expected, is_wide ? "uint32" : "uint16");
    info.tokens = shard_word(bytes, SHARD_WORD_COUNT);
    info.has_sum = shard_word(bytes, SHARD_WORD_TAG) == SHARD_TAG;
    if (info.has_sum) {
        memcpy(&info.sum, bytes + 4 * SHARD_WORD_SUM, sizeof info.sum);
        memcpy(&info.key, bytes + 4 * SHARD_WORD_KEY, sizeof info.key);
        info.records = shard_word(bytes, SHARD_WORD_RECORDS);
    }
    if (info.tokens < 0 || info.records < 0 || info.records > info.tokens ||
        size != file_size(&info))
        return FAIL(ST_BAD_DATA,
                    "token file %s is damaged: its header counts %lld tokens and %lld records, so "
                    "%lld bytes are expected, but it has %zu; copy or make it again",
                    name, (long long)info.tokens, (long long)info.records,
                    (long long)file_size(&info), size);
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
    shard.ids = shard.map.data + SHARD_HEADER_BYTES;
    if (shard.info.records > 0)
        shard.records = (const uint32_t *)(const void *)(shard.map.data + records_at(&shard.info));
    *out = shard;
    return ST_OK;
}

void shard_close(struct shard *shard)
{
    file_map_close(&shard->map);
    *shard = (struct shard){0};
}

uint32_t shard_id(const struct shard *shard, int64_t i)
{
    return shard->info.id_bytes == 4 ? ((const uint32_t *)shard->ids)[i]
                                     : ((const uint16_t *)shard->ids)[i];
}

void shard_copy(const struct shard *shard, int64_t first, int64_t n, uint32_t *out)
{
    if (shard->info.id_bytes == 4) {
        memcpy(out, (const uint32_t *)shard->ids + first, (size_t)n * sizeof *out);
        return;
    }
    const uint16_t *ids = (const uint16_t *)shard->ids + first;
    for (int64_t i = 0; i < n; i++)
        out[i] = ids[i];
}

int shard_width(int64_t vocab) { return vocab <= SHARD_NARROW_VOCAB ? 2 : 4; }

/* ---- one pass over the ids ---- */

struct shard_scan {
    XXH3_state_t *hash;
    int64_t vocab;
    int64_t seen;
    int64_t bad_i;
    uint32_t bad_id;
};

struct shard_scan *shard_scan_begin(int64_t vocab)
{
    struct shard_scan *scan = memory_new(1, sizeof *scan);
    *scan = (struct shard_scan){.hash = file_hash_new(), .vocab = vocab, .bad_i = -1};
    return scan;
}

/* shard_max — uses vectors, because the compiler does not vectorise this loop at -O2. */
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

static uint32_t shard_max_wide(const uint32_t *ids, int64_t n)
{
    uint32_t max = 0;
    for (int64_t i = 0; i < n; i++)
        max = max > ids[i] ? max : ids[i];
    return max;
}

/* Finds the first id ≥ vocab of a block. */
static void shard_scan_block(struct shard_scan *scan, const void *ids, int id_bytes, int64_t n)
{
    const struct shard block = {.info = {.id_bytes = id_bytes}, .ids = ids};
    const uint32_t max = id_bytes == 4 ? shard_max_wide(ids, n) : shard_max(ids, n);
    if (max < scan->vocab)
        return;
    int64_t i = 0;
    while (shard_id(&block, i) < scan->vocab)
        i++;
    scan->bad_i = scan->seen + i;
    scan->bad_id = shard_id(&block, i);
}

void shard_scan_add(struct shard_scan *scan, const void *ids, int id_bytes, int64_t n)
{
    enum { BLOCK = 32768 }; /* stays in the cache between the two passes */
    const uint8_t *at = ids;
    for (int64_t done = 0, len; done < n; done += len, at += len * id_bytes) {
        len = n - done < BLOCK ? n - done : BLOCK;
        XXH3_64bits_update(scan->hash, at, (size_t)(len * id_bytes));
        if (scan->bad_i < 0)
            shard_scan_block(scan, at, id_bytes, len);
        scan->seen += len;
    }
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

enum status shard_check(const struct shard *shard, const char *path, const atomic_bool *is_stopped)
{
    enum { CHUNK = 8 << 20 };
    const struct shard_info *info = &shard->info;
    const size_t n = (size_t)ids_end(info) - SHARD_HEADER_BYTES;
    XXH3_state_t *hash = file_hash_new();
    bool goes_on = true;
    for (size_t at = 0, k; goes_on && at < n; at += k) {
        const uint8_t *ids = (const uint8_t *)shard->ids + at;
        k = n - at < CHUNK ? n - at : CHUNK;
        XXH3_64bits_update(hash, ids, k);
        file_map_release(&shard->map, ids, k);
        goes_on = is_stopped == NULL || !atomic_load(is_stopped);
    }
    if (shard->records != NULL)
        XXH3_64bits_update(hash, shard->map.data + ids_end(info), shard->map.bytes - ids_end(info));
    const uint64_t sum = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    if (!goes_on)
        return FAIL(ST_RETRY, "stopped while %s was checked", path);
    if (info->has_sum && info->sum != sum)
        return FAIL(ST_BAD_DATA,
                    "token file %s is damaged: its content has checksum %016llx, expected %016llx; "
                    "copy or make it again",
                    path, (unsigned long long)sum, (unsigned long long)info->sum);
    return ST_OK;
}

/* ---- writing ---- */

struct shard_writer {
    int fd;
    int id_bytes;
    bool is_committed;
    int64_t tokens;
    uint32_t *record; /* the first id of each record */
    int64_t records;
    size_t records_cap;
    struct shard_scan *scan;
    char path[FILE_PATH_MAX];
    char tmp_path[FILE_PATH_MAX];
};

enum status shard_create(const char *path, int64_t vocab, int id_bytes, struct shard_writer **out)
{
    enum status st;
    struct shard_writer *writer = memory_new(1, sizeof *writer);
    writer->fd = -1;
    writer->id_bytes = id_bytes;
    TRY_OR(file_check_target(path), out_abandon);
    writer->scan = shard_scan_begin(vocab);
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

static enum status append_bytes(struct shard_writer *writer, const void *ids, int64_t n)
{
    const int width = writer->id_bytes;
    TRY(file_write_at(writer->fd, writer->tmp_path, ids, (size_t)(n * width),
                      SHARD_HEADER_BYTES + width * writer->tokens));
    shard_scan_add(writer->scan, ids, width, n);
    writer->tokens += n;
    return ST_OK;
}

enum status shard_append(struct shard_writer *writer, const uint32_t *ids, int64_t n)
{
    uint16_t narrow[16384];
    if (n > SHARD_TOKENS_MAX - writer->tokens)
        return FAIL(ST_BAD_DATA,
                    "%s would hold more than %d tokens, the most that a token file can count; "
                    "split the data into files of at most 2 GB and set DATA to their folder",
                    writer->path, SHARD_TOKENS_MAX);
    if (writer->id_bytes == 4)
        return append_bytes(writer, ids, n);
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < 16384 ? n - at : 16384;
        for (int64_t i = 0; i < k; i++) {
            ASSERTF(ids[at + i] <= UINT16_MAX, "id %u of 16 bits", ids[at + i]);
            narrow[i] = (uint16_t)ids[at + i];
        }
        TRY(append_bytes(writer, narrow, k));
    }
    return ST_OK;
}

void shard_begin_record(struct shard_writer *writer, int64_t token_i)
{
    writer->record = memory_grow(writer->record, (size_t)writer->records, &writer->records_cap,
                                 sizeof *writer->record);
    writer->record[writer->records++] = (uint32_t)token_i; /* shard_append refuses more ids */
}

int64_t shard_written(const struct shard_writer *writer) { return writer->tokens; }
struct shard_facts shard_writer_facts(const struct shard_writer *writer)
{
    return shard_scan_facts(writer->scan);
}

/* Completes the file. The header is written last: a file left by a crash has no magic number. */
enum status shard_commit(struct shard_writer *writer, struct shard_key key)
{
    const bool is_wide = writer->id_bytes == 4;
    int32_t header[SHARD_HEADER_BYTES / 4] = {is_wide ? SHARD_MAGIC_WIDE : SHARD_MAGIC,
                                              is_wide ? SHARD_VERSION_WIDE : 1,
                                              (int32_t)writer->tokens, SHARD_TAG};
    /* Appends the records after the ids. */
    static const uint8_t zeros[4];
    const struct shard_info info = {.tokens = writer->tokens, .id_bytes = writer->id_bytes};
    const uint64_t at = ids_end(&info), fill = records_at(&info) - at;
    const size_t bytes = (size_t)writer->records * sizeof *writer->record;
    if (writer->records != 0) {
        TRY(file_write_at(writer->fd, writer->tmp_path, zeros, fill, (int64_t)at));
        TRY(file_write_at(writer->fd, writer->tmp_path, writer->record, bytes,
                          (int64_t)(at + fill)));
        XXH3_64bits_update(writer->scan->hash, zeros, fill);
        XXH3_64bits_update(writer->scan->hash, writer->record, bytes);
    }
    const uint64_t sum = shard_scan_facts(writer->scan).sum;
    memcpy(header + SHARD_WORD_SUM, &sum, sizeof sum);
    memcpy(header + SHARD_WORD_KEY, &key, sizeof key);
    header[SHARD_WORD_RECORDS] = (int32_t)writer->records;
    TRY(file_write_at(writer->fd, writer->tmp_path, header, sizeof header, 0));
    TRY(file_commit(writer->fd, writer->tmp_path, writer->path));
    writer->is_committed = true;
    return ST_OK;
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
    free(writer->record);
    free(writer);
}

struct shard_checker {
    struct thread thread;
    char cache_dir[FILE_PATH_MAX];
    struct shard_checker_file *files;
    int64_t files_n;
    atomic_bool is_stopped;
    _Atomic enum status found; /* set after the message */
    char message[1024];
};

static void *check_files(void *arg)
{
    struct shard_checker *checker = arg;
    const int64_t n = checker->files_n, first = getpid() % n;
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    for (int64_t i = 0; i < n && !atomic_load(&checker->is_stopped); i++) {
        const struct shard_checker_file *file = checker->files + (first + i) % n;
        const enum status st =
            cache_check(checker->cache_dir, file->shard, file->path, &checker->is_stopped);
        if (st != ST_OK && !atomic_load(&checker->is_stopped)) {
            text_copy(checker->message, sizeof checker->message, status_message());
            atomic_store(&checker->found, st);
            break;
        }
    }
    status_clear();
    return NULL;
}

enum status shard_checker_start(const char *cache_dir, const struct shard_checker_file *files,
                                int64_t n, struct shard_checker **out)
{
    struct shard_checker *checker = memory_new(1, sizeof *checker);
    struct shard_checker_file *copy = memory_new((size_t)n, sizeof *copy);
    memcpy(copy, files, (size_t)n * sizeof *copy);
    checker->files = copy;
    checker->files_n = n;
    text_copy(checker->cache_dir, sizeof checker->cache_dir, cache_dir != NULL ? cache_dir : "");
    const enum status st =
        thread_start(&checker->thread, check_files, checker, "checks the token files");
    if (st != ST_OK) {
        free(copy);
        free(checker);
        return st;
    }
    *out = checker;
    return ST_OK;
}

enum status shard_checker_found(const struct shard_checker *checker)
{
    const enum status st = checker != NULL ? atomic_load(&checker->found) : ST_OK;
    return st == ST_OK ? ST_OK : FAIL(st, "%s", checker->message);
}

void shard_checker_stop(struct shard_checker *checker)
{
    if (checker == NULL)
        return;
    atomic_store(&checker->is_stopped, true);
    pthread_join(checker->thread.id, NULL);
    thread_free(&checker->thread);
    free(checker->files);
    free(checker);
}

#ifdef FUZZ
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shard_info info;
    if (shard_parse(data, size, "fuzz", &info) == ST_OK)
        ASSERT(info.tokens >= 0 && (info.id_bytes == 2 || info.id_bytes == 4) &&
               info.records >= 0 && size == file_size(&info));
    return 0;
}
#endif
