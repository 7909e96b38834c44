/* bpe_train — finds the merges of a byte-level BPE for given texts.
 *
 * Pre-tokens (pretoken.h) are counted; then, until there are as many tokens as asked for, the pair
 * of neighbouring tokens that occurs most often becomes a token. Of pairs that occur equally often
 * the one with the lower ids is first. Ids: 0 … 255 the bytes in the order of GPT-2's table
 * (byte_chars.h), then one for each new token. A pair that occurs once is never merged. So the
 * merges are those of Hugging Face's BpeTrainer with min_frequency=2 and ByteLevel's alphabet.
 *
 * Pre-tokens over 256 bytes are left out: lines of one character, encoded data. It must not know
 * files. Source: Sennrich, Haddow and Birch 2016, algorithm 1. */
#ifndef CONVOY_DATA_BPE_TRAIN_H
#define CONVOY_DATA_BPE_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/pretoken.h"

struct bpe_train_merge {
    uint32_t left, right; /* ids */
};

struct bpe_train;
enum status bpe_train_open(enum pretoken_kind kind, struct bpe_train **out);
void bpe_train_close(struct bpe_train *train); /* accepts NULL */
/* bpe_train_add — counts a text, or a part of one that ends where a pre-token ends. All functions
 * fail ST_RETRY: out of memory. */
enum status bpe_train_add(struct bpe_train *train, const uint8_t *text, size_t n_bytes);
/* bpe_train_run — once, after all texts: merges until there are `vocab` ≥ 256 tokens, or no pair
 * occurs twice. progress (NULL allowed) is called after each merge, so it must be quick; false
 * stops: ST_RETRY. */
enum status bpe_train_run(struct bpe_train *train, uint32_t vocab,
                          bool (*progress)(void *arg, uint32_t tokens), void *arg);

uint32_t bpe_train_tokens(const struct bpe_train *train);
const uint8_t *bpe_train_bytes(const struct bpe_train *train, uint32_t id, size_t *n_out);
/* bpe_train_merges — in their order; two may make the same token. */
const struct bpe_train_merge *bpe_train_merges(const struct bpe_train *train, size_t *n_out);
/* bpe_train_size — bytes of the words that were counted, and the tokens that they have now. */
void bpe_train_size(const struct bpe_train *train, int64_t *bytes_out, int64_t *tokens_out);

#endif
