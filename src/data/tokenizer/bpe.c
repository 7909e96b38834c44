/* bpe — see bpe.h. Words of up to 15 bytes, nearly all words, lie in one table of 16-byte keys;
 * longer tokens have a table of their own. A word that is no token is merged once for each cache:
 * its ids are then found by its key, too. */
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/tokenizer/bpe_inside.h"

enum {
    BPE_WORD_MAX = 15, /* bytes of a key */
    BPE_CACHE_BITS = 14,
    BPE_CACHE_IDS = 11,
    BPE_WATCH_BYTES = 1 << 18, /* bytes of text between two checks of the watch */
};

struct bpe_cached {
    struct bpe_key key;
    uint32_t n;
    uint32_t id[BPE_CACHE_IDS];
};
struct bpe_cache {
    struct bpe_cached word[1 << BPE_CACHE_BITS];
};

/* ---- tables ---- */

static const uint64_t bpe_mask[BPE_WORD_MAX + 1][2] = {
    {0, 0},
    {0xff, 0},
    {0xffff, 0},
    {0xffffff, 0},
    {0xffffffff, 0},
    {0xffffffffff, 0},
    {0xffffffffffff, 0},
    {0xffffffffffffff, 0},
    {UINT64_MAX, 0},
    {UINT64_MAX, 0xff},
    {UINT64_MAX, 0xffff},
    {UINT64_MAX, 0xffffff},
    {UINT64_MAX, 0xffffffff},
    {UINT64_MAX, 0xffffffffff},
    {UINT64_MAX, 0xffffffffffff},
    {UINT64_MAX, 0xffffffffffffff},
};

/* Returns the key of n ≤ BPE_WORD_MAX bytes at p; it reads 16 bytes if there are 16 before end,
 * else n. */
static inline struct bpe_key key_of(const uint8_t *p, size_t n, const uint8_t *end)
{
    struct bpe_key key = {0, 0};
    if (end - p >= 16)
        memcpy(&key, p, 16);
    else
        memcpy(&key, p, n);
    key.low &= bpe_mask[n][0];
    key.high = (key.high & bpe_mask[n][1]) | (uint64_t)n << 56;
    return key;
}

static inline uint64_t key_hash(struct bpe_key key)
{
    uint64_t h = key.low * 0x9e3779b97f4a7c15u ^ key.high * 0xc2b2ae3d27d4eb4fu;
    return (h ^ h >> 32) * 0x165667b19e3779f9u;
}

static inline bool key_is(struct bpe_key a, struct bpe_key b)
{
    return a.low == b.low && a.high == b.high;
}

/* word_find — returns the slot of the key, or the empty slot for it. */
static inline struct bpe_word *word_find(const struct bpe *bpe, struct bpe_key key, uint64_t hash)
{
    size_t slot = hash >> bpe->words_shift;
    while (bpe->words[slot].key.high != 0 && !key_is(bpe->words[slot].key, key))
        slot = (slot + 1) & bpe->words_mask;
    return bpe->words + slot;
}

static struct bpe_long *long_find(const struct bpe *bpe, const uint8_t *p, size_t n)
{
    size_t slot = XXH3_64bits(p, n) & bpe->longs_mask;
    for (; bpe->longs[slot].id != BPE_NONE; slot = (slot + 1) & bpe->longs_mask) {
        const uint32_t id = bpe->longs[slot].id;
        if (bpe->len[id] == n && memcmp(bpe->blob + bpe->begin[id], p, n) == 0)
            break;
    }
    return bpe->longs + slot;
}

uint32_t bpe_find(const struct bpe *bpe, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    if (n == 0 || n > BPE_WORD_MAX)
        return n == 0 ? BPE_NONE : long_find(bpe, p, n)->id;
    const struct bpe_key key = key_of(p, n, p + n);
    const struct bpe_word *word = word_find(bpe, key, key_hash(key));
    return word->key.high != 0 ? word->id : BPE_NONE;
}

