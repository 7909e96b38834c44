/* tokenizer_json — see tokenizer/file.h. The document is walked, not parsed whole: vocabularies
 * have a hundred thousand entries and more. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_walk.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/tokenizer/bpe.h"
#include "data/jsonl.h"
#include "data/tokenizer/file.h"
#include "data/tokenizer/pieces.h"
#include "data/tokenizer/rules.h"

/* json_string — the text of one JSON string. Must not know documents. */

/* json_string_read — decodes the string at text, with its quotes, n_bytes long; out has space for
 * n_bytes. It may hold 0; half a surrogate pair becomes U+FFFD. false: it is not a JSON string. */
static bool json_string_read(const char *text, size_t n_bytes, uint8_t *out, size_t *n_out)
{
    size_t n = 0;
    if (n_bytes < 2 || text[0] != '"' || text[n_bytes - 1] != '"')
        return false;
    const uint8_t *p = (const uint8_t *)text + 1, *end = p + n_bytes - 2;
    while (p != NULL && p < end) {
        if (*p != '\\') {
            if (*p < 0x20 || *p == '"')
                return false;
            out[n++] = *p++;
            continue;
        }
        if (++p == end)
            return false;
        p = jsonl_escape(p, end, out, &n);
    }
    *n_out = n;
    return p != NULL;
}

/* Ids may leave gaps, but limited ones, so that a small file cannot need much memory. */
#define IDS_MAX(tokens) (2 * (tokens) + 65536)

typedef struct tokenizer_rules_text json_span;

struct json_reader {
    const char *name;
    const char *end;
    json_span normalizer, pre_tokenizer, post_processor, added, model;
    json_span type, dropout, unknown, prefix, suffix, fuses, fallback, whole, vocab, merges;
    struct tokenizer_rules rules;
    bool has_fallback;
    bool has_inner_space; /* a token has a space after another character */
    size_t vocab_n, merges_n;
    uint32_t ids; /* all ids are below */
    uint32_t byte_id[256];
    uint8_t *scratch; /* space for two strings of the document */
    struct tokenizer_added *special;
    size_t special_n;
    struct bpe *bpe;
};

/* ---- spans of the document ---- */

struct json_field {
    const char *key;
    json_span *span;
};

/* Reads the requested members of an object; others are ignored. */
static enum status read_fields(json_span object, const char *name, const struct json_field *field,
                               int fields)
{
    struct json_walk walk;
    struct json_item item;
    bool is_end;
    TRY(json_walk_begin(&walk, object.text, object.n, '{', name));
    for (;;) {
        TRY(json_walk_next(&walk, &item, &is_end));
        if (is_end)
            return ST_OK;
        for (int i = 0; i < fields; i++) {
            if (!json_walk_is(&item, field[i].key))
                continue;
            if (field[i].span->text != NULL)
                return FAIL(ST_BAD_DATA, "%s: \"%s\" is there twice; the file is damaged", name,
                            field[i].key);
            *field[i].span = (json_span){item.value, item.value_n};
        }
    }
}

static bool is_word(json_span span, const char *word)
{
    return span.text != NULL && span.n == strlen(word) && memcmp(span.text, word, span.n) == 0;
}
static bool is_null(json_span span) { return span.text == NULL || is_word(span, "null"); }

/* Returns true if a number is missing or 0: "0", "0.0", "0e0". */
static bool is_zero(json_span span)
{
    for (size_t i = 0; !is_null(span) && i < span.n && span.text[i] != 'e' && span.text[i] != 'E';
         i++)
        if (span.text[i] != '0' && span.text[i] != '.' && span.text[i] != '-')
            return false;
    return true;
}

