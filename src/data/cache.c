/* cache — see cache.h. */
#include "data/cache.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/tokenizer/gpt2.h"

#define CACHE_KEY_HEX 32
#define CACHE_LEFTOVER_MS (24 * 3600 * 1000LL)
/* A file changed within this time may change again without a new time stamp; its key is not
 * kept. */
#define CACHE_SETTLED_NS 2000000000LL

struct cache_paths {
    char dir[FILE_PATH_MAX];
    char shard[FILE_PATH_MAX]; /* <key>.bin */
    char memo[FILE_PATH_MAX];  /* <files>.key */
};

static void key_text(struct shard_key key, char out[CACHE_KEY_HEX + 1])
{
    text_format(out, CACHE_KEY_HEX + 1, "%016llx%016llx", (unsigned long long)key.v[1],
                (unsigned long long)key.v[0]);
}

static enum status format_path(char out[FILE_PATH_MAX], const char *dir, struct shard_key key,
                               const char *suffix)
{
    char name[CACHE_KEY_HEX + 8], hex[CACHE_KEY_HEX + 1];
    key_text(key, hex);
    text_format(name, sizeof name, "%s%s", hex, suffix);
    return file_join(out, FILE_PATH_MAX, dir, name);
}

static XXH128_hash_t stat_add(XXH128_hash_t sum, const struct data_file *file)
{
    const uint64_t facts[] = {sum.low64,
                              sum.high64,
                              (uint64_t)file->kind << 1 | file->is_packed,
                              (uint64_t)file->bytes,
                              file->device,
                              file->inode,
                              (uint64_t)file->modified_ns,
                              (uint64_t)file->changed_ns,
                              XXH3_64bits(file->path, strlen(file->path))};
    return XXH3_128bits(facts, sizeof facts);
}

/* Identifies files by their metadata, without reading them, and by the tokenizer. */
static struct shard_key stat_key(const struct encode_config *config, const struct data_file *text,
                                 int64_t n)
{
    XXH128_hash_t sum =
        XXH3_128bits_withSeed(&n, sizeof n, XXH3_64bits(ENCODE_VERSION, sizeof ENCODE_VERSION));
    uint64_t rules[5] = {sum.low64, sum.high64, 0, 0, (uint64_t)config->id_bytes};
    if (config->tokenizer != NULL)
        tokenizer_identity(config->tokenizer, rules + 2);
    if (rules[2] != 0 || rules[3] != 0 || config->id_bytes == 4)
        sum = XXH3_128bits(rules, sizeof rules);
    if (config->chat != NULL) {
        uint64_t more[4] = {sum.low64, sum.high64};
        chat_identity(config->chat, more + 2);
        sum = XXH3_128bits(more, sizeof more);
    }
    for (int64_t i = 0; i < n; i++)
        sum = stat_add(sum, text + i);
    return (struct shard_key){{sum.low64, sum.high64}};
}

/* Parses a key in the form of key_text, with its line ending. Pure. */
static bool memo_parse(const char *text, size_t n, struct shard_key *out)
{
    struct shard_key key;
    if (n != CACHE_KEY_HEX + 1 || text[CACHE_KEY_HEX] != '\n' ||
        !text_parse_hex(text, 16, &key.v[1]) || !text_parse_hex(text + 16, 16, &key.v[0]))
        return false;
    *out = key;
    return true;
}

static bool memo_read(const char *path, struct shard_key *out)
{
    char *text;
    size_t n;
    if (!file_exists(path) || file_read(path, 64, &text, &n) != ST_OK)
        return false;
    const bool is_good = memo_parse(text, n, out);
    free(text);
    return is_good;
}

static int64_t settled_at(void) { return clock_wall_ms() * 1000000 - CACHE_SETTLED_NS; }

static bool is_settled(const struct data_file *file, int64_t settled_ns)
{
    return file->modified_ns <= settled_ns && file->changed_ns <= settled_ns;
}

/* Writes a memo. Without it the next start only has to read the texts. */
static void memo_write(const char *path, const struct data_file *text, int64_t n,
                       struct shard_key key)
{
    char line[CACHE_KEY_HEX + 2];
    const int64_t settled_ns = settled_at();
    for (int64_t i = 0; i < n; i++)
        if (!is_settled(text + i, settled_ns))
            return;
    key_text(key, line);
    line[CACHE_KEY_HEX] = '\n';
    if (file_replace(path, line, CACHE_KEY_HEX + 1) != ST_OK)
        LOG_DEBUG("the key of the text is not stored: %s", status_message());
    status_clear();
}