/* Returns the power of 2 that leaves at least 5 of 8 slots empty. */
static int table_bits(size_t n)
{
    int bits = 4;
    while (((size_t)3 << bits) / 8 < n)
        bits++;
    return bits;
}

struct bpe *bpe_new(const struct bpe_size *size)
{
    const size_t all = (size_t)size->vocab + size->symbols;
    ASSERTF(all <= BPE_VOCAB_MAX, "%u + %u ids", size->vocab, size->symbols);
    const int words = table_bits(all),
              longs = table_bits(size->bytes / 16 < all ? size->bytes / 16 : all);
    struct bpe *bpe = memory_new(1, sizeof *bpe);
    bpe->size = *size;
    bpe->words_shift = 64 - words;
    bpe->words_mask = ((size_t)1 << words) - 1;
    bpe->longs_mask = ((size_t)1 << longs) - 1;
    bpe->begin = memory_new(all + 1, sizeof *bpe->begin);
    bpe->len = memory_new(all + 1, sizeof *bpe->len);
    bpe->blob = memory_resize(NULL, size->bytes, 1);
    bpe->words = memory_new(bpe->words_mask + 1, sizeof *bpe->words);
    bpe->longs = memory_resize(NULL, bpe->longs_mask + 1, sizeof *bpe->longs);
    bpe->hash = file_hash_new();
    for (size_t i = 0; i <= bpe->longs_mask; i++)
        bpe->longs[i] = (struct bpe_long){BPE_NONE, false};
    return bpe;
}

void bpe_close(struct bpe *bpe)
{
    if (bpe == NULL)
        return;
    XXH3_freeState(bpe->hash);
    free(bpe->begin);
    free(bpe->len);
    free(bpe->blob);
    free(bpe->words);
    free(bpe->longs);
    free(bpe->pairs);
    free(bpe);
}

/* Adds the bytes of id to the table; false: they belong to another id. */
static bool text_add(struct bpe *bpe, uint32_t id)
{
    const uint8_t *p = bpe->blob + bpe->begin[id];
    const size_t n = bpe->len[id];
    if (n > BPE_WORD_MAX) {
        struct bpe_long *slot = long_find(bpe, p, n);
        const bool is_free = slot->id == BPE_NONE;
        if (is_free)
            slot->id = id;
        return is_free;
    }
    const struct bpe_key key = key_of(p, n, p + n);
    struct bpe_word *word = word_find(bpe, key, key_hash(key));
    if (word->key.high != 0)
        return false;
    *word = (struct bpe_word){key, id, false};
    return true;
}

bool bpe_name(struct bpe *bpe, uint32_t id, const void *bytes, size_t n, bool is_text)
{
    ASSERTF(id < bpe->size.vocab + bpe->size.symbols && n <= BPE_TOKEN_BYTES_MAX &&
                n <= bpe->size.bytes - bpe->blob_n,
            "id %u of %zu bytes", id, n);
    if (bpe->len[id] != 0 || n == 0)
        return false;
    bpe->begin[id] = bpe->blob_n;
    bpe->len[id] = (uint32_t)n;
    memcpy(bpe->blob + bpe->blob_n, bytes, n);
    bpe->blob_n += n;
    return !is_text || text_add(bpe, id);
}

void bpe_reserve(struct bpe *bpe, size_t pairs)
{
    const int bits = table_bits(pairs);
    ASSERT(bpe->pairs == NULL);
    bpe->pairs = memory_resize(NULL, (size_t)1 << bits, sizeof *bpe->pairs);
    bpe->pairs_max = pairs;
    bpe->pairs_shift = 64 - bits;
    bpe->pairs_mask = ((size_t)1 << bits) - 1;
    for (size_t i = 0; i <= bpe->pairs_mask; i++)
        bpe->pairs[i].rank = BPE_NONE;
}

