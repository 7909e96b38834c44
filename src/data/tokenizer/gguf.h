/* tokenizer_gguf — the tokenizer of a GGUF file, from its lists, and back: SentencePiece's pieces
 * ("llama"), or byte-level BPE ("gpt2") with a pattern by name. It must not know files.
 *
 * Patterns: gpt-2, smollm, llama-bpe, llama3, llama-v3, dbrx, qwen2, stablelm2, deepseek-v3,
 * gpt-4o, tekken, bloom. Others are refused with their name.
 * Source: ggml-org/llama.cpp, gguf-py and src/llama-vocab.cpp. */
#ifndef CONVOY_DATA_TOKENIZER_GGUF_H
#define CONVOY_DATA_TOKENIZER_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/pieces.h"

struct tokenizer_gguf {
    const char *name; /* for messages */
    const char *model, *pre;
    const struct tokenizer_piece *piece, *merge; /* a merge has only text: "a b" */
    size_t n, merges_n;
    bool has_scores;
    int64_t begin, end; /* ids; −1: none */
    bool adds_space;
};

/* The splitting of texts for a name of a pattern. */
struct tokenizer_gguf_kind {
    const char *pre;
    enum pretoken_kind kind;
    const char *const *regex; /* patterns in place of kind, up to NULL; NULL: there are none */
    bool ignores_merges, is_nfc;
    bool is_near; /* llama.cpp's own pattern of this name differs for some letters */
};
const struct tokenizer_gguf_kind *tokenizer_gguf_kind(const char *pre); /* NULL: an unknown name */

/* tokenizer_gguf_open — opens it. ST_BAD_DATA: a kind that is not read, or lists that do not
 * fit. */
enum status tokenizer_gguf_open(const struct tokenizer_gguf *gguf, struct tokenizer **out);

/* The lists of a tokenizer, with their memory. */
struct tokenizer_gguf_lists {
    struct tokenizer_gguf gguf;    /* its name is borrowed from the tokenizer */
    struct tokenizer_piece *piece; /* pieces, then merges */
    char *text;                    /* all their texts, one after the other */
    int64_t unknown;               /* the piece for unknown text; −1: none */
};
/* tokenizer_gguf_of — makes the lists of a tokenizer for a model with `rows` tokens. Ids without a
 * token get unused pieces. Pieces of SentencePiece get scores in the order of their merges.
 * ST_BAD_DATA: the tokenizer has more than `rows` ids, or a rule for which the format has no name.
 * Free *out with tokenizer_gguf_free. */
enum status tokenizer_gguf_of(const struct tokenizer *tokenizer, size_t rows,
                              struct tokenizer_gguf_lists *out);
/* tokenizer_gguf_free — accepts a zeroed struct. */
void tokenizer_gguf_free(struct tokenizer_gguf_lists *lists);

#endif
