/* tokenizer_gguf — the tokenizer of a GGUF file, from its lists: SentencePiece's pieces ("llama"),
 * or byte-level BPE ("gpt2") with a pattern by name. It must not know files.
 *
 * Patterns: gpt-2, smollm, llama-bpe, llama3, llama-v3, qwen2. Others are refused with their name.
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
    bool ignores_merges, is_nfc;
};
const struct tokenizer_gguf_kind *tokenizer_gguf_kind(const char *pre); /* NULL: an unknown name */

/* tokenizer_gguf_open — opens it. ST_BAD_DATA: a kind that is not read, or lists that do not
 * fit. */
enum status tokenizer_gguf_open(const struct tokenizer_gguf *gguf, struct tokenizer **out);

#endif
