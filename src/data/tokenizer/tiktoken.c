/* tokenizer_tiktoken — see tokenizer/file.h. */
#include "data/tokenizer/file.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "net/base64.h"

enum { LINE_BYTES_MAX = 1024, TOKEN_BYTES_MAX = 512 };

/* Facts that the file does not hold. Special tokens follow the ranks. */
struct tiktoken_kind {
    uint32_t tokens, vocab;
    enum pretoken_kind kind;
    struct {
        uint32_t id;
        const char *text;
    } special[16];
    uint32_t begin, end;
    uint32_t reserved_from, reserved_number; /* "<|reserved_special_token_N|>" of Llama 3 */
};

static const struct tiktoken_kind kinds[] = {
    {.tokens = 100256,
     .vocab = 100277,
     .kind = PRETOKEN_KIND_CL100K,
     .special = {{100257, "<|endoftext|>"},
                 {100258, "<|fim_prefix|>"},
                 {100259, "<|fim_middle|>"},
                 {100260, "<|fim_suffix|>"},
                 {100276, "<|endofprompt|>"}},
     .begin = TOKENIZER_NONE,
     .end = 100257},
    {.tokens = 128000,
     .vocab = 128256,
     .kind = PRETOKEN_KIND_LLAMA3,
     .special = {{128000, "<|begin_of_text|>"},
                 {128001, "<|end_of_text|>"},
                 {128002, "<|reserved_special_token_0|>"},
                 {128003, "<|reserved_special_token_1|>"},
                 {128004, "<|finetune_right_pad_id|>"},
                 {128005, "<|reserved_special_token_2|>"},
                 {128006, "<|start_header_id|>"},
                 {128007, "<|end_header_id|>"},
                 {128008, "<|eom_id|>"},
                 {128009, "<|eot_id|>"},
                 {128010, "<|python_tag|>"}},
     .begin = 128000,
     .end = 128001,
     .reserved_from = 128011,
     .reserved_number = 3},
    {.tokens = 50256,
     .vocab = 50257,
     .kind = PRETOKEN_KIND_GPT2,
     .special = {{50256, "<|endoftext|>"}},
     .begin = TOKENIZER_NONE,
     .end = 50256},
};

struct tiktoken_reader {
    const char *name;
    const struct tiktoken_kind *kind;
    struct bpe *bpe;
    uint32_t *rank;
    struct tokenizer_added added[300];
    char text[300][40];
    size_t added_n;
};

/* Reads the token and rank of one line; false: it is not such a line. */
static bool read_line(const char *line, size_t n, uint8_t out[TOKEN_BYTES_MAX], size_t *n_out,
                      int64_t *rank_out)
{
    char text[LINE_BYTES_MAX];
    if (n >= sizeof text)
        return false;
    memcpy(text, line, n);
    text[n] = 0;
    char *space = memchr(text, ' ', n);
    if (space == NULL)
        return false;
    *space = 0;
    return base64_read(text, out, TOKEN_BYTES_MAX, n_out) && *n_out > 0 &&
           text_parse_i64(space + 1, 0, BPE_VOCAB_MAX - 1, rank_out) == TEXT_OK;
}

static size_t line_bytes(const char *p, size_t left)
{
    const char *stop = memchr(p, '\n', left);
    return stop != NULL ? (size_t)(stop - p) : left;
}

/* Returns the length of the line without the '\r' of a file that was edited on Windows. */
static size_t content_bytes(const char *p, size_t line)
{
    return line > 0 && p[line - 1] == '\r' ? line - 1 : line;
}

bool tokenizer_tiktoken_is(const char *bytes, size_t n)
{
    uint8_t token[TOKEN_BYTES_MAX];
    size_t token_n;
    int64_t rank;
    const size_t content = content_bytes(bytes, line_bytes(bytes, n));
    return read_line(bytes, content, token, &token_n, &rank) && rank == 0;
}

typedef enum status line_fn(struct tiktoken_reader *r, uint32_t rank, const uint8_t *token,
                            size_t n);

static enum status name_line(struct tiktoken_reader *r, uint32_t rank, const uint8_t *token,
                             size_t n)
{
    if (rank >= r->kind->tokens || !bpe_name(r->bpe, rank, token, n, true))
        return FAIL(ST_BAD_DATA, "%s: rank %u, or its token, is there twice, or is over %u",
                    r->name, rank, r->kind->tokens - 1);
    r->rank[rank] = rank;
    return ST_OK;
}

