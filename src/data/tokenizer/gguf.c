/* tokenizer_gguf — see tokenizer/gguf.h. */
#include "data/tokenizer/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/tokenizer/bpe.h"

/* The meaning of a name, as in the published tokenizer.json of these models. */
static const struct tokenizer_gguf_kind kinds[] = {
    {"gpt-2", PRETOKEN_KIND_GPT2, false, false},
    {"smollm", PRETOKEN_KIND_SMOLLM, false, false},
    {"llama-bpe", PRETOKEN_KIND_LLAMA3, true, false},
    {"llama3", PRETOKEN_KIND_LLAMA3, true, false},
    {"llama-v3", PRETOKEN_KIND_LLAMA3, true, false},
    {"qwen2", PRETOKEN_KIND_QWEN, false, true},
};

const struct tokenizer_gguf_kind *tokenizer_gguf_kind(const char *pre)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(pre, kinds[i].pre) == 0)
            return kinds + i;
    return NULL;
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
            "gpt-2, smollm, llama-bpe, qwen2); set TOKENIZER to the model's tokenizer.json",
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
    const struct tokenizer_config config = {.name = r->from->name,
                                            .bpe = r->bpe,
                                            .kind = kind->kind,
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
