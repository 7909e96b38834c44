/* tokenizer_pieces — see tokenizer/pieces.h. */
#include "data/tokenizer/pieces.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/memory.h"
#include "data/tokenizer/bpe.h"

/* Characters that occur in pieces, but are no pieces themselves: real files have none. */
#define SYMBOLS_MAX 16384

struct builder {
    const struct tokenizer_pieces *from;
    struct bpe *bpe;
    uint32_t *rank;
    float *score; /* sorted */
    size_t score_n;
    uint32_t symbols;
    uint32_t byte_id[256];
    size_t bytes_n;
    uint32_t unknown;
    bool is_inner;
    struct tokenizer_added *added;
    size_t added_n;
};

int tokenizer_pieces_byte(const void *text, size_t n)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *p = text;
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    const char *high = memchr(digits, p[3], 16), *low = memchr(digits, p[4], 16);
    return high != NULL && low != NULL ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

size_t tokenizer_pieces_unmark(uint8_t *text, size_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        const bool is_mark = n - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0;
        text[to++] = is_mark ? ' ' : text[i];
        i += is_mark ? 2 : 0;
    }
    return to;
}

bool tokenizer_pieces_is_inner(const uint8_t *text, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (text[i] == ' ' && text[i - 1] != ' ')
            return true;
    return false;
}

static enum status bad_piece(const struct builder *b, size_t id, const char *why)
{
    const struct tokenizer_piece *piece = b->from->piece + id;
    return FAIL(ST_BAD_DATA, "%s: piece %zu, \"%.*s\", %s", b->from->name, id,
                (int)(piece->n < 60 ? piece->n : 60), piece->text, why);
}

/* ---- names ---- */

static enum status add_normal(struct builder *b, uint32_t id)
{
    const struct tokenizer_piece *piece = b->from->piece + id;
    uint8_t text[BPE_TOKEN_BYTES_MAX];
    int32_t c;
    for (size_t i = 0; i < piece->n;) {
        const utf8proc_ssize_t n = utf8proc_iterate((const uint8_t *)piece->text + i,
                                                    (utf8proc_ssize_t)(piece->n - i), &c);
        if (n <= 0)
            return bad_piece(b, id, "is not UTF-8; the file is damaged");
        i += (size_t)n;
    }
    if (isnan(piece->score))
        return bad_piece(b, id, "has no score; the file is damaged");
    memcpy(text, piece->text, piece->n);
    const size_t n = tokenizer_pieces_unmark(text, piece->n);
    b->is_inner = b->is_inner || tokenizer_pieces_is_inner(text, n);
    b->score[b->score_n++] = piece->score;
    return bpe_name(b->bpe, id, text, n, true) ? ST_OK : bad_piece(b, id, "is there twice");
}

static enum status add_special(struct builder *b, uint32_t id)
{
    const struct tokenizer_piece *piece = b->from->piece + id;
    bpe_name(b->bpe, id, piece->text, piece->n, false);
    if (piece->type == TOKENIZER_PIECE_UNKNOWN)
        b->unknown = id;
    if (piece->type != TOKENIZER_PIECE_USER_DEFINED)
        return ST_OK;
    if (b->added_n == TOKENIZER_ADDED_MAX)
        return bad_piece(b, id, "is one user-defined piece too many");
    b->added[b->added_n++] = (struct tokenizer_added){
        .id = id, .text = (const uint8_t *)piece->text, .n = piece->n, .is_normalized = true};
    return ST_OK;
}

static enum status add_piece(struct builder *b, uint32_t id)
{
    const struct tokenizer_piece *piece = b->from->piece + id;
    if (piece->type == TOKENIZER_PIECE_UNUSED && piece->n == 0)
        return ST_OK;
    if (piece->n == 0 || piece->n > BPE_TOKEN_BYTES_MAX / 8)
        return bad_piece(b, id, "is empty or too long; the file is damaged");
    switch (piece->type) {
    case TOKENIZER_PIECE_NORMAL:
        return add_normal(b, id);
    case TOKENIZER_PIECE_BYTE: {
        const int byte = tokenizer_pieces_byte(b->from->piece[id].text, b->from->piece[id].n);
        if (byte < 0 || b->byte_id[byte] != BPE_NONE)
            return bad_piece(b, id, "is not one of the 256 bytes, or is there twice");
        b->byte_id[byte] = id;
        b->bytes_n++;
        bpe_name(b->bpe, id, &(uint8_t){(uint8_t)byte}, 1, false);
        return ST_OK;
    }
    case TOKENIZER_PIECE_UNKNOWN:
    case TOKENIZER_PIECE_CONTROL:
    case TOKENIZER_PIECE_USER_DEFINED:
        return add_special(b, id);
    case TOKENIZER_PIECE_UNUSED: /* the id stays without text */
        return ST_OK;
    default:
        return bad_piece(b, id, "has an unknown type");
    }
}

/* ---- merges ---- */

/* Merges begin with characters: characters of a piece that are no pieces themselves become
 * symbols. */
static enum status add_symbols(struct builder *b, uint32_t id)
{
    size_t n;
    const uint8_t *text = bpe_bytes(b->bpe, id, &n);
    for (size_t i = 0, len; i < n; i += len) {
        len = text[i] < 0x80 ? 1 : text[i] < 0xe0 ? 2 : text[i] < 0xf0 ? 3 : 4;
        if (bpe_find(b->bpe, text + i, len) != BPE_NONE)
            continue;
        uint8_t copy[4]; /* bpe_name moves nothing, but reads while it writes */
        memcpy(copy, text + i, len);
        if (b->symbols == SYMBOLS_MAX)
            return bad_piece(b, id, "has a character that is no piece, as too many others do");
        bpe_name(b->bpe, (uint32_t)b->from->n + b->symbols++, copy, len, true);
    }
    return ST_OK;
}

