/* tokenizer_json — reads Hugging Face's tokenizer.json: a BPE model, byte-level or with
 * SentencePiece's characters and byte fallback.
 *
 * What it says about texts is in tokenizer_rules.h. Not read, and refused by name: other models
 * (WordPiece, Unigram), dropout, prefixes and suffixes of words, and added tokens with single_word,
 * lstrip or rstrip. It must not know files. Source: Hugging Face's tokenizers 0.23. */
#ifndef CONVOY_DATA_TOKENIZER_JSON_H
#define CONVOY_DATA_TOKENIZER_JSON_H

#include <stddef.h>

#include "base/status.h"
#include "data/tokenizer.h"

#define TOKENIZER_JSON_BYTES_MAX ((size_t)128 << 20)

/* tokenizer_json_open — a pure function of the bytes. name: for messages. end: the token that ends
 * a document; "": <|endoftext|>, <|end_of_text|>, </s> or <|im_end|>, the first that there is.
 * Fails ST_BAD_DATA. */
enum status tokenizer_json_open(const char *bytes, size_t n, const char *name, const char *end,
                                struct tokenizer **out);
/* tokenizer_json_end — eos_token of a tokenizer_config.json; "": it has none. Fails ST_BAD_DATA:
 * not JSON. */
enum status tokenizer_json_end(const char *bytes, size_t n, const char *name, char *out,
                               size_t cap);

#endif
