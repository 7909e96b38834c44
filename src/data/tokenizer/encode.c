/* encode — see encode.h. It reads a block, cuts it where the tokenizer (or a line's end) allows,
 * encodes the chunks on all cores, and appends them in order.
 *
 * The ids do not depend on the cuts (tokenizer_cut), so not on the number of threads. A block
 * without a place to cut (one endless word or line) grows until it has one. */
#include "data/tokenizer/encode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "data/jsonl.h"
#include "data/stream.h"
#include "data/tokenizer/gpt2.h"

enum {
    ENCODE_CHUNK_BYTES = 1 << 20,
    ENCODE_CHUNKS_MAX = 256,
    ENCODE_READ_BYTES = 1 << 20, /* bytes read at once, for hashing */
};
/* Marks the first id of a record among the ids of a chunk; ids are below INT32_MAX. */
#define ENCODE_RECORD ((uint32_t)1 << 31)

/* A chunk of the block, for one thread. */
struct encode_chunk {
    uint8_t *text;
    size_t bytes;
    bool is_begin; /* at the beginning of the file */
    uint32_t *ids;
    size_t n;
    bool is_out_of_memory; /* out of memory, or it was stopped */
    int64_t lines;         /* JSON lines up to the first that is not a document */
    const char *fault;     /* fault of that line; NULL: none */
    size_t fault_at;
    struct chat_ids conversations; /* memory of ids, with config.chat */
    enum chat_form form;           /* form of its conversations */
    int64_t conversation_line;     /* line of the first one, from 1 */
    char fault_text[512];
};

struct encode {
    struct encode_config config;
    const struct tokenizer *tokenizer;
    struct tokenizer *own; /* NULL: it is the caller's */
    struct thread_pool *pool;
    uint8_t *text; /* the block: len of cap bytes */
    uint32_t *ids; /* for cap bytes in up to ENCODE_CHUNKS_MAX chunks */
    size_t cap, len;
    bool is_begin;            /* the block begins a document */
    int64_t before_bytes;     /* bytes read from the previous files */
    pthread_mutex_t watching; /* one thread at a time calls config.progress: */
    int64_t done_bytes;       /* argument of config.progress while a block is encoded */
    bool is_stopped;          /* config.progress has returned false */
    const struct data_file *file;
    int64_t lines;       /* lines of this file, before the block */
    enum chat_form form; /* form of this file's conversations */
    XXH3_state_t *hash;
    struct encode_chunk chunk[ENCODE_CHUNKS_MAX];
};

