/* tokenizer_gguf — see tokenizer/gguf.h. */
#include "data/tokenizer/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/tokenizer/bpe.h"

/* Patterns of names that have no fast splitter, as in the published tokenizer.json. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?"
#define MARKS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char *const deepseek_v3[] = {
    "\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    /* its file has the characters CR and LF, not their escapes */
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    NULL};
static const char *const gpt_4o[] = {
    WORD UPPER "*" LOWER "+" MARKS "|" WORD UPPER "+" LOWER "*" MARKS "|\\p{N}{1,3}" REST, NULL};
static const char *const tekken[] = {WORD UPPER "*" LOWER "+|" WORD UPPER "+" LOWER "*|\\p{N}" REST,
                                     NULL};
static const char *const bloom[] = {" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
                                    NULL};

/* The meaning of a name, as in the published tokenizer.json of these models. */
static const struct tokenizer_gguf_kind kinds[] = {
    {.pre = "gpt-2", .kind = PRETOKEN_KIND_GPT2},
    {.pre = "smollm", .kind = PRETOKEN_KIND_SMOLLM},
    {.pre = "llama-bpe", .kind = PRETOKEN_KIND_LLAMA3, .ignores_merges = true},
    {.pre = "llama3", .kind = PRETOKEN_KIND_LLAMA3, .ignores_merges = true},
    {.pre = "llama-v3", .kind = PRETOKEN_KIND_LLAMA3, .ignores_merges = true},
    {.pre = "dbrx", .kind = PRETOKEN_KIND_LLAMA3},
    {.pre = "qwen2", .kind = PRETOKEN_KIND_QWEN, .is_nfc = true},
    {.pre = "stablelm2", .kind = PRETOKEN_KIND_QWEN},
    {.pre = "deepseek-v3", .kind = PRETOKEN_KIND_WHOLE, .regex = deepseek_v3},
    {.pre = "gpt-4o", .kind = PRETOKEN_KIND_WHOLE, .regex = gpt_4o, .is_near = true},
    {.pre = "tekken",
     .kind = PRETOKEN_KIND_WHOLE,
     .regex = tekken,
     .is_near = true,
     .ignores_merges = true},
    {.pre = "bloom", .kind = PRETOKEN_KIND_WHOLE, .regex = bloom},
};

const struct tokenizer_gguf_kind *tokenizer_gguf_kind(const char *pre)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(pre, kinds[i].pre) == 0)
            return kinds + i;
    return NULL;
}

/* open_split — makes the steps of a kind; *out NULL: it has a fast splitter. is_inverse:
 * the text between matches is removed; no difference if the pattern matches every character. */
static enum status open_split(const struct tokenizer_gguf_kind *kind, bool is_inverse,
                              struct split **out)
{
    *out = kind->regex != NULL ? split_new() : NULL;
    for (int i = 0; kind->regex != NULL && kind->regex[i] != NULL; i++) {
        struct pattern *pattern;
        const char *regex = kind->regex[i];
        enum status st = pattern_open(regex, strlen(regex), kind->pre, &pattern);
        if (st != ST_OK) {
            split_close(*out);
            return st;
        }
        split_add_pattern(*out, pattern, is_inverse ? SPLIT_REMOVED : SPLIT_ISOLATED, is_inverse);
    }
    return ST_OK;
}

struct gguf_reader {
    const struct tokenizer_gguf *from;
    struct bpe *bpe;
    struct tokenizer_added *added;
    size_t added_n;
};

static enum status bad_entry(const struct gguf_reader *r, const char *what, size_t i,
                             const struct tokenizer_piece *entry)
{
    return FAIL(ST_BAD_DATA,
                "%s: %s %zu, \"%.*s\", does not fit the vocabulary; the file is damaged",
                r->from->name, what, i, (int)(entry->n < 60 ? entry->n : 60), entry->text);
}

