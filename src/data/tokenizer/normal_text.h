/* normal_text — Unicode's normal forms, SentencePiece's replacement of spaces by U+2581, and
 * classes of characters. It must not know tokens.
 *
 * Source of the forms: utf8proc, with its version of Unicode; characters without an entry there
 * stay. */
#ifndef CONVOY_DATA_NORMAL_TEXT_H
#define CONVOY_DATA_NORMAL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/encode_watch.h"

#define NORMAL_TEXT_GROWTH 3 /* the most by which NFC and NFD grow a text: times its length */
#define NORMAL_TEXT_GROWTH_COMPAT 11 /* and NFKC and NFKD: U+FDFA */

enum normal_form { NORMAL_FORM_NFC, NORMAL_FORM_NFD, NORMAL_FORM_NFKC, NORMAL_FORM_NFKD };

/* normal_text_is_ascii — returns true if the text is ASCII, and so normal already. */
bool normal_text_is_ascii(const uint8_t *text, size_t n_bytes);
/* normal_text_form — writes the normal form of text to out, with space for its growth, in linear
 * time. Bytes that are not UTF-8 stay. Fails ST_RETRY: out of memory, or stopped by watch (NULL
 * allowed). */
enum status normal_text_form(enum normal_form form, const struct encode_watch *watch,
                             const uint8_t *text, size_t n_bytes, uint8_t *out, size_t *n_out);
/* normal_text_spm — replaces U+2581 by ' ', and a byte that is not UTF-8 by U+FFFD. The same
 * space. */
size_t normal_text_spm(const uint8_t *text, size_t n_bytes, uint8_t *out);
/* normal_text_stands — returns true if the character at p is the same in NFC after any text, so
 * that a text may be cut there. Certain for the common ones only. */
bool normal_text_stands(const uint8_t *p, const uint8_t *end);
/* normal_text_char — returns the character at p < end, or −1 and one byte. */
int32_t normal_text_char(const uint8_t *p, const uint8_t *end, size_t *n_out);
/* normal_text_char_before — returns the character that ends at p > begin, or −1 and one byte. */
int32_t normal_text_char_before(const uint8_t *begin, const uint8_t *p, size_t *n_out);
/* normal_text_is_space — returns true if the character is White_Space. */
bool normal_text_is_space(int32_t c);
/* normal_text_is_word — returns true if the character belongs to words: Rust's \w. */
bool normal_text_is_word(int32_t c);

#endif
