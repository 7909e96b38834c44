/* bpe — merges byte pairs of any vocabulary: tokens, and for pairs of them a rank and the merged
 * token.
 *
 * A pre-token begins as its bytes, or as its UTF-8 characters; then the neighbours whose pair has
 * the lowest rank are merged, the leftmost first, until no pair has a rank. A pre-token that would
 * become one token is found by one look-up. It must not know files, nor where ranks come from.
 * Sources: Gage 1994; Sennrich, Haddow and Birch 2016; Radford et al. 2019; Kudo and Richardson
 * 2018 (characters, byte fallback). */
#ifndef CONVOY_DATA_BPE_H
#define CONVOY_DATA_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/encode_watch.h"
#include "data/tokenizer/pretoken.h"

#define BPE_NONE UINT32_MAX
#define BPE_VOCAB_MAX (1 << 22)  /* most ids, including symbols */
#define BPE_TOKEN_BYTES_MAX 4096 /* most bytes of one token */

struct bpe_size {
    uint32_t vocab;   /* ids below it */
    uint32_t symbols; /* characters that begin merges and are no tokens; their ids follow */
    size_t bytes;     /* bytes of all tokens and symbols */
};

struct bpe;
/* bpe_new — allocates tables without tokens. One thread fills them, then they are read-only and
 * shareable. */
struct bpe *bpe_new(const struct bpe_size *size);
void bpe_close(struct bpe *bpe); /* accepts NULL */

/* bpe_name — sets the bytes of id; is_text: it is found in texts. ids may come in any order, each
 * once. false: another text token has these bytes (the first keeps them), or id was set before. */
bool bpe_name(struct bpe *bpe, uint32_t id, const void *bytes, size_t n, bool is_text);
/* bpe_find — returns the text token or symbol with these bytes, or BPE_NONE. */
uint32_t bpe_find(const struct bpe *bpe, const void *bytes, size_t n);
/* bpe_reserve — reserves space for `pairs` pairs, once, before the first. */
void bpe_reserve(struct bpe *bpe, size_t pairs);
/* bpe_pair_splits — adds, instead of single pairs, all pairs of text tokens that together are token
 * id, with rank[id]; BPE_NONE: no pair makes it. */