/* ---- records of the token files that were checked ---- */

/* Computes the name of the memo of a token file and its text, which has the checksum. False: the
 * file has gone, or is no longer the mapped one. */
static bool name_check(const char *dir, const char *path, const struct shard *shard,
                       char memo_out[FILE_PATH_MAX], char text_out[CACHE_KEY_HEX + 2],
                       struct data_file *file_out)
{
    struct stat info;
    if (stat(path, &info) != 0 || (size_t)info.st_size != shard->map.bytes)
        return false;
    *file_out =
        (struct data_file){.kind = DATA_FILE_KIND_TOKENS,
                           .bytes = info.st_size,
                           .device = info.st_dev,
                           .inode = info.st_ino,
                           .modified_ns = info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec,
                           .changed_ns = info.st_ctim.tv_sec * 1000000000 + info.st_ctim.tv_nsec,
                           .path = (char *)(uintptr_t) ""}; /* other names are the same file */
    const XXH128_hash_t name = stat_add((XXH128_hash_t){0, 0}, file_out);
    key_text((struct shard_key){{shard->info.sum, (uint64_t)shard->info.tokens}}, text_out);
    text_out[CACHE_KEY_HEX] = '\n';
    if (format_path(memo_out, dir, (struct shard_key){{name.low64, name.high64}}, ".sum") == ST_OK)
        return true;
    status_clear();
    return false;
}

/* Records that a file was checked. is_made: this process has made the file, and no other writes to
 * it. */
static void remember_check(const char *dir, const char *path, const struct shard *shard,
                           bool is_made)
{
    char memo[FILE_PATH_MAX], text[CACHE_KEY_HEX + 2];
    struct data_file file;
    if (!name_check(dir, path, shard, memo, text, &file) ||
        (!is_made && !is_settled(&file, settled_at())))
        return;
    if (file_make_dirs(dir) != ST_OK || file_replace(memo, text, CACHE_KEY_HEX + 1) != ST_OK)
        LOG_DEBUG("the result of the check is not stored: %s", status_message());
    status_clear();
}

/* Joins CACHE_DIR and the folder of tokens; false: nothing is kept. */
static bool name_dir(const char *cache_dir, char out[FILE_PATH_MAX])
{
    if (cache_dir == NULL || cache_dir[0] == '\0')
        return false;
    const bool is_named = file_join(out, FILE_PATH_MAX, cache_dir, "tokens") == ST_OK;
    status_clear();
    return is_named;
}

bool cache_is_checked(const char *cache_dir, const struct shard *shard, const char *path)
{
    char dir[FILE_PATH_MAX], memo[FILE_PATH_MAX], want[CACHE_KEY_HEX + 2];
    struct data_file file;
    struct shard_key had, is;
    if (!shard->info.has_sum)
        return true;
    return name_dir(cache_dir, dir) && name_check(dir, path, shard, memo, want, &file) &&
           memo_read(memo, &had) && memo_parse(want, CACHE_KEY_HEX + 1, &is) &&
           memcmp(&had, &is, sizeof is) == 0;
}

enum status cache_check(const char *cache_dir, const struct shard *shard, const char *path,
                        const atomic_bool *is_stopped)
{
    char dir[FILE_PATH_MAX];
    if (cache_is_checked(cache_dir, shard, path))
        return ST_OK;
    TRY(shard_check(shard, path, is_stopped));
    if (name_dir(cache_dir, dir))
        remember_check(dir, path, shard, false);
    return ST_OK;
}

/* Opens the token file at path if it is complete and has this key; logs a damaged one. */
static bool shard_usable(const char *cache_dir, const char *path, struct shard_key key,
                         struct shard *out)
{
    struct shard shard = {0};
    if (!file_exists(path))
        return false;
    enum status st = shard_open(path, &shard);
    if (st == ST_OK && (!shard.info.has_sum || memcmp(&shard.info.key, &key, sizeof key) != 0))
        st = FAIL(ST_BAD_DATA, "token file %s does not match its name", path);
    if (st == ST_OK)
        st = cache_check(cache_dir, &shard, path, NULL);
    if (st == ST_OK) {
        *out = shard;
        return true;
    }
    LOG_WARN("%s; it is made again from the text", status_message());
    status_clear();
    shard_close(&shard);
    return false;
}

/* ---- making ---- */

