/* tokenizer_spm — reads SentencePiece's tokenizer.model: BPE with the identity normalisation, as
 * Llama 2 and Mistral have.
 *
 * Refused by name: unigram models, other normalisations, and spaces that are removed or follow the
 * word. It must not know files. Source: google/sentencepiece, src/sentencepiece_model.proto. */
#ifndef CONVOY_DATA_TOKENIZER_SPM_H
#define CONVOY_DATA_TOKENIZER_SPM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer.h"

#define TOKENIZER_SPM_BYTES_MAX ((size_t)64 << 20)

/* tokenizer_spm_open — a pure function of the bytes; name is for messages. ST_BAD_DATA. */
enum status tokenizer_spm_open(const uint8_t *bytes, size_t n, const char *name,
                               struct tokenizer **out);

#endif