static enum status add_token(struct gguf_reader *r, uint32_t id)
{
    const struct tokenizer_piece *piece = r->from->piece + id;
    uint8_t bytes[BPE_TOKEN_BYTES_MAX];
    size_t n;
    if (piece->n > BPE_TOKEN_BYTES_MAX)
        return bad_entry(r, "token", id, piece);
    if (piece->type == TOKENIZER_PIECE_UNUSED || piece->n == 0)
        return ST_OK;
    if (piece->type == TOKENIZER_PIECE_NORMAL &&
        bpe_chars_decode((const uint8_t *)piece->text, piece->n, bytes, &n))
        return bpe_name(r->bpe, id, bytes, n, true) ? ST_OK : bad_entry(r, "token", id, piece);
    bpe_name(r->bpe, id, piece->text, piece->n, false);
    if (piece->type != TOKENIZER_PIECE_CONTROL && piece->type != TOKENIZER_PIECE_USER_DEFINED)
        return ST_OK;
    if (r->added_n == TOKENIZER_ADDED_MAX)
        return bad_entry(r, "special token", id, piece);
    r->added[r->added_n++] =
        (struct tokenizer_added){.id = id,
                                 .text = (const uint8_t *)piece->text,
                                 .n = piece->n,
                                 .is_special = piece->type == TOKENIZER_PIECE_CONTROL};
    return ST_OK;
}

static enum status add_merge(struct gguf_reader *r, uint32_t i)
{
    const struct tokenizer_piece *merge = r->from->merge + i;
    uint8_t bytes[2 * BPE_TOKEN_BYTES_MAX];
    const uint8_t *text = (const uint8_t *)merge->text;
    const uint8_t *space = merge->n <= sizeof bytes ? memchr(text, ' ', merge->n) : NULL;
    size_t left, right;
    if (space == NULL || !bpe_chars_decode(text, (size_t)(space - text), bytes, &left) ||
        !bpe_chars_decode(space + 1, (size_t)(text + merge->n - space - 1), bytes + left, &right))
        return bad_entry(r, "merge", i, merge);
    const uint32_t a = bpe_find(r->bpe, bytes, left), b = bpe_find(r->bpe, bytes + left, right),
                   made = bpe_find(r->bpe, bytes, left + right);
    if (a == BPE_NONE || b == BPE_NONE || made == BPE_NONE)
        return bad_entry(r, "merge", i, merge);
    bpe_pair(r->bpe, a, b, i, made);
    return ST_OK;
}

static uint32_t id_of(const struct tokenizer_gguf *from, int64_t id)
{
    return id >= 0 && (uint64_t)id < from->n ? (uint32_t)id : TOKENIZER_NONE;
}

static enum status open_bytes(struct gguf_reader *r, struct tokenizer **out)
{
    const struct tokenizer_gguf_kind *kind = tokenizer_gguf_kind(r->from->pre);
    if (kind == NULL)
        return FAIL(
            ST_BAD_DATA,
            "%s: its texts are split by the pattern \"%.31s\", which is not supported (supported: "
            "gpt-2, smollm, llama-bpe, dbrx, qwen2, stablelm2, deepseek-v3, gpt-4o, tekken, "
            "bloom); set TOKENIZER to the model's tokenizer.json",
            r->from->name, r->from->pre);
    r->added = memory_new(TOKENIZER_ADDED_MAX, sizeof *r->added);
    const struct bpe_rules rules = {
        .unit = BPE_UNIT_BYTES, .ignores_merges = kind->ignores_merges, .unknown = BPE_NONE};
    struct bpe_size size = {.vocab = (uint32_t)r->from->n};
    uint8_t missing;
    for (size_t i = 0; i < r->from->n; i++)
        size.bytes += r->from->piece[i].n;
    r->bpe = bpe_new(&size);
    bpe_reserve(r->bpe, r->from->merges_n);
    for (uint32_t id = 0; id < r->from->n; id++)
        TRY(add_token(r, id));
    for (uint32_t i = 0; i < r->from->merges_n; i++)
        TRY(add_merge(r, i));
    int missing_n = bpe_finish(r->bpe, &rules, false, &missing);
    if (missing_n > 0)
        LOG_INFO("%s has no token for %d of 256 bytes (the first is 0x%02X): texts lose them",
                 r->from->name, missing_n, missing);
    struct split *split;
    TRY(open_split(kind, false, &split));
    const struct tokenizer_config config = {.name = r->from->name,
                                            .bpe = r->bpe,
                                            .kind = kind->kind,
                                            .split = split,
                                            .is_nfc = kind->is_nfc,
                                            .added = r->added,
                                            .added_n = r->added_n,
                                            .begin = id_of(r->from, r->from->begin),
                                            .end = id_of(r->from, r->from->end)};
    r->bpe = NULL; /* tokenizer_new owns it now */
    return tokenizer_new(&config, out);
}

