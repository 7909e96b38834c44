/* tokenizer_gpt2 — GPT-2's tokenizer, whose merges table is inside the binary.
 *
 * <|endoftext|> in a text is ordinary text. Source: Radford et al. 2019; ids equal tiktoken's
 * "gpt2" encode_ordinary. */
#ifndef CONVOY_DATA_TOKENIZER_GPT2_H
#define CONVOY_DATA_TOKENIZER_GPT2_H

#include "base/status.h"
#include "data/tokenizer.h"

#define TOKENIZER_GPT2_VOCAB 50257
#define TOKENIZER_GPT2_END 50256 /* <|endoftext|> */
#define TOKENIZER_GPT2_NAME "gpt2"

/* tokenizer_gpt2_open — a few ms. */
enum status tokenizer_gpt2_open(struct tokenizer **out);
/* tokenizer_gpt2_check — may it encode the texts of data for a model that has no tokenizer of its
 * own? Warns that it does. ST_BAD_SETTING: its ids do not fit the vocabulary. */
enum status tokenizer_gpt2_check(const char *data, const char *model, int64_t vocab);

#endif
