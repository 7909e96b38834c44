/* normal_text — the two normalisations of tokenizers: Unicode's form NFC, and SentencePiece's
 * identity with U+2581 for a space. It must not know tokens.
 *
 * Source of NFC: utf8proc, with its version of Unicode; characters without an entry there stay. */
#ifndef CONVOY_DATA_NORMAL_TEXT_H
#define CONVOY_DATA_NORMAL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/encode_watch.h"

#define NORMAL_TEXT_GROWTH 3 /* the most by which a text grows: this many times its length */

/* normal_text_is_ascii — returns true if the text is ASCII, and so normal already. */
bool normal_text_is_ascii(const uint8_t *text, size_t n_bytes);
/* normal_text_nfc — writes the normal form of text to out, with space for 3·n_bytes, in linear
 * time. Bytes that are not UTF-8 stay. Fails ST_RETRY: out of memory, or stopped by watch (NULL
 * allowed). */
enum status normal_text_nfc(const struct encode_watch *watch, const uint8_t *text, size_t n_bytes,
                            uint8_t *out, size_t *n_out);
/* normal_text_spm — replaces U+2581 by ' ', and a byte that is not UTF-8 by U+FFFD. The same
 * space. */
size_t normal_text_spm(const uint8_t *text, size_t n_bytes, uint8_t *out);
/* normal_text_stands — returns true if the character at p is the same in NFC after any text, so
 * that a text may be cut there. Certain for the common ones only. */
bool normal_text_stands(const uint8_t *p, const uint8_t *end);

#endif