enum status tokenizer_gguf_open(const struct tokenizer_gguf *gguf, struct tokenizer **out)
{
    struct gguf_reader r = {.from = gguf};
    if (strcmp(gguf->model, "llama") == 0) {
        const struct tokenizer_pieces pieces = {.name = gguf->name,
                                                .piece = gguf->piece,
                                                .n = gguf->n,
                                                .adds_space = gguf->adds_space,
                                                .begin = gguf->begin,
                                                .end = gguf->end};
        if (!gguf->has_scores)
            return FAIL(ST_BAD_DATA,
                        "%s has a SentencePiece vocabulary without scores; set TOKENIZER",
                        gguf->name);
        return tokenizer_pieces_open(&pieces, out);
    }
    if (strcmp(gguf->model, "gpt2") != 0 || gguf->n == 0 || gguf->n > BPE_VOCAB_MAX ||
        gguf->merges_n > 4 * (size_t)BPE_VOCAB_MAX)
        return FAIL(ST_BAD_DATA,
                    "%s: its tokenizer is \"%.31s\" with %zu tokens, but only \"gpt2\" and "
                    "\"llama\" are supported; set TOKENIZER",
                    gguf->name, gguf->model, gguf->n);
    const enum status st = open_bytes(&r, out);
    bpe_close(r.bpe);
    free(r.added);
    return st;
}

/* ---- a tokenizer as lists ---- */

#define MARK "\xe2\x96\x81" /* U+2581: SentencePiece's space */
#define UNUSED_BYTES 24     /* room for the name of an unused piece */

struct gguf_lister {
    const struct tokenizer *tokenizer;
    const struct tokenizer_config *config;
    const struct bpe *bpe;
    struct tokenizer_gguf_lists *out;
    struct bpe_merge *merge;
    size_t merges_n;
    uint16_t char_of[256];
    char *at; /* end of the texts so far */
};

/* type_of — returns the type of an id that is no added token. */
static int type_of(const struct gguf_lister *l, uint32_t id, const uint8_t *bytes, size_t n)
{
    const struct bpe_rules *rules = bpe_rules_of(l->bpe);
    if (bytes == NULL)
        return TOKENIZER_PIECE_UNUSED;
    if (rules->fallback != NULL && n == 1 && rules->fallback[bytes[0]] == id)
        return TOKENIZER_PIECE_BYTE;
    if (rules->unknown == id && l->config->is_spm)
        return TOKENIZER_PIECE_UNKNOWN;
    return bpe_find(l->bpe, bytes, n) == id ? TOKENIZER_PIECE_NORMAL : TOKENIZER_PIECE_CONTROL;
}

static void note_added(void *arg, const struct tokenizer_added *added)
{
    struct gguf_lister *l = arg;
    struct tokenizer_piece *piece = l->out->piece + added->id;
    if (added->id < bpe_vocab(l->bpe) && piece->type != TOKENIZER_PIECE_UNKNOWN)
        piece->type = added->is_special ? TOKENIZER_PIECE_CONTROL : TOKENIZER_PIECE_USER_DEFINED;
}

/* put_bytes — appends the bytes of a token in the file's form: a character for each byte, or with
 * marks for spaces. */
static void put_bytes(struct gguf_lister *l, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!l->config->is_spm)
            l->at += text_utf8_put((unsigned char *)l->at, l->char_of[bytes[i]]);
        else if (bytes[i] == ' ')
            l->at = (char *)memcpy(l->at, MARK, 3) + 3;
        else
            *l->at++ = (char)bytes[i];
    }
}

static void put_piece(struct gguf_lister *l, uint32_t id)
{
    static const char digits[] = "0123456789ABCDEF";
    struct tokenizer_piece *piece = l->out->piece + id;
    size_t n = 0;
    const uint8_t *bytes = bpe_bytes(l->bpe, id, &n);
    char *begin = l->at;
    if (piece->type == TOKENIZER_PIECE_UNUSED) {
        text_format(begin, UNUSED_BYTES, "[PAD%u]", id);
        l->at += strlen(begin);
    } else if (piece->type == TOKENIZER_PIECE_BYTE) {
        const char name[] = {'<', '0', 'x', digits[bytes[0] >> 4], digits[bytes[0] & 15], '>'};
        l->at = (char *)memcpy(begin, name, sizeof name) + sizeof name;
    } else if (piece->type == TOKENIZER_PIECE_NORMAL) {
        put_bytes(l, bytes, n);
    } else {
        l->at = (char *)memcpy(begin, bytes, n) + n;
    }
    piece->text = begin;
    piece->n = (size_t)(l->at - begin);
}

