/* bpe_merge — see bpe.h: one pre-token into ids. Short ones are merged by scanning, long ones with
 * a heap of pairs, in n log n. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/bpe_inside.h"

enum { BPE_SCAN_MAX = 96 }; /* symbols of a pre-token that is merged by scanning */

/* A symbol: an id and how many bytes it has. */
struct bpe_symbol {
    uint32_t id, n;
};

/* ids[0, n) in place; returns how many are left. n in 1 … BPE_SCAN_MAX. */
static size_t merge_scan(const struct bpe *bpe, struct bpe_symbol *s, size_t n)
{
    uint32_t rank[BPE_SCAN_MAX]; /* of (s[i], s[i + 1]) */
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = bpe_rank_of(bpe, s[i].id, s[i + 1].id);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == BPE_NONE)
            break;
        s[best] = (struct bpe_symbol){bpe_pair_find(bpe, s[best].id, s[best + 1].id)->id,
                                      s[best].n + s[best + 1].n};
        n--;
        memmove(s + best + 1, s + best + 2, (n - best - 1) * sizeof *s);
        if (best + 1 < n) {
            memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
            rank[best] = bpe_rank_of(bpe, s[best].id, s[best + 1].id);
        }
        if (best > 0)
            rank[best - 1] = bpe_rank_of(bpe, s[best - 1].id, s[best].id);
    }
    return n;
}

/* A long pre-token: its symbols linked by place, and a heap of (rank, place). An entry whose place
 * has another rank by now is passed over. */
struct bpe_heap {
    const struct bpe *bpe;
    struct bpe_symbol *s;
    uint32_t *next, *prev, *rank; /* of a place; next n: none */
    uint32_t n;
    uint64_t *entry;
    size_t entries;
};

static void heap_down(struct bpe_heap *heap, size_t i, uint64_t v)
{
    for (size_t child; (child = 2 * i + 1) < heap->entries; i = child) {
        child += child + 1 < heap->entries && heap->entry[child + 1] < heap->entry[child];
        if (heap->entry[child] >= v)
            break;
        heap->entry[i] = heap->entry[child];
    }
    heap->entry[i] = v;
}

static void heap_push(struct bpe_heap *heap, uint64_t v)
{
    size_t i = heap->entries++;
    for (; i > 0 && heap->entry[(i - 1) / 2] > v; i = (i - 1) / 2)
        heap->entry[i] = heap->entry[(i - 1) / 2];
    heap->entry[i] = v;
}

static uint64_t heap_pop(struct bpe_heap *heap)
{
    const uint64_t top = heap->entry[0], last = heap->entry[--heap->entries];
    if (heap->entries > 0)
        heap_down(heap, 0, last);
    return top;
}

/* Sets the rank of (at, its next); a pair that can merge enters the heap. */
static void place_rank(struct bpe_heap *heap, uint32_t at)
{
    const uint32_t next = heap->next[at];
    heap->rank[at] =
        next < heap->n ? bpe_rank_of(heap->bpe, heap->s[at].id, heap->s[next].id) : BPE_NONE;
    if (heap->rank[at] != BPE_NONE)
        heap_push(heap, (uint64_t)heap->rank[at] << 32 | at);
}

static void place_merge(struct bpe_heap *heap, uint32_t at)
{
    const uint32_t gone = heap->next[at];
    heap->s[at] =
        (struct bpe_symbol){bpe_pair_find(heap->bpe, heap->s[at].id, heap->s[gone].id)->id,
                            heap->s[at].n + heap->s[gone].n};
    heap->rank[gone] = BPE_NONE;
    heap->next[at] = heap->next[gone];
    if (heap->next[at] < heap->n)
        heap->prev[heap->next[at]] = at;
    place_rank(heap, at);
    if (at > 0)
        place_rank(heap, heap->prev[at]);
}

