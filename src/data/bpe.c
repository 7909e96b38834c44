/* bpe — see bpe.h: pre-tokens into ids of GPT-2's vocabulary. It must not know where pre-tokens
 * end (pretoken.c).
 *
 * Ids: 0 … 255 the bytes in the order of GPT-2's byte ↔ character table, then one id per line of
 * the merges table in order, then <|endoftext|>. Most pre-tokens are one token, found by one
 * look-up in the table of words. The others are merged: the pair with the lowest rank first,
 * leftmost first among equals, until no pair has a rank. Short pre-tokens do that by scanning,
 * long ones by a list for each rank, in linear time. */
#include "data/bpe.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "data/pretoken.h"

enum {
    BPE_MERGES = 50000,
    BPE_BYTES = 256,
    /* longest token in the table of words; about 130 longer ones have their own table */
    BPE_WORD_MAX = 15,
    BPE_WORDS = 1 << 17, /* open addressing, load 0.38 */
    BPE_LONGS = 1 << 9,
    BPE_PAIRS = 1 << 17,
    BPE_SCAN_MAX = 256, /* longest pre-token merged by scanning */
    BPE_NO_ID = 0xffff,
};
_Static_assert(BPE_BYTES + BPE_MERGES == BPE_END && BPE_END + 1 == BPE_VOCAB,
               "bytes, merges, end of text");
#define BPE_NO_PLACE UINT32_MAX

extern const uint8_t merges_begin[], merges_end[];

/* Up to 15 bytes and their count, as one 16-byte value. */
struct bpe_key {
    uint64_t low, high;
};
struct bpe_word {
    struct bpe_key key; /* high 0: empty */
    uint64_t id;
};
struct bpe_pair {
    uint32_t ids; /* left << 16 | right */
    uint32_t rank;
};

