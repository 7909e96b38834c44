/* gguf_vocab — the tokenizer inside a GGUF file, as lists. Strings are read in place. Must not know
 * how text is split. */
#ifndef CONVOY_FORMAT_GGUF_VOCAB_H
#define CONVOY_FORMAT_GGUF_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "format/gguf.h"

#define GGUF_VOCAB_NONE "none" /* tokenizer.ggml.model of a file without a tokenizer */

struct gguf_vocab {
    char model[32]; /* tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece) … */
    char pre[32];   /* tokenizer.ggml.pre: "smollm", "llama-bpe" …; "": none */
    int64_t tokens_n, merges_n;
    struct gguf_string *token; /* into the file's bytes, without closing 0 */
    struct gguf_string *merge; /* "a b", by rank; merges_n may be 0 */
    float *score;              /* score of each token; NULL: the file has none */
    int32_t
        *type; /* 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; NULL: none */
    int64_t bos, eos, unk, pad; /* -1: none */
    bool add_bos, add_eos;      /* a text begins, ends with this token */
    bool add_space;             /* a space is put before a text */
};

/* gguf_vocab_is_there — returns true if the file holds a tokenizer. */
bool gguf_vocab_is_there(const struct gguf *gguf);
/* gguf_vocab_read — reads the lists. Missing flags have llama.cpp's defaults: add_bos and add_space
 * for "llama", add_bos for the pre of Llama 3 and Tekken too.
 * ST_BAD_DATA: no tokenizer is inside, lists of different lengths, a token beyond the list. The
 * caller frees *out before the file is closed. */
enum status gguf_vocab_read(const struct gguf *gguf, struct gguf_vocab *out);
void gguf_vocab_free(struct gguf_vocab *vocab); /* accepts a zeroed struct; may be called twice */

#endif
