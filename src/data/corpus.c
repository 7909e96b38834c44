/* corpus — see corpus.h. It joins the files found by data_file and the token files of cache, all
 * mapped.
 *
 * A source is a token file of DATA, a token file made from consecutive texts, or Megatron's two
 * files. Between two sources is one end of text, unless the files already have one there. */
#include "data/corpus.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/cache.h"
#include "data/data_file.h"
#include "data/tokenizer/encode.h"
#include "data/megatron.h"
#include "data/shard.h"
#include "data/tokenizer/gpt2.h"

/* Consecutive texts of at most this size become one token file, whose header can always count their
 * tokens. A compressed file becomes its own token file, because its number of tokens is unknown
 * before. */
#define CORPUS_RUN_BYTES ((int64_t)INT32_MAX)

/* A start itself checks token files of at most this many bytes together; others are checked in the
 * background. */
#define CORPUS_CHECKED_BYTES ((size_t)64 << 20)

/* Ids of the fingerprint, in blocks that are evenly spread over the sequence. */
enum { SAMPLE_BLOCKS = 64, SAMPLE_IDS = 4096 };

struct corpus_source {
    struct shard shard;       /* Megatron files: only the ids */
    struct megatron megatron; /* empty: a token file */
    const char *path;         /* path of the source's first file, for messages */
    bool is_made;             /* made from texts, and checked */
    char *file;               /* path of the token file, from DATA or made; Megatron: of the .bin */
    const char *idx;          /* Megatron: path of the index */
    int64_t first;            /* position of its first id in the sequence */
};

/* The facts for a message about an id that is out of range. */
struct corpus_vocab {
    int64_t ids, tokenizer_ids;
    char tokenizer[256];
};

struct corpus {
    struct data_file_list files;
    struct corpus_source *source;
    int64_t sources_n;
    int64_t tokens;
    uint32_t end;  /* id of the end of text */
    uint32_t mark; /* bit of an id that is not part of it: CHAT_TRAINED with conversations, or 0 */
    struct corpus_vocab vocab;
    uint64_t fingerprint;
    struct shard_checker *checker; /* NULL: all files are checked */
    char name[512];
};

static uint32_t end_of(const struct corpus_config *config)
{
    return config->tokenizer != NULL ? tokenizer_end(config->tokenizer) : TOKENIZER_GPT2_END;
}

static const char *tokenizer_of(const struct corpus_config *config)
{
    return config->tokenizer != NULL ? tokenizer_name(config->tokenizer) : TOKENIZER_GPT2_NAME;
}

static int64_t tokenizer_ids(const struct corpus_config *config)
{
    return config->tokenizer != NULL ? tokenizer_vocab(config->tokenizer) : TOKENIZER_GPT2_VOCAB;
}

static struct corpus_vocab vocab_of(const struct corpus_config *config)
{
    struct corpus_vocab vocab = {.ids = config->vocab, .tokenizer_ids = tokenizer_ids(config)};
    text_copy(vocab.tokenizer, sizeof vocab.tokenizer, tokenizer_of(config));
    return vocab;
}

static enum status id_refused(const char *path, int64_t token_i, uint32_t id,
                              const struct corpus_vocab *vocab)
{
    if ((id & CHAT_TRAINED) != 0 && (id & ~CHAT_TRAINED) < vocab->ids)
        return FAIL(ST_BAD_SETTING,
                    "%s: token %lld is marked as an answer: the file was made for TASK=chat, in "
                    "the cache; set TASK=chat and DATA to the conversations",
                    path, (long long)token_i);
    return FAIL(
        ST_BAD_DATA,
        "%s: token %lld has id %u, but the vocabulary has VOCAB=%lld ids; use data made for it, "
        "set TOKENIZER to the model's tokenizer (here %s), or use a model with VOCAB=%lld",
        path, (long long)token_i, id, (long long)vocab->ids, vocab->tokenizer,
        (long long)vocab->tokenizer_ids);
}

static bool is_text(const struct data_file *file)
{
    return file->kind == DATA_FILE_KIND_TEXT || file->kind == DATA_FILE_KIND_JSONL;
}

static bool is_plain(const struct data_file *file) { return is_text(file) && !file->is_packed; }

/* Returns the number of files[0, n) that form the next source: one token file, or consecutive texts
 * of one kind, so that all documents of a source are records or none is. */