/* list_pieces — makes the pieces, and room for the merges after them. */
static void list_pieces(struct gguf_lister *l, size_t rows)
{
    size_t n, text_bytes = rows * UNUSED_BYTES;
    const uint32_t vocab = bpe_vocab(l->bpe);
    for (uint32_t id = 0; id < vocab; id++)
        text_bytes += bpe_bytes(l->bpe, id, &n) != NULL ? 3 * n : 0;
    for (size_t i = 0; i < l->merges_n; i++)
        text_bytes += bpe_bytes(l->bpe, l->merge[i].made, &n) != NULL ? 2 * n + 1 : 0;
    l->out->piece = memory_new(rows + l->merges_n, sizeof *l->out->piece);
    l->out->text = memory_new(text_bytes, 1);
    l->at = l->out->text;
    bpe_chars_fill(l->char_of);
    for (uint32_t id = 0; id < rows; id++) {
        const uint8_t *bytes = bpe_bytes(l->bpe, id, &n);
        l->out->piece[id].type = type_of(l, id, bytes, n);
        if (l->out->piece[id].type == TOKENIZER_PIECE_UNKNOWN)
            l->out->unknown = id;
    }
    tokenizer_visit_added(l->tokenizer, note_added, l);
    for (uint32_t id = 0; id < rows; id++)
        put_piece(l, id);
}

static enum status fail_rules(const struct gguf_lister *l, const char *what)
{
    return FAIL(ST_BAD_DATA, "the tokenizer %s has %s, which GGUF cannot hold",
                tokenizer_name(l->tokenizer), what);
}

/* is_split — returns true if the steps of a kind are the tokenizer's. */
static bool is_split(const struct tokenizer_gguf_kind *kind, const struct split *split)
{
    bool is_same = split == NULL && kind->regex == NULL;
    /* Published files have either form of the patterns that match every character. */
    for (int i = 0; i <= kind->is_near && !is_same && split != NULL && kind->regex != NULL; i++) {
        struct split *own;
        if (open_split(kind, i == 1, &own) != ST_OK) {
            status_clear();
            return false;
        }
        is_same = split_identity(own) == split_identity(split);
        split_close(own);
    }
    return is_same;
}

/* name_pattern — names the pattern of a byte-level BPE. */
static enum status name_pattern(struct gguf_lister *l)
{
    const struct tokenizer_config *config = l->config;
    const struct tokenizer_gguf_kind *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == config->kind && kinds[i].is_nfc == config->is_nfc &&
            kinds[i].ignores_merges == bpe_rules_of(l->bpe)->ignores_merges &&
            is_split(&kinds[i], config->split))
            found = &kinds[i];
    if (found == NULL || config->prefix != TOKENIZER_PREFIX_NONE || config->normal != NULL)
        return fail_rules(l, "other rules for texts than GPT-2, SmolLM, Llama 3, Qwen, "
                             "DeepSeek-V3, GPT-4o, Tekken and BLOOM have");
    if (found->is_near)
        LOG_WARN("the pattern of %s is named %s, which llama.cpp splits in its own way at letters "
                 "with combining marks (as in Hindi) and at capitals with accents: such texts get "
                 "other tokens there",
                 tokenizer_name(l->tokenizer), found->pre);
    l->out->gguf.pre = found->pre;
    return ST_OK;
}

/* list_merges — makes the merges of a byte-level BPE. */
static enum status list_merges(struct gguf_lister *l)
{
    struct tokenizer_gguf *gguf = &l->out->gguf;
    TRY(name_pattern(l));
    struct tokenizer_piece *out = l->out->piece + gguf->n;
    for (size_t i = 0; i < l->merges_n; i++) {
        const struct bpe_merge *merge = l->merge + i;
        size_t left = 0, right = 0;
        const uint8_t *a = bpe_bytes(l->bpe, merge->left, &left),
                      *b = bpe_bytes(l->bpe, merge->right, &right);
        if (gguf->piece[merge->left].type != TOKENIZER_PIECE_NORMAL ||
            gguf->piece[merge->right].type != TOKENIZER_PIECE_NORMAL ||
            gguf->piece[merge->made].type != TOKENIZER_PIECE_NORMAL)
            return fail_rules(l, "merges of added tokens");
        out[i].text = l->at;
        put_bytes(l, a, left);
        *l->at++ = ' ';
        put_bytes(l, b, right);
        out[i].n = (size_t)(l->at - out[i].text);
    }
    gguf->merge = out;
    gguf->merges_n = l->merges_n;
    return ST_OK;
}