static enum status reserve_buffers(struct encode *encode, size_t cap)
{
    uint8_t *text = realloc(encode->text, cap);
    if (text != NULL)
        encode->text = text;
    const size_t room =
        (tokenizer_cap(encode->tokenizer, cap) + ENCODE_CHUNKS_MAX) * sizeof *encode->ids;
    uint32_t *ids = text != NULL ? realloc(encode->ids, room) : NULL;
    if (ids == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to tokenise text", cap + room);
    encode->ids = ids;
    encode->cap = cap;
    return ST_OK;
}

enum status encode_open(const struct encode_config *config, struct encode **out)
{
    enum status st;
    const int cores = thread_pool_cores(),
              threads = cores < ENCODE_CHUNKS_MAX / 4 ? cores : ENCODE_CHUNKS_MAX / 4;
    struct encode *encode = memory_new(1, sizeof *encode);
    encode->config = *config;
    pthread_mutex_init(&encode->watching, NULL);
    if (config->tokenizer == NULL)
        TRY_OR(tokenizer_gpt2_open(&encode->own), out_close);
    encode->tokenizer = config->tokenizer != NULL ? config->tokenizer : encode->own;
    TRY_OR(thread_pool_open(threads, &encode->pool), out_close);
    TRY_OR(reserve_buffers(encode, (size_t)threads * ENCODE_CHUNK_BYTES), out_close);
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
    thread_pool_close(encode->pool);
    pthread_mutex_destroy(&encode->watching);
    tokenizer_close(encode->own);
    for (int i = 0; i < ENCODE_CHUNKS_MAX; i++)
        free(encode->chunk[i].conversations.ids);
    free(encode->text);
    free(encode->ids);
    free(encode);
}

static enum status fail_stopped(const struct encode_config *config, int64_t done_bytes)
{
    return FAIL(ST_RETRY,
                "stopped while tokenising, after %lld of %lld bytes; the next start begins again",
                (long long)done_bytes, (long long)config->bytes_total);
}

static enum status report_progress(const struct encode_config *config, int64_t done_bytes)
{
    return config->progress == NULL ||
                   config->progress(config->progress_arg, done_bytes, config->bytes_total)
               ? ST_OK
               : fail_stopped(config, done_bytes);
}

/* ---- separators ---- */

void encode_begin_file(struct encode_sink *sink) { sink->begins_file = true; }

static enum status fail_end(const char *what)
{
    return FAIL(ST_BAD_DATA,
                "%s has several documents, but the tokenizer has no token that ends a document; "
                "add an eos_token to its tokenizer_config.json, or use one plain text",
                what);
}

/* Ends the previous file, if there is one; `first` is the next id. */
static enum status begin_file(struct encode_sink *sink, uint32_t first)
{
    if (!sink->begins_file)
        return ST_OK;
    if (sink->tokens > 0 && sink->end == TOKENIZER_NONE)
        return fail_end("DATA");
    if (sink->tokens > 0 && sink->last != sink->end && first != sink->end) {
        TRY(sink->append(sink->arg, &sink->end, 1));
        sink->tokens++;
    }
    sink->begins_file = false;
    return sink->begin != NULL ? sink->begin(sink->arg, sink->tokens, false) : ST_OK;
}

enum status encode_begin_record(struct encode_sink *sink, const uint32_t *ids, int64_t n,
                                int64_t ahead)
{
    if (n > 0)
        TRY(begin_file(sink, ids[0]));
    return sink->begin != NULL ? sink->begin(sink->arg, sink->tokens + ahead, true) : ST_OK;
}

enum status encode_put(struct encode_sink *sink, const uint32_t *ids, int64_t n)
{
    if (n == 0)
        return ST_OK;
    TRY(begin_file(sink, ids[0]));
    sink->last = ids[n - 1];
    sink->tokens += n;
    return sink->append(sink->arg, ids, n);
}

/* ---- the key ---- */

static XXH3_state_t *hash_begin(const struct encode_config *config)
{
    XXH3_state_t *hash = file_hash_new();
    XXH3_128bits_update(hash, ENCODE_VERSION, sizeof ENCODE_VERSION);
    /* Keys of GPT-2's 16-bit ids must stay the same. */
    uint64_t facts[3] = {0, 0, (uint64_t)config->id_bytes};
    if (config->tokenizer != NULL)
        tokenizer_identity(config->tokenizer, facts);
    if (facts[0] != 0 || facts[1] != 0 || config->id_bytes == 4)
        XXH3_128bits_update(hash, facts, sizeof facts);
    if (config->chat != NULL) {
        chat_identity(config->chat, facts);
        XXH3_128bits_update(hash, facts, 2 * sizeof facts[0]);
    }
    return hash;
}

static struct shard_key hash_end(XXH3_state_t *hash)
{
    const XXH128_hash_t sum = XXH3_128bits_digest(hash);
    return (struct shard_key){{sum.low64, sum.high64}};
}

/* Hashes kind, compression and size of a file: the same bytes as another kind of file have other
 * ids. */
static void hash_file(XXH3_state_t *hash, const struct data_file *file)
{
    const int64_t facts[] = {file->kind, file->is_packed, file->bytes};
    XXH3_128bits_update(hash, facts, sizeof facts);
}

static void hash_raw(void *arg, const uint8_t *raw, size_t n) { XXH3_128bits_update(arg, raw, n); }

static enum status key_of_file(const struct encode_config *config, const struct data_file *file,
                               uint8_t *buffer, XXH3_state_t *hash)
{
    struct stream *stream;
    struct data_file raw = *file;
    size_t n = ENCODE_READ_BYTES;
    enum status st = ST_OK;
    raw.is_packed = false;
    hash_file(hash, file);
    TRY(stream_open(&raw, hash_raw, hash, &stream));
    while (st == ST_OK && n == ENCODE_READ_BYTES) {
        st = stream_read(stream, buffer, ENCODE_READ_BYTES, &n);
        if (st == ST_OK)
            st = report_progress(config, 0);
    }
    stream_close(stream);
    return st;
}

enum status encode_key(const struct encode_config *config, const struct data_file *files, int64_t n,
                       struct shard_key *key_out)
{
    XXH3_state_t *hash = hash_begin(config);
    uint8_t *buffer = memory_new(1, ENCODE_READ_BYTES);
    enum status st = ST_OK;
    for (int64_t i = 0; st == ST_OK && i < n; i++)
        st = key_of_file(config, files + i, buffer, hash);
    if (st == ST_OK)
        *key_out = hash_end(hash);
    XXH3_freeState(hash);
    free(buffer);
    return st;
}

/* ---- one chunk, on a thread ---- */

/* Calls config.progress within a block, on the thread that encodes. */
static bool goes_on(void *arg)
{
    struct encode *encode = arg;
    const struct encode_config *config = &encode->config;
    pthread_mutex_lock(&encode->watching);
    encode->is_stopped =
        encode->is_stopped ||
        !config->progress(config->progress_arg, encode->done_bytes, config->bytes_total);
    const bool is_stopped = encode->is_stopped;
    pthread_mutex_unlock(&encode->watching);
    return !is_stopped;
}

/* Appends the ids of a text. */
static bool encode_add(struct encode *encode, struct encode_chunk *chunk, const uint8_t *text,
                       size_t bytes, bool is_begin)
{
    const struct encode_watch watch = {goes_on, encode};
    size_t n;
    const enum status st =
        tokenizer_encode_watched(encode->tokenizer, encode->config.progress != NULL ? &watch : NULL,
                                 text, bytes, is_begin, chunk->ids + chunk->n, &n);
    if (st != ST_OK) {
        if (st != ST_RETRY) {
            text_copy(chunk->fault_text, sizeof chunk->fault_text, status_message());
            chunk->fault = chunk->fault_text;
        }
        chunk->is_out_of_memory = st == ST_RETRY;
        status_clear(); /* encode_block reports it, on its own thread */
        return false;
    }
    chunk->n += n;
    return true;
}

/* Encodes one line as a conversation. */
static bool encode_conversation(struct encode *encode, struct encode_chunk *chunk,
                                const uint8_t *line, size_t n)
{
    const struct encode_watch watch = {goes_on, encode};
    struct chat_ids *ids = &chunk->conversations;
    const size_t first = ids->n;
    if (n > ENCODE_LINE_MAX) {
        chunk->fault = "a line longer than 64 MiB";
        return false;
    }
    if (chunk->conversation_line == 0)
        chunk->conversation_line = chunk->lines;
    const enum status st =
        chat_record(encode->config.chat, encode->config.progress != NULL ? &watch : NULL,
                    (const char *)line, n, &chunk->form, ids);
    if (st != ST_OK && st != ST_RETRY) {
        text_copy(chunk->fault_text, sizeof chunk->fault_text, status_message());
        chunk->fault = chunk->fault_text;
    }
    chunk->is_out_of_memory = st == ST_RETRY;
    status_clear(); /* encode_block reports it, on its own thread */
    if (ids->n > first)
        ids->ids[first] |= ENCODE_RECORD;
    chunk->ids = ids->ids;
    chunk->n = ids->n;
    return st == ST_OK;
}

/* Encodes one line without its end. A document has space for its ids and the end of text, since its
 * line is at least 11 bytes longer: {"text":""}. */
static bool encode_line(struct encode *encode, struct encode_chunk *chunk, uint8_t *line, size_t n)
{
    chunk->lines++;
    size_t i = 0;
    while (i < n && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r'))
        i++;
    if (i == n)
        return true;
    if (encode->config.chat != NULL)
        return encode_conversation(encode, chunk, line, n);
    struct jsonl_text text = {.fault = "a line longer than 64 MiB"};
    if (n <= ENCODE_LINE_MAX)
        text = jsonl_text(line, n);
    chunk->fault = text.fault;
    chunk->fault_at = text.fault_at;
    if (text.fault != NULL)
        return false;
    const size_t first = chunk->n;
    if (!encode_add(encode, chunk, text.bytes, text.n, true))
        return false;
    const uint32_t end = tokenizer_end(encode->tokenizer);
    if (end != TOKENIZER_NONE)
        chunk->ids[chunk->n++] = end;
    if (chunk->n > first)
        chunk->ids[first] |= ENCODE_RECORD;
    return true;
}

static void encode_chunk_run(void *arg, int chunk_i, int thread_i)
{
    struct encode *encode = arg;
    struct encode_chunk *chunk = encode->chunk + chunk_i;
    (void)thread_i;
    if (encode->file->kind == DATA_FILE_KIND_TEXT) {
        encode_add(encode, chunk, chunk->text, chunk->bytes, chunk->is_begin);
        return;
    }
    uint8_t *const end = chunk->text + chunk->bytes;
    for (uint8_t *line = chunk->text, *stop; line < end; line = stop + 1) {
        stop = memchr(line, '\n', (size_t)(end - line));
        if (stop == NULL)
            stop = end;
        if (!encode_line(encode, chunk, line, (size_t)(stop - line)))
            return;
    }
}

/* ---- blocks ---- */

/* Returns the length of the longest prefix of text[0, n) whose encoding does not depend on the
 * following bytes; 0: none. There is none in text[0, seen), which is not searched again. */
static size_t cut_of(const struct encode *encode, const uint8_t *text, size_t n, size_t seen)
{
    if (encode->file->kind != DATA_FILE_KIND_TEXT) {
        const uint8_t *last = memrchr(text + seen, '\n', n - seen);
        return last != NULL ? (size_t)(last - text) + 1 : 0;
    }
    /* A position at the end of text[0, seen) may be certain only now. It depends on the bytes
     * before it, and a token has at most BPE_TOKEN_BYTES_MAX. */
    const size_t most = 2 * BPE_TOKEN_BYTES_MAX, from = seen > 2 * most ? seen - 2 * most : 0;
    const size_t cut = tokenizer_cut(encode->tokenizer, text + from, n - from);
    return from == 0 || cut > most ? from + cut : 0;
}

/* Cuts the block's first n bytes into chunks of about equal size. Returns their number. */
static int split_block(struct encode *encode, size_t n)
{
    enum { WORTH_A_CHUNK = 1 << 15 };
    const size_t most = 4 * (size_t)thread_pool_threads(encode->pool), fit = n / WORTH_A_CHUNK + 1;
    const size_t wish = fit < most ? fit : most;
    size_t at = 0, ids = 0, seen = 0;
    int chunks = 0;
    for (size_t i = 0; i < wish && at < n; i++) {
        size_t len = n - at;
        if (i + 1 < wish)
            len = cut_of(encode, encode->text + at, len / (wish - i), seen);
        seen = len == 0 ? (n - at) / (wish - i) : 0;
        if (len == 0)
            continue; /* no position to cut: the next chunk is longer */
        ASSERT(chunks < ENCODE_CHUNKS_MAX);
        free(encode->chunk[chunks].conversations.ids);
        encode->chunk[chunks] = (struct encode_chunk){.text = encode->text + at,
                                                      .bytes = len,
                                                      .is_begin = encode->is_begin && at == 0,
                                                      .ids = encode->ids + ids,
                                                      .form = encode->form};
        chunks++;
        ids += tokenizer_cap(encode->tokenizer, len);
        at += len;
    }
    return chunks;
}

static enum status fail_chunk(const struct encode *encode, const struct encode_chunk *chunk)
{
    if (chunk->is_out_of_memory)
        return FAIL(ST_RETRY, "out of memory: tokens of %zu bytes of %s", chunk->bytes,
                    encode->file->path);
    if (encode->file->kind == DATA_FILE_KIND_TEXT)
        return FAIL(ST_BAD_DATA, "%s: %s", encode->file->path, chunk->fault);
    if (encode->config.chat != NULL)
        return FAIL(ST_BAD_DATA, "%s, line %lld: %s; correct or remove the line",
                    encode->file->path, (long long)encode->lines, chunk->fault);
    return FAIL(ST_BAD_DATA, "%s, line %lld, byte %zu: %s; correct or remove the line",
                encode->file->path, (long long)encode->lines, chunk->fault_at + 1, chunk->fault);
}

/* Checks that a chunk's conversations have the form of the file's first one. */
static enum status check_form(struct encode *encode, const struct encode_chunk *chunk)
{
    if (encode->form == CHAT_FORM_NONE)
        encode->form = chunk->form;
    if (chunk->form == CHAT_FORM_NONE || chunk->form == encode->form)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s, line %lld: a record with %s among records with %s; put them into two files",
                encode->file->path,
                (long long)(encode->lines - chunk->lines + chunk->conversation_line),
                chat_form_text(chunk->form), chat_form_text(encode->form));
}

static enum status encode_block(struct encode *encode, size_t n, struct encode_sink *sink,
                                int64_t done_bytes)
{
    const int chunks = split_block(encode, n);
    encode->done_bytes = encode->before_bytes + done_bytes;
    thread_pool_run(encode->pool, chunks, encode_chunk_run, encode);
    if (encode->is_stopped)
        return fail_stopped(&encode->config, encode->done_bytes);
    for (int i = 0; i < chunks; i++) {
        const struct encode_chunk *chunk = encode->chunk + i;
        encode->lines += chunk->lines;
        TRY(check_form(encode, chunk));
        if (chunk->is_out_of_memory || chunk->fault != NULL)
            return fail_chunk(encode, chunk);
        if (encode->file->kind == DATA_FILE_KIND_JSONL) {
            /* Removes the marks from a chunk's ids, and adds the records that begin there. */
            const int64_t ids_n = (int64_t)chunk->n;
            for (int64_t k = 0; k < ids_n; k++)
                if (chunk->ids[k] & ENCODE_RECORD) {
                    chunk->ids[k] &= ~ENCODE_RECORD;
                    TRY(encode_begin_record(sink, chunk->ids, ids_n, k));
                }
        }
        TRY(encode_put(sink, chunk->ids, (int64_t)chunk->n));
    }
    encode->len -= n;
    encode->is_begin = false;
    memmove(encode->text, encode->text + n, encode->len);
    return ST_OK;
}

static enum status encode_grow(struct encode *encode)
{
    if (encode->cap < (size_t)ENCODE_LINE_MAX)
        return reserve_buffers(encode, 2 * encode->cap);
    if (encode->file->kind == DATA_FILE_KIND_JSONL)
        return FAIL(ST_BAD_DATA,
                    "%s, line %lld: a line longer than %lld bytes; correct or remove the line",
                    encode->file->path, (long long)encode->lines + 1, (long long)ENCODE_LINE_MAX);
    return FAIL(
        ST_BAD_DATA,
        "%s has %zu bytes in a row without a place to split words; this is not text, or the "
        "pattern of the tokenizer allows no cuts: use .jsonl with a document on each line",
        encode->file->path, encode->cap);
}

static enum status encode_stream(struct encode *encode, struct stream *stream,
                                 struct encode_sink *sink)
{
    bool is_end = false, is_first = true;
    size_t seen = 0; /* bytes of the block without a position to cut */
    encode->len = 0;
    encode->lines = 0;
    encode->form = CHAT_FORM_NONE;
    encode->is_begin = true;
    while (!is_end) {
        size_t n;
        const size_t space = encode->cap - encode->len;
        TRY(stream_read(stream, encode->text + encode->len, space, &n));
        encode->len += n;
        is_end = n < space;
        /* A byte order mark does not belong to a text, but some editors write one. */
        if (is_first && encode->len >= 3 && memcmp(encode->text, "\xef\xbb\xbf", 3) == 0) {
            encode->len -= 3;
            memmove(encode->text, encode->text + 3, encode->len);
        }
        is_first = false;
        const size_t cut = is_end ? encode->len : cut_of(encode, encode->text, encode->len, seen);
        if (cut > 0)
            TRY(encode_block(encode, cut, sink, stream_raw_bytes(stream)));
        else if (!is_end && encode->len == encode->cap)
            TRY(encode_grow(encode));
        seen = encode->len;
        TRY(report_progress(&encode->config, encode->before_bytes + stream_raw_bytes(stream)));
    }
    return ST_OK;
}

static enum status encode_text(struct encode *encode, struct encode_sink *sink)
{
    struct stream *stream;
    const bool is_chat = encode->config.chat != NULL;
    if (encode->file->kind == DATA_FILE_KIND_JSONL && !is_chat && sink->end == TOKENIZER_NONE)
        return fail_end(encode->file->path);
    hash_file(encode->hash, encode->file);
    TRY(stream_open(encode->file, hash_raw, encode->hash, &stream));
    if (!is_chat)
        encode_begin_file(sink);
    const enum status st = encode_stream(encode, stream, sink);
    stream_close(stream);
    return st;
}

enum status encode_files(struct encode *encode, const struct data_file *files, int64_t n,
                         struct encode_sink *sink, struct shard_key *key_out)
{
    enum status st = ST_OK;
    encode->hash = hash_begin(&encode->config);
    for (int64_t i = 0; st == ST_OK && i < n; i++) {
        encode->file = files + i;
        st = encode_text(encode, sink);
        encode->before_bytes += data_file_bytes(files + i);
    }
    if (st == ST_OK)
        *key_out = hash_end(encode->hash);
    XXH3_freeState(encode->hash);
    encode->hash = NULL;
    return st;
}
