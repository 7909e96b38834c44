/* tokenizer_json_write — see tokenizer/json_write.h. */
#include "data/tokenizer/json_write.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/rules.h"

#define MARK "\xe2\x96\x81" /* U+2581: SentencePiece's space */

/* One pair of pieces that together are a piece. */
struct merge {
    float score;
    uint32_t made, left, right;
};

struct writer {
    const struct tokenizer_gguf *from;
    struct text *out;
    uint32_t *sorted; /* ids by their text; those without one are left out */
    size_t sorted_n;
    struct merge *merge;
    size_t merges_n, merges_cap;
    bool is_pieces;
};

static const struct tokenizer_piece *piece_of(const struct writer *w, uint32_t id)
{
    return w->from->piece + id;
}

/* is_left_out — returns true if no text becomes this token, but in Hugging Face's form a text
 * could. */
static bool is_left_out(const struct writer *w, uint32_t id)
{
    const struct tokenizer_piece *piece = piece_of(w, id);
    return piece->n == 0 || (!w->is_pieces && piece->type == TOKENIZER_PIECE_UNUSED);
}

static bool is_utf8(const char *text, size_t n)
{
    for (size_t i = 0, more; i < n; i += more)
        if ((more = text_utf8_bytes((const unsigned char *)text + i, n - i)) == 0)
            return false;
    return true;
}

static enum status add_quoted(struct text *out, const char *text, size_t n)
{
    char whole[BPE_TOKEN_BYTES_MAX * 2 + 2], quoted[6 * sizeof whole];
    if (n < sizeof whole) {
        memcpy(whole, text, n);
        whole[n] = 0;
    }
    if (n >= sizeof whole || strlen(whole) != n || !is_utf8(text, n) ||
        !json_quote(quoted, sizeof quoted, whole))
        return FAIL(ST_BAD_DATA, "a token of %zu bytes cannot be written as JSON: %.*s", n,
                    (int)(n < 40 ? n : 40), text);
    text_add_bytes(out, quoted, strlen(quoted));
    return ST_OK;
}

/* ---- tokens by their text ---- */

static int compare_piece(const struct tokenizer_piece *a, const char *text, size_t n)
{
    const int order = memcmp(a->text, text, a->n < n ? a->n : n);
    return order != 0 ? order : (a->n > n) - (a->n < n);
}

static int by_text(const void *a, const void *b, void *arg)
{
    const struct writer *w = arg;
    const struct tokenizer_piece *x = piece_of(w, *(const uint32_t *)a),
                                 *y = piece_of(w, *(const uint32_t *)b);
    return compare_piece(x, y->text, y->n);
}

/* find_normal — finds the normal piece with this text; false: there is none. */
static bool find_normal(const struct writer *w, const char *text, size_t n, uint32_t *out)
{
    size_t low = 0, high = w->sorted_n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (compare_piece(piece_of(w, w->sorted[middle]), text, n) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == w->sorted_n || compare_piece(piece_of(w, w->sorted[low]), text, n) != 0)
        return false;
    *out = w->sorted[low];
    return piece_of(w, *out)->type == TOKENIZER_PIECE_NORMAL;
}

/* ---- merges from scores ---- */

static int by_score(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    if (x->made != y->made)
        return x->made < y->made ? -1 : 1;
    return (x->left > y->left) - (x->left < y->left);
}

static void find_merges(struct writer *w)
{
    for (uint32_t id = 0; id < w->from->n; id++) {
        const struct tokenizer_piece *piece = piece_of(w, id);
        struct merge merge = {.score = piece->score, .made = id};
        for (size_t i = 1; piece->type == TOKENIZER_PIECE_NORMAL && i < piece->n; i++) {
            if (((uint8_t)piece->text[i] & 0xc0) == 0x80 ||
                !find_normal(w, piece->text, i, &merge.left) ||
                !find_normal(w, piece->text + i, piece->n - i, &merge.right))
                continue;
            w->merge = memory_grow(w->merge, w->merges_n, &w->merges_cap, sizeof *w->merge);
            w->merge[w->merges_n++] = merge;
        }
    }
    if (w->merges_n > 0)
        qsort(w->merge, w->merges_n, sizeof *w->merge, by_score);
}

/* ---- the document ---- */

