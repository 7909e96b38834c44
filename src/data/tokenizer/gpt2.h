/* tokenizer_gpt2 — GPT-2's tokenizer, whose merges table is inside the binary.
 *
 * <|endoftext|> in a text is ordinary text. Source: Radford et al. 2019; ids equal tiktoken's
 * "gpt2" encode_ordinary. */
#ifndef CONVOY_DATA_TOKENIZER_GPT2_H
#define CONVOY_DATA_TOKENIZER_GPT2_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer.h"

#define TOKENIZER_GPT2_VOCAB 50257
#define TOKENIZER_GPT2_END 50256 /* <|endoftext|> */
#define TOKENIZER_GPT2_NAME "gpt2"

/* tokenizer_gpt2_open — opens it; needs a few ms. */
enum status tokenizer_gpt2_open(struct tokenizer **out);
/* tokenizer_gpt2_check — checks that it may encode the texts of `data` for a model without its own
 * tokenizer. Warns that it does. ST_BAD_SETTING: its ids do not fit the vocabulary. */
enum status tokenizer_gpt2_check(const char *data, const char *model, int64_t vocab);

/* ---- GPT-2's tokenizer as the files that Hugging Face's transformers reads:
 * vocab.json, merges.txt, tokenizer.json, and two small ones with the special token ----
 * They are made from the table inside the binary, so they match this program's tokenizer. It
 * must not know files. */

#define TOKENIZER_GPT2_WRITE_BYTES_MAX \
    (8 << 20) /* a limit for struct text that holds any of them */

/* Each function appends one file. Out of memory: sets out->overflow. */
/* Appends vocab.json: token → id. */
void tokenizer_gpt2_write_vocab(const struct tokenizer *gpt2, struct text *out);
/* Appends merges.txt. */
void tokenizer_gpt2_write_merges(struct text *out);
/* Appends tokenizer.json: both, for the fast tokenizer. */
void tokenizer_gpt2_write_tokenizer_json(const struct tokenizer *gpt2, struct text *out);
/* Appends tokenizer_config.json. */
void tokenizer_gpt2_write_settings(int64_t context_tokens, struct text *out);
/* Appends special_tokens_map.json. */
void tokenizer_gpt2_write_specials(struct text *out);

#endif
