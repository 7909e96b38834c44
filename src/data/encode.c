/* encode.c — reads a block, cuts it where the tokenizer allows, encodes the parts on all cores, appends them
 * in order.
 *
 * The ids do not depend on where the cuts are (bpe_cut), so not on the number of threads either. A block that
 * has no place to cut (one endless word) grows until it has. Must not know caches. */
#include "data/encode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/must.h"
#include "base/task.h"
#include "data/bpe.h"

enum {
    ENCODE_PART_BYTES = 1 << 20,
    ENCODE_PARTS_MAX = 256,
    ENCODE_READ_BYTES = 1 << 20, /* a piece of hashing */
};
#define ENCODE_BLOCK_MAX ((size_t)64 << 20) /* a word longer than this is no text */
/* Changes when the same text would get other ids: shards made by an older program are then not found. */
#define ENCODE_VERSION "convoy gpt2 bpe 1"

struct encode_part {
    const uint8_t *text;
    size_t bytes;
    uint16_t *ids;
    size_t n;
};

struct encode {
    struct encode_config config;
    struct bpe *bpe;
    struct task_pool *pool;
    uint8_t *text; /* the block: len bytes of cap */
    uint16_t *ids; /* cap of them */
    size_t cap, len;
    int64_t done_bytes;
    struct encode_part part[ENCODE_PARTS_MAX];
};