void bpe_pair(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    const uint32_t facts[] = {left, right, rank, id};
    struct bpe_rank *pair = bpe_pair_find(bpe, left, right);
    ASSERTF(pair->rank != BPE_NONE || bpe->pairs_n < bpe->pairs_max, "%zu pairs", bpe->pairs_n);
    bpe->pairs_n += pair->rank == BPE_NONE;
    *pair = (struct bpe_rank){left, right, rank, id};
    XXH3_128bits_update(bpe->hash, facts, sizeof facts);
}

/* Returns the number of pairs of tokens that together are token id, and adds them if `add`. */
static size_t splits_of(struct bpe *bpe, uint32_t id, uint32_t rank, bool add)
{
    const uint8_t *p = bpe->blob + bpe->begin[id];
    const size_t n = bpe->len[id];
    size_t found = 0;
    for (size_t at = 1; at < n; at++) {
        const uint32_t left = bpe_find(bpe, p, at),
                       right = left != BPE_NONE ? bpe_find(bpe, p + at, n - at) : BPE_NONE;
        if (right == BPE_NONE)
            continue;
        found++;
        if (add)
            bpe_pair(bpe, left, right, rank, id);
    }
    return found;
}

static size_t splits_all(struct bpe *bpe, const uint32_t *rank, bool add)
{
    size_t n = 0;
    for (uint32_t id = 0; id < bpe->size.vocab; id++)
        if (rank[id] != BPE_NONE && bpe->len[id] > 1)
            n += splits_of(bpe, id, rank[id], add);
    return n;
}

void bpe_pair_splits(struct bpe *bpe, const uint32_t *rank)
{
    bpe_reserve(bpe, splits_all(bpe, rank, false));
    splits_all(bpe, rank, true);
}

uint32_t bpe_vocab(const struct bpe *bpe) { return bpe->size.vocab; }

const uint8_t *bpe_bytes(const struct bpe *bpe, uint32_t id, size_t *n_out)
{
    if (id >= bpe->size.vocab || bpe->len[id] == 0)
        return NULL;
    *n_out = bpe->len[id];
    return bpe->blob + bpe->begin[id];
}

const struct bpe_rules *bpe_rules_of(const struct bpe *bpe) { return &bpe->rules; }

static int by_rank(const void *a, const void *b)
{
    const struct bpe_merge *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

struct bpe_merge *bpe_merges(const struct bpe *bpe, size_t *n_out)
{
    struct bpe_merge *out = memory_new(bpe->pairs_n, sizeof *out);
    size_t n = 0;
    for (size_t i = 0; bpe->pairs != NULL && i <= bpe->pairs_mask; i++)
        if (bpe->pairs[i].rank != BPE_NONE)
            out[n++] = (struct bpe_merge){bpe->pairs[i].left, bpe->pairs[i].right,
                                          bpe->pairs[i].rank, bpe->pairs[i].id};
    if (n > 0)
        qsort(out, n, sizeof *out, by_rank);
    *n_out = n;
    return out;
}

void bpe_identity(const struct bpe *bpe, uint64_t out[2])
{
    memcpy(out, bpe->identity, sizeof bpe->identity);
}

/* ---- the end of filling ---- */

/* Returns true if merging the bytes of id results in id. */
static bool is_made(const struct bpe *bpe, uint32_t id)
{
    uint32_t ids[BPE_TOKEN_BYTES_MAX];
    size_t n = 0;
    if (bpe->len[id] > BPE_TOKEN_BYTES_MAX / 4 ||
        bpe_merge_word(bpe, NULL, bpe->blob + bpe->begin[id], bpe->len[id], ids, &n) != ST_OK) {
        status_clear();
        return false; /* the bytes are merged each time then */
    }
    return n == 1 && ids[0] == id;
}

/* Returns the first position in p[0, n), after the beginning, that no merge crosses; n: none. */
static inline size_t joined_end(const struct bpe *bpe, const uint8_t *p, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const uint32_t two = (uint32_t)p[i - 1] << 8 | p[i];
        if ((p[i] & 0xc0) != 0x80 && !(bpe->joined[two >> 6] >> (two & 63) & 1))
            return i;
    }
    return n;
}

