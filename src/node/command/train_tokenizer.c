/* train_tokenizer — `convoy train-tokenizer`: trains a byte-level BPE on the text of DATA, and
 * writes it as a folder for TOKENIZER. Must not know how merges are found (data/tokenizer/bpe.h).
 *
 * The text arrives as ids of GPT-2's tokenizer, which are turned back into bytes. So it is read as
 * for training, in any of its formats, and cut into pre-tokens by GPT-2's pattern. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/tokenizer/bpe.h"
#include "data/corpus.h"
#include "data/feed.h"
#include "data/tokenizer/gpt2.h"
#include "data/tokenizer/json_write.h"
#include "node/command.h"
#include "node/choose/config_map.h"
#include "node/process/process.h"

enum {
    VOCAB_DEFAULT = 32768,
    VOCAB_LEAST = 257, /* the bytes and the end-of-text token */
    FILE_BYTES_MAX = 256 << 20,
    CONTEXT_DEFAULT = 1024
};
#define END_TEXT "<|endoftext|>"
#define PRE "gpt-2"

static bool go_on_reading(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    (void)arg, (void)bytes_done, (void)bytes_total;
    return process_noted() == 0;
}
static bool go_on_merging(void *arg, uint32_t tokens)
{
    (void)arg, (void)tokens;
    return process_noted() == 0;
}

/* ---- counting the text ---- */

struct reading {
    const struct tokenizer *gpt2;
    struct bpe_train *train;
    struct text bytes; /* bytes of one chunk */
};

/* count_bytes — counts the text so far, at the end of a chunk or of a document within one. */
static enum status count_bytes(struct reading *r)
{
    if (r->bytes.overflow)
        return FAIL(ST_RETRY, "out of memory: %zu bytes of text", r->bytes.len);
    bpe_train_add(r->train, (const uint8_t *)r->bytes.data, r->bytes.len);
    r->bytes.len = 0;
    return ST_OK;
}

static enum status count_ids(void *arg, const uint32_t *ids, int64_t n)
{
    struct reading *r = arg;
    for (int64_t i = 0; i < n; i++) {
        size_t id_bytes;
        const uint8_t *bytes = tokenizer_bytes(r->gpt2, ids[i], &id_bytes);
        if (ids[i] == TOKENIZER_GPT2_END)
            TRY(count_bytes(r));
        else
            text_add_bytes(&r->bytes, bytes, id_bytes);
    }
    return count_bytes(r);
}

static enum status count_words(const struct conf *conf, struct bpe_train *train)
{
    struct tokenizer *gpt2;
    int64_t tokens;
    TRY(tokenizer_gpt2_open(&gpt2));
    struct reading r = {.gpt2 = gpt2, .train = train, .bytes = {.limit = FILE_BYTES_MAX}};
    const struct corpus_config config = {.data = conf_text(conf, CONF_DATA),
                                         .cache_dir = conf_text(conf, CONF_CACHE_DIR),
                                         .allows_local_urls = conf_i64(conf, CONF_ALLOW_LOCAL_URLS),
                                         .vocab = TOKENIZER_GPT2_VOCAB,
                                         .tokenizer = gpt2,
                                         .is_text_only = true,
                                         .progress = go_on_reading};
    const enum status st = corpus_visit(&config, count_ids, &r, &tokens);
    text_free(&r.bytes);
    tokenizer_close(gpt2);
    return st;
}

/* ---- writing ---- */

/* The texts of all pieces, one after another; each piece points into them. */
struct lists {
    struct text chars;
    struct tokenizer_piece *piece, *merge;
    size_t *at; /* begin of each piece, followed by the begin of each merge */
    size_t n, merges_n;
};

static void add_token(struct lists *lists, const struct bpe_train *train, uint32_t id)
{
    size_t n;
    const uint8_t *bytes = bpe_train_bytes(train, id, &n);
    /* Write bytes as the characters that represent them. */
    uint16_t char_of[256];
    bpe_chars_fill(char_of);
    for (size_t i = 0; i < n; i++) {
        uint8_t utf8[4];
        text_add_bytes(&lists->chars, utf8, text_utf8_put(utf8, char_of[bytes[i]]));
    }
}

static enum status fill_lists(struct lists *lists, const struct bpe_train *train)
{
    const struct bpe_train_merge *merge = bpe_train_merges(train, &lists->merges_n);
    lists->n = bpe_train_tokens(train) + 1;
    lists->chars.limit = FILE_BYTES_MAX;
    const size_t all = lists->n + lists->merges_n;
    lists->piece = memory_new(all + 1, sizeof *lists->piece);
    lists->at = memory_new(all + 1, sizeof *lists->at);
    size_t *at = lists->at;
    for (uint32_t id = 0; id < bpe_train_tokens(train); id++) {
        *at++ = lists->chars.len;
        add_token(lists, train, id);
    }
    *at++ = lists->chars.len;
    text_add(&lists->chars, END_TEXT);
    for (size_t i = 0; i < lists->merges_n; i++) {
        *at++ = lists->chars.len;
        add_token(lists, train, merge[i].left);
        text_add(&lists->chars, " ");
        add_token(lists, train, merge[i].right);
    }
    *at = lists->chars.len;
    if (lists->chars.overflow)
        return FAIL(ST_RETRY, "out of memory: the texts of %zu tokens", all);
    for (size_t i = 0; i < all; i++)
        lists->piece[i] = (struct tokenizer_piece){.text = lists->chars.data + lists->at[i],
                                                   .n = lists->at[i + 1] - lists->at[i],
                                                   .type = TOKENIZER_PIECE_NORMAL};
    lists->piece[lists->n - 1].type = TOKENIZER_PIECE_CONTROL;
    lists->merge = lists->piece + lists->n;
    return ST_OK;
}