struct bpe {
    uint16_t byte_id[256];
    uint32_t begin[BPE_VOCAB + 1]; /* bytes of an id: blob[begin[id], begin[id + 1]) */
    uint8_t *blob;
    uint16_t longs[BPE_LONGS];
    struct bpe_pair pairs[BPE_PAIRS];
    struct bpe_word words[BPE_WORDS];
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

/* n ≤ BPE_WORD_MAX; readable bytes at p: 16 where there are as many before end, else n. */
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

static inline uint32_t word_slot(struct bpe_key key)
{
    uint64_t h = key.low * 0x9e3779b97f4a7c15u ^ key.high * 0xc2b2ae3d27d4eb4fu;
    h = (h ^ h >> 32) * 0x165667b19e3779f9u;
    return (uint32_t)(h >> 47);
}

/* word_find — the slot of the key, or the empty slot for it. */
static inline const struct bpe_word *word_find(const struct bpe *bpe, struct bpe_key key)
{
    const struct bpe_word *word = bpe->words + word_slot(key);
    while (word->key.high != 0 && (word->key.low != key.low || word->key.high != key.high))
        word = word + 1 == bpe->words + BPE_WORDS ? bpe->words : word + 1;
    return word;
}

static uint32_t long_find(const struct bpe *bpe, const uint8_t *p, size_t n)
{
    uint32_t slot = (uint32_t)XXH3_64bits(p, n) % BPE_LONGS;
    for (; bpe->longs[slot] != BPE_NO_ID; slot = (slot + 1) % BPE_LONGS) {
        const uint32_t id = bpe->longs[slot];
        if (bpe->begin[id + 1] - bpe->begin[id] == n &&
            memcmp(bpe->blob + bpe->begin[id], p, n) == 0)
            break;
    }
    return slot;
}

/* The id whose bytes are p[0, n), or BPE_NO_ID. */
static inline uint32_t token_of(const struct bpe *bpe, const uint8_t *p, size_t n,
                                const uint8_t *end)
{
    if (n > BPE_WORD_MAX)
        return bpe->longs[long_find(bpe, p, n)];
    const struct bpe_word *word = word_find(bpe, key_of(p, n, end));
    return word->key.high != 0 ? (uint32_t)word->id : BPE_NO_ID;
}

static inline uint32_t pair_slot(uint32_t ids) { return (ids * 0x9e3779b1u) >> 15; }

/* Rank of the merge of two neighbours; BPE_MERGES: they are never merged. */
static inline uint32_t rank_of(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    const uint32_t ids = left << 16 | right;
    uint32_t slot = pair_slot(ids);
    while (bpe->pairs[slot].ids != ids) {
        if (bpe->pairs[slot].rank == BPE_MERGES)
            return BPE_MERGES;
        slot = (slot + 1) % BPE_PAIRS;
    }
    return bpe->pairs[slot].rank;
}

/* Append a token whose bytes are already at the end of the blob. */
static void token_add(struct bpe *bpe, uint32_t id, size_t n)
{
    const uint8_t *p = bpe->blob + bpe->begin[id], *end = p + n;
    bpe->begin[id + 1] = bpe->begin[id] + (uint32_t)n;
    if (n > BPE_WORD_MAX) {
        const uint32_t slot = long_find(bpe, p, n);
        ASSERTF(bpe->longs[slot] == BPE_NO_ID, "token %u twice", id);
        bpe->longs[slot] = (uint16_t)id;
        return;
    }
    const struct bpe_key key = key_of(p, n, end);
    struct bpe_word *word = bpe->words + (word_find(bpe, key) - bpe->words);
    ASSERTF(word->key.high == 0, "token %u twice", id);
    *word = (struct bpe_word){key, id};
}

/* GPT-2 writes bytes as characters: printable Latin-1 as itself, the others from U+0100 on in
 * order. byte_of[] is the way back. */
static void bytes_add(struct bpe *bpe, uint8_t byte_of[512])
{
    uint32_t id = 0, shifted = 256;
    for (int round = 0; round < 2; round++)
        for (uint32_t b = 0; b < BPE_BYTES; b++) {
            const bool is_itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
            if (is_itself != (round == 0))
                continue;
            byte_of[is_itself ? b : shifted++] = (uint8_t)b;
            bpe->byte_id[b] = (uint16_t)id;
            bpe->blob[bpe->begin[id]] = (uint8_t)b;
            token_add(bpe, id++, 1);
        }
}

/* Decode the characters up to `stop` to bytes at out; returns how many. */
static size_t part_decode(const uint8_t **at, uint8_t stop, const uint8_t byte_of[512],
                          uint8_t *out)
{
    const uint8_t *p = *at;
    size_t n = 0;
    while (p < merges_end && *p != stop) {
        uint32_t c = *p++;
        if (c >= 0x80)
            c = (c & 0x1f) << 6 | (*p++ & 0x3f);
        ASSERTF(c < 512, "the embedded merges table holds character %u at byte %td", c,
                p - merges_begin);
        out[n++] = byte_of[c];
    }
    *at = p + 1;
    return n;
}

static void pair_add(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t rank)
{
    ASSERTF(left != BPE_NO_ID && right != BPE_NO_ID, "merge %u of tokens that are not there yet",
            rank);
    const uint32_t ids = left << 16 | right;
    uint32_t slot = pair_slot(ids);
    while (bpe->pairs[slot].rank != BPE_MERGES)
        slot = (slot + 1) % BPE_PAIRS;
    bpe->pairs[slot] = (struct bpe_pair){ids, rank};
}

static void tables_fill(struct bpe *bpe)
{
    uint8_t byte_of[512] = {0};
    const uint8_t *p = memchr(merges_begin, '\n', (size_t)(merges_end - merges_begin));
    for (int i = 0; i < BPE_LONGS; i++)
        bpe->longs[i] = BPE_NO_ID;
    for (int i = 0; i < BPE_PAIRS; i++)
        bpe->pairs[i] = (struct bpe_pair){UINT32_MAX, BPE_MERGES};
    bytes_add(bpe, byte_of);
    ASSERT(p != NULL);
    p++; /* the version line */
    for (uint32_t rank = 0; rank < BPE_MERGES; rank++) {
        const uint32_t id = BPE_BYTES + rank;
        uint8_t *out = bpe->blob + bpe->begin[id];
        const size_t left = part_decode(&p, ' ', byte_of, out),
                     right = part_decode(&p, '\n', byte_of, out + left);
        pair_add(bpe, token_of(bpe, out, left, out + left),
                 token_of(bpe, out + left, right, out + left + right), rank);
        token_add(bpe, id, left + right);
    }
    ASSERTF(p == merges_end, "%td bytes left of the embedded merges table", merges_end - p);
    static const char text[] = "<|endoftext|>";
    memcpy(bpe->blob + bpe->begin[BPE_END], text, sizeof text - 1);
    bpe->begin[BPE_END + 1] = bpe->begin[BPE_END] + sizeof text - 1;
}

enum status bpe_open(struct bpe **out)
{
    struct bpe *bpe = calloc(1, sizeof *bpe);
    /* a token is never longer than its line */
    const size_t blob_bytes = (size_t)(merges_end - merges_begin) + 1024;
    if (bpe != NULL)
        bpe->blob = malloc(blob_bytes);
    if (bpe == NULL || bpe->blob == NULL) {
        bpe_close(bpe);
        return FAIL(ST_RETRY, "out of memory: %zu bytes for the tokenizer",
                    sizeof *bpe + blob_bytes);
    }
    tables_fill(bpe);
    *out = bpe;
    return ST_OK;
}

void bpe_close(struct bpe *bpe)
{
    if (bpe == NULL)
        return;
    free(bpe->blob);
    free(bpe);
}

/* ---- merging ---- */

/* ids[0, n) holds the bytes' ids; merges in place. Returns how many are left. n in 1 …
 * BPE_SCAN_MAX. */
static size_t merge_scan(const struct bpe *bpe, uint16_t *ids, size_t n)
{
    uint16_t rank[BPE_SCAN_MAX]; /* of (ids[i], ids[i + 1]) */
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = (uint16_t)rank_of(bpe, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == BPE_MERGES)
            break;
        ids[best] = (uint16_t)(BPE_BYTES + rank[best]);
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        if (best + 1 < n) {
            memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
            rank[best] = (uint16_t)rank_of(bpe, ids[best], ids[best + 1]);
        }
        if (best > 0)
            rank[best - 1] = (uint16_t)rank_of(bpe, ids[best - 1], ids[best]);
    }
    return n;
}

