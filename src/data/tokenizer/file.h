/* tokenizer_file — opens the tokenizer at a path: "gpt2" (the built-in one), a Hugging Face folder
 * (tokenizer.json, else tokenizer.model), a tokenizer.json, a tokenizer.model of SentencePiece or
 * tiktoken, or a .tiktoken file. A file's content tells what it is.
 *
 * A tokenizer.json with GPT-2's tables is the built-in one. Which token ends a document says
 * tokenizer_config.json beside it (eos_token). */
#ifndef CONVOY_DATA_TOKENIZER_FILE_H
#define CONVOY_DATA_TOKENIZER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

/* tokenizer_file_open — fails ST_NO_INPUT: nothing there; ST_BAD_DATA: not one that is read. */
enum status tokenizer_file_open(const char *path, struct tokenizer **out);
/* tokenizer_file_is_at — has the folder a tokenizer? */
bool tokenizer_file_is_at(const char *folder);

/* tokenizer_json — reads Hugging Face's tokenizer.json: a BPE model, byte-level or with
 * SentencePiece's characters and byte fallback.
 *
 * What it says about texts is in tokenizer/rules.h. Not read, and refused by name: other models
 * (WordPiece, Unigram), dropout, prefixes and suffixes of words, and added tokens with single_word,
 * lstrip or rstrip. It must not know files. Source: Hugging Face's tokenizers 0.23. */

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

/* tokenizer_spm — reads SentencePiece's tokenizer.model: BPE with the identity normalisation, as
 * Llama 2 and Mistral have.
 *
 * Refused by name: unigram models, other normalisations, and spaces that are removed or follow the
 * word. It must not know files. Source: google/sentencepiece, src/sentencepiece_model.proto. */

#define TOKENIZER_SPM_BYTES_MAX ((size_t)64 << 20)

/* tokenizer_spm_open — a pure function of the bytes; name is for messages. ST_BAD_DATA. */
enum status tokenizer_spm_open(const uint8_t *bytes, size_t n, const char *name,
                               struct tokenizer **out);

/* tokenizer_tiktoken — reads tiktoken's rank files: a line for each token, its bytes in base64 and
 * its rank, which is its id. A pair of tokens is merged where both together are a token, the lowest
 * rank first; a pre-token that is a token is taken whole.
 *
 * The files name no pattern and no special tokens, so those of a known size are known: cl100k_base
 * (100,256 tokens), Llama 3 (128,000) and GPT-2 (50,256); others are refused. It must not know
 * files. Source: OpenAI's tiktoken 0.14; Meta's llama-models, models/llama3/tokenizer.py. */

#define TOKENIZER_TIKTOKEN_BYTES_MAX ((size_t)32 << 20)

/* tokenizer_tiktoken_is — does it begin with such a line? */
bool tokenizer_tiktoken_is(const char *bytes, size_t n);
/* tokenizer_tiktoken_open — a pure function of the bytes; name is for messages. ST_BAD_DATA. */
enum status tokenizer_tiktoken_open(const char *bytes, size_t n, const char *name,
                                    struct tokenizer **out);

#endif