static int64_t run_files(const struct data_file *files, int64_t n)
{
    int64_t run = 1, bytes = files[0].bytes;
    if (!is_plain(files))
        return 1;
    while (run < n && is_plain(files + run) && files[run].kind == files[0].kind &&
           files[run].bytes < CORPUS_RUN_BYTES - bytes - run)
        bytes += files[run++].bytes;
    return run;
}

static int64_t text_bytes_of(const struct data_file *files, int64_t n)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        if (is_text(files + i))
            bytes += data_file_bytes(files + i);
    return bytes;
}

static enum status check_chats(const struct data_file_list *files)
{
    for (int64_t i = 0; i < files->n; i++)
        /* Node 0 sends its token files. */
        if (files->item[i].kind != DATA_FILE_KIND_JSONL &&
            files->item[i].kind != DATA_FILE_KIND_TOKENS)
            return FAIL(ST_BAD_SETTING,
                        "%s: TASK=chat reads conversations as JSON lines, .jsonl or .jsonl.zst, "
                        "one a line; write a JSON list as lines with: jq -c '.[]' FILE",
                        files->item[i].path);
    return ST_OK;
}

static enum status find_files(const struct corpus_config *config, struct data_file_list *out)
{
    const struct data_file_config from = {.data = config->data,
                                          .cache_dir = config->cache_dir,
                                          .allows_local_urls = config->allows_local_urls,
                                          .progress = config->progress,
                                          .progress_arg = config->progress_arg};
    struct data_file_list files;
    TRY(data_file_find(&from, &files));
    for (int64_t i = 0; i < files.n; i++)
        if (config->chat == NULL && files.item[i].kind == DATA_FILE_KIND_SQUAD) {
            const enum status st =
                FAIL(ST_BAD_SETTING,
                     "%s: .json files are questions for TASK=qa; text for TASK=lm is "
                     ".jsonl (one {\"text\": ...} a line) or plain",
                     files.item[i].path);
            data_file_free(&files);
            return st;
        }
    const enum status st = config->chat != NULL ? check_chats(&files) : ST_OK;
    if (st == ST_OK)
        *out = files;
    else
        data_file_free(&files);
    return st;
}

/* Progress over several sources as one. */
struct corpus_progress {
    const struct corpus_config *config;
    int64_t before_bytes, total_bytes;
};

static bool corpus_progress_run(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    const struct corpus_progress *progress = arg;
    (void)bytes_total;
    return progress->config->progress(progress->config->progress_arg,
                                      progress->before_bytes + bytes_done, progress->total_bytes);
}

/* Opens Megatron's files; their ids are read in place. */
static enum status source_open_megatron(struct corpus_source *source, const struct data_file *file)
{
    TRY(megatron_open(file->path, file->pair->path, &source->megatron));
    source->path = file->pair->path;
    source->idx = file->path;
    source->shard.ids = source->megatron.bin.data;
    source->shard.info.tokens = source->megatron.info.tokens;
    source->shard.info.id_bytes = source->megatron.info.type == MEGATRON_TYPE_U16 ? 2 : 4;
    return ST_OK;
}

/* Checks the first ids of a source, which are read anyway: so a file made for another vocabulary is
 * found before other files are opened. */
static enum status check_beginning(const struct corpus_source *source,
                                   const struct corpus_config *config)
{
    const int64_t tokens = source->shard.info.tokens;
    const struct corpus_vocab vocab = vocab_of(config);
    const uint32_t mark = config->chat != NULL ? CHAT_TRAINED : 0;
    for (int64_t i = 0; i < tokens && i < SAMPLE_IDS; i++)
        if ((shard_id(&source->shard, i) & ~mark) >= vocab.ids)
            return id_refused(source->path, i, shard_id(&source->shard, i) & ~mark, &vocab);
    return ST_OK;
}