/* splits_of — returns the number of pairs of tokens that together are this token. */
static size_t splits_of(const struct gguf_lister *l, uint32_t id)
{
    size_t n = 0, found = 0;
    const uint8_t *bytes = bpe_bytes(l->bpe, id, &n);
    for (size_t at = 1; at < n; at++)
        found += bpe_find(l->bpe, bytes, at) != BPE_NONE &&
                 bpe_find(l->bpe, bytes + at, n - at) != BPE_NONE;
    return found;
}

/* list_scores — gives the pieces scores: SentencePiece merges any two pieces that together are a
 * piece, by its score, so merges must be all such pairs, and the merges of one piece must follow
 * each other. */
static enum status list_scores(struct gguf_lister *l)
{
    const uint32_t vocab = bpe_vocab(l->bpe);
    const struct bpe_rules *rules = bpe_rules_of(l->bpe);
    struct tokenizer_piece *piece = l->out->piece;
    if (rules->fallback == NULL || rules->ignores_merges || l->config->split != NULL ||
        l->config->normal != NULL ||
        (l->config->kind != PRETOKEN_KIND_WORDS && l->config->kind != PRETOKEN_KIND_WHOLE))
        return fail_rules(l,
                          "rules for texts other than SentencePiece's with bytes for unknown ones");
    for (uint32_t id = 0; id < vocab; id++)
        piece[id].score = piece[id].type == TOKENIZER_PIECE_NORMAL ? -(float)vocab : 0;
    size_t pairs_n = 0, distinct = 0;
    for (size_t i = 0; i < l->merges_n; i++) {
        const struct bpe_merge *merge = l->merge + i, *last = merge - 1;
        const bool is_new = i == 0 || merge->rank != last->rank;
        distinct += is_new && (i == 0 || merge->made != last->made);
        if (merge->made >= vocab || piece[merge->made].type != TOKENIZER_PIECE_NORMAL)
            return fail_rules(l, "merges of added tokens");
        const float score = 1 - (float)distinct;
        if (piece[merge->made].score != -(float)vocab && piece[merge->made].score != score)
            return fail_rules(l, "merges in an order that no scores of its pieces have");
        piece[merge->made].score = score;
    }
    for (uint32_t id = 0; id < vocab; id++)
        pairs_n += piece[id].type == TOKENIZER_PIECE_NORMAL ? splits_of(l, id) : 0;
    if (pairs_n != l->merges_n)
        return fail_rules(l, "pieces that no merge makes, although two pieces together are such");
    l->out->gguf.pre = "default";
    l->out->gguf.has_scores = true;
    l->out->gguf.adds_space = l->config->prefix != TOKENIZER_PREFIX_NONE;
    return ST_OK;
}

static int64_t id_or_none(uint32_t id) { return id == TOKENIZER_NONE ? -1 : (int64_t)id; }

enum status tokenizer_gguf_of(const struct tokenizer *tokenizer, size_t rows,
                              struct tokenizer_gguf_lists *out)
{
    const struct tokenizer_config *config = tokenizer_config_of(tokenizer);
    struct gguf_lister l = {
        .tokenizer = tokenizer, .config = config, .bpe = config->bpe, .out = out};
    *out = (struct tokenizer_gguf_lists){.unknown = -1};
    if (tokenizer_vocab(tokenizer) > rows)
        return FAIL(ST_BAD_DATA,
                    "the tokenizer %s has %u ids, but the model has %zu; a GGUF file has one row "
                    "of the model for each id",
                    tokenizer_name(tokenizer), tokenizer_vocab(tokenizer), rows);
    l.merge = bpe_merges(l.bpe, &l.merges_n);
    list_pieces(&l, rows);
    out->gguf = (struct tokenizer_gguf){.name = tokenizer_name(tokenizer),
                                        .model = config->is_spm ? "llama" : "gpt2",
                                        .piece = out->piece,
                                        .n = rows,
                                        .begin = id_or_none(config->begin),
                                        .end = id_or_none(config->end)};
    const enum status st = config->is_spm ? list_scores(&l) : list_merges(&l);
    free(l.merge);
    if (st != ST_OK)
        tokenizer_gguf_free(out);
    return st;
}

void tokenizer_gguf_free(struct tokenizer_gguf_lists *lists)
{
    free(lists->piece);
    free(lists->text);
    *lists = (struct tokenizer_gguf_lists){.unknown = -1};
}
