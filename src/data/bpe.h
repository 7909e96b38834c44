/* bpe — GPT-2's byte-pair tokenizer, exact on any bytes. The merges table is inside the binary.
 *
 * Splitting follows GPT-2's pattern 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
 * ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ with the classes of Unicode 16; bytes that are not UTF-8 count
 * as "other". <|endoftext|> in a text is ordinary text. Source: Radford et al. 2019; ids equal
 * tiktoken's "gpt2" encode_ordinary. */
#ifndef CONVOY_DATA_BPE_H
#define CONVOY_DATA_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define BPE_VOCAB 50257
#define BPE_END 50256 /* <|endoftext|> */

struct bpe;
/* bpe_open — builds the tables, a few ms; read-only afterwards, shareable between threads. */
enum status bpe_open(struct bpe **out);
void bpe_close(struct bpe *bpe); /* accepts NULL */
/* bpe_encode — writes the ids of text to out and returns how many. cap ≥ n_bytes: there are
 * never more tokens than bytes. */
size_t bpe_encode(const struct bpe *bpe, const void *text, size_t n_bytes, uint16_t *out,
                  size_t cap);
/* bpe_cut — the length of a long prefix of text[0, n_bytes) that has the same ids alone as
 * within the whole text, whatever follows; 0: none is certain. So a long text can be encoded in
 * parts, by several threads. */
size_t bpe_cut(const void *text, size_t n_bytes);
/* bpe_bytes — the bytes of one id (BPE_END: "<|endoftext|>"); NULL for an id ≥ BPE_VOCAB. */
const uint8_t *bpe_bytes(const struct bpe *bpe, uint32_t id, size_t *n_out);

#endif