static enum status source_open(struct corpus_source *source, const struct data_file *files,
                               int64_t n, const struct corpus_config *config,
                               struct corpus_progress *progress)
{
    char made[FILE_PATH_MAX] = "";
    source->path = files[0].path;
    if (files[0].kind == DATA_FILE_KIND_TOKENS) {
        TRY(shard_open(source->path, &source->shard));
        if (config->chat != NULL &&
            (source->shard.info.records == 0 || source->shard.info.id_bytes != 4))
            return FAIL(ST_BAD_SETTING,
                        "%s is a token file, which does not mark answers; TASK=chat "
                        "reads conversations as JSON lines",
                        source->path);
    } else if (files[0].kind == DATA_FILE_KIND_MEGATRON) {
        TRY(source_open_megatron(source, files));
    } else {
        const struct encode_config encode = {
            .tokenizer = config->tokenizer,
            .chat = config->chat,
            .id_bytes = config->chat != NULL ? 4 : shard_width(config->vocab),
            .bytes_total = text_bytes_of(files, n),
            .progress = config->progress != NULL ? corpus_progress_run : NULL,
            .progress_arg = progress};
        TRY(cache_shard(config->cache_dir, &encode, files, n, &source->shard, made));
        source->is_made = true;
        progress->before_bytes += encode.bytes_total;
    }
    TRY(check_beginning(source, config));
    source->file = memory_text(made[0] != '\0' ? made : source->path);
    return ST_OK;
}

static void source_close(struct corpus_source *source)
{
    shard_close(&source->shard);
    megatron_close(&source->megatron);
    free(source->file);
    *source = (struct corpus_source){0};
}

/* check_tokenizer — checks, before any text is read, that texts have a tokenizer. Files with ids
 * need none. */
static enum status check_tokenizer(const struct data_file_list *files,
                                   const struct corpus_config *config)
{
    for (int64_t i = 0; config->model != NULL && i < files->n; i++)
        if (is_text(files->item + i))
            return tokenizer_gpt2_check(files->item[i].path, config->model, config->vocab);
    return ST_OK;
}

static enum status sources_open(struct corpus *corpus, const struct corpus_config *config)
{
    const struct data_file_list *files = &corpus->files;
    struct corpus_progress progress = {config, 0, text_bytes_of(files->item, files->n)};
    ASSERT(files->n > 0); /* else data_file_find fails */
    TRY(check_tokenizer(files, config));
    corpus->source = memory_new((size_t)files->n, sizeof *corpus->source);
    for (int64_t i = 0, run; i < files->n; i += run) {
        run = run_files(files->item + i, files->n - i);
        TRY(source_open(corpus->source + corpus->sources_n, files->item + i, run, config,
                        &progress));
        if (corpus->source[corpus->sources_n].shard.info.tokens > 0)
            corpus->sources_n++;
        else
            source_close(corpus->source + corpus->sources_n);
    }
    if (corpus->sources_n == 0)
        return FAIL(ST_BAD_DATA, "%s holds no tokens; check the path", config->data);
    return ST_OK;
}

/* Checks the token files of DATA whose checksums are not recorded as right, or starts to. */
static enum status sources_check(struct corpus *corpus, const struct corpus_config *config)
{
    struct shard_checker_file *files = memory_new((size_t)corpus->sources_n, sizeof *files);
    enum status st = ST_OK;
    size_t bytes = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < corpus->sources_n; i++) {
        const struct corpus_source *source = corpus->source + i;
        if (source->is_made || cache_is_checked(config->cache_dir, &source->shard, source->path))
            continue;
        files[n++] = (struct shard_checker_file){&source->shard, source->path};
        bytes += source->shard.map.bytes;
    }
    for (int64_t i = 0; st == ST_OK && bytes <= CORPUS_CHECKED_BYTES && i < n; i++)
        st = cache_check(config->cache_dir, files[i].shard, files[i].path, NULL);
    if (bytes > CORPUS_CHECKED_BYTES)
        st = shard_checker_start(config->cache_dir, files, n, &corpus->checker);
    free(files);
    return st;
}

static enum status join_sources(struct corpus *corpus, const struct corpus_config *config)
{
    int64_t at = 0;
    for (int64_t i = 0; i < corpus->sources_n; i++) {
        struct corpus_source *source = corpus->source + i;
        if (i > 0 && corpus->mark == 0 &&
            shard_id(&source[-1].shard, source[-1].shard.info.tokens - 1) != corpus->end &&
            shard_id(&source->shard, 0) != corpus->end) {
            if (config->vocab <= corpus->end) {
                const char *path = source->path;
                if (end_of(config) == TOKENIZER_NONE)
                    return FAIL(ST_BAD_DATA,
                                "several files are joined with an end of text, here before %s, but "
                                "TOKENIZER=%s has none; use one file, or add an eos_token to its "
                                "tokenizer_config.json",
                                path, tokenizer_of(config));
                return FAIL(ST_BAD_DATA,
                            "several files are joined with the end of text (id %u), here before "
                            "%s, but the vocabulary has VOCAB=%lld ids; use one file, or a model "
                            "with VOCAB=%lld (the ids of TOKENIZER=%s)",
                            end_of(config), path, (long long)config->vocab,
                            (long long)tokenizer_ids(config), tokenizer_of(config));
            }
            at++;
        }
        source->first = at;
        at += source->shard.info.tokens;
    }
    corpus->tokens = at;
    return ST_OK;
}

