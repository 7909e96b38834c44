/* bpe_inside — the struct and functions that the files of bpe share; for bpe*.c only. */
#ifndef CONVOY_DATA_BPE_INSIDE_H
#define CONVOY_DATA_BPE_INSIDE_H

#include <xxhash.h>

#include "data/tokenizer/bpe.h"

/* Up to 15 bytes and their count, as one 16-byte value. */
struct bpe_key {
    uint64_t low, high;
};
struct bpe_word {
    struct bpe_key key; /* high 0: empty */
    uint32_t id;
    bool is_direct; /* a pre-token of these bytes becomes this one token */
};
struct bpe_rank {
    uint32_t left, right;
    uint32_t rank; /* BPE_NONE: empty */
    uint32_t id;
};
struct bpe_long {
    uint32_t id; /* BPE_NONE: empty */
    bool is_direct;
};

struct bpe {
    struct bpe_size size;
    struct bpe_rules rules;
    uint32_t fallback[256];
    uint32_t byte_id[256];
    uint64_t joined[1024]; /* pairs of bytes that follow each other in some token */
    bool splits;           /* no merge crosses other pairs: a pre-token may end there */
    size_t *begin;         /* begin of each id and symbol: blob[begin, begin + len) */
    uint32_t *len;         /* 0: not set */
    uint8_t *blob;
    size_t blob_n;
    struct bpe_word *words;
    struct bpe_long *longs;
    struct bpe_rank *pairs;
    size_t words_mask, longs_mask, pairs_mask;
    size_t pairs_n, pairs_max;
    int words_shift, pairs_shift;
    XXH3_state_t *hash;
    uint64_t identity[2];
};

/* Returns a slot. The product mixes left's low bits into the high ones, which choose the slot. */
static inline size_t bpe_pair_slot(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    return (((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u) >> bpe->pairs_shift;
}

static inline struct bpe_rank *bpe_pair_find(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    size_t slot = bpe_pair_slot(bpe, left, right);
    while (bpe->pairs[slot].rank != BPE_NONE &&
           (bpe->pairs[slot].left != left || bpe->pairs[slot].right != right))
        slot = (slot + 1) & bpe->pairs_mask;
    return bpe->pairs + slot;
}

/* Returns the rank of the merge of two neighbours; BPE_NONE: they are never merged. */
static inline uint32_t bpe_rank_of(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    return bpe_pair_find(bpe, left, right)->rank;
}

/* bpe_merge_word — appends the ids of a pre-token that is no token. In bpe_merge.c. */
enum status bpe_merge_word(const struct bpe *bpe, const struct encode_watch *watch,
                           const uint8_t *p, size_t n, uint32_t *out, size_t *n_out);

#endif
