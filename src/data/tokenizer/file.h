/* tokenizer_file — opens the tokenizer at a path: "gpt2" (the built-in one), a Hugging Face folder
 * (tokenizer.json, else tokenizer.model), a tokenizer.json, a tokenizer.model of SentencePiece or
 * tiktoken, or a .tiktoken file. The content of a file determines its format.
 *
 * A tokenizer.json with GPT-2's tables is the built-in one. tokenizer_config.json next to it holds
 * the token that ends a document (eos_token). */
#ifndef CONVOY_DATA_TOKENIZER_FILE_H
#define CONVOY_DATA_TOKENIZER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

/* tokenizer_file_open — opens a tokenizer. Fails ST_NO_INPUT: nothing there; ST_BAD_DATA: not a
 * known format. */
enum status tokenizer_file_open(const char *path, struct tokenizer **out);
/* tokenizer_file_is_at — returns true if the folder has a tokenizer. */
bool tokenizer_file_is_at(const char *folder);

/* tokenizer_json — reads Hugging Face's tokenizer.json: a BPE model, byte-level or with
 * SentencePiece's characters and byte fallback.
 *
 * Its rules for texts are read by tokenizer/rules.h. Refused, with the reason: other models
 * (WordPiece, Unigram), dropout, prefixes and suffixes of words, and added tokens with single_word,
 * lstrip or rstrip. It must not know files. Source: Hugging Face's tokenizers 0.23. */

#define TOKENIZER_JSON_BYTES_MAX ((size_t)128 << 20)

/* tokenizer_json_open — opens a tokenizer.json; a pure function of the bytes. name: for messages.
 * end: the token that ends a document; "": the first of <|endoftext|>, <|end_of_text|>, </s> and
 * <|im_end|> that exists. Fails ST_BAD_DATA. */
enum status tokenizer_json_open(const char *bytes, size_t n, const char *name, const char *end,
                                struct tokenizer **out);
/* tokenizer_json_end — reads eos_token of a tokenizer_config.json; "": it has none. Fails
 * ST_BAD_DATA: not JSON. */
enum status tokenizer_json_end(const char *bytes, size_t n, const char *name, char *out,
                               size_t cap);

/* tokenizer_spm — reads SentencePiece's tokenizer.model: BPE with the identity normalisation, as in
 * Llama 2 and Mistral.
 *
 * Refused, with the reason: unigram models, other normalisations, and spaces that are removed or
 * follow the word. It must not know files. Source: google/sentencepiece,
 * src/sentencepiece_model.proto. */

#define TOKENIZER_SPM_BYTES_MAX ((size_t)64 << 20)

/* tokenizer_spm_open — opens a tokenizer.model; a pure function of the bytes; name is for messages.
 * ST_BAD_DATA. */
enum status tokenizer_spm_open(const uint8_t *bytes, size_t n, const char *name,
                               struct tokenizer **out);

/* tokenizer_tiktoken — reads tiktoken's rank files: a line for each token, with its bytes in base64
 * and its rank, which is its id. A pair of tokens is merged if both together are a token, the
 * lowest rank first; a pre-token that equals a token becomes that token.
 *
 * The files have no pattern and no special tokens, so the size identifies the tokenizer:
 * cl100k_base (100,256 tokens), Llama 3 (128,000) and GPT-2 (50,256); others are refused. It must
 * not know files. Source: OpenAI's tiktoken 0.14; Meta's llama-models,
 * models/llama3/tokenizer.py. */

#define TOKENIZER_TIKTOKEN_BYTES_MAX ((size_t)32 << 20)

/* tokenizer_tiktoken_is — returns true if it begins with such a line. */
bool tokenizer_tiktoken_is(const char *bytes, size_t n);
/* tokenizer_tiktoken_open — opens a rank file; a pure function of the bytes; name is for messages.
 * ST_BAD_DATA. */
enum status tokenizer_tiktoken_open(const char *bytes, size_t n, const char *name,
                                    struct tokenizer **out);

#endif
