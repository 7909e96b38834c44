/* bpe_write — GPT-2's tokenizer as the files that Hugging Face's transformers reads: vocab.json,
 * merges.txt, tokenizer.json, and two small ones with the special token.
 *
 * They are made from the table inside the binary, so they match this program's tokenizer. It
 * must not know files. */
#ifndef CONVOY_DATA_BPE_WRITE_H
#define CONVOY_DATA_BPE_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "data/bpe.h"

#define BPE_WRITE_BYTES_MAX (8 << 20) /* a limit for struct text that holds any of them */

/* Each function appends one file. Out of memory: sets out->overflow. */
void bpe_write_vocab(const struct bpe *bpe, struct text *out); /* vocab.json: token → id */
void bpe_write_merges(struct text *out);                       /* merges.txt */
/* tokenizer.json: both, for the fast tokenizer */
void bpe_write_tokenizer_json(const struct bpe *bpe, struct text *out);
void bpe_write_settings(int64_t context_tokens, struct text *out); /* tokenizer_config.json */
void bpe_write_specials(struct text *out);                         /* special_tokens_map.json */

#endif
