/* corpus — see corpus.h. It joins the files found by data_file and the token files of cache, all
 * mapped.
 *
 * A part is a token file: one that DATA names, or one made from consecutive texts. Between two
 * parts is one end of text, unless the files already have one there. */
#include "data/corpus.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/text.h"
#include "data/cache.h"
#include "data/data_file.h"
#include "data/encode.h"
#include "data/megatron.h"
#include "data/shard.h"
#include "data/tokenizer_gpt2.h"

/* Consecutive texts of at most so many bytes become one token file, whose header can always
 * count their tokens. A compressed or Megatron file becomes a token file of its own, because its
 * number of tokens is not known before. */
#define CORPUS_RUN_BYTES ((int64_t)INT32_MAX)

struct corpus_part {
    struct shard shard;
    struct shard_facts facts;
    const char *path; /* of its first file */
    char *file;       /* of the token file, given or made */
    int64_t first;    /* position of its first id in the sequence */
};

struct corpus {
    struct data_file_list files;
    struct corpus_part *part;
    int64_t parts_n;
    int64_t tokens;
    uint32_t end; /* of text */
    uint64_t fingerprint;
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

static enum status id_refused(const char *path, int64_t token_i, uint32_t id,
                              const struct corpus_config *config)
{
    return FAIL(ST_BAD_DATA,
                "%s: token %lld has id %u, but the vocabulary has VOCAB=%lld ids; give data made "
                "for it, set TOKENIZER to the model's tokenizer (here %s), or give a model with "
                "VOCAB=%lld",
                path, (long long)token_i, id, (long long)config->vocab, tokenizer_of(config),
                (long long)tokenizer_ids(config));
}

static enum status mark_refused(const char *path, const struct corpus_config *config)
{
    if (end_of(config) == TOKENIZER_NONE)
        return FAIL(ST_BAD_DATA,
                    "several files are joined with an end of text, here before %s, but "
                    "TOKENIZER=%s names none; give one file, or add an eos_token to its "
                    "tokenizer_config.json",
                    path, tokenizer_of(config));
    return FAIL(ST_BAD_DATA,
                "several files are joined with the end of text (id %u), here before %s, but the "
                "vocabulary has VOCAB=%lld ids; give one file, or a model with VOCAB=%lld (of "
                "TOKENIZER=%s)",
                end_of(config), path, (long long)config->vocab, (long long)tokenizer_ids(config),
                tokenizer_of(config));
}

static bool is_plain(const struct data_file *file)
{
    return (file->kind == DATA_FILE_KIND_TEXT || file->kind == DATA_FILE_KIND_JSONL) &&
           !file->is_packed;
}

/* How many of files[0, n) form the next part: one token file, or consecutive texts. */
static int64_t run_files(const struct data_file *files, int64_t n)
{
    int64_t run = 1, bytes = files[0].bytes;
    if (!is_plain(files))
        return 1;
    while (run < n && is_plain(files + run) && files[run].bytes < CORPUS_RUN_BYTES - bytes - run)
        bytes += files[run++].bytes;
    return run;
}

static int64_t text_bytes_of(const struct data_file *files, int64_t n)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        if (files[i].kind != DATA_FILE_KIND_TOKENS)
            bytes += data_file_bytes(files + i);
    return bytes;
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
        if (files.item[i].kind == DATA_FILE_KIND_SQUAD) {
            const enum status st =
                FAIL(ST_BAD_SETTING,
                     "%s: .json files are questions for TASK=qa; text for TASK=lm is "
                     ".jsonl (one {\"text\": ...} a line) or plain",
                     files.item[i].path);
            data_file_free(&files);
            return st;
        }
    *out = files;
    return ST_OK;
}

/* Progress over several parts as one. */
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

static enum status part_open(struct corpus_part *part, const struct data_file *files, int64_t n,
                             const struct corpus_config *config, struct corpus_progress *progress)
{
    char made[FILE_PATH_MAX] = "";
    part->path = files[0].path;
    if (files[0].kind == DATA_FILE_KIND_TOKENS) {
        TRY(shard_open(part->path, &part->shard));
        TRY(shard_check(&part->shard, part->path, config->vocab, &part->facts));
    } else {
        const struct encode_config encode = {
            .tokenizer = config->tokenizer,
            .id_bytes = shard_width(config->vocab),
            .bytes_total = text_bytes_of(files, n),
            .progress = config->progress != NULL ? corpus_progress_run : NULL,
            .progress_arg = progress};
        TRY(cache_shard(config->cache_dir, &encode, files, n, config->vocab, &part->shard,
                        &part->facts, made));
        progress->before_bytes += encode.bytes_total;
    }
    if (part->facts.bad_i >= 0)
        return id_refused(part->path, part->facts.bad_i, part->facts.bad_id, config);
    part->file = strdup(made[0] != '\0' ? made : part->path);
    return part->file != NULL ? ST_OK : FAIL(ST_RETRY, "out of memory: the name of %s", part->path);
}

