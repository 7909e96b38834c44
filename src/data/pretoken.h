/* pretoken — splits text into GPT-2's pre-tokens, within which BPE merges.
 *
 * Pre-tokens are the successive matches of
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * with the general categories of Unicode 16 and \s as White_Space. A byte that is not part of
 * well-formed UTF-8 is a character of its own: neither letter, number nor space. It must not know
 * tokens. */
#ifndef CONVOY_DATA_PRETOKEN_H
#define CONVOY_DATA_PRETOKEN_H

#include <stddef.h>
#include <stdint.h>

/* pretoken_end — the end of the pre-token that begins at p < end, the end of the text. */
const uint8_t *pretoken_end(const uint8_t *p, const uint8_t *end);
/* pretoken_cut — the last position in text[0, n_bytes) where a pre-token begins whatever
 * follows; 0: none is certain. The text begins with a pre-token. Only classes are compared, so
 * positions after spaces and apostrophes may be missed. */
size_t pretoken_cut(const uint8_t *text, size_t n_bytes);

#endif