static enum status add_added(struct writer *w)
{
    const char *between = "";
    text_add(w->out, "\"added_tokens\": [");
    for (uint32_t id = 0; id < w->from->n; id++) {
        const struct tokenizer_piece *piece = piece_of(w, id);
        if (!(piece->n > 0 && (piece->type == TOKENIZER_PIECE_CONTROL ||
                               piece->type == TOKENIZER_PIECE_USER_DEFINED ||
                               piece->type == TOKENIZER_PIECE_UNKNOWN)))
            continue;
        text_add(w->out, "%s\n{\"id\": %u, \"content\": ", between, id);
        TRY(add_quoted(w->out, piece->text, piece->n));
        text_add(w->out,
                 ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": "
                 "false, \"special\": %s}",
                 piece->type != TOKENIZER_PIECE_USER_DEFINED ? "true" : "false");
        between = ",";
    }
    text_add(w->out, "],\n");
    return ST_OK;
}

/* add_splitters — adds the steps before ByteLevel. */
static enum status add_splitters(const struct writer *w, const struct tokenizer_gguf_kind *kind)
{
    const char *const fast[] = {tokenizer_rules_regex(kind->kind), NULL};
    const char *const *regex = kind->regex != NULL ? kind->regex : fast;
    if (kind->kind == PRETOKEN_KIND_SMOLLM) {
        text_add(w->out, "{\"type\": \"Digits\", \"individual_digits\": true}, ");
        return ST_OK;
    }
    for (int i = 0; regex[i] != NULL; i++) {
        text_add(w->out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        TRY(add_quoted(w->out, regex[i], strlen(regex[i])));
        text_add(w->out, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    return ST_OK;
}

static enum status add_byte_rules(const struct writer *w, const struct tokenizer_gguf_kind *kind)
{
    const bool has_regex = kind->kind == PRETOKEN_KIND_GPT2 || kind->kind == PRETOKEN_KIND_SMOLLM;
    text_add(w->out,
             "\"normalizer\": %s,\n\"pre_tokenizer\": {\"type\": \"Sequence\", "
             "\"pretokenizers\": [",
             kind->is_nfc ? "{\"type\": \"NFC\"}" : "null");
    if (kind->kind != PRETOKEN_KIND_GPT2)
        TRY(add_splitters(w, kind));
    text_add(w->out,
             "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
             "\"use_regex\": %s}]},\n\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
             "true, \"trim_offsets\": true, \"use_regex\": true},\n",
             has_regex ? "true" : "false");
    return ST_OK;
}

/* add_begin — adds the token that begins a text. */
static enum status add_begin(const struct writer *w)
{
    struct text token = {.data = NULL};
    if (w->from->begin < 0 || (size_t)w->from->begin >= w->from->n) {
        text_add(w->out, "\"post_processor\": null,\n");
        return ST_OK;
    }
    const struct tokenizer_piece *piece = piece_of(w, (uint32_t)w->from->begin);
    const enum status st = add_quoted(&token, piece->text, piece->n);
    const char *name = token.data != NULL ? token.data : "null";
    if (st == ST_OK)
        text_add(w->out,
                 "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                 "[{\"SpecialToken\": {\"id\": %s, \"type_id\": 0}}, {\"Sequence\": {\"id\": "
                 "\"A\", \"type_id\": 0}}], \"pair\": [{\"SpecialToken\": {\"id\": %s, "
                 "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                 "{\"SpecialToken\": {\"id\": %s, \"type_id\": 1}}, {\"Sequence\": {\"id\": "
                 "\"B\", \"type_id\": 1}}], \"special_tokens\": {%s: {\"id\": %s, \"ids\": "
                 "[%lld], \"tokens\": [%s]}}},\n",
                 name, name, name, name, name, (long long)w->from->begin, name);
    text_free(&token);
    return st;
}

static enum status add_merges(const struct writer *w)
{
    char pair[2 * BPE_TOKEN_BYTES_MAX + 2];
    text_add(w->out, "\"merges\": [");
    for (size_t i = 0; !w->is_pieces && i < w->from->merges_n; i++) {
        text_add(w->out, i > 0 ? ",\n" : "\n");
        TRY(add_quoted(w->out, w->from->merge[i].text, w->from->merge[i].n));
    }
    for (size_t i = 0; w->is_pieces && i < w->merges_n; i++) {
        const struct tokenizer_piece *left = piece_of(w, w->merge[i].left),
                                     *right = piece_of(w, w->merge[i].right);
        memcpy(pair, left->text, left->n);
        pair[left->n] = ' ';
        memcpy(pair + left->n + 1, right->text, right->n);
        text_add(w->out, i > 0 ? ",\n" : "\n");
        TRY(add_quoted(w->out, pair, left->n + 1 + right->n));
    }
    text_add(w->out, "]");
    return ST_OK;
}

static enum status add_model(const struct writer *w, bool ignores_merges)
{
    bool has_bytes;
    /* Finds the piece for unknown text, and tests for pieces of bytes. */
    const struct tokenizer_piece *unknown = NULL;
    has_bytes = false;
    for (uint32_t id = 0; id < w->from->n; id++) {
        const struct tokenizer_piece *piece = piece_of(w, id);
        unknown = piece->type == TOKENIZER_PIECE_UNKNOWN && piece->n > 0 ? piece : unknown;
        has_bytes = has_bytes || piece->type == TOKENIZER_PIECE_BYTE;
    }
    text_add(w->out, "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
    if (w->is_pieces && unknown != NULL)
        TRY(add_quoted(w->out, unknown->text, unknown->n));
    else
        text_add(w->out, "null");
    text_add(w->out,
             ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": "
             "%s, \"byte_fallback\": %s, \"ignore_merges\": %s,\n",
             w->is_pieces ? "true" : "false", w->is_pieces && has_bytes ? "true" : "false",
             ignores_merges ? "true" : "false");
    const char *between = "";
    text_add(w->out, "\"vocab\": {");
    for (uint32_t id = 0; id < w->from->n; id++) {
        if (is_left_out(w, id))
            continue;
        text_add(w->out, "%s\n", between);
        TRY(add_quoted(w->out, piece_of(w, id)->text, piece_of(w, id)->n));
        text_add(w->out, ": %u", id);
        between = ",";
    }
    text_add(w->out, "},\n");
    TRY(add_merges(w));
    text_add(w->out, "}\n}\n");
    return ST_OK;
}

static enum status write_all(struct writer *w)
{
    const struct tokenizer_gguf_kind *kind = tokenizer_gguf_kind(w->from->pre);
    if (!w->is_pieces && kind == NULL)
        return FAIL(ST_BAD_DATA, "%s: its pattern \"%.31s\" is not supported", w->from->name,
                    w->from->pre);
    w->sorted = memory_new(w->from->n, sizeof *w->sorted);
    for (uint32_t id = 0; id < w->from->n; id++)
        if (!is_left_out(w, id))
            w->sorted[w->sorted_n++] = id;
    qsort_r(w->sorted, w->sorted_n, sizeof *w->sorted, by_text, w);
    for (size_t i = 1; i < w->sorted_n; i++)
        if (by_text(&w->sorted[i - 1], &w->sorted[i], w) == 0)
            return FAIL(ST_BAD_DATA, "%s: tokens %u and %u have the same text, \"%.*s\"",
                        w->from->name, w->sorted[i - 1], w->sorted[i],
                        (int)piece_of(w, w->sorted[i])->n, piece_of(w, w->sorted[i])->text);
    if (w->is_pieces)
        find_merges(w);
    text_add(w->out, "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n");
    TRY(add_added(w));
    if (w->is_pieces) {
        const bool adds = w->from->adds_space;
        text_add(w->out, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
        if (adds)
            text_add(w->out, "{\"type\": \"Prepend\", \"prepend\": \"" MARK "\"}, ");
        text_add(w->out,
                 "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" MARK
                 "\"}]},\n\"pre_tokenizer\": null,\n\"decoder\": {\"type\": \"Sequence\", "
                 "\"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"" MARK
                 "\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}");
        if (adds)
            text_add(w->out,
                     ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}");
        text_add(w->out, "]},\n");
    } else
        TRY(add_byte_rules(w, kind));
    TRY(add_begin(w));
    return add_model(w, !w->is_pieces && kind->ignores_merges);
}

enum status tokenizer_json_write(const struct tokenizer_gguf *from, struct text *out)
{
    struct writer w = {.from = from, .out = out, .is_pieces = strcmp(from->model, "llama") == 0};
    const enum status st = write_all(&w);
    free(w.sorted);
    free(w.merge);
    return st;
}

static enum status add_named(const struct tokenizer_gguf *from, const char *key, int64_t id,
                             struct text *out)
{
    if (id < 0 || (size_t)id >= from->n)
        return ST_OK;
    text_add(out, "  \"%s\": ", key);
    TRY(add_quoted(out, from->piece[id].text, from->piece[id].n));
    text_add(out, ",\n");
    return ST_OK;
}

enum status tokenizer_json_write_config(const struct tokenizer_gguf *from, int64_t context_tokens,
                                        struct text *out)
{
    text_add(out, "{\n");
    TRY(add_named(from, "bos_token", from->begin, out));
    text_add(out, "  \"clean_up_tokenization_spaces\": false,\n");
    TRY(add_named(from, "eos_token", from->end, out));
    text_add(
        out,
        "  \"model_max_length\": %lld,\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n",
        (long long)context_tokens);
    return ST_OK;
}