static void part_close(struct corpus_part *part)
{
    shard_close(&part->shard);
    free(part->file);
    part->file = NULL;
}

static bool is_text(const struct data_file *file)
{
    return file->kind == DATA_FILE_KIND_TEXT || file->kind == DATA_FILE_KIND_JSONL;
}

/* check_tokenizer — before any text is read: have texts one? Files with ids need none. */
static enum status check_tokenizer(const struct data_file_list *files,
                                   const struct corpus_config *config)
{
    for (int64_t i = 0; config->model != NULL && i < files->n; i++)
        if (is_text(files->item + i))
            return tokenizer_gpt2_check(files->item[i].path, config->model, config->vocab);
    return ST_OK;
}

static enum status parts_open(struct corpus *corpus, const struct corpus_config *config)
{
    const struct data_file_list *files = &corpus->files;
    struct corpus_progress progress = {config, 0, text_bytes_of(files->item, files->n)};
    ASSERT(files->n > 0); /* else data_file_find fails */
    TRY(check_tokenizer(files, config));
    corpus->part = calloc((size_t)files->n, sizeof *corpus->part);
    if (corpus->part == NULL)
        return FAIL(ST_RETRY, "out of memory: a list of %lld token files", (long long)files->n);
    for (int64_t i = 0, run; i < files->n; i += run) {
        run = run_files(files->item + i, files->n - i);
        TRY(part_open(corpus->part + corpus->parts_n, files->item + i, run, config, &progress));
        if (corpus->part[corpus->parts_n].shard.info.tokens > 0)
            corpus->parts_n++;
        else
            part_close(corpus->part + corpus->parts_n);
    }
    if (corpus->parts_n == 0)
        return FAIL(ST_BAD_DATA, "%s holds no tokens; check the path", config->data);
    return ST_OK;
}

/* Is an end of text missing between two parts? */
static bool needs_mark(uint32_t end, const struct shard *before, const struct shard *after)
{
    return shard_id(before, before->info.tokens - 1) != end && shard_id(after, 0) != end;
}

static enum status parts_place(struct corpus *corpus, const struct corpus_config *config)
{
    int64_t at = 0;
    for (int64_t i = 0; i < corpus->parts_n; i++) {
        struct corpus_part *part = corpus->part + i;
        if (i > 0 && needs_mark(corpus->end, &part[-1].shard, &part->shard)) {
            if (config->vocab <= corpus->end)
                return mark_refused(part->path, config);
            at++;
        }
        part->first = at;
        at += part->shard.info.tokens;
    }
    corpus->tokens = at;
    return ST_OK;
}

/* Adds a part's ids in the width of the widest. */
static void scan_part(struct shard_scan *scan, const struct shard *shard, int id_bytes)
{
    enum { CHUNK = 4096 };
    uint32_t wide[CHUNK];
    if (shard->info.id_bytes == id_bytes) {
        shard_scan_add(scan, shard->ids, id_bytes, shard->info.tokens);
        return;
    }
    for (int64_t at = 0, k; at < shard->info.tokens; at += k) {
        k = shard->info.tokens - at < CHUNK ? shard->info.tokens - at : CHUNK;
        shard_copy(shard, at, k, wide);
        shard_scan_add(scan, wide, 4, k);
    }
}

static int widest_of(const struct corpus *corpus)
{
    int widest = 2;
    for (int64_t i = 0; i < corpus->parts_n; i++)
        widest = corpus->part[i].shard.info.id_bytes > widest ? 4 : widest;
    return widest;
}

/* Of the sequence of ids, independent of its division into files. */
static enum status fingerprint(struct corpus *corpus)
{
    const int id_bytes = widest_of(corpus);
    struct shard_scan *scan;
    corpus->fingerprint = corpus->part[0].facts.sum;
    if (corpus->parts_n == 1)
        return ST_OK;
    TRY(shard_scan_begin(INT64_MAX, &scan));
    int64_t at = 0;
    for (int64_t i = 0; i < corpus->parts_n; i++) {
        const struct corpus_part *part = corpus->part + i;
        if (at < part->first)
            shard_scan_add(scan, &corpus->end, id_bytes, 1); /* little-endian */
        scan_part(scan, &part->shard, id_bytes);
        at = part->first + part->shard.info.tokens;
    }
    corpus->fingerprint = shard_scan_facts(scan).sum;
    shard_scan_end(scan);
    return ST_OK;
}

