/* pretoken — where GPT-2's tokenizer splits a text before any merging.
 *
 * Pieces are the successive matches of
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * with the general categories of Unicode 16 and \s as White_Space. A byte that does not belong to
 * well-formed UTF-8 is a character of its own, neither letter, number nor space. Must not know
 * tokens. */
#ifndef CONVOY_DATA_PRETOKEN_H
#define CONVOY_DATA_PRETOKEN_H

#include <stddef.h>
#include <stdint.h>

/* pretoken_end — end of the piece that begins at p < end, where end is the end of the text. */
const uint8_t *pretoken_end(const uint8_t *p, const uint8_t *end);
/* pretoken_cut — the last place in text[0, n_bytes), which begins with a piece, where another one
 * begins whatever follows; 0: none is sure. Looks at classes only, so it may miss places after
 * spaces and apostrophes. */
size_t pretoken_cut(const uint8_t *text, size_t n_bytes);

#endif
