/* byte_chars — GPT-2's table of one character for each byte: tokenizer files hold bytes so.
 *
 * Printable Latin-1 stands for itself, the others are U+0100 … in order. It must not know tokens.
 * Source: Radford et al. 2019, encoder.py. */
#ifndef CONVOY_DATA_BYTE_CHARS_H
#define CONVOY_DATA_BYTE_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void byte_chars_fill(uint16_t char_of[256]);
/* byte_chars_decode — UTF-8 to the bytes it stands for, at most n_bytes; false: another character
 * is in it. */
bool byte_chars_decode(const uint8_t *text, size_t n_bytes, uint8_t *out, size_t *n_out);

#endif