/* Adds n ids in the width of the widest source. */
static enum status sample_add(const struct corpus *corpus, int64_t first, int64_t n, int id_bytes,
                              XXH3_state_t *hash)
{
    int32_t wide[SAMPLE_IDS];
    uint16_t narrow[SAMPLE_IDS];
    TRY(corpus_read(corpus, first, n, wide));
    for (int64_t i = 0; i < n; i++)
        narrow[i] = (uint16_t)wide[i];
    XXH3_64bits_update(hash, id_bytes == 4 ? (const void *)wide : narrow, (size_t)(n * id_bytes));
    return ST_OK;
}

static enum status sample_all(const struct corpus *corpus, XXH3_state_t *hash)
{
    int id_bytes = 2;
    for (int64_t i = 0; i < corpus->sources_n; i++)
        id_bytes = corpus->source[i].shard.info.id_bytes > id_bytes ? 4 : id_bytes;
    const int64_t tokens = corpus->tokens, most = (int64_t)SAMPLE_BLOCKS * SAMPLE_IDS,
                  last = tokens - SAMPLE_IDS;
    XXH3_64bits_reset(hash);
    for (int64_t at = 0; tokens <= most && at < tokens; at += SAMPLE_IDS)
        TRY(sample_add(corpus, at, at > last ? tokens - at : SAMPLE_IDS, id_bytes, hash));
    if (tokens <= most)
        return ST_OK;
    XXH3_64bits_update(hash, &tokens, sizeof tokens);
    for (int64_t i = 0; i < SAMPLE_BLOCKS; i++) {
        const int64_t at =
            last / (SAMPLE_BLOCKS - 1) * i + last % (SAMPLE_BLOCKS - 1) * i / (SAMPLE_BLOCKS - 1);
        TRY(sample_add(corpus, at, SAMPLE_IDS, id_bytes, hash));
    }
    return ST_OK;
}

/* Computes the fingerprint. It also finds most data made for another vocabulary before the first
 * step. */
static enum status compute_fingerprint(struct corpus *corpus)
{
    XXH3_state_t *hash = file_hash_new();
    const enum status st = sample_all(corpus, hash);
    corpus->fingerprint = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return st;
}

enum status corpus_open(const struct corpus_config *config, struct corpus **out)
{
    enum status st;
    struct corpus *corpus = memory_new(1, sizeof *corpus);
    corpus->end = end_of(config);
    corpus->mark = config->chat != NULL ? CHAT_TRAINED : 0;
    corpus->vocab = vocab_of(config);
    TRY_OR(find_files(config, &corpus->files), out_close);
    TRY_OR(sources_open(corpus, config), out_close);
    TRY_OR(sources_check(corpus, config), out_close);
    TRY_OR(join_sources(corpus, config), out_close);
    TRY_OR(compute_fingerprint(corpus), out_close);
    const char *data = config->data;
    char count[32];
    text_format_count(count, sizeof count, (double)corpus->tokens);
    if (corpus->files.n > 1)
        text_format(corpus->name, sizeof corpus->name, "%.400s (%lld files, %s tokens)", data,
                    (long long)corpus->files.n, count);
    else
        text_format(corpus->name, sizeof corpus->name, "%.400s (%s tokens)", data, count);
    *out = corpus;
    return ST_OK;
out_close:
    corpus_close(corpus);
    return st;
}

void corpus_close(struct corpus *corpus)
{
    if (corpus == NULL)
        return;
    shard_checker_stop(corpus->checker);
    for (int64_t i = 0; corpus->source != NULL && i < corpus->files.n; i++)
        source_close(corpus->source + i);
    free(corpus->source);
    data_file_free(&corpus->files);
    free(corpus);
}