static void add_special(struct tiktoken_reader *r, uint32_t id, const char *text)
{
    char *copy = r->text[r->added_n];
    ASSERT(r->added_n < sizeof r->added / sizeof r->added[0]);
    text_copy(copy, sizeof r->text[0], text);
    bpe_name(r->bpe, id, copy, strlen(copy), false);
    r->added[r->added_n++] = (struct tokenizer_added){
        .id = id, .text = (const uint8_t *)copy, .n = strlen(copy), .is_special = true};
}

static enum status build_bpe(struct tiktoken_reader *r, const char *bytes, size_t n)
{
    const struct bpe_rules rules = {
        .unit = BPE_UNIT_BYTES, .ignores_merges = true, .unknown = BPE_NONE};
    const struct bpe_size size = {.vocab = r->kind->vocab, .bytes = n + sizeof r->text};
    uint8_t missing;
    r->bpe = bpe_new(&size);
    r->rank = memory_new(r->kind->vocab, sizeof *r->rank);
    memset(r->rank, 0xff, r->kind->vocab * sizeof *r->rank);
    uint8_t token[TOKEN_BYTES_MAX];
    int64_t line = 1, rank;
    for (size_t at = 0, len, token_n; at < n; at += len + 1, line++) {
        len = line_bytes(bytes + at, n - at);
        const size_t end = content_bytes(bytes + at, len);
        if (end == 0)
            continue;
        if (!read_line(bytes + at, end, token, &token_n, &rank))
            return FAIL(ST_BAD_DATA,
                        "%s, line %lld: not a token in base64 (at most %d bytes) and its rank; the "
                        "file is damaged",
                        r->name, (long long)line, TOKEN_BYTES_MAX);
        TRY(name_line(r, (uint32_t)rank, token, token_n));
    }
    const struct tiktoken_kind *kind = r->kind;
    for (int i = 0; i < 16 && kind->special[i].text != NULL; i++)
        add_special(r, kind->special[i].id, kind->special[i].text);
    uint32_t number = kind->reserved_number;
    for (uint32_t id = kind->reserved_from; id > 0 && id < kind->vocab; id++) {
        char text[40];
        text_format(text, sizeof text, "<|reserved_special_token_%u|>", number++);
        add_special(r, id, text);
    }
    bpe_pair_splits(r->bpe, r->rank);
    if (bpe_finish(r->bpe, &rules, true, &missing) > 0)
        return FAIL(ST_BAD_DATA, "%s has no token for byte 0x%02X; the file is damaged", r->name,
                    missing);
    return ST_OK;
}

static enum status open_all(struct tiktoken_reader *r, const char *bytes, size_t n,
                            struct tokenizer **out)
{
    /* Finds the kind by the number of lines. */
    size_t lines = 0;
    for (size_t at = 0, len; at < n; at += len + 1) {
        len = line_bytes(bytes + at, n - at);
        lines += len > 1;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].tokens == lines)
            r->kind = kinds + i;
    if (r->kind == NULL)
        return FAIL(ST_BAD_DATA,
                    "%s has %zu tokens, and such files do not hold the pattern that splits texts; "
                    "only cl100k_base (100256), Llama 3 (128000) and GPT-2 (50256) are supported",
                    r->name, lines);
    TRY(build_bpe(r, bytes, n));
    const struct tokenizer_config config = {.name = r->name,
                                            .bpe = r->bpe,
                                            .kind = r->kind->kind,
                                            .added = r->added,
                                            .added_n = r->added_n,
                                            .begin = r->kind->begin,
                                            .end = r->kind->end};
    r->bpe = NULL; /* tokenizer_new has it now */
    return tokenizer_new(&config, out);
}

enum status tokenizer_tiktoken_open(const char *bytes, size_t n, const char *name,
                                    struct tokenizer **out)
{
    struct tiktoken_reader *r = memory_new(1, sizeof *r);
    r->name = name;
    const enum status st = open_all(r, bytes, n, out);
    bpe_close(r->bpe);
    free(r->rank);
    free(r);
    return st;
}

#ifdef FUZZ
/* Lines of tokens. No input of 64 KiB has the size of a supported file, so lines are read one by
 * one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer = NULL;
    uint8_t token[TOKEN_BYTES_MAX];
    size_t n;
    int64_t rank;
    if (read_line((const char *)data, size, token, &n, &rank))
        ASSERT(n > 0 && n <= TOKEN_BYTES_MAX && rank >= 0 && rank < BPE_VOCAB_MAX);
    ASSERT(tokenizer_tiktoken_open((const char *)data, size, "fuzz", &tokenizer) != ST_OK);
    return 0;
}
#endif