/* Removes files that killed processes left half-written. */
static void remove_leftovers(const char *dir)
{
    DIR *handle = opendir(dir);
    struct stat info;
    char path[FILE_PATH_MAX];
    if (handle == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(handle)) != NULL;) {
        if (!text_ends(entry->d_name, ".tmp") ||
            file_join(path, sizeof path, dir, entry->d_name) != ST_OK)
            continue;
        if (lstat(path, &info) == 0 && S_ISREG(info.st_mode) &&
            info.st_mtim.tv_sec * 1000LL < clock_wall_ms() - CACHE_LEFTOVER_MS)
            unlink(path);
    }
    closedir(handle);
}

static enum status append(void *writer, const uint32_t *ids, int64_t n)
{
    return shard_append(writer, ids, n);
}

static enum status begin(void *writer, int64_t token_i, bool is_record)
{
    if (is_record)
        shard_begin_record(writer, token_i);
    return ST_OK;
}

static enum status write_shard(const struct cache_paths *paths, const struct encode_config *config,
                               const struct data_file *text, int64_t n, struct shard_key key)
{
    struct encode *encode = NULL;
    struct shard_writer *writer = NULL;
    struct shard_key read_key;
    struct encode_sink sink = {.append = append,
                               .begin = begin,
                               .end = config->tokenizer != NULL ? tokenizer_end(config->tokenizer)
                                                                : TOKENIZER_GPT2_END};
    enum status st;
    TRY(file_make_dirs(paths->dir));
    remove_leftovers(paths->dir);
    TRY_OR(shard_create(paths->shard, INT64_MAX, config->id_bytes, &writer), out_abandon);
    TRY_OR(encode_open(config, &encode), out_abandon);
    sink.arg = writer;
    TRY_OR(encode_files(encode, text, n, &sink, &read_key), out_abandon);
    if (memcmp(&read_key, &key, sizeof key) != 0)
        TRY_OR(FAIL(ST_BAD_DATA,
                    "%s, or a file next to it, changed while it was read; start again when it is "
                    "complete",
                    text->path),
               out_abandon);
    TRY_OR(shard_commit(writer, key), out_abandon);
    LOG_INFO("tokenised %lld bytes into %lld tokens, kept in %s", (long long)config->bytes_total,
             (long long)shard_written(writer), paths->shard);
out_abandon:
    encode_close(encode);
    shard_abandon(writer);
    return st;
}

enum status cache_shard(const char *cache_dir, const struct encode_config *config,
                        const struct data_file *text, int64_t n, struct shard *shard_out,
                        char path_out[FILE_PATH_MAX])
{
    struct cache_paths paths;
    struct shard_key key;
    if (cache_dir == NULL || cache_dir[0] == '\0')
        return FAIL(ST_BAD_SETTING, "no folder to keep tokens made from %s; set CACHE_DIR",
                    text->path);
    TRY(file_join(paths.dir, sizeof paths.dir, cache_dir, "tokens"));
    TRY(format_path(paths.memo, paths.dir, stat_key(config, text, n), ".key"));
    if (memo_read(paths.memo, &key)) {
        TRY(format_path(paths.shard, paths.dir, key, ".bin"));
        text_copy(path_out, FILE_PATH_MAX, paths.shard);
        if (shard_usable(cache_dir, paths.shard, key, shard_out))
            return ST_OK;
    }
    TRY(encode_key(config, text, n, &key));
    TRY(format_path(paths.shard, paths.dir, key, ".bin"));
    text_copy(path_out, FILE_PATH_MAX, paths.shard);
    if (!shard_usable(cache_dir, paths.shard, key, shard_out)) {
        const enum status st = write_shard(&paths, config, text, n, key);
        if (st == ST_STORE)
            return FAIL(ST_STORE,
                        "%s (tokens made from text are kept in CACHE_DIR=%s; it may be set to "
                        "another folder)",
                        status_message(), cache_dir);
        TRY(st);
        TRY(shard_open(paths.shard, shard_out));
        remember_check(paths.dir, paths.shard, shard_out, true);
    }
    memo_write(paths.memo, text, n, key);
    return ST_OK;
}

#ifdef FUZZ
#include "base/assert.h"

/* An accepted key is written back as the same bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shard_key key;
    char line[CACHE_KEY_HEX + 1];
    if (!memo_parse((const char *)data, size, &key))
        return 0;
    key_text(key, line);
    ASSERT(size == CACHE_KEY_HEX + 1 && memcmp(line, data, CACHE_KEY_HEX) == 0);
    return 0;
}
#endif