int64_t corpus_tokens(const struct corpus *corpus) { return corpus->tokens; }
const char *corpus_name(const struct corpus *corpus) { return corpus->name; }
uint64_t corpus_fingerprint(const struct corpus *corpus) { return corpus->fingerprint; }

static bool has_index(const struct corpus_source *source) { return source->idx != NULL; }

static int64_t source_records(const struct corpus_source *source)
{
    return has_index(source) ? source->megatron.info.documents : source->shard.info.records;
}

int64_t corpus_records(const struct corpus *corpus)
{
    int64_t n = 0;
    for (int64_t i = 0; i < corpus->sources_n; i++)
        n += source_records(corpus->source + i);
    return n;
}

static void describe_file(const struct corpus_source *source, bool is_index,
                          struct corpus_file *out)
{
    const struct file_map *map = !has_index(source) ? &source->shard.map
                                 : is_index         ? &source->megatron.idx
                                                    : &source->megatron.bin;
    const size_t skip = has_index(source) ? 0 : SHARD_HEADER_BYTES;
    const struct shard_info *info = &source->shard.info;
    *out = (struct corpus_file){
        .path = is_index ? source->idx : source->file,
        .suffix = is_index ? ".idx" : ".bin",
        .bytes = (int64_t)map->bytes,
        .skip = (int64_t)skip,
        .sum = info->has_sum ? info->sum : file_sum_ends(map->data + skip, map->bytes - skip),
        .sums_ends = !info->has_sum,
        .is_pair = is_index};
}

bool corpus_file(const struct corpus *corpus, int64_t file_i, struct corpus_file *out)
{
    for (int64_t i = 0; i < corpus->sources_n; i++) {
        const int64_t n = has_index(corpus->source + i) ? 2 : 1;
        if (file_i < n) {
            describe_file(corpus->source + i, file_i == 1, out);
            return true;
        }
        file_i -= n;
    }
    return false;
}

/* source_of — returns the last source that begins at or before the position. */
static const struct corpus_source *source_of(const struct corpus *corpus, int64_t at)
{
    int64_t low = 0, high = corpus->sources_n;
    while (high - low > 1) {
        const int64_t mid = low + (high - low) / 2;
        if (corpus->source[mid].first <= at)
            low = mid;
        else
            high = mid;
    }
    return corpus->source + low;
}

enum status corpus_read(const struct corpus *corpus, int64_t first, int64_t n, int32_t *out)
{
    ASSERTF(first >= 0 && n >= 0 && n <= corpus->tokens - first, "first %lld n %lld of %lld",
            (long long)first, (long long)n, (long long)corpus->tokens);
    const struct corpus_source *source = source_of(corpus, first);
    TRY(shard_checker_found(corpus->checker));
    for (int64_t at = first, end = first + n; at < end; source++) {
        const int64_t source_end = source->first + source->shard.info.tokens,
                      stop = end < source_end ? end : source_end;
        for (; at < stop; at++) {
            const uint32_t marked = shard_id(&source->shard, at - source->first),
                           id = marked & ~corpus->mark;
            if (id >= corpus->vocab.ids)
                return id_refused(source->path, at - source->first, id, &corpus->vocab);
            out[at - first] = (int32_t)marked;
        }
        if (at == source_end && at < end && source[1].first > at)
            out[at++ - first] = (int32_t)corpus->end; /* between two sources */
    }
    return ST_OK;
}

/* ---- documents ---- */

#define NOWHERE INT64_MAX

/* Returns the beginning of the document of a record or file whose first id is at `first`. */
static int64_t begin_of(const struct corpus *corpus, int64_t first)
{
    if (first == 0 || corpus->mark != 0)
        return first; /* conversations lie side by side */
    const struct corpus_source *source = source_of(corpus, first - 1);
    const int64_t i = first - 1 - source->first;
    const bool is_end =
        i >= source->shard.info.tokens || shard_id(&source->shard, i) == corpus->end;
    return is_end ? first - 1 : first;
}

static enum status record_first(const struct corpus_source *source, int64_t record_i, int64_t *out)
{
    if (has_index(source))
        return megatron_begin(&source->megatron.info, record_i, source->idx, out);
    *out = source->shard.records[record_i];
    return ST_OK;
}

