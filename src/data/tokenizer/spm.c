/* tokenizer_spm — see tokenizer/file.h. Source of the encoding: Protocol Buffers, "Encoding". */
#include "base/memory.h"
#include "data/tokenizer/file.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/pieces.h"

/* Fields of ModelProto, its pieces, its trainer_spec and its normalizer_spec. */
enum {
    MODEL_PIECE = 1,
    MODEL_TRAINER = 2,
    MODEL_NORMALIZER = 3,
    PIECE_TEXT = 1,
    PIECE_SCORE = 2,
    PIECE_TYPE = 3,
    TRAINER_MODEL_TYPE = 3,
    TRAINER_SPACE_BEHIND = 24,
    TRAINER_BEGIN = 41,
    TRAINER_END = 42,
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_ADDS_SPACE = 3,
    NORMALIZER_REMOVES_SPACES = 4,
    NORMALIZER_MARKS_SPACES = 5,
};
enum { MODEL_TYPE_BPE = 2 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A message, read field by field. */
struct message {
    const uint8_t *at, *end;
};
struct field {
    uint32_t number;
    int wire;
    uint64_t value;       /* WIRE_VARINT, WIRE_32 */
    struct message bytes; /* WIRE_BYTES */
};

struct spm_reader {
    const char *name;
    struct tokenizer_piece *piece;
    size_t n, cap;
    int64_t model_type, begin, end;
    bool space_behind, adds_space, removes_spaces, marks_spaces, has_charsmap;
};

static bool read_varint(struct message *m, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        const uint8_t byte = *m->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Reads the next field; false: the message is damaged. */
static bool read_field(struct message *m, struct field *out)
{
    uint64_t key;
    *out = (struct field){0};
    if (!read_varint(m, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return false;
    out->number = (uint32_t)(key >> 3);
    out->wire = (int)(key & 7);
    const size_t left = (size_t)(m->end - m->at);
    const size_t fixed = out->wire == WIRE_64 ? 8 : 4;
    if (out->wire == WIRE_VARINT)
        return read_varint(m, &out->value);
    if (out->wire == WIRE_BYTES) {
        uint64_t n;
        if (!read_varint(m, &n) || n > (size_t)(m->end - m->at))
            return false;
        out->bytes = (struct message){m->at, m->at + n};
        m->at += n;
        return true;
    }
    if ((out->wire != WIRE_32 && out->wire != WIRE_64) || left < fixed)
        return false;
    memcpy(&out->value, m->at, fixed); /* little-endian */
    m->at += fixed;
    return true;
}

static enum status fail_damaged(const struct spm_reader *r, const struct message *m)
{
    return FAIL(ST_BAD_DATA,
                "%s is not a SentencePiece model, or is damaged: %zu bytes before the end of a "
                "part; copy it again",
                r->name, (size_t)(m->end - m->at));
}

static enum status read_piece(struct spm_reader *r, struct message m)
{
    struct tokenizer_piece piece = {.text = "", .type = TOKENIZER_PIECE_NORMAL};
    struct field f;
    while (m.at < m.end) {
        if (!read_field(&m, &f))
            return fail_damaged(r, &m);
        if (f.number == PIECE_TEXT && f.wire == WIRE_BYTES) {
            piece.text = (const char *)f.bytes.at;
            piece.n = (size_t)(f.bytes.end - f.bytes.at);
        } else if (f.number == PIECE_SCORE && f.wire == WIRE_32) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&piece.score, &bits, sizeof bits);
        } else if (f.number == PIECE_TYPE && f.wire == WIRE_VARINT) {
            piece.type = f.value < 100 ? (int)f.value : 100;
        }
    }
    r->piece = memory_grow(r->piece, r->n, &r->cap, sizeof *r->piece);
    r->piece[r->n++] = piece;
    return ST_OK;
}

static enum status read_trainer(struct spm_reader *r, struct message m)
{
    struct field f;
    while (m.at < m.end) {
        if (!read_field(&m, &f))
            return fail_damaged(r, &m);
        if (f.wire != WIRE_VARINT)
            continue;
        if (f.number == TRAINER_MODEL_TYPE)
            r->model_type = (int64_t)f.value;
        if (f.number == TRAINER_SPACE_BEHIND)
            r->space_behind = f.value != 0;
        if (f.number == TRAINER_BEGIN)
            r->begin = (int32_t)f.value;
        if (f.number == TRAINER_END)
            r->end = (int32_t)f.value;
    }
    return ST_OK;
}

static enum status read_normalizer(struct spm_reader *r, struct message m)
{
    struct field f;
    while (m.at < m.end) {
        if (!read_field(&m, &f))
            return fail_damaged(r, &m);
        if (f.number == NORMALIZER_CHARSMAP && f.wire == WIRE_BYTES)
            r->has_charsmap = f.bytes.end > f.bytes.at;
        if (f.wire != WIRE_VARINT)
            continue;
        if (f.number == NORMALIZER_ADDS_SPACE)
            r->adds_space = f.value != 0;
        if (f.number == NORMALIZER_REMOVES_SPACES)
            r->removes_spaces = f.value != 0;
        if (f.number == NORMALIZER_MARKS_SPACES)
            r->marks_spaces = f.value != 0;
    }
    return ST_OK;
}

static enum status read_model(struct spm_reader *r, struct message m)
{
    struct field f;
    while (m.at < m.end) {
        if (!read_field(&m, &f))
            return fail_damaged(r, &m);
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == MODEL_PIECE)
            TRY(read_piece(r, f.bytes));
        if (f.number == MODEL_TRAINER)
            TRY(read_trainer(r, f.bytes));
        if (f.number == MODEL_NORMALIZER)
            TRY(read_normalizer(r, f.bytes));
    }
    return ST_OK;
}

static enum status check_kind(const struct spm_reader *r)
{
    if (r->n == 0)
        return FAIL(ST_BAD_DATA, "%s is not a SentencePiece model: it has no pieces", r->name);
    if (r->model_type != MODEL_TYPE_BPE)
        return FAIL(
            ST_BAD_DATA,
            "%s has a model of type %lld, but only BPE (2) is supported; use another tokenizer",
            r->name, (long long)r->model_type);
    const char *unread = r->has_charsmap     ? "a normalisation other than identity"
                         : r->removes_spaces ? "remove_extra_whitespaces"
                         : !r->marks_spaces  ? "spaces that are not marked"
                         : r->space_behind   ? "treat_whitespace_as_suffix"
                                             : NULL;
    if (unread != NULL)
        return FAIL(ST_BAD_DATA, "%s has %s, which is not supported; use another tokenizer",
                    r->name, unread);
    return ST_OK;
}

/* Returns a special id only if its piece is a control piece. */
static int64_t get_control_id(const struct spm_reader *r, int64_t id)
{
    return id >= 0 && id < (int64_t)r->n && r->piece[id].type == TOKENIZER_PIECE_CONTROL ? id : -1;
}

enum status tokenizer_spm_open(const uint8_t *bytes, size_t n, const char *name,
                               struct tokenizer **out)
{
    struct spm_reader r = {.name = name,
                           .model_type = 1,
                           .begin = 1,
                           .end = 2,
                           .adds_space = true,
                           .removes_spaces = true,
                           .marks_spaces = true};
    enum status st = read_model(&r, (struct message){bytes, bytes + n});
    if (st == ST_OK)
        st = check_kind(&r);
    if (st == ST_OK) {
        const struct tokenizer_pieces pieces = {.name = name,
                                                .piece = r.piece,
                                                .n = r.n,
                                                .adds_space = r.adds_space,
                                                .begin = get_control_id(&r, r.begin),
                                                .end = get_control_id(&r, r.end)};
        st = tokenizer_pieces_open(&pieces, out);
    }
    free(r.piece);
    return st;
}

#ifdef FUZZ
#include "data/tokenizer/fuzz.h"

/* An accepted tokenizer can encode its own file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer;
    if (tokenizer_spm_open(data, size, "fuzz", &tokenizer) == ST_OK)
        tokenizer_fuzz(tokenizer, data, size);
    return 0;
}
#endif
