/* tokenizer_json_write — the tokenizer of a GGUF file as the files that Hugging Face's tokenizers
 * and transformers read: tokenizer.json and tokenizer_config.json.
 *
 * Texts get the same ids, but for SentencePiece's pieces with these exceptions, as in Hugging
 * Face's own conversions: names of control pieces ("<s>") are split off, the text after a special
 * or user-defined piece gets a space before it if texts do, and pairs of equal scores are merged in
 * the order of their ids. It must not know files.
 *
 * Source: Hugging Face's tokenizers 0.23; transformers, convert_slow_tokenizer.py. */
#ifndef CONVOY_DATA_TOKENIZER_JSON_WRITE_H
#define CONVOY_DATA_TOKENIZER_JSON_WRITE_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "data/tokenizer/gguf.h"

/* Each function appends one file. Out of memory: sets out->overflow. */
/* tokenizer_json_write — writes tokenizer.json, from lists that tokenizer_gguf_open accepts.
 * ST_BAD_DATA: contents that JSON cannot hold, such as two tokens of one text; ST_RETRY. */
enum status tokenizer_json_write(const struct tokenizer_gguf *from, struct text *out);
/* tokenizer_json_write_config — writes tokenizer_config.json. */
enum status tokenizer_json_write_config(const struct tokenizer_gguf *from, int64_t context_tokens,
                                        struct text *out);

#endif