static enum status room(struct encode *encode, size_t cap)
{
    uint8_t *text = realloc(encode->text, cap);
    if (text != NULL)
        encode->text = text;
    uint16_t *ids = text != NULL ? realloc(encode->ids, cap * sizeof *ids) : NULL;
    if (ids == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to tokenise text", 3 * cap);
    encode->ids = ids;
    encode->cap = cap;
    return ST_OK;
}

enum status encode_open(const struct encode_config *config, struct encode **out)
{
    enum status st;
    const int cores = task_cores(), threads = cores < ENCODE_PARTS_MAX / 4 ? cores : ENCODE_PARTS_MAX / 4;
    struct encode *encode = calloc(1, sizeof *encode);
    if (encode == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to tokenise text", sizeof *encode);
    encode->config = *config;
    TRY_OR(bpe_open(&encode->bpe), out_close);
    TRY_OR(task_open(threads, &encode->pool), out_close);
    TRY_OR(room(encode, (size_t)threads * ENCODE_PART_BYTES), out_close);
    *out = encode;
    return ST_OK;
out_close:
    encode_close(encode);
    return st;
}

void encode_close(struct encode *encode)
{
    if (encode == NULL)
        return;
    task_close(encode->pool);
    bpe_close(encode->bpe);
    free(encode->text);
    free(encode->ids);
    free(encode);
}

/* --- reading --- */

static enum status open_text(const char *path, int *fd_out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return FAIL(ST_NO_INPUT, "cannot open %s: %s; check DATA", path, strerror(errno));
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *fd_out = fd;
    return ST_OK;
}

/* Up to cap bytes; fewer only at the end of the file. */
static enum status read_block(int fd, const char *path, uint8_t *out, size_t cap, size_t *n_out)
{
    size_t n = 0;
    while (n < cap) {
        const ssize_t got = read(fd, out + n, cap - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return FAIL(errno == EIO ? ST_STORE : ST_NO_INPUT, "cannot read %s: %s; check DATA",
                        path, strerror(errno));
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *n_out = n;
    return ST_OK;
}

static enum status report(const struct encode_config *config, int64_t done_bytes)
{
    if (config->progress == NULL || config->progress(config->progress_arg, done_bytes, config->bytes_total))
        return ST_OK;
    return FAIL(ST_RETRY, "stopped while tokenising, after %lld of %lld bytes; what was done is made again next time",
                (long long)done_bytes, (long long)config->bytes_total);
}

/* --- the key --- */

static enum status hash_begin(XXH3_state_t **out)
{
    XXH3_state_t *hash = XXH3_createState();
    if (hash == NULL)
        return FAIL(ST_RETRY, "out of memory for hashing text");
    XXH3_128bits_reset(hash);
    XXH3_128bits_update(hash, ENCODE_VERSION, sizeof ENCODE_VERSION);
    *out = hash;
    return ST_OK;
}

static struct shard_key hash_end(XXH3_state_t *hash)
{
    const XXH128_hash_t sum = XXH3_128bits_digest(hash);
    return (struct shard_key){{sum.low64, sum.high64}};
}

static enum status check_size(const struct source *text, int64_t bytes)
{
    if (bytes != text->bytes)
        return FAIL(ST_BAD_DATA, "%s changed while it was read: it had %lld bytes, now %lld were there; "
                    "start again when it is whole",
                    text->path, (long long)text->bytes, (long long)bytes);
    return ST_OK;
}

static enum status key_of_file(const struct encode_config *config, const struct source *text, uint8_t *buffer,
                               XXH3_state_t *hash)
{
    int fd = -1;
    size_t n = ENCODE_READ_BYTES;
    int64_t bytes = 0;
    enum status st = ST_OK;
    TRY(open_text(text->path, &fd));
    XXH3_128bits_update(hash, &text->bytes, sizeof text->bytes);
    while (st == ST_OK && n == ENCODE_READ_BYTES) {
        st = read_block(fd, text->path, buffer, ENCODE_READ_BYTES, &n);
        if (st == ST_OK) {
            XXH3_128bits_update(hash, buffer, n);
            bytes += (int64_t)n;
            st = report(config, 0);
        }
    }
    close(fd);
    return st == ST_OK ? check_size(text, bytes) : st;
}

enum status encode_key(const struct encode_config *config, const struct source *text, int64_t n,
                       struct shard_key *key_out)
{
    XXH3_state_t *hash = NULL;
    TRY(hash_begin(&hash));
    uint8_t *buffer = malloc(ENCODE_READ_BYTES);
    enum status st = buffer != NULL ? ST_OK : FAIL(ST_RETRY, "out of memory: %d bytes to read text",
                                                   ENCODE_READ_BYTES);
    for (int64_t i = 0; st == ST_OK && i < n; i++)
        st = key_of_file(config, text + i, buffer, hash);
    if (st == ST_OK)
        *key_out = hash_end(hash);
    XXH3_freeState(hash);
    free(buffer);
    return st;
}

/* --- encoding --- */

static void encode_part_run(void *arg, int part_i, int thread_i)
{
    struct encode *encode = arg;
    struct encode_part *part = encode->part + part_i;
    (void)thread_i;
    part->n = bpe_encode(encode->bpe, part->text, part->bytes, part->ids, part->bytes);
}

/* Parts of about equal size of the block's first n bytes. Returns how many. */
static int split_block(struct encode *encode, size_t n)
{
    enum { WORTH_A_PART = 1 << 15 };
    const size_t most = 4 * (size_t)task_threads(encode->pool), fit = n / WORTH_A_PART + 1;
    const size_t wish = fit < most ? fit : most;
    size_t at = 0;
    int parts = 0;
    for (size_t i = 0; i < wish && at < n; i++) {
        size_t len = n - at;
        if (i + 1 < wish)
            len = bpe_cut(encode->text + at, len / (wish - i));
        if (len == 0)
            continue; /* no place so far: the next part is longer */
        ASSERT(parts < ENCODE_PARTS_MAX);
        encode->part[parts++] = (struct encode_part){encode->text + at, len, encode->ids + at, 0};
        at += len;
    }
    return parts;
}

static enum status encode_block(struct encode *encode, size_t n, struct shard_writer *writer)
{
    const int parts = split_block(encode, n);
    task_run(encode->pool, parts, encode_part_run, encode);
    for (int i = 0; i < parts; i++)
        TRY(shard_append(writer, encode->part[i].ids, (int64_t)encode->part[i].n));
    encode->len -= n;
    memmove(encode->text, encode->text + n, encode->len);
    encode->done_bytes += (int64_t)n;
    return report(&encode->config, encode->done_bytes);
}

static enum status encode_grow(struct encode *encode, const char *path)
{
    if (encode->cap >= ENCODE_BLOCK_MAX)
        return FAIL(ST_BAD_DATA, "%s has %zu bytes in a row without a place to split words; this is not text",
                    path, encode->cap);
    return room(encode, 2 * encode->cap);
}

static enum status encode_stream(struct encode *encode, int fd, const struct source *text,
                                 struct shard_writer *writer, XXH3_state_t *hash)
{
    int64_t bytes = 0;
    bool is_end = false;
    encode->len = 0;
    XXH3_128bits_update(hash, &text->bytes, sizeof text->bytes);
    while (!is_end) {
        size_t n;
        const size_t space = encode->cap - encode->len;
        TRY(read_block(fd, text->path, encode->text + encode->len, space, &n));
        XXH3_128bits_update(hash, encode->text + encode->len, n);
        encode->len += n;
        bytes += (int64_t)n;
        is_end = n < space;
        const size_t cut = is_end ? encode->len : bpe_cut(encode->text, encode->len);
        if (cut > 0)
            TRY(encode_block(encode, cut, writer));
        else if (!is_end)
            TRY(encode_grow(encode, text->path));
    }
    return check_size(text, bytes);
}

static enum status encode_file(struct encode *encode, const struct source *text, struct shard_writer *writer,
                               XXH3_state_t *hash)
{
    int fd = -1;
    TRY(open_text(text->path, &fd));
    const enum status st = encode_stream(encode, fd, text, writer, hash);
    close(fd);
    return st;
}

enum status encode_files(struct encode *encode, const struct source *text, int64_t n,
                         struct shard_writer *writer, struct shard_key *key_out)
{
    static const uint16_t end_of_text = BPE_END;
    XXH3_state_t *hash = NULL;
    enum status st = ST_OK;
    TRY(hash_begin(&hash));
    for (int64_t i = 0; st == ST_OK && i < n; i++) {
        if (i > 0)
            st = shard_append(writer, &end_of_text, 1);
        if (st == ST_OK)
            st = encode_file(encode, text + i, writer, hash);
    }
    if (st == ST_OK)
        *key_out = hash_end(hash);
    XXH3_freeState(hash);
    return st;
}
