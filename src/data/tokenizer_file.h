/* tokenizer_file — opens the tokenizer at a path: "gpt2" (the built-in one), a Hugging Face folder
 * (tokenizer.json, else tokenizer.model), a tokenizer.json, a tokenizer.model of SentencePiece or
 * tiktoken, or a .tiktoken file. A file's content tells what it is.
 *
 * A tokenizer.json with GPT-2's tables is the built-in one. Which token ends a document says
 * tokenizer_config.json beside it (eos_token). */
#ifndef CONVOY_DATA_TOKENIZER_FILE_H
#define CONVOY_DATA_TOKENIZER_FILE_H

#include <stdbool.h>

#include "base/status.h"
#include "data/tokenizer.h"

/* tokenizer_file_open — fails ST_NO_INPUT: nothing there; ST_BAD_DATA: not one that is read. */
enum status tokenizer_file_open(const char *path, struct tokenizer **out);
/* tokenizer_file_is_at — has the folder a tokenizer? */
bool tokenizer_file_is_at(const char *folder);

#endif