/* Finds the first record of a source that begins at its id `at` or later; NOWHERE: none. */
static enum status next_record(const struct corpus_source *source, int64_t at, int64_t *out)
{
    int64_t low = 0, high = source_records(source), first = NOWHERE;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        TRY(record_first(source, mid, &first));
        if (first < at)
            low = mid + 1;
        else
            high = mid;
    }
    *out = NOWHERE;
    if (low == source_records(source))
        return ST_OK;
    TRY(record_first(source, low, &first));
    if (first >= at && first < source->shard.info.tokens)
        *out = first;
    return ST_OK;
}

/* Finds the first document of a source with records that begins at `at` or later. */
static enum status next_by_record(const struct corpus *corpus, const struct corpus_source *source,
                                  int64_t at, int64_t *out)
{
    int64_t record = at - source->first;
    for (;; record++) {
        TRY(next_record(source, record, &record));
        *out = record == NOWHERE ? NOWHERE : begin_of(corpus, source->first + record);
        if (*out >= at)
            return ST_OK;
    }
}

static int64_t next_by_separator(const struct corpus *corpus, const struct corpus_source *source,
                                 int64_t at, int64_t end, const int64_t separator[2])
{
    const int64_t source_end = source->first + source->shard.info.tokens,
                  stop = end < source_end ? end : source_end;
    if (at == source->first && begin_of(corpus, at) == at)
        return at;
    for (; at < stop; at++) {
        const int64_t id = shard_id(&source->shard, at - source->first);
        if (id == separator[0] || id == separator[1])
            return at;
    }
    return NOWHERE;
}

enum status corpus_next_document(const struct corpus *corpus, int64_t at, int64_t end,
                                 const int64_t separator[2], int64_t *out)
{
    const struct corpus_source *source = source_of(corpus, at),
                               *last = corpus->source + corpus->sources_n - 1;
    for (int64_t from = at; from < end; source++) {
        int64_t begin = NOWHERE;
        if (source_records(source) > 0)
            TRY(next_by_record(corpus, source, from, &begin));
        else
            begin = next_by_separator(corpus, source, from, end, separator);
        if (source < last) {
            const int64_t next = begin_of(corpus, source[1].first);
            begin = next >= at && next < begin ? next : begin;
        }
        if (begin < end) {
            *out = begin;
            return ST_OK;
        }
        if (source == last)
            break;
        from = source[1].first;
    }
    *out = end;
    return ST_OK;
}

/* ---- all ids in their order, kept nowhere ---- */

struct corpus_reading {
    struct encode *encode; /* opened with the first text */
    struct encode_sink sink;
    const struct corpus_config *config;
    int64_t text_bytes;
};

/* Passes on the ids [first, end) of a file. */
static enum status put_ids(struct corpus_reading *to, const struct shard *shard, int64_t first,
                           int64_t end)
{
    uint32_t ids[4096];
    const int64_t most = sizeof ids / sizeof *ids;
    for (int64_t at = first, k; at < end; at += k) {
        k = end - at < most ? end - at : most;
        shard_copy(shard, at, k, ids);
        TRY(encode_put(&to->sink, ids, k));
        /* Texts report their own progress; ids are only copied. */
        const struct corpus_config *config = to->config;
        if (config->progress != NULL && !config->progress(config->progress_arg, 0, to->text_bytes))
            return FAIL(ST_RETRY,
                        "stopped while tokenising, after %lld ids; the next start begins again",
                        (long long)to->sink.tokens);
    }
    return ST_OK;
}

static enum status put_documents(struct corpus_reading *to, const struct corpus_source *source)
{
    int64_t first, end;
    encode_begin_file(&to->sink);
    for (int64_t d = 0; d < source->megatron.info.documents; d++) {
        TRY(megatron_begin(&source->megatron.info, d, source->idx, &first));
        TRY(megatron_begin(&source->megatron.info, d + 1, source->idx, &end));
        if (end < first)
            return FAIL(ST_BAD_DATA,
                        "Megatron index %s is damaged: its document %lld begins at token %lld and "
                        "ends at %lld; copy or make it again",
                        source->idx, (long long)d, (long long)first, (long long)end);
        if (first == end)
            continue;
        const uint32_t id = shard_id(&source->shard, first);
        TRY(encode_begin_record(&to->sink, &id, 1, 0));
        TRY(put_ids(to, &source->shard, first, end));
    }
    return ST_OK;
}