/* The same without memory, one rank in each pass: for a long pre-token when malloc fails. Slow. */
static size_t merge_passes(const struct bpe *bpe, uint16_t *ids, size_t n)
{
    for (;;) {
        uint32_t best = BPE_MERGES;
        for (size_t i = 0; i + 1 < n; i++) {
            const uint32_t rank = rank_of(bpe, ids[i], ids[i + 1]);
            best = rank < best ? rank : best;
        }
        if (best == BPE_MERGES)
            return n;
        size_t to = 0;
        for (size_t i = 0; i < n; to++) {
            const bool is_pair = i + 1 < n && rank_of(bpe, ids[i], ids[i + 1]) == best;
            ids[to] = is_pair ? (uint16_t)(BPE_BYTES + best) : ids[i];
            i += is_pair ? 2 : 1;
        }
        n = to;
    }
}

/* One place of a long pre-token: a remaining token, linked into the list of its pair's rank. */
struct bpe_place {
    uint32_t prev, next;           /* neighbours in the text */
    uint32_t list_prev, list_next; /* neighbours in the list */
    uint16_t id;
    uint16_t rank; /* of (this, next); BPE_MERGES: in no list */
};

struct bpe_lists {
    const struct bpe *bpe;
    struct bpe_place *place;
    uint32_t head[BPE_MERGES];
};

static void list_leave(struct bpe_lists *lists, uint32_t at)
{
    struct bpe_place *p = lists->place + at;
    if (p->rank == BPE_MERGES)
        return;
    if (p->list_prev != BPE_NO_PLACE)
        lists->place[p->list_prev].list_next = p->list_next;
    else
        lists->head[p->rank] = p->list_next;
    if (p->list_next != BPE_NO_PLACE)
        lists->place[p->list_next].list_prev = p->list_prev;
    p->rank = BPE_MERGES;
}

static void list_join(struct bpe_lists *lists, uint32_t at)
{
    struct bpe_place *p = lists->place + at;
    p->rank = BPE_MERGES;
    if (p->next != BPE_NO_PLACE)
        p->rank = (uint16_t)rank_of(lists->bpe, p->id, lists->place[p->next].id);
    if (p->rank == BPE_MERGES)
        return;
    p->list_prev = BPE_NO_PLACE;
    p->list_next = lists->head[p->rank];
    if (p->list_next != BPE_NO_PLACE)
        lists->place[p->list_next].list_prev = at;
    lists->head[p->rank] = at;
}

static void place_merge(struct bpe_lists *lists, uint32_t at)
{
    struct bpe_place *p = lists->place + at;
    const uint32_t gone = p->next;
    const uint16_t id = (uint16_t)(BPE_BYTES + p->rank);
    list_leave(lists, at);
    list_leave(lists, gone);
    p->id = id;
    p->next = lists->place[gone].next;
    if (p->next != BPE_NO_PLACE)
        lists->place[p->next].prev = at;
    list_join(lists, at);
    if (p->prev != BPE_NO_PLACE) {
        list_leave(lists, p->prev);
        list_join(lists, p->prev);
    }
}

/* A merge makes a token whose own merges all have higher ranks, so one pass over the ranks is
 * enough. Within a rank order matters only where pairs overlap, in a run of one token: those are
 * taken from the run's left end. */
