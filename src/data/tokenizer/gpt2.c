/* tokenizer_gpt2 — see tokenizer/gpt2.h. Ids: 0 … 255 the bytes in the order of GPT-2's byte ↔
 * character table, then one id per line of the merges table in order, then <|endoftext|>. */
#include "data/tokenizer/gpt2.h"

#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "data/tokenizer/bpe.h"

#define END_TEXT "<|endoftext|>"

enum { MERGES = 50000, BYTES = 256, LINE_MAX_BYTES = 1024 };
_Static_assert(BYTES + MERGES == TOKENIZER_GPT2_END &&
                   TOKENIZER_GPT2_END + 1 == TOKENIZER_GPT2_VOCAB,
               "bytes, merges, end of text");

extern const uint8_t merges_begin[], merges_end[]; /* merges.S */

/* Decodes the characters up to `stop` to bytes at out; returns their number. */
static size_t decode_symbol(const uint8_t **at, uint8_t stop, uint8_t *out)
{
    const uint8_t *p = *at, *end = memchr(p, stop, (size_t)(merges_end - p));
    size_t n;
    end = end != NULL ? end : merges_end;
    ASSERTF(end - p < LINE_MAX_BYTES && bpe_chars_decode(p, (size_t)(end - p), out, &n),
            "the embedded merges table holds an unknown character near byte %td", p - merges_begin);
    *at = end + 1;
    return n;
}

static void name_token(struct bpe *bpe, uint32_t id, const uint8_t *bytes, size_t n)
{
    ASSERTF(bpe_name(bpe, id, bytes, n, true), "token %u twice", id);
}

static enum status build_bpe(struct bpe *bpe)
{
    const struct bpe_rules rules = {.unit = BPE_UNIT_BYTES, .unknown = BPE_NONE};
    uint8_t missing;
    bpe_reserve(bpe, MERGES);
    uint16_t char_of[256];
    uint32_t id = 0;
    bpe_chars_fill(char_of);
    for (int round = 0; round < 2; round++)
        for (uint32_t b = 0; b < BYTES; b++)
            if ((char_of[b] == b) == (round == 0))
                name_token(bpe, id++, &(uint8_t){(uint8_t)b}, 1);
    const uint8_t *p = memchr(merges_begin, '\n', (size_t)(merges_end - merges_begin));
    ASSERT(p != NULL);
    p++; /* the version line */
    for (uint32_t rank = 0; rank < MERGES; rank++) {
        uint8_t out[2 * LINE_MAX_BYTES];
        const size_t left = decode_symbol(&p, ' ', out),
                     right = decode_symbol(&p, '\n', out + left);
        const uint32_t a = bpe_find(bpe, out, left), b = bpe_find(bpe, out + left, right);
        ASSERTF(a != BPE_NONE && b != BPE_NONE, "merge %u of tokens that are not there yet", rank);
        bpe_pair(bpe, a, b, rank, BYTES + rank);
        name_token(bpe, BYTES + rank, out, left + right);
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
    struct tokenizer_config config = {.name = TOKENIZER_GPT2_NAME,
                                      .kind = PRETOKEN_KIND_GPT2,
                                      .end = TOKENIZER_GPT2_END,
                                      .begin = TOKENIZER_NONE,
                                      .is_built_in = true};
    config.bpe = bpe_new(&size);
    const enum status st = build_bpe(config.bpe);
    if (st != ST_OK) {
        bpe_close(config.bpe);
        return st;
    }
    return tokenizer_new(&config, out);
}

enum status tokenizer_gpt2_check(const char *data, const char *model, int64_t vocab)
{
    if (vocab < TOKENIZER_GPT2_VOCAB)
        return FAIL(ST_BAD_SETTING,
                    "%s is text, and the model %s has no tokenizer of its own; set TOKENIZER to "
                    "the model's tokenizer (a folder or file), or TOKENIZER=gpt2 with VOCAB=%d or "
                    "more (here %lld)",
                    data, model, TOKENIZER_GPT2_VOCAB, (long long)vocab);
    LOG_WARN("the model %s has no tokenizer of its own: the text of %s gets the ids of GPT-2's "
             "tokenizer; set TOKENIZER if the model has another one",
             model, data);
    return ST_OK;
}

/* ---- the files that Hugging Face's transformers reads, as in the published GPT-2 ---- */

/* add_vocab — adds {"token": id, …} of all ids. */
static void add_vocab(const struct tokenizer *gpt2, const char *between, struct text *out)
{
    uint16_t char_of[256];
    bpe_chars_fill(char_of);
    text_add(out, "{");
    for (uint32_t id = 0; id < TOKENIZER_GPT2_VOCAB; id++) {
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(gpt2, id, &n);
        text_add(out, "%s\"", id > 0 ? between : "");
        for (size_t i = 0; i < n; i++) {
            /* One code point below U+0800 inside a JSON string. */
            uint32_t c = id == TOKENIZER_GPT2_END ? bytes[i] : char_of[bytes[i]];
            if (c == '"' || c == '\\')
                text_add(out, "\\%c", (int)c);
            else if (c < 0x80)
                text_add_bytes(out, &(char){(char)c}, 1);
            else
                text_add_bytes(out, (char[]){(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))}, 2);
        }
        text_add(out, "\": %u", id);
    }
    text_add(out, "}");
}