static void name_corpus(struct corpus *corpus, const char *data)
{
    char count[32];
    text_format_count(count, sizeof count, (double)corpus->tokens);
    if (corpus->files.n > 1)
        text_format(corpus->name, sizeof corpus->name, "%.400s (%lld files, %s tokens)", data,
                    (long long)corpus->files.n, count);
    else
        text_format(corpus->name, sizeof corpus->name, "%.400s (%s tokens)", data, count);
}

enum status corpus_open(const struct corpus_config *config, struct corpus **out)
{
    enum status st;
    struct corpus *corpus = calloc(1, sizeof *corpus);
    if (corpus == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for the corpus", sizeof *corpus);
    corpus->end = end_of(config);
    TRY_OR(find_files(config, &corpus->files), out_close);
    TRY_OR(parts_open(corpus, config), out_close);
    TRY_OR(parts_place(corpus, config), out_close);
    TRY_OR(fingerprint(corpus), out_close);
    name_corpus(corpus, config->data);
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
    for (int64_t i = 0; corpus->part != NULL && i < corpus->files.n; i++)
        part_close(corpus->part + i);
    free(corpus->part);
    data_file_free(&corpus->files);
    free(corpus);
}

int64_t corpus_tokens(const struct corpus *corpus) { return corpus->tokens; }
const char *corpus_name(const struct corpus *corpus) { return corpus->name; }
uint64_t corpus_fingerprint(const struct corpus *corpus) { return corpus->fingerprint; }

bool corpus_file(const struct corpus *corpus, int64_t file_i, const char **path_out,
                 int64_t *tokens_bytes_out, uint64_t *sum_out)
{
    if (file_i >= corpus->parts_n)
        return false;
    *path_out = corpus->part[file_i].file;
    const struct shard_info *info = &corpus->part[file_i].shard.info;
    *tokens_bytes_out = info->id_bytes * info->tokens;
    *sum_out = corpus->part[file_i].facts.sum;
    return true;
}

/* part_of — the last part that begins at or before the position. */
static const struct corpus_part *part_of(const struct corpus *corpus, int64_t at)
{
    int64_t low = 0, high = corpus->parts_n;
    while (high - low > 1) {
        const int64_t mid = low + (high - low) / 2;
        if (corpus->part[mid].first <= at)
            low = mid;
        else
            high = mid;
    }
    return corpus->part + low;
}

void corpus_read(const struct corpus *corpus, int64_t first, int64_t n, int32_t *out)
{
    ASSERTF(first >= 0 && n >= 0 && n <= corpus->tokens - first, "first %lld n %lld of %lld",
            (long long)first, (long long)n, (long long)corpus->tokens);
    const struct corpus_part *part = part_of(corpus, first);
    for (int64_t at = first, end = first + n; at < end; part++) {
        const int64_t part_end = part->first + part->shard.info.tokens,
                      stop = end < part_end ? end : part_end;
        for (; at < stop; at++)
            out[at - first] = (int32_t)shard_id(&part->shard, at - part->first);
        if (at == part_end && at < end && part[1].first > at)
            out[at++ - first] = (int32_t)corpus->end; /* between two parts */
    }
}

/* ---- all ids in their order, kept nowhere ---- */

struct corpus_reading {
    struct encode *encode; /* opened with the first text */
    struct encode_sink sink;
    bool takes_text; /* alone: files of ids are refused */
};

static enum status visit_tokens(struct corpus_reading *to, const char *path)
{
    struct shard shard = {0};
    struct shard_facts facts;
    TRY(shard_open(path, &shard));
    enum status st = shard_check(&shard, path, INT64_MAX, &facts);
    encode_begin_document(&to->sink);
    for (int64_t at = 0, k; st == ST_OK && at < shard.info.tokens; at += k) {
        uint32_t ids[4096];
        const int64_t most = sizeof ids / sizeof *ids;
        k = shard.info.tokens - at < most ? shard.info.tokens - at : most;
        shard_copy(&shard, at, k, ids);
        st = encode_put(&to->sink, ids, k);
    }
    shard_close(&shard);
    return st;
}

static enum status visit_run(struct corpus_reading *to, const struct data_file *files, int64_t n,
                             const struct encode_config *encode)
{
    struct shard_key key;
    if (to->takes_text && !is_text(files))
        return FAIL(ST_BAD_SETTING, "%s holds ids, not text; give the text that they were made of",
                    files[0].path);
    if (files[0].kind == DATA_FILE_KIND_TOKENS)
        return visit_tokens(to, files[0].path);
    if (to->encode == NULL)
        TRY(encode_open(encode, &to->encode));
    return encode_files(to->encode, files, n, &to->sink, &key);
}

static enum status visit_all(struct corpus_reading *to, const struct data_file_list *files,
                             const struct corpus_config *config)
{
    const struct encode_config encode = {.tokenizer = config->tokenizer,
                                         .id_bytes = shard_width(config->vocab),
                                         .bytes_total = text_bytes_of(files->item, files->n),
                                         .progress = config->progress,
                                         .progress_arg = config->progress_arg};
    for (int64_t i = 0, run; i < files->n; i += run) {
        run = run_files(files->item + i, files->n - i);
        TRY(visit_run(to, files->item + i, run, &encode));
    }
    return ST_OK;
}

static enum status visit_list(const struct data_file_list *files,
                              const struct corpus_config *config, corpus_visit_fn *take, void *arg,
                              int64_t *tokens_out)
{
    struct corpus_reading to = {.sink = {.append = take, .arg = arg, .end = end_of(config)},
                                .takes_text = config->takes_text};
    const enum status st = visit_all(&to, files, config);
    *tokens_out = to.sink.tokens;
    encode_close(to.encode);
    return st;
}

enum status corpus_visit(const struct corpus_config *config, corpus_visit_fn *take, void *arg,
                         int64_t *tokens_out)
{
    struct data_file_list files;
    TRY(find_files(config, &files));
    const enum status st = visit_list(&files, config, take, arg, tokens_out);
    data_file_free(&files);
    return st;
}

/* ---- writing one token file, or Megatron's two ---- */

struct corpus_writing {
    struct shard_writer *shard;
    struct megatron_writer *megatron; /* one of the two */
    struct shard_scan *scan;
};

static enum status append(void *arg, const uint32_t *ids, int64_t n)
{
    struct corpus_writing *to = arg;
    shard_scan_add(to->scan, ids, 4, n);
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

/* Refuses what this program has not written: OUT would replace it. */
static enum status check_token_file(const char *out_path)
{
    const uint32_t magic = SHARD_MAGIC, wide = SHARD_MAGIC_WIDE;
    const char *what = "a token file of convoy tokenize";
    if (file_check_own("OUT", out_path, what, &magic, sizeof magic) == ST_OK)
        return ST_OK;
    status_clear();
    return file_check_own("OUT", out_path, what, &wide, sizeof wide);
}

/* The same for both files of Megatron. The .bin has no mark: its index must belong to it. */
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

static enum status check_out(const char *out_path)
{
    if (out_path == NULL || out_path[0] == '\0')
        return FAIL(ST_BAD_SETTING,
                    "the file to write is not given; set OUT, for example OUT=tokens.bin");
    if (file_is_dir(out_path))
        return FAIL(ST_BAD_SETTING,
                    "OUT=%s is a folder; give the name of a file, for example OUT=%s/tokens.bin",
                    out_path, out_path);
    return ST_OK;
}

static enum status writing_open(struct corpus_writing *to, const struct corpus_config *config,
                                const char *out_path)
{
    const int id_bytes = shard_width(config->vocab);
    TRY(shard_scan_begin(config->vocab, &to->scan));
    if (text_ends(out_path, ".idx"))
        return megatron_create(out_path, end_of(config),
                               id_bytes == 2 ? MEGATRON_TYPE_U16 : MEGATRON_TYPE_I32,
                               &to->megatron);
    return shard_create(out_path, config->vocab, id_bytes, &to->shard);
}

static enum status commit(struct corpus_writing *to, const struct corpus_config *config,
                          const char *out_path)
{
    const struct shard_facts facts = shard_scan_facts(to->scan);
    if (facts.bad_i >= 0)
        return id_refused(out_path, facts.bad_i, facts.bad_id, config);
    return to->shard != NULL ? shard_commit(to->shard, (struct shard_key){{0, 0}})
                             : megatron_commit(to->megatron);
}

enum status corpus_write(const struct corpus_config *config, const char *out_path,
                         int64_t *tokens_out)
{
    struct corpus_writing to = {0};
    struct data_file_list files;
    enum status st;
    TRY(check_out(out_path));
    /* before the file that is written, which may lie in the same folder */
    TRY(find_files(config, &files));
    TRY_OR(check_old(out_path, &files), out_close);
    TRY_OR(writing_open(&to, config, out_path), out_close);
    TRY_OR(visit_list(&files, config, append, &to, tokens_out), out_close);
    st = commit(&to, config, out_path);
out_close:
    shard_abandon(to.shard);
    megatron_abandon(to.megatron);
    shard_scan_end(to.scan);
    data_file_free(&files);
    return st;
}
