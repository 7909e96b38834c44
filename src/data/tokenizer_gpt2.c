/* tokenizer_gpt2 — see tokenizer_gpt2.h. Ids: 0 … 255 the bytes in the order of GPT-2's byte ↔
 * character table, then one id per line of the merges table in order, then <|endoftext|>. */
#include "data/tokenizer_gpt2.h"

#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "data/tokenizer_gpt2.h"
#include "data/byte_chars.h"

#define END_TEXT "<|endoftext|>"

enum { MERGES = 50000, BYTES = 256, LINE_MAX_BYTES = 1024 };
_Static_assert(BYTES + MERGES == TOKENIZER_GPT2_END &&
                   TOKENIZER_GPT2_END + 1 == TOKENIZER_GPT2_VOCAB,
               "bytes, merges, end of text");

extern const uint8_t merges_begin[], merges_end[]; /* merges.S */

/* Decode the characters up to `stop` to bytes at out; returns how many. */
static size_t part_decode(const uint8_t **at, uint8_t stop, uint8_t *out)
{
    const uint8_t *p = *at, *end = memchr(p, stop, (size_t)(merges_end - p));
    size_t n;
    end = end != NULL ? end : merges_end;
    ASSERTF(end - p < LINE_MAX_BYTES && byte_chars_decode(p, (size_t)(end - p), out, &n),
            "the embedded merges table holds an unknown character near byte %td", p - merges_begin);
    *at = end + 1;
    return n;
}

static void name(struct bpe *bpe, uint32_t id, const uint8_t *bytes, size_t n)
{
    ASSERTF(bpe_name(bpe, id, bytes, n, true), "token %u twice", id);
}

static enum status fill(struct bpe *bpe)
{
    const struct bpe_rules rules = {.unit = BPE_UNIT_BYTES, .unknown = BPE_NONE};
    uint8_t missing;
    TRY(bpe_reserve(bpe, MERGES));
    uint16_t char_of[256];
    uint32_t id = 0;
    byte_chars_fill(char_of);
    for (int round = 0; round < 2; round++)
        for (uint32_t b = 0; b < BYTES; b++)
            if ((char_of[b] == b) == (round == 0))
                name(bpe, id++, &(uint8_t){(uint8_t)b}, 1);
    const uint8_t *p = memchr(merges_begin, '\n', (size_t)(merges_end - merges_begin));
    ASSERT(p != NULL);
    p++; /* the version line */
    for (uint32_t rank = 0; rank < MERGES; rank++) {
        uint8_t out[2 * LINE_MAX_BYTES];
        const size_t left = part_decode(&p, ' ', out), right = part_decode(&p, '\n', out + left);
        const uint32_t a = bpe_find(bpe, out, left), b = bpe_find(bpe, out + left, right);
        ASSERTF(a != BPE_NONE && b != BPE_NONE, "merge %u of tokens that are not there yet", rank);
        bpe_pair(bpe, a, b, rank, BYTES + rank);
        name(bpe, BYTES + rank, out, left + right);
    }
    ASSERTF(p == merges_end, "%td bytes left of the embedded merges table", merges_end - p);
    bpe_name(bpe, TOKENIZER_GPT2_END, END_TEXT, sizeof END_TEXT - 1, false);
    ASSERT(bpe_finish(bpe, &rules, true, &missing) == 0);
    return ST_OK;
}

enum status tokenizer_gpt2_open(struct tokenizer **out)
{
    /* a token is never longer than its line */
    const struct bpe_size size = {.vocab = TOKENIZER_GPT2_VOCAB,
                                  .bytes = (size_t)(merges_end - merges_begin) + 1024};
    struct tokenizer_parts parts = {.name = TOKENIZER_GPT2_NAME,
                                    .kind = PRETOKEN_KIND_GPT2,
                                    .end = TOKENIZER_GPT2_END,
                                    .begin = TOKENIZER_NONE,
                                    .is_built_in = true};
    TRY(bpe_new(&size, &parts.bpe));
    const enum status st = fill(parts.bpe);
    if (st != ST_OK) {
        bpe_close(parts.bpe);
        return st;
    }
    return tokenizer_new(&parts, out);
}

enum status tokenizer_gpt2_check(const char *data, const char *model, int64_t vocab)
{
    if (vocab < TOKENIZER_GPT2_VOCAB)
        return FAIL(ST_BAD_SETTING,
                    "%s is text, and the model %s has no tokenizer of its own; set TOKENIZER to "
                    "the model's tokenizer (a folder or file), or TOKENIZER=gpt2 with VOCAB=%d or "
                    "more (here %lld)",
                    data, model, TOKENIZER_GPT2_VOCAB, (long long)vocab);
    LOG_WARN("the model %s has no tokenizer of its own: the text of %s gets the ids of GPT-2's; "
             "set TOKENIZER",
             model, data);
    return ST_OK;
}

#ifdef FUZZ
/* The bytes taken for ids: each below the vocabulary has bytes, of which encoding gives back at
 * least one token; no other has any. (The merges table is inside the binary: no bytes of the
 * outside.) */
static void decode_any(const struct tokenizer *gpt2, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 3 <= size && i < 96; i += 3) {
        const uint32_t id =
            data[i] | (uint32_t)data[i + 1] << 8 | (uint32_t)(data[i + 2] & 1) << 16;
        uint32_t back[64];
        size_t n = 0, tokens;
        const uint8_t *bytes = tokenizer_bytes(gpt2, id, &n);
        ASSERT((bytes != NULL) == (id < TOKENIZER_GPT2_VOCAB));
        if (bytes == NULL || n > 64)
            continue;
        ASSERT(tokenizer_encode(gpt2, bytes, n, true, back, &tokens) == ST_OK);
        ASSERT(tokens >= 1 && tokens <= n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *gpt2;
    static uint32_t ids[1 << 16];
    size_t at = 0, n;
    if (gpt2 == NULL)
        ASSERT(tokenizer_gpt2_open(&gpt2) == ST_OK);
    ASSERT(tokenizer_encode(gpt2, data, size, true, ids, &n) == ST_OK);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const uint8_t *bytes = tokenizer_bytes(gpt2, ids[i], &len);
        ASSERT(at + len <= size && memcmp(data + at, bytes, len) == 0);
        at += len;
    }
    ASSERT(at == size && tokenizer_cut(gpt2, data, size) <= size);
    decode_any(gpt2, data, size);
    return 0;
}
#endif
