/* bpe_merge — see bpe.h: one pre-token into ids. Short ones are merged by scanning, long ones with
 * a heap of pairs, window by window, so that time is linear and memory does not grow.
 *
 * Why windows have the ids of the whole: a sequence of symbols is the result of merging their bytes
 * exactly if each two neighbours are the result of merging the bytes of the two. A merge that
 * crosses the border of two symbols would be the first one, and the two by themselves would have
 * it, too. So if a window begins at a border within the previous window, and its first symbol is
 * the symbol of the previous window at this border, the symbols up to the border and the new
 * window's symbols together are the result of merging both (docs/decisions/072). */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "data/tokenizer/bpe_inside.h"

enum {
    BPE_SCAN_MAX = 96, /* symbols of a pre-token that is merged by scanning */
    BPE_WINDOW_SYMBOLS = 1 << 13
};

/* A symbol: an id, and the position of its bytes. */
struct bpe_symbol {
    uint32_t id, at;
};

/* Merges s[0, n) in place and returns how many symbols are left. n ≤ BPE_SCAN_MAX. */
static size_t merge_scan(const struct bpe *bpe, struct bpe_symbol *s, size_t n)
{
    uint32_t rank[BPE_SCAN_MAX]; /* rank of (s[i], s[i + 1]) */
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = bpe_rank_of(bpe, s[i].id, s[i + 1].id);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == BPE_NONE)
            break;
        s[best].id = bpe_pair_find(bpe, s[best].id, s[best + 1].id)->id;
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

/* A long pre-token: its symbols linked by index, and a heap of (rank, index). An entry whose index
 * has another rank by now is skipped. */
struct bpe_heap {
    const struct bpe *bpe;
    struct bpe_symbol *s;
    uint32_t *next, *prev, *rank; /* links and rank of a symbol; next n: none */
    uint32_t n;
    uint64_t *entry;
    size_t entries;
};

static uint64_t heap_pop(struct bpe_heap *heap)
{
    const uint64_t top = heap->entry[0], last = heap->entry[--heap->entries];
    if (heap->entries > 0) {
        size_t i = 0;
        for (size_t child; (child = 2 * i + 1) < heap->entries; i = child) {
            child += child + 1 < heap->entries && heap->entry[child + 1] < heap->entry[child];
            if (heap->entry[child] >= last)
                break;
            heap->entry[i] = heap->entry[child];
        }
        heap->entry[i] = last;
    }
    return top;
}

/* Sets the rank of (at, its next); a pair that can merge enters the heap. */
static void push_rank(struct bpe_heap *heap, uint32_t at)
{
    const uint32_t next = heap->next[at];
    heap->rank[at] =
        next < heap->n ? bpe_rank_of(heap->bpe, heap->s[at].id, heap->s[next].id) : BPE_NONE;
    if (heap->rank[at] != BPE_NONE) {
        uint64_t v = (uint64_t)heap->rank[at] << 32 | at;
        size_t i = heap->entries++;
        for (; i > 0 && heap->entry[(i - 1) / 2] > v; i = (i - 1) / 2)
            heap->entry[i] = heap->entry[(i - 1) / 2];
        heap->entry[i] = v;
    }
}

/* Merges s[0, symbols_n) in place and returns how many symbols are left. A merge removes one entry
 * and adds at most two, so `entry` has space for 3 numbers for each symbol; link has the same. */
static size_t merge_heap(const struct bpe *bpe, struct bpe_symbol *s, size_t symbols_n,
                         uint64_t *entry, uint32_t *link)
{
    struct bpe_heap heap = {.bpe = bpe,
                            .s = s,
                            .next = link,
                            .prev = link + symbols_n,
                            .rank = link + 2 * symbols_n,
                            .n = (uint32_t)symbols_n,
                            .entry = entry};
    for (uint32_t i = 0; i < heap.n; i++) {
        heap.next[i] = i + 1;
        heap.prev[i] = i - 1;
    }
    for (uint32_t i = 0; i < heap.n; i++)
        push_rank(&heap, i);
    while (heap.entries > 0) {
        const uint64_t top = heap_pop(&heap);
        if (heap.rank[(uint32_t)top] == (uint32_t)(top >> 32)) {
            uint32_t at = (uint32_t)top;
            const uint32_t gone = heap.next[at];
            heap.s[at].id = bpe_pair_find(heap.bpe, heap.s[at].id, heap.s[gone].id)->id;
            heap.rank[gone] = BPE_NONE;
            heap.next[at] = heap.next[gone];
            if (heap.next[at] < heap.n)
                heap.prev[heap.next[at]] = at;
            push_rank(&heap, at);
            if (at > 0)
                push_rank(&heap, heap.prev[at]);
        }
    }
    size_t left = 0;
    for (uint32_t i = 0; i < heap.n; i = heap.next[i])
        s[left++] = s[i];
    return left;
}