void tokenizer_gpt2_write_vocab(const struct tokenizer *gpt2, struct text *out)
{
    add_vocab(gpt2, ", ", out);
    text_add(out, "\n");
}

void tokenizer_gpt2_write_merges(struct text *out)
{
    text_add_bytes(out, merges_begin, (size_t)(merges_end - merges_begin));
}

void tokenizer_gpt2_write_tokenizer_json(const struct tokenizer *gpt2, struct text *out)
{
    text_add(out,
             "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n"
             "\"added_tokens\": [{\"id\": %d, \"content\": \"" END_TEXT
             "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": "
             "false, \"special\": true}],\n"
             "\"normalizer\": null,\n"
             "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
             "\"trim_offsets\": true, \"use_regex\": true},\n"
             "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
             "\"trim_offsets\": false, \"use_regex\": true},\n"
             "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "
             "true, \"use_regex\": true},\n"
             "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
             "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": "
             "false, \"byte_fallback\": false,\n\"vocab\": ",
             TOKENIZER_GPT2_END);
    add_vocab(gpt2, ",\n", out);
    text_add(out, ",\n\"merges\": ");
    /* The table's lines after the first, as JSON strings. */
    const uint8_t *p = memchr(merges_begin, '\n', (size_t)(merges_end - merges_begin));
    ASSERT(p != NULL);
    text_add(out, "[\"");
    for (p++; p < merges_end; p++) {
        if (*p == '\n') {
            text_add(out, p + 1 < merges_end ? "\",\n\"" : "\"");
            continue;
        }
        if (*p == '"' || *p == '\\')
            text_add_bytes(out, "\\", 1);
        text_add_bytes(out, p, 1);
    }
    text_add(out, "]");
    text_add(out, "}\n}\n");
}

void tokenizer_gpt2_write_settings(int64_t context_tokens, struct text *out)
{
    text_add(out,
             "{\n  \"add_prefix_space\": false,\n  \"added_tokens_decoder\": {\n    \"%d\": {\n"
             "      \"content\": \"" END_TEXT
             "\",\n      \"lstrip\": false,\n      \"normalized\": false,\n"
             "      \"rstrip\": false,\n      \"single_word\": false,\n      \"special\": true\n   "
             " }\n  },\n"
             "  \"bos_token\": \"" END_TEXT "\",\n  \"clean_up_tokenization_spaces\": false,\n"
             "  \"eos_token\": \"" END_TEXT "\",\n  \"model_max_length\": %lld,\n"
             "  \"tokenizer_class\": \"GPT2Tokenizer\",\n  \"unk_token\": \"" END_TEXT "\"\n}\n",
             TOKENIZER_GPT2_END, (long long)context_tokens);
}

void tokenizer_gpt2_write_specials(struct text *out)
{
    text_add(out, "{\n  \"bos_token\": \"" END_TEXT "\",\n  \"eos_token\": \"" END_TEXT "\",\n"
                  "  \"unk_token\": \"" END_TEXT "\"\n}\n");
}

#ifdef FUZZ
/* Reads the bytes as ids: each id below the vocabulary has bytes, and encoding these bytes returns
 * at least one token; no other id has any. (The merges table is inside the binary: no bytes from
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