/* Refuses unused pieces that texts lead to: SentencePiece merges others into such a piece, goes on
 * merging, and splits it again at the end. To leave out the other unused pieces is exact. */
static enum status check_unused(const struct builder *b, uint32_t id)
{
    const struct tokenizer_piece *piece = b->from->piece + id;
    uint8_t text[BPE_TOKEN_BYTES_MAX];
    int32_t c;
    memcpy(text, piece->text, piece->n);
    const size_t n = tokenizer_pieces_unmark(text, piece->n);
    bool is_met = utf8proc_iterate(text, (utf8proc_ssize_t)n, &c) == (utf8proc_ssize_t)n;
    for (size_t i = 1; i < n; i++)
        is_met = is_met || (bpe_find(b->bpe, text, i) != BPE_NONE &&
                            bpe_find(b->bpe, text + i, n - i) != BPE_NONE);
    return is_met
               ? bad_piece(b, id, "is unused, but texts are merged into it, which is not supported")
               : ST_OK;
}

static int by_score(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static enum status build_bpe(struct builder *b)
{
    size_t bytes = 4 * SYMBOLS_MAX;
    for (size_t id = 0; id < b->from->n; id++)
        bytes += b->from->piece[id].n;
    const struct bpe_size size = {
        .vocab = (uint32_t)b->from->n, .symbols = SYMBOLS_MAX, .bytes = bytes};
    b->bpe = bpe_new(&size);
    for (uint32_t id = 0; id < b->from->n; id++)
        TRY(add_piece(b, id));
    for (uint32_t id = 0; id < b->from->n; id++)
        if (b->from->piece[id].type == TOKENIZER_PIECE_NORMAL)
            TRY(add_symbols(b, id));
    for (uint32_t id = 0; id < b->from->n; id++)
        if (b->from->piece[id].type == TOKENIZER_PIECE_UNUSED && b->from->piece[id].n > 0)
            TRY(check_unused(b, id));
    /* Equal scores have equal ranks: then the leftmost pair is merged first. */
    size_t distinct = 0;
    qsort(b->score, b->score_n, sizeof *b->score, by_score);
    for (size_t i = 0; i < b->score_n; i++)
        if (i == 0 || b->score[i] != b->score[distinct - 1])
            b->score[distinct++] = b->score[i];
    for (size_t id = 0; id < b->from->n; id++) {
        const struct tokenizer_piece *piece = b->from->piece + id;
        b->rank[id] = BPE_NONE;
        if (piece->type != TOKENIZER_PIECE_NORMAL)
            continue;
        const float *at = bsearch(&piece->score, b->score, distinct, sizeof *b->score, by_score);
        b->rank[id] = (uint32_t)(at - b->score);
    }
    bpe_pair_splits(b->bpe, b->rank);
    return ST_OK;
}

static uint32_t id_of(const struct builder *b, int64_t id)
{
    return id >= 0 && (uint64_t)id < b->from->n ? (uint32_t)id : TOKENIZER_NONE;
}

static enum status open_all(struct builder *b, struct tokenizer **out)
{
    b->rank = memory_new(b->from->n, sizeof *b->rank);
    b->score = memory_new(b->from->n, sizeof *b->score);
    b->added = memory_new(TOKENIZER_ADDED_MAX, sizeof *b->added);
    TRY(build_bpe(b));
    const bool has_fallback = b->bytes_n > 0;
    const struct bpe_rules rules = {.unit = BPE_UNIT_CHARS,
                                    .fallback = has_fallback ? b->byte_id : NULL,
                                    .unknown = b->unknown,
                                    .fuses_unknown = true};
    uint8_t missing;
    if (has_fallback && b->bytes_n != 256)
        return FAIL(ST_BAD_DATA, "%s has %zu of the 256 byte pieces; the file is damaged",
                    b->from->name, b->bytes_n);
    (void)bpe_finish(b->bpe, &rules, false, &missing);
    const struct tokenizer_config config = {
        .name = b->from->name,
        .bpe = b->bpe,
        .kind = b->is_inner ? PRETOKEN_KIND_WHOLE : PRETOKEN_KIND_WORDS,
        .is_spm = true,
        .prefix = b->from->adds_space ? TOKENIZER_PREFIX_FIRST : TOKENIZER_PREFIX_NONE,
        .added = b->added,
        .added_n = b->added_n,
        .begin = id_of(b, b->from->begin),
        .end = id_of(b, b->from->end)};
    b->bpe = NULL; /* tokenizer_new owns it now */
    return tokenizer_new(&config, out);
}

enum status tokenizer_pieces_open(const struct tokenizer_pieces *pieces, struct tokenizer **out)
{
    struct builder b = {.from = pieces, .unknown = BPE_NONE};
    if (pieces->n == 0 || pieces->n > BPE_VOCAB_MAX - SYMBOLS_MAX)
        return FAIL(ST_BAD_DATA, "%s has %zu pieces, not 1 … %d", pieces->name, pieces->n,
                    BPE_VOCAB_MAX - SYMBOLS_MAX);
    for (int i = 0; i < 256; i++)
        b.byte_id[i] = BPE_NONE;
    const enum status st = open_all(&b, out);
    bpe_close(b.bpe);
    free(b.rank);
    free(b.score);
    free(b.added);
    return st;
}