static enum status visit_run(struct corpus_reading *to, const struct data_file *files, int64_t n,
                             const struct encode_config *encode)
{
    struct shard_key key;
    if (to->config->is_text_only && !is_text(files))
        return FAIL(ST_BAD_SETTING,
                    "%s holds ids, not text; use the text from which they were made",
                    files[0].path);
    if (files[0].kind == DATA_FILE_KIND_TOKENS) {
        const char *path = files[0].path;
        struct shard shard = {0};
        TRY(shard_open(path, &shard));
        enum status st = shard_check(&shard, path, NULL);
        encode_begin_file(&to->sink);
        if (st == ST_OK)
            st = put_ids(to, &shard, 0, shard.info.tokens);
        shard_close(&shard);
        return st;
    }
    if (files[0].kind == DATA_FILE_KIND_MEGATRON) {
        struct corpus_source source = {0};
        enum status st = source_open_megatron(&source, files);
        if (st == ST_OK)
            st = put_documents(to, &source);
        source_close(&source);
        return st;
    }
    if (to->encode == NULL)
        TRY(encode_open(encode, &to->encode));
    return encode_files(to->encode, files, n, &to->sink, &key);
}

static enum status visit_all(struct corpus_reading *to, const struct data_file_list *files,
                             const struct corpus_config *config)
{
    const struct encode_config encode = {.tokenizer = config->tokenizer,
                                         .id_bytes = shard_width(config->vocab),
                                         .bytes_total = to->text_bytes,
                                         .progress = config->progress,
                                         .progress_arg = config->progress_arg};
    for (int64_t i = 0, run; i < files->n; i += run) {
        run = run_files(files->item + i, files->n - i);
        TRY(visit_run(to, files->item + i, run, &encode));
    }
    return ST_OK;
}

static enum status visit_list(const struct data_file_list *files,
                              const struct corpus_config *config, const struct encode_sink *sink,
                              int64_t *tokens_out)
{
    struct corpus_reading to = {
        .sink = *sink, .config = config, .text_bytes = text_bytes_of(files->item, files->n)};
    to.sink.end = end_of(config);
    const enum status st = visit_all(&to, files, config);
    *tokens_out = to.sink.tokens;
    encode_close(to.encode);
    return st;
}

enum status corpus_visit(const struct corpus_config *config, corpus_visit_fn *on_ids, void *arg,
                         int64_t *tokens_out)
{
    struct data_file_list files;
    TRY(find_files(config, &files));
    const struct encode_sink sink = {.append = on_ids, .arg = arg};
    const enum status st = visit_list(&files, config, &sink, tokens_out);
    data_file_free(&files);
    return st;
}

/* ---- writing one token file, or Megatron's two ---- */

struct corpus_writing {
    struct shard_writer *shard;
    struct megatron_writer *megatron; /* one of the two */
    struct shard_scan *scan;
    uint32_t end; /* id of the end of text */
    bool is_record;
    int64_t records, ends; /* records, and ends of text in them */
};

static enum status append(void *arg, const uint32_t *ids, int64_t n)
{
    struct corpus_writing *to = arg;
    shard_scan_add(to->scan, ids, 4, n);
    for (int64_t i = 0; to->is_record && i < n; i++)
        to->ends += ids[i] == to->end;
    return to->shard != NULL ? shard_append(to->shard, ids, n)
                             : megatron_append(to->megatron, ids, n);
}

/* Refuses a file of DATA as OUT. */
static enum status check_input(const struct data_file_list *files, const char *out_path)
{
    struct stat info;
    if (stat(out_path, &info) != 0)
        return ST_OK;
    for (int64_t i = 0; i < files->n; i++)
        for (const struct data_file *file = files->item + i; file != NULL; file = file->pair)
            if (file->device == info.st_dev && file->inode == info.st_ino)
                return FAIL(ST_BAD_SETTING,
                            "OUT=%s is one of the files of DATA (%s); choose another name",
                            out_path, file->path);
    return ST_OK;
}

/* Refuses a file that this program has not written: OUT would replace it. */
static enum status check_token_file(const char *out_path)
{
    const uint32_t magic = SHARD_MAGIC, wide = SHARD_MAGIC_WIDE;
    const char *what = "a token file of convoy tokenize";
    if (file_check_own("OUT", out_path, what, &magic, sizeof magic) == ST_OK)
        return ST_OK;
    status_clear();
    return file_check_own("OUT", out_path, what, &wide, sizeof wide);
}