int bpe_finish(struct bpe *bpe, const struct bpe_rules *rules, bool are_made, uint8_t *byte_out)
{
    bpe->rules = *rules;
    if (rules->fallback != NULL) {
        memcpy(bpe->fallback, rules->fallback, sizeof bpe->fallback);
        bpe->rules.fallback = bpe->fallback;
    }
    int missing_n = 0;
    for (int b = 255; b >= 0; b--) {
        bpe->byte_id[b] = bpe_find(bpe, &(uint8_t){(uint8_t)b}, 1);
        if (bpe->byte_id[b] == BPE_NONE) {
            *byte_out = (uint8_t)b;
            missing_n++;
        }
    }
    bool all = are_made || rules->ignores_merges;
    for (size_t i = 0; i <= bpe->words_mask; i++)
        if (bpe->words[i].key.high != 0 && bpe->words[i].id < bpe->size.vocab)
            bpe->words[i].is_direct = all || is_made(bpe, bpe->words[i].id);
    for (size_t i = 0; i <= bpe->longs_mask; i++)
        if (bpe->longs[i].id < bpe->size.vocab)
            bpe->longs[i].is_direct = all || is_made(bpe, bpe->longs[i].id);
    /* SentencePiece's words are long and have punctuation in them. Unknown characters may be fused,
     * so this is done only if each character has bytes. */
    bpe->splits = bpe->rules.unit == BPE_UNIT_CHARS && bpe->rules.fallback != NULL &&
                  !bpe->rules.ignores_merges;
    for (uint32_t id = 0; id < bpe->size.vocab + bpe->size.symbols; id++) {
        const uint8_t *p = bpe->blob + bpe->begin[id];
        for (uint32_t i = 1; i < bpe->len[id]; i++) {
            const uint32_t two = (uint32_t)p[i - 1] << 8 | p[i];
            bpe->joined[two >> 6] |= (uint64_t)1 << (two & 63);
        }
    }
    /* Everything that the ids of a text depend on. */
    const uint32_t facts[] = {bpe->size.vocab,           bpe->rules.unit,
                              bpe->rules.ignores_merges, bpe->rules.fallback != NULL,
                              bpe->rules.unknown,        bpe->rules.fuses_unknown};
    for (uint32_t id = 0; id < bpe->size.vocab; id++) {
        XXH3_128bits_update(bpe->hash, bpe->len + id, sizeof bpe->len[id]);
        XXH3_128bits_update(bpe->hash, bpe->blob + bpe->begin[id], bpe->len[id]);
    }
    XXH3_128bits_update(bpe->hash, facts, sizeof facts);
    if (bpe->rules.fallback != NULL)
        XXH3_128bits_update(bpe->hash, bpe->fallback, sizeof bpe->fallback);
    const XXH128_hash_t sum = XXH3_128bits_digest(bpe->hash);
    bpe->identity[0] = sum.low64;
    bpe->identity[1] = sum.high64;
    return rules->unit == BPE_UNIT_BYTES ? missing_n : 0;
}

/* ---- texts ---- */

struct bpe_cache *bpe_cache_new(void) { return calloc(1, sizeof(struct bpe_cache)); }
void bpe_cache_free(struct bpe_cache *cache) { free(cache); }

/* Encodes a word that is no token, through the cache. */
static __attribute__((noinline)) enum status word_cached(const struct bpe *bpe,
                                                         struct bpe_cached *slot,
                                                         struct bpe_key key, const uint8_t *p,
                                                         size_t n, uint32_t *out, size_t *n_out)
{
    if (!key_is(slot->key, key)) {
        const size_t before = *n_out;
        TRY(bpe_merge_word(bpe, NULL, p, n, out, n_out));
        if (*n_out - before <= BPE_CACHE_IDS) {
            slot->key = key;
            slot->n = (uint32_t)(*n_out - before);
            memcpy(slot->id, out + before, slot->n * sizeof *out);
        }
        return ST_OK;
    }
    memcpy(out + *n_out, slot->id, slot->n * sizeof *out);
    *n_out += slot->n;
    return ST_OK;
}

