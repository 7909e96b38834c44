/* pretoken — splits text into pre-tokens, within which BPE merges. One kind for each published
 * pattern.
 *
 *   - GPT2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   - SMOLLM: each number by itself, then GPT2 in the text between them
 *   - LLAMA3: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *     ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ (also cl100k in Hugging Face files)
 *   - QWEN: LLAMA3 with \p{N} instead of \p{N}{1,3}
 *   - CL100K: tiktoken's cl100k_base: LLAMA3, but spaces at the end of the text are one pre-token
 *   - WORDS, METASPACE, WHOLE: SentencePiece: a run of ' ' and the text up to the next ' '; one ' '
 *     and the text up to the next ' '; everything
 *
 * Classes are the general categories of Unicode 16, \s is White_Space. A byte outside of
 * well-formed UTF-8 is a character of its own: neither letter, number nor space. It must not know
 * tokens. */
#ifndef CONVOY_DATA_PRETOKEN_H
#define CONVOY_DATA_PRETOKEN_H

#include <stddef.h>
#include <stdint.h>

enum pretoken_kind {
    PRETOKEN_KIND_GPT2,
    PRETOKEN_KIND_SMOLLM,
    PRETOKEN_KIND_LLAMA3,
    PRETOKEN_KIND_QWEN,
    PRETOKEN_KIND_CL100K,
    PRETOKEN_KIND_WORDS,
    PRETOKEN_KIND_METASPACE,
    PRETOKEN_KIND_WHOLE
};

/* pretoken_end — returns the end of the pre-token that begins at p < end, the end of the text. */
const uint8_t *pretoken_end(enum pretoken_kind kind, const uint8_t *p, const uint8_t *end);
/* pretoken_cut — returns the last position in text[0, n_bytes) where a pre-token begins for any
 * following text; 0: none is certain. The text begins with a pre-token. Only classes are compared,
 * so positions after spaces and apostrophes may be missed. */
size_t pretoken_cut(enum pretoken_kind kind, const uint8_t *text, size_t n_bytes);

#endif
