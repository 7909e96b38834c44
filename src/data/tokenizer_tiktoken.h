/* tokenizer_tiktoken — reads tiktoken's rank files: a line for each token, its bytes in base64 and
 * its rank, which is its id. A pair of tokens is merged where both together are a token, the lowest
 * rank first; a pre-token that is a token is taken whole.
 *
 * The files name no pattern and no special tokens, so those of a known size are known: cl100k_base
 * (100,256 tokens), Llama 3 (128,000) and GPT-2 (50,256); others are refused. It must not know
 * files. Source: OpenAI's tiktoken 0.14; Meta's llama-models, models/llama3/tokenizer.py. */
#ifndef CONVOY_DATA_TOKENIZER_TIKTOKEN_H
#define CONVOY_DATA_TOKENIZER_TIKTOKEN_H

#include <stddef.h>

#include "base/status.h"
#include "data/tokenizer.h"

#define TOKENIZER_TIKTOKEN_BYTES_MAX ((size_t)32 << 20)

/* tokenizer_tiktoken_is — does it begin with such a line? */
bool tokenizer_tiktoken_is(const char *bytes, size_t n);
/* tokenizer_tiktoken_open — a pure function of the bytes; name is for messages. ST_BAD_DATA. */
enum status tokenizer_tiktoken_open(const char *bytes, size_t n, const char *name,
                                    struct tokenizer **out);

#endif