static size_t char_bytes(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Writes the symbols with which p[0, n) begins, at most `most` of them; *bytes_out: their bytes. A
 * byte or character without a token, if unknown ones have no token either, is left out here
 * already, as in Hugging Face's tokenizers: its neighbours may merge. */
static size_t symbols_of(const struct bpe *bpe, const uint8_t *p, size_t n, size_t most,
                         struct bpe_symbol *s, size_t *bytes_out)
{
    const bool is_bytes = bpe->rules.unit == BPE_UNIT_BYTES,
               leaves_out = bpe->rules.fallback == NULL && bpe->rules.unknown == BPE_NONE;
    size_t symbols = 0, at = 0;
    for (size_t len; at < n; at += len) {
        len = is_bytes ? 1 : char_bytes(p[at]) < n - at ? char_bytes(p[at]) : n - at;
        const uint32_t id = is_bytes ? bpe->byte_id[p[at]] : bpe_find(bpe, p + at, len);
        if (id == BPE_NONE && leaves_out)
            continue;
        if (symbols == most)
            break;
        s[symbols++] = (struct bpe_symbol){id, (uint32_t)at};
    }
    *bytes_out = at;
    return symbols;
}

/* Writes the ids of one symbol that is no token. */
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

/* Symbols of the bytes from p on, which end at `bytes`. */
struct bpe_window {
    const uint8_t *p;
    size_t bytes, n;
    struct bpe_symbol *s;
    size_t late; /* beginning of the last eighth of the symbols before merging */
};

/* Appends the ids of a window's first n symbols. *follows: the symbol before them is unknown. */
static void symbols_write(const struct bpe *bpe, const struct bpe_window *window, size_t n,
                          bool *follows, uint32_t *out, size_t *n_out)
{
    const struct bpe_symbol *s = window->s;
    for (size_t i = 0; i < n; i++) {
        const size_t end = i + 1 < window->n ? s[i + 1].at : window->bytes;
        const bool is_token = s[i].id < bpe->size.vocab;
        if (is_token)
            out[(*n_out)++] = s[i].id;
        else
            *n_out +=
                symbol_unknown(bpe, window->p + s[i].at, end - s[i].at, *follows, out + *n_out);
        *follows = !is_token;
    }
}

/* A long pre-token, p[0, n), and the memory for two windows of `most` symbols. */
struct bpe_word_long {
    const struct bpe *bpe;
    const uint8_t *p, *end;
    size_t most;
    struct bpe_symbol *s[2];
    uint64_t *entry;
    uint32_t *link;
    void *memory;
};

/* Allocates the memory for windows of `most` symbols. */
static enum status windows_allocate(struct bpe_word_long *word, size_t most)
{
    const size_t each = 2 * sizeof(struct bpe_symbol) + 3 * sizeof(uint64_t) + 3 * sizeof(uint32_t);
    free(word->memory);
    word->memory = most < BPE_NONE ? malloc(most * each) : NULL;
    if (word->memory == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes to tokenise %zu bytes without a space",
                    most * each, (size_t)(word->end - word->p));
    word->most = most;
    word->entry = word->memory;
    word->s[0] = (void *)(word->entry + 3 * most);
    word->s[1] = word->s[0] + most;
    word->link = (void *)(word->s[1] + most);
    return ST_OK;
}

static void window_merge(const struct bpe_word_long *word, const uint8_t *p, struct bpe_symbol *s,
                         struct bpe_window *out)
{
    *out = (struct bpe_window){.p = p, .s = s};
    const size_t n = symbols_of(word->bpe, p, (size_t)(word->end - p), word->most, s, &out->bytes);
    out->late = n > 0 ? s[n - 1 - n / 8].at : 0;
    out->n = merge_heap(word->bpe, s, n, word->entry, word->link);
}

/* Finds a border at which a following window continues this one (see the top of the file), and
 * merges that window. Returns the number of symbols of this one before the border; 0: none. */
static size_t window_follow(const struct bpe_word_long *word, const struct bpe_window *now,
                            struct bpe_window *next)
{
    struct bpe_symbol *s = now->s == word->s[0] ? word->s[1] : word->s[0];
    size_t k = 0;
    while (k + 1 < now->n && now->s[k].at < now->late)
        k++;
    for (const size_t least = k / 4; k > least; k /= 2) {
        window_merge(word, now->p + now->s[k].at, s, next);
        if (next->n > 0 && next->s[0].id == now->s[k].id)
            return k;
    }
    return 0;
}

static enum status windows_write(struct bpe_word_long *word, const struct encode_watch *watch,
                                 uint32_t *out, size_t *n_out)
{
    struct bpe_window now, next;
    bool follows = false;
    const size_t n = (size_t)(word->end - word->p);
    TRY(windows_allocate(word, n < BPE_WINDOW_SYMBOLS ? n : BPE_WINDOW_SYMBOLS));
    window_merge(word, word->p, word->s[0], &now);
    while (now.p + now.bytes < word->end) {
        TRY(encode_watch_check(watch));
        const size_t k = window_follow(word, &now, &next);
        symbols_write(word->bpe, &now, k, &follows, out, n_out);
        if (k == 0) { /* no border was found: a larger window */
            TRY(windows_allocate(word, 2 * word->most));
            window_merge(word, now.p, word->s[0], &next);
        }
        now = next;
    }
    symbols_write(word->bpe, &now, now.n, &follows, out, n_out);
    return ST_OK;
}

enum status bpe_merge_word(const struct bpe *bpe, const struct encode_watch *watch,
                           const uint8_t *p, size_t n, uint32_t *out, size_t *n_out)
{
    struct bpe_symbol s[BPE_SCAN_MAX];
    bool follows = false;
    if (n > BPE_SCAN_MAX) {
        struct bpe_word_long word = {.bpe = bpe, .p = p, .end = p + n};
        const enum status st = windows_write(&word, watch, out, n_out);
        free(word.memory);
        return st;
    }
    struct bpe_window all = {.p = p, .s = s};
    all.n = merge_scan(bpe, s, symbols_of(bpe, p, n, n, s, &all.bytes));
    symbols_write(bpe, &all, all.n, &follows, out, n_out);
    return ST_OK;
}