void bpe_pair_splits(struct bpe *bpe, const uint32_t *rank);
/* bpe_pair — adds a pair: left and right make id. A repeated pair gets the new rank. */
void bpe_pair(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

enum bpe_unit { BPE_UNIT_BYTES, BPE_UNIT_CHARS };
struct bpe_rules {
    enum bpe_unit unit;
    /* a pre-token that equals a token becomes that token, even if merges do not make it */
    bool ignores_merges;
    /* BPE_UNIT_CHARS: ids of bytes, for characters that are no tokens; NULL: unknown */
    const uint32_t *fallback;
    uint32_t unknown; /* token of a byte or character without a token; BPE_NONE: it is left out */
    bool fuses_unknown;
};
/* bpe_finish — completes the tables, after the last token and pair, before encoding. is_made: every
 * token is made by its merges, which then is not tested. BPE_UNIT_BYTES: returns the number of
 * bytes that are no token, and the first of them in *byte_out; in texts they are unknown. */
int bpe_finish(struct bpe *bpe, const struct bpe_rules *rules, bool is_made, uint8_t *byte_out);

/* A cache of words already merged, for one thread. */
struct bpe_cache;
struct bpe_cache *bpe_cache_new(void);        /* NULL: no memory; encoding works without it */
void bpe_cache_free(struct bpe_cache *cache); /* accepts NULL */
/* bpe_encode — appends the ids of the text to out: at most one for each byte. cache and watch may
 * be NULL. The time is linear in the bytes; except for out, memory is constant. Fails ST_RETRY: no
 * memory for a long pre-token, or stopped by watch. */
enum status bpe_encode(const struct bpe *bpe, enum pretoken_kind kind, struct bpe_cache *cache,
                       const struct encode_watch *watch, const uint8_t *text, size_t n_bytes,
                       uint32_t *out, size_t *n_out);
/* bpe_vocab — returns the size of the vocabulary; every id is below it. */
uint32_t bpe_vocab(const struct bpe *bpe);
/* bpe_bytes — returns the bytes of one id; NULL: there is no such token. */
const uint8_t *bpe_bytes(const struct bpe *bpe, uint32_t id, size_t *n_out);
/* bpe_rules_of — returns the rules given to bpe_finish; valid until bpe_close. */
const struct bpe_rules *bpe_rules_of(const struct bpe *bpe);

struct bpe_merge {
    uint32_t left, right; /* ids; of symbols, too */
    uint32_t rank, made;
};
/* bpe_merges — returns the pairs by rank, of one rank by left and right; the caller frees them. */
struct bpe_merge *bpe_merges(const struct bpe *bpe, size_t *n_out);
/* bpe_identity — returns XXH3-128 of tokens, pairs and rules; after bpe_finish. */
void bpe_identity(const struct bpe *bpe, uint64_t out[2]);

/* bpe_train — finds the merges of a byte-level BPE for a set of texts.
 *
 * Pre-tokens (pretoken.h) are counted; then, until the requested number of tokens is reached, the
 * most frequent pair of neighbouring tokens becomes a token. Of equally frequent pairs the pair
 * with the lower ids is first. Ids: 0 … 255 the bytes in the order of GPT-2's table
 * (bpe_chars_fill), then one for each new token. A pair that occurs once is never merged. So the
 * merges equal the merges of Hugging Face's BpeTrainer with min_frequency=2 and ByteLevel's
 * alphabet.
 *
 * Pre-tokens over 256 bytes are left out: lines of one character, encoded data. It must not know
 * files. Source: Sennrich, Haddow and Birch 2016, algorithm 1. */

struct bpe_train_merge {
    uint32_t left, right; /* ids */
};

struct bpe_train;
/* bpe_train_open — begins a training whose only tokens are the 256 bytes. kind: the rule that
 * splits texts into pre-tokens. */
struct bpe_train *bpe_train_open(enum pretoken_kind kind);
void bpe_train_close(struct bpe_train *train); /* accepts NULL */
/* bpe_train_add — counts a text, or a chunk of one that ends where a pre-token ends. */
void bpe_train_add(struct bpe_train *train, const uint8_t *text, size_t n_bytes);
/* bpe_train_run — merges until there are `vocab` ≥ 256 tokens, or no pair occurs twice; once, after
 * all texts. progress (NULL allowed) is called after each merge, so it must be quick; false stops:
 * ST_RETRY. */
enum status bpe_train_run(struct bpe_train *train, uint32_t vocab,
                          bool (*progress)(void *arg, uint32_t tokens), void *arg);

/* bpe_train_tokens — returns the number of tokens so far; ids are below it. */
uint32_t bpe_train_tokens(const struct bpe_train *train);
/* bpe_train_bytes — returns the bytes of a token; valid until the next token is made. */
const uint8_t *bpe_train_bytes(const struct bpe_train *train, uint32_t id, size_t *n_out);
/* bpe_train_merges — returns the merges in their order; two may make the same token. */
const struct bpe_train_merge *bpe_train_merges(const struct bpe_train *train, size_t *n_out);
/* bpe_train_size — returns the bytes of the counted words, and the tokens that they have now. */
void bpe_train_size(const struct bpe_train *train, int64_t *bytes_out, int64_t *tokens_out);

/* bpe_chars — GPT-2's table of one character for each byte: the form of bytes in tokenizer
 * files.
 *
 * Printable Latin-1 stands for itself, the others are U+0100 … in order. It must not know tokens.
 * Source: Radford et al. 2019, encoder.py. */

/* bpe_chars_fill — writes the code point of each byte's character. */
void bpe_chars_fill(uint16_t char_of[256]);
/* bpe_chars_decode — converts UTF-8 to the bytes that it stands for, at most n_bytes; false: it has
 * another character. */
bool bpe_chars_decode(const uint8_t *text, size_t n_bytes, uint8_t *out, size_t *n_out);

#endif