static enum status read_document(struct json_reader *r, const char *bytes, size_t n)
{
    const struct json_field top[] = {{"normalizer", &r->normalizer},
                                     {"pre_tokenizer", &r->pre_tokenizer},
                                     {"post_processor", &r->post_processor},
                                     {"added_tokens", &r->added},
                                     {"model", &r->model}};
    const struct json_field model[] = {{"type", &r->type},
                                       {"dropout", &r->dropout},
                                       {"unk_token", &r->unknown},
                                       {"continuing_subword_prefix", &r->prefix},
                                       {"end_of_word_suffix", &r->suffix},
                                       {"fuse_unk", &r->fuses},
                                       {"byte_fallback", &r->fallback},
                                       {"ignore_merges", &r->whole},
                                       {"vocab", &r->vocab},
                                       {"merges", &r->merges}};
    TRY(read_fields((json_span){bytes, n}, r->name, top, 5));
    if (r->model.text == NULL)
        return FAIL(ST_BAD_DATA, "%s has no \"model\"; use a tokenizer.json of Hugging Face",
                    r->name);
    TRY(read_fields(r->model, r->name, model, 10));
    if (r->vocab.text == NULL || r->merges.text == NULL ||
        (r->type.text != NULL && !is_word(r->type, "\"BPE\"")))
        return FAIL(ST_BAD_DATA,
                    "%s: its model is %.*s, but only a BPE with vocab and merges is supported; use "
                    "another tokenizer",
                    r->name, r->type.text != NULL && r->type.n < 40 ? (int)r->type.n : 7,
                    r->type.text != NULL && r->type.n < 40 ? r->type.text : "unnamed");
    if (!is_zero(r->dropout) || (!is_null(r->prefix) && !is_word(r->prefix, "\"\"")) ||
        (!is_null(r->suffix) && !is_word(r->suffix, "\"\"")))
        return FAIL(ST_BAD_DATA,
                    "%s: its model has dropout over 0, continuing_subword_prefix or "
                    "end_of_word_suffix, which are not supported; use another tokenizer",
                    r->name);
    return ST_OK;
}

/* ---- strings ---- */

static enum status bad_string(const struct json_reader *r, const char *text, size_t n)
{
    return FAIL(ST_BAD_DATA, "%s: %.*s is not a string of at most %d bytes; the file is damaged",
                r->name, (int)(n < 80 ? n : 80), text, BPE_TOKEN_BYTES_MAX);
}

/* Converts the token of a model to its bytes; returns their number. */
static size_t token_bytes(const struct json_reader *r, uint8_t *text, size_t n)
{
    size_t made;
    uint8_t bytes[BPE_TOKEN_BYTES_MAX];
    if (r->rules.is_byte_level && bpe_chars_decode(text, n, bytes, &made)) {
        memcpy(text, bytes, made);
        return made;
    }
    return r->rules.is_spm ? tokenizer_pieces_unmark(text, n) : n;
}

static enum status read_token(const struct json_reader *r, const char *text, size_t n, uint8_t *out,
                              size_t *n_out)
{
    if (n > 6 * BPE_TOKEN_BYTES_MAX || !json_string_read(text, n, out, n_out) ||
        *n_out > BPE_TOKEN_BYTES_MAX)
        return bad_string(r, text, n);
    return ST_OK;
}

/* ---- added tokens ---- */