static void lists_merge(struct bpe_lists *lists)
{
    for (uint32_t rank = 0; rank < BPE_MERGES; rank++) {
        while (lists->head[rank] != BPE_NO_PLACE) {
            uint32_t at = lists->head[rank];
            const struct bpe_place *place = lists->place;
            while (place[at].prev != BPE_NO_PLACE && place[place[at].prev].rank == rank)
                at = place[at].prev;
            for (; at != BPE_NO_PLACE && place[at].rank == rank; at = place[at].next)
                place_merge(lists, at);
        }
    }
}

static size_t merge_lists(const struct bpe *bpe, uint16_t *ids, size_t n)
{
    struct bpe_lists *lists = n < BPE_NO_PLACE ? malloc(sizeof *lists) : NULL;
    struct bpe_place *place = lists != NULL ? malloc(n * sizeof *place) : NULL;
    if (place == NULL) {
        free(lists);
        return merge_passes(bpe, ids, n);
    }
    lists->bpe = bpe;
    lists->place = place;
    memset(lists->head, 0xff, sizeof lists->head);
    for (uint32_t i = 0; i < n; i++)
        place[i] =
            (struct bpe_place){.prev = i - 1, .next = i + 1, .id = ids[i], .rank = BPE_MERGES};
    place[0].prev = place[n - 1].next = BPE_NO_PLACE;
    for (uint32_t i = (uint32_t)n; i-- > 0;)
        list_join(lists, i);
    lists_merge(lists);
    size_t left = 0;
    for (uint32_t at = 0; at != BPE_NO_PLACE; at = place[at].next)
        ids[left++] = place[at].id;
    free(place);
    free(lists);
    return left;
}

static __attribute__((noinline)) size_t piece_merge(const struct bpe *bpe, const uint8_t *p,
                                                    size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = bpe->byte_id[p[i]];
    return n <= BPE_SCAN_MAX ? merge_scan(bpe, out, n) : merge_lists(bpe, out, n);
}

size_t bpe_encode(const struct bpe *bpe, const void *text, size_t n_bytes, uint16_t *out,
                  size_t cap)
{
    const uint8_t *p = text, *end = p + n_bytes;
    size_t n = 0;
    ASSERTF(cap >= n_bytes, "room for %zu ids, text of %zu bytes", cap, n_bytes);
    while (p < end) {
        const uint8_t *q = pretoken_end(p, end);
        const uint32_t id = token_of(bpe, p, (size_t)(q - p), end);
        if (id != BPE_NO_ID)
            out[n++] = (uint16_t)id;
        else
            n += piece_merge(bpe, p, (size_t)(q - p), out + n);
        p = q;
    }
    return n;
}

size_t bpe_cut(const void *text, size_t n_bytes) { return pretoken_cut(text, n_bytes); }

const uint8_t *bpe_bytes(const struct bpe *bpe, uint32_t id, size_t *n_out)
{
    if (id >= BPE_VOCAB)
        return NULL;
    *n_out = bpe->begin[id + 1] - bpe->begin[id];
    return bpe->blob + bpe->begin[id];
}

#ifdef FUZZ
/* The bytes taken for ids: each below the vocabulary has bytes, of which encoding gives back at
 * least one token; no other has any. (The merges table is inside the binary: no bytes of the
 * outside.) */
static void decode_any(const struct bpe *bpe, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 3 <= size && i < 96; i += 3) {
        const uint32_t id =
            data[i] | (uint32_t)data[i + 1] << 8 | (uint32_t)(data[i + 2] & 1) << 16;
        uint16_t back[64];
        size_t n = 0;
        const uint8_t *bytes = bpe_bytes(bpe, id, &n);
        ASSERT((bytes != NULL) == (id < BPE_VOCAB));
        if (bytes == NULL || n > 64)
            continue;
        const size_t tokens = bpe_encode(bpe, bytes, n, back, 64);
        ASSERT(tokens >= 1 && tokens <= n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct bpe *bpe;
    static uint16_t ids[1 << 16];
    size_t at = 0;
    if (bpe == NULL)
        ASSERT(bpe_open(&bpe) == ST_OK);
    size = size < sizeof ids / 2 ? size : sizeof ids / 2;
    const size_t n = bpe_encode(bpe, data, size, ids, size);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const uint8_t *bytes = bpe_bytes(bpe, ids[i], &len);
        ASSERT(at + len <= size && memcmp(data + at, bytes, len) == 0);
        at += len;
    }
    ASSERT(at == size && bpe_cut(data, size) <= size);
    decode_any(bpe, data, size);
    return 0;
}
#endif