static enum status long_encode(const struct bpe *bpe, const struct encode_watch *watch,
                               const uint8_t *p, size_t n, uint32_t *out, size_t *n_out)
{
    const struct bpe_long *found = long_find(bpe, p, n);
    if (found->id == BPE_NONE || !found->is_direct)
        return bpe_merge_word(bpe, watch, p, n, out, n_out);
    out[(*n_out)++] = found->id;
    return ST_OK;
}

static inline __attribute__((always_inline)) enum status
encode_kind(const struct bpe *bpe, enum pretoken_kind kind, struct bpe_cache *cache,
            const struct encode_watch *watch, const uint8_t *p, const uint8_t *end, uint32_t *out,
            size_t *n_out)
{
    const uint8_t *watched = p;
    for (const uint8_t *q, *stop = p; p < end; p = q) {
        if (p == stop)
            stop = pretoken_end(kind, p, end);
        q = bpe->splits ? p + joined_end(bpe, p, (size_t)(stop - p)) : stop;
        const size_t n = (size_t)(q - p);
        if (p - watched > BPE_WATCH_BYTES) {
            TRY(encode_watch_check(watch));
            watched = p;
        }
        if (n > BPE_WORD_MAX) {
            TRY(long_encode(bpe, watch, p, n, out, n_out));
            continue;
        }
        const struct bpe_key key = key_of(p, n, end);
        const uint64_t hash = key_hash(key);
        const struct bpe_word *word = word_find(bpe, key, hash);
        if (word->key.high != 0 && word->is_direct)
            out[(*n_out)++] = word->id;
        else if (cache != NULL)
            TRY(word_cached(bpe, cache->word + (hash >> (64 - BPE_CACHE_BITS)), key, p, n, out,
                            n_out));
        else
            TRY(bpe_merge_word(bpe, NULL, p, n, out, n_out));
    }
    return ST_OK;
}

enum status bpe_encode(const struct bpe *bpe, enum pretoken_kind kind, struct bpe_cache *cache,
                       const struct encode_watch *watch, const uint8_t *text, size_t n_bytes,
                       uint32_t *out, size_t *n_out)
{
    return encode_kind(bpe, kind, cache, watch, text, text + n_bytes, out, n_out);
}

static bool is_itself(uint32_t b)
{
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

void bpe_chars_fill(uint16_t char_of[256])
{
    uint16_t shifted = 256;
    for (uint32_t b = 0; b < 256; b++)
        char_of[b] = is_itself(b) ? (uint16_t)b : shifted++;
}

/* Returns the byte of a character, or −1. From U+0100 on: 0 … 32, 127 … 160, 173. */
static int byte_of(uint32_t c)
{
    if (c < 0x100)
        return is_itself(c) ? (int)c : -1;
    const uint32_t i = c - 0x100;
    if (i <= 32)
        return (int)i;
    if (i < 67)
        return (int)(127 + i - 33);
    return i == 67 ? 173 : -1;
}

bool bpe_chars_decode(const uint8_t *text, size_t n_bytes, uint8_t *out, size_t *n_out)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        uint32_t c = text[i];
        if (c >= 0x80) {
            if (c < 0xc2 || c > 0xdf || i + 1 == n_bytes || (text[i + 1] & 0xc0) != 0x80)
                return false;
            c = (c & 0x1f) << 6 | (text[++i] & 0x3f);
        }
        const int b = byte_of(c);
        if (b < 0)
            return false;
        out[n++] = (uint8_t)b;
    }
    *n_out = n;
    return true;
}