static bool is_true(const cJSON *object, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static enum status read_added_one(struct json_reader *r, json_span span,
                                  struct tokenizer_added *out)
{
    cJSON *one = NULL;
    int64_t id;
    const char *content;
    TRY(json_parse(span.text, span.n, r->name, &one));
    enum status st = json_get_i64(one, "id", 0, BPE_VOCAB_MAX - 1, &id);
    if (st == ST_OK)
        st = json_get_string(one, "content", &content);
    const size_t n = st == ST_OK ? strlen(content) : 0;
    if (st == ST_OK && (n == 0 || n > BPE_TOKEN_BYTES_MAX))
        st = bad_string(r, content, n);
    if (st == ST_OK)
        *out = (struct tokenizer_added){.id = (uint32_t)id,
                                        .text = (uint8_t *)memory_text(content),
                                        .n = n,
                                        .is_normalized = is_true(one, "normalized"),
                                        .is_special = is_true(one, "special"),
                                        .is_word = is_true(one, "single_word"),
                                        .strips_left = is_true(one, "lstrip"),
                                        .strips_right = is_true(one, "rstrip")};
    cJSON_Delete(one);
    return st;
}

static const struct tokenizer_added *added_with(const struct json_reader *r, const char *text)
{
    for (size_t i = 0; i < r->special_n; i++)
        if (r->special[i].n == strlen(text) && memcmp(r->special[i].text, text, strlen(text)) == 0)
            return r->special + i;
    return NULL;
}

static const struct tokenizer_added *added_id(const struct json_reader *r, uint32_t id)
{
    for (size_t i = 0; i < r->special_n; i++)
        if (r->special[i].id == id)
            return r->special + i;
    return NULL;
}

/* ---- vocabulary ---- */

typedef enum status entry_fn(struct json_reader *r, const struct json_item *item, uint32_t index);

static enum status visit_entries(struct json_reader *r, json_span span, char open, entry_fn *fn)
{
    struct json_walk walk;
    struct json_item item;
    bool is_end;
    TRY(json_walk_begin(&walk, span.text, span.n, open, r->name));
    for (uint32_t index = 0;; index++) {
        TRY(json_walk_next(&walk, &item, &is_end));
        if (is_end)
            return ST_OK;
        TRY(fn(r, &item, index));
    }
}

static enum status read_id(const struct json_reader *r, const struct json_item *item, uint32_t *out)
{
    uint32_t id = 0;
    for (size_t i = 0; i < item->value_n; i++) {
        if (item->value[i] < '0' || item->value[i] > '9' || id >= BPE_VOCAB_MAX / 10)
            return FAIL(ST_BAD_DATA, "%s: the id %.*s of token %.*s is not in 0 … %d", r->name,
                        (int)(item->value_n < 40 ? item->value_n : 40), item->value,
                        (int)(item->key_n < 80 ? item->key_n : 80), item->key,
                        BPE_VOCAB_MAX / 10 * 10 - 1);
        id = 10 * id + (uint32_t)(item->value[i] - '0');
    }
    *out = id;
    return ST_OK;
}

static enum status count_token(struct json_reader *r, const struct json_item *item, uint32_t index)
{
    uint32_t id;
    TRY(read_id(r, item, &id));
    r->ids = id >= r->ids ? id + 1 : r->ids;
    r->vocab_n = (size_t)index + 1;
    return ST_OK;
}

static enum status count_merge(struct json_reader *r, const struct json_item *item, uint32_t index)
{
    (void)item;
    r->merges_n = (size_t)index + 1;
    return ST_OK;
}

static enum status name_token(struct json_reader *r, const struct json_item *item, uint32_t index)
{
    uint32_t id;
    size_t n;
    uint8_t *text = r->scratch;
    (void)index;
    TRY(read_id(r, item, &id));
    TRY(read_token(r, item->key, item->key_n, text, &n));
    const int byte = r->has_fallback ? tokenizer_pieces_byte(text, n) : -1;
    if (byte >= 0) {
        r->byte_id[byte] = id;
        bpe_name(r->bpe, id, &(uint8_t){(uint8_t)byte}, 1, false);
        return ST_OK;
    }
    if (n == 0)
        return ST_OK; /* no text becomes this token */
    const bool is_added = added_id(r, id) != NULL;
    if (!is_added || !r->rules.is_byte_level)
        n = token_bytes(r, text, n);
    r->has_inner_space = r->has_inner_space || (!is_added && tokenizer_pieces_is_inner(text, n));
    if (!bpe_name(r->bpe, id, text, n, true))
        return FAIL(ST_BAD_DATA, "%s: the token %.*s or its id %u is there twice", r->name,
                    (int)(item->key_n < 80 ? item->key_n : 80), item->key, id);
    return ST_OK;
}

/* ---- merges ---- */

static enum status bad_merge(const struct json_reader *r, const struct json_item *item,
                             uint32_t index)
{
    return FAIL(ST_BAD_DATA,
                "%s: merge %u, %.*s, is not two tokens that together are a token of the "
                "vocabulary; the file is damaged",
                r->name, index, (int)(item->value_n < 80 ? item->value_n : 80), item->value);
}

/* Splits a merge of the form "left right". */
static enum status split_merge(const struct json_reader *r, const struct json_item *item,
                               uint32_t index, size_t n[2])
{
    size_t all;
    if (item->value_n > 12 * BPE_TOKEN_BYTES_MAX ||
        !json_string_read(item->value, item->value_n, r->scratch, &all))
        return bad_merge(r, item, index);
    uint8_t *space = memchr(r->scratch, ' ', all);
    if (space == NULL)
        return bad_merge(r, item, index);
    n[0] = (size_t)(space - r->scratch);
    n[1] = all - n[0] - 1;
    memmove(space, space + 1, n[1]);
    return n[0] <= BPE_TOKEN_BYTES_MAX && n[1] <= BPE_TOKEN_BYTES_MAX ? ST_OK
                                                                      : bad_merge(r, item, index);
}

/* Reads a merge of the form ["left", "right"]. */
static enum status list_merge(const struct json_reader *r, const struct json_item *item,
                              uint32_t index, size_t n[2])
{
    struct json_walk walk;
    struct json_item symbol;
    bool is_end;
    TRY(json_walk_begin(&walk, item->value, item->value_n, '[', r->name));
    for (int i = 0; i < 2; i++) {
        TRY(json_walk_next(&walk, &symbol, &is_end));
        if (is_end)
            return bad_merge(r, item, index);
        TRY(read_token(r, symbol.value, symbol.value_n, r->scratch + (i > 0 ? n[0] : 0), n + i));
    }
    TRY(json_walk_next(&walk, &symbol, &is_end));
    return is_end ? ST_OK : bad_merge(r, item, index);
}

static enum status add_merge(struct json_reader *r, const struct json_item *item, uint32_t index)
{
    size_t n[2];
    if (item->value[0] == '[')
        TRY(list_merge(r, item, index, n));
    else
        TRY(split_merge(r, item, index, n));
    const size_t left = token_bytes(r, r->scratch, n[0]);
    memmove(r->scratch + left, r->scratch + n[0], n[1]);
    const size_t right = token_bytes(r, r->scratch + left, n[1]);
    const uint32_t a = bpe_find(r->bpe, r->scratch, left),
                   b = bpe_find(r->bpe, r->scratch + left, right),
                   made = bpe_find(r->bpe, r->scratch, left + right);
    if (a == BPE_NONE || b == BPE_NONE || made == BPE_NONE)
        return bad_merge(r, item, index);
    bpe_pair(r->bpe, a, b, index, made);
    return ST_OK;
}

/* ---- all ---- */

static enum status build_bpe(struct json_reader *r)
{
    size_t added = 0;
    for (size_t i = 0; i < r->special_n; i++)
        added += r->special[i].n;
    const struct bpe_size size = {.vocab = r->ids, .bytes = r->vocab.n + added};
    r->bpe = bpe_new(&size);
    bpe_reserve(r->bpe, r->merges_n);
    for (int b = 0; b < 256; b++)
        r->byte_id[b] = BPE_NONE;
    TRY(visit_entries(r, r->vocab, '{', name_token));
    TRY(visit_entries(r, r->merges, '[', add_merge));
    for (size_t i = 0; i < r->special_n; i++) {
        const struct tokenizer_added *one = r->special + i;
        size_t n = 0;
        const uint8_t *bytes = bpe_bytes(r->bpe, one->id, &n);
        if (bytes == NULL)
            bpe_name(r->bpe, one->id, one->text, one->n, false);
    }
    return ST_OK;
}

static enum status finish_bpe(struct json_reader *r)
{
    struct bpe_rules rules = {.unit = r->rules.is_byte_level ? BPE_UNIT_BYTES : BPE_UNIT_CHARS,
                              .unknown = BPE_NONE,
                              .ignores_merges = is_word(r->whole, "true"),
                              .fallback = r->has_fallback ? r->byte_id : NULL,
                              .fuses_unknown = is_word(r->fuses, "true")};
    uint8_t missing;
    size_t n;
    rules.unknown = BPE_NONE;
    if (!is_null(r->unknown)) {
        TRY(read_token(r, r->unknown.text, r->unknown.n, r->scratch, &n));
        rules.unknown = bpe_find(r->bpe, r->scratch, token_bytes(r, r->scratch, n));
    }
    for (int b = 0; r->has_fallback && b < 256; b++)
        if (r->byte_id[b] == BPE_NONE)
            return FAIL(ST_BAD_DATA, "%s has byte_fallback, but no token <0x%02X>", r->name, b);
    int missing_n = bpe_finish(r->bpe, &rules, false, &missing);
    if (missing_n > 0)
        LOG_INFO("%s has no token for %d of 256 bytes (the first is 0x%02X): texts %s them",
                 r->name, missing_n, missing,
                 rules.unknown == BPE_NONE ? "lose" : "get its unknown token for");
    if (r->rules.kind == PRETOKEN_KIND_WHOLE && r->rules.split == NULL && !r->has_inner_space)
        r->rules.kind = PRETOKEN_KIND_WORDS;
    return ST_OK;
}

static enum status make_tokenizer(struct json_reader *r, struct tokenizer **out)
{
    const struct tokenizer_added *begin =
        r->rules.begin[0] != 0 ? added_with(r, r->rules.begin) : NULL;
    struct tokenizer_config config = {.name = r->name,
                                      .kind = r->rules.kind,
                                      .split = r->rules.split,
                                      .normal = r->rules.normal,
                                      .is_nfc = r->rules.is_nfc,
                                      .is_spm = r->rules.is_spm,
                                      .prefix = r->rules.prefix,
                                      .added = r->special,
                                      .added_n = r->special_n,
                                      .begin = begin != NULL ? begin->id : TOKENIZER_NONE};
    static const char *const known[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>"};
    const struct tokenizer_added *found = r->end[0] != 0 ? added_with(r, r->end) : NULL;
    if (r->end[0] != 0 && found == NULL)
        return FAIL(ST_BAD_DATA, "%s: eos_token %.80s is not one of its added tokens", r->name,
                    r->end);
    for (int i = 0; found == NULL && i < 4; i++)
        found = added_with(r, known[i]);
    config.end = found != NULL ? found->id : TOKENIZER_NONE;
    config.bpe = r->bpe;
    r->bpe = NULL; /* tokenizer_new owns them now */
    r->rules.split = NULL;
    r->rules.normal = NULL;
    return tokenizer_new(&config, out);
}

static enum status read_all(struct json_reader *r, const char *bytes, size_t n,
                            struct tokenizer **out)
{
    TRY(read_document(r, bytes, n));
    TRY(tokenizer_rules_read(r->normalizer, r->pre_tokenizer, r->post_processor, r->name,
                             &r->rules));
    r->has_fallback = is_word(r->fallback, "true") && !r->rules.is_byte_level;
    r->scratch = memory_new(12, BPE_TOKEN_BYTES_MAX);
    /* Reads the added tokens. */
    struct json_walk walk;
    struct json_item item;
    bool is_end = is_null(r->added);
    r->special = memory_new(TOKENIZER_ADDED_MAX, sizeof *r->special);
    if (!is_end)
        TRY(json_walk_begin(&walk, r->added.text, r->added.n, '[', r->name));
    while (!is_end) {
        TRY(json_walk_next(&walk, &item, &is_end));
        if (is_end)
            break;
        if (r->special_n == TOKENIZER_ADDED_MAX)
            return FAIL(ST_BAD_DATA, "%s has more than %d added tokens, the most that are read",
                        r->name, TOKENIZER_ADDED_MAX);
        struct tokenizer_added *one = r->special + r->special_n;
        TRY(read_added_one(r, (json_span){item.value, item.value_n}, one));
        r->special_n++;
        r->ids = one->id >= r->ids ? one->id + 1 : r->ids;
    }
    TRY(visit_entries(r, r->vocab, '{', count_token));
    TRY(visit_entries(r, r->merges, '[', count_merge));
    if (r->vocab_n == 0 || r->ids > IDS_MAX(r->vocab_n))
        return FAIL(ST_BAD_DATA, "%s has %zu tokens, but ids up to %u; the file is damaged",
                    r->name, r->vocab_n, r->ids);
    TRY(build_bpe(r));
    TRY(finish_bpe(r));
    return make_tokenizer(r, out);
}

enum status tokenizer_json_open(const char *bytes, size_t n, const char *name, const char *end,
                                struct tokenizer **out)
{
    struct json_reader *r = memory_new(1, sizeof *r);
    r->name = name;
    r->end = end;
    const enum status st = read_all(r, bytes, n, out);
    for (size_t i = 0; i < r->special_n; i++)
        free((void *)(uintptr_t)r->special[i].text);
    free(r->special);
    free(r->scratch);
    tokenizer_rules_free(&r->rules);
    bpe_close(r->bpe);
    free(r);
    return st;
}

enum status tokenizer_json_end(const char *bytes, size_t n, const char *name, char *out, size_t cap)
{
    cJSON *root = NULL;
    TRY(json_parse(bytes, n, name, &root));
    const cJSON *end = cJSON_GetObjectItemCaseSensitive(root, "eos_token");
    text_copy(out, cap,
              cJSON_IsObject(end) ? json_text(end, "content") : json_text(root, "eos_token"));
    cJSON_Delete(root);
    return ST_OK;
}

#ifdef FUZZ
#include "data/tokenizer/fuzz.h"

/* An accepted tokenizer can encode its own file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer;
    if (tokenizer_json_open((const char *)data, size, "fuzz", "", &tokenizer) == ST_OK)
        tokenizer_fuzz(tokenizer, data, size);
    return 0;
}
#endif