/* Refuses other files like check_token_file, for both files of Megatron. The .bin has no mark: its
 * index must belong to it. */
static enum status check_megatron(const char *idx_path, const struct data_file_list *files)
{
    char bin_path[FILE_PATH_MAX];
    struct megatron old = {0};
    TRY(file_check_own("OUT", idx_path, "an index of Megatron", MEGATRON_MAGIC,
                       sizeof MEGATRON_MAGIC - 1));
    text_format(bin_path, sizeof bin_path, "%.*s.bin", (int)strlen(idx_path) - 4, idx_path);
    TRY(check_input(files, bin_path));
    if (file_bytes(bin_path) <= 0 || megatron_open(idx_path, bin_path, &old) == ST_OK) {
        megatron_close(&old);
        return ST_OK;
    }
    status_clear();
    return FAIL(ST_BAD_SETTING,
                "OUT=%s would also write %s, which exists and is not the token file of that index; "
                "it was not changed: choose another name, or remove it",
                idx_path, bin_path);
}

static enum status check_old(const char *out_path, const struct data_file_list *files)
{
    TRY(check_input(files, out_path));
    return text_ends(out_path, ".idx") ? check_megatron(out_path, files)
                                       : check_token_file(out_path);
}

static enum status begin(void *arg, int64_t token_i, bool is_record)
{
    struct corpus_writing *to = arg;
    to->is_record = is_record;
    to->records += is_record;
    return to->megatron != NULL ? megatron_begin_record(to->megatron, token_i, is_record) : ST_OK;
}

static enum status writing_open(struct corpus_writing *to, const struct corpus_config *config,
                                const char *out_path)
{
    const int id_bytes = shard_width(config->vocab);
    to->end = end_of(config);
    to->scan = shard_scan_begin(config->vocab);
    if (text_ends(out_path, ".idx"))
        return megatron_create(out_path, end_of(config),
                               id_bytes == 2 ? MEGATRON_TYPE_U16 : MEGATRON_TYPE_I32,
                               &to->megatron);
    return shard_create(out_path, config->vocab, id_bytes, &to->shard);
}

static enum status commit_output(struct corpus_writing *to, const struct corpus_config *config,
                                 const char *out_path)
{
    const struct shard_facts facts = shard_scan_facts(to->scan);
    const struct corpus_vocab vocab = vocab_of(config);
    if (facts.bad_i >= 0)
        return id_refused(out_path, facts.bad_i, facts.bad_id, &vocab);
    /* Each record has one end of text, at its end, unless its own text has more or the data have
     * none. */
    if (to->shard != NULL && to->ends != to->records)
        LOG_WARN("%s: its %lld records hold %lld ends of text (id %u), but a token file of llm.c "
                 "separates records in no other way: ATTENTION_MASK=document and PACK_DOCUMENTS=1 "
                 "would not find the records. Write OUT=NAME.idx, which keeps them, or set DATA to "
                 "the data themselves",
                 out_path, (long long)to->records, (long long)to->ends, to->end);
    return to->shard != NULL ? shard_commit(to->shard, (struct shard_key){{0, 0}})
                             : megatron_commit(to->megatron);
}

enum status corpus_write(const struct corpus_config *config, const char *out_path,
                         int64_t *tokens_out)
{
    struct corpus_writing to = {0};
    struct data_file_list files;
    enum status st;
    if (out_path == NULL || out_path[0] == '\0')
        return FAIL(ST_BAD_SETTING,
                    "the file to write is not given; set OUT, for example OUT=tokens.bin");
    if (file_is_dir(out_path))
        return FAIL(
            ST_BAD_SETTING,
            "OUT=%s is a folder; set it to the name of a file, for example OUT=%s/tokens.bin",
            out_path, out_path);
    /* before the file that is written, which may lie in the same folder */
    TRY(find_files(config, &files));
    TRY_OR(check_old(out_path, &files), out_close);
    TRY_OR(writing_open(&to, config, out_path), out_close);
    TRY_OR(visit_list(&files, config,
                      &(struct encode_sink){.append = append, .begin = begin, .arg = &to},
                      tokens_out),
           out_close);
    st = commit_output(&to, config, out_path);
out_close:
    shard_abandon(to.shard);
    megatron_abandon(to.megatron);
    shard_scan_end(to.scan);
    data_file_free(&files);
    return st;
}