static enum status write_file(const char *folder, const char *name, const struct text *text)
{
    char path[FILE_PATH_MAX];
    if (text->overflow)
        return FAIL(ST_RETRY, "out of memory: %s of %zu bytes", name, text->len);
    TRY(file_join(path, sizeof path, folder, name));
    return file_replace(path, text->data, text->len);
}

static enum status write_lists(const struct lists *lists, const char *folder)
{
    const struct tokenizer_gguf from = {.name = folder,
                                        .model = "gpt2",
                                        .pre = PRE,
                                        .piece = lists->piece,
                                        .merge = lists->merge,
                                        .n = lists->n,
                                        .merges_n = lists->merges_n,
                                        .begin = -1,
                                        .end = (int64_t)lists->n - 1};
    struct text json = {.limit = FILE_BYTES_MAX}, config = {.limit = 0};
    enum status st = tokenizer_json_write(&from, &json);
    if (st == ST_OK)
        st = tokenizer_json_write_config(&from, CONTEXT_DEFAULT, &config);
    if (st == ST_OK)
        st = file_make_dirs(folder);
    if (st == ST_OK)
        st = write_file(folder, "tokenizer_config.json", &config);
    if (st == ST_OK) /* last: a folder that has it also has the other file */
        st = write_file(folder, "tokenizer.json", &json);
    text_free(&json);
    text_free(&config);
    return st;
}

/* ---- the command ---- */

static enum status check_settings(const struct conf *conf, uint32_t *vocab)
{
    const char *data = conf_text(conf, CONF_DATA);
    const int64_t wish = conf_i64(conf, CONF_VOCAB);
    if (data[0] == '\0' || strcmp(data, FEED_SYNTHETIC) == 0)
        return FAIL(ST_BAD_SETTING,
                    "DATA has no text to make a tokenizer from; set DATA to a text file, a folder "
                    "or a glob%s",
                    data[0] != '\0' ? "; DATA=synthetic has no text" : "");
    if (wish != 0 && (wish < VOCAB_LEAST || wish > BPE_VOCAB_MAX))
        return FAIL(ST_BAD_SETTING,
                    "VOCAB=%lld: a tokenizer has from %d (256 bytes and the end of a text) to %d "
                    "tokens",
                    (long long)wish, VOCAB_LEAST, BPE_VOCAB_MAX);
    *vocab = wish > 0 ? (uint32_t)wish : VOCAB_DEFAULT;
    const char *folder = conf_text(conf, CONF_OUT);
    char path[FILE_PATH_MAX];
    if (folder[0] == '\0')
        return FAIL(ST_BAD_SETTING,
                    "OUT is not set; set OUT to the folder to write, for example OUT=my-tokenizer");
    TRY(file_join(path, sizeof path, folder, "tokenizer.json"));
    if (file_bytes(path) >= 0)
        return FAIL(
            ST_BAD_SETTING,
            "OUT=%s has a tokenizer.json already; set another folder, or remove the file if "
            "no model needs it",
            folder);
    return ST_OK;
}

static enum status make_tokenizer(const struct conf *conf, struct bpe_train *train, uint32_t vocab)
{
    int64_t bytes, tokens;
    TRY(count_words(conf, train));
    TRY(bpe_train_run(train, vocab - 1, go_on_merging, NULL));
    bpe_train_size(train, &bytes, &tokens);
    if (bytes == 0)
        return FAIL(ST_BAD_DATA, "%s holds no text; check the path", conf_text(conf, CONF_DATA));
    const char *folder = conf_text(conf, CONF_OUT);
    struct lists lists = {.n = 0};
    enum status st = fill_lists(&lists, train);
    if (st == ST_OK)
        st = write_lists(&lists, folder);
    text_free(&lists.chars);
    free(lists.piece);
    free(lists.at);
    return st;
}

enum status train_tokenizer_main(const struct conf *conf)
{
    const int64_t began_ms = clock_ms();
    uint32_t vocab = 0;
    TRY(check_settings(conf, &vocab));
    struct bpe_train *train = bpe_train_open(PRETOKEN_KIND_GPT2);
    process_note_signals(false);
    enum status st = make_tokenizer(conf, train, vocab);
    if (st != ST_OK && process_noted() != 0)
        st = process_fail_noted(conf_text(conf, CONF_OUT), "not written");
    if (st == ST_OK) {
        /* Log one line with the number of tokens and how well they fit the text. */
        const char *folder = conf_text(conf, CONF_OUT);
        int64_t bytes, tokens;
        bpe_train_size(train, &bytes, &tokens);
        if (bpe_train_tokens(train) + 1 < vocab)
            LOG_WARN(
                "VOCAB=%u: with %u tokens no pair of tokens occurs twice in the text; train with "
                "VOCAB=%u, or use more text",
                vocab, bpe_train_tokens(train) + 1, bpe_train_tokens(train) + 1);
        log_console("%s  %u tokens  %.2f bytes of the text a token  %.1f s", folder,
                    bpe_train_tokens(train) + 1, (double)bytes / (double)(tokens > 0 ? tokens : 1),
                    (double)(clock_ms() - began_ms) / 1e3);
    }
    bpe_train_close(train);
    return config_map_name_setting(st, false);
}