/* A merge removes one entry and adds at most two: at most 3 n over all. */
static enum status merge_heap(const struct bpe *bpe, struct bpe_symbol *s, size_t *n)
{
    const size_t places = *n, bytes = places * (3 * sizeof(uint32_t) + 3 * sizeof(uint64_t));
    uint8_t *memory = places < BPE_NONE ? malloc(bytes) : NULL;
    if (memory == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to tokenise %zu bytes without a space",
                    bytes, places);
    uint64_t *entry = (void *)memory;
    uint32_t *link = (void *)(entry + 3 * places);
    struct bpe_heap heap = {.bpe = bpe,
                            .s = s,
                            .next = link,
                            .prev = link + places,
                            .rank = link + 2 * places,
                            .n = (uint32_t)places,
                            .entry = entry};
    for (uint32_t i = 0; i < heap.n; i++) {
        heap.next[i] = i + 1;
        heap.prev[i] = i - 1;
    }
    for (uint32_t i = 0; i < heap.n; i++)
        place_rank(&heap, i);
    while (heap.entries > 0) {
        const uint64_t top = heap_pop(&heap);
        if (heap.rank[(uint32_t)top] == (uint32_t)(top >> 32))
            place_merge(&heap, (uint32_t)top);
    }
    *n = 0;
    for (uint32_t i = 0; i < heap.n; i = heap.next[i])
        s[(*n)++] = s[i];
    free(memory);
    return ST_OK;
}

static size_t char_bytes(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* The symbols that p[0, n) begins as; s has space for n. */
static size_t symbols_of(const struct bpe *bpe, const uint8_t *p, size_t n, struct bpe_symbol *s)
{
    if (bpe->rules.unit == BPE_UNIT_BYTES) {
        for (size_t i = 0; i < n; i++)
            s[i] = (struct bpe_symbol){bpe->byte_id[p[i]], 1};
        return n;
    }
    size_t symbols = 0;
    for (size_t i = 0, len; i < n; i += len) {
        len = char_bytes(p[i]) < n - i ? char_bytes(p[i]) : n - i;
        s[symbols++] = (struct bpe_symbol){bpe_find(bpe, p + i, len), (uint32_t)len};
    }
    return symbols;
}

/* The ids of one symbol that is no token. */
static size_t symbol_unknown(const struct bpe *bpe, const uint8_t *p, size_t n, bool follows,
                             uint32_t *out)
{
    if (bpe->rules.fallback != NULL) {
        for (size_t i = 0; i < n; i++)
            out[i] = bpe->fallback[p[i]];
        return n;
    }
    if (bpe->rules.unknown == BPE_NONE || (follows && bpe->rules.fuses_unknown))
        return 0;
    *out = bpe->rules.unknown;
    return 1;
}

static size_t symbols_write(const struct bpe *bpe, const uint8_t *p, const struct bpe_symbol *s,
                            size_t symbols, uint32_t *out)
{
    size_t n = 0;
    bool follows = false;
    for (size_t i = 0; i < symbols; p += s[i++].n) {
        const bool is_token = s[i].id < bpe->size.vocab;
        if (is_token)
            out[n++] = s[i].id;
        else
            n += symbol_unknown(bpe, p, s[i].n, follows, out + n);
        follows = !is_token;
    }
    return n;
}

static enum status word_merge_long(const struct bpe *bpe, const uint8_t *p, size_t n, uint32_t *out,
                                   size_t *n_out)
{
    struct bpe_symbol *s = malloc(n * sizeof *s);
    if (s == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to tokenise %zu bytes without a space",
                    n * sizeof *s, n);
    size_t symbols = symbols_of(bpe, p, n, s);
    const enum status st = merge_heap(bpe, s, &symbols);
    if (st == ST_OK)
        *n_out += symbols_write(bpe, p, s, symbols, out + *n_out);
    free(s);
    return st;
}

enum status bpe_merge_word(const struct bpe *bpe, const uint8_t *p, size_t n, uint32_t *out,
                           size_t *n_out)
{
    struct bpe_symbol s[BPE_SCAN_MAX];
    if (n > BPE_SCAN_MAX)
        return word_merge_long(bpe, p, n, out, n_out);
    const size_t symbols = merge_scan(bpe, s, symbols_of(bpe, p, n, s));
    *n_out += symbols_write(bpe, p, s, symbols, out + *n_out);
    return ST_OK;
}
