/* bpe_train — see bpe.h. Each pair lists the words in which it occurs, so that a merge visits only
 * these words. A heap holds pairs with the counts that they had; an entry is dropped when it comes
 * up and its pair has another count by now, because each change of a count adds an entry. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "data/tokenizer/bpe.h"

/* byte_map — numbers strings of bytes: 0 for the first string, 1 for the next different one …
 *
 * Not for several threads. Must not know the meaning of the strings. */

#define BYTE_MAP_STRING_MAX 1024 /* bytes of one string */
#define FIRST_SLOTS 1024

struct item {
    uint64_t hash;
    size_t at;
    uint32_t n;
};

/* Zero-initialised is valid and empty. */
struct byte_map {
    uint32_t *slot; /* a number + 1; 0: free */
    size_t slots_n; /* a power of two */
    struct item *item;
    size_t items_n, items_cap;
    uint8_t *bytes;
    size_t bytes_n, bytes_cap;
};

static void byte_map_free(struct byte_map *map)
{
    free(map->slot);
    free(map->item);
    free(map->bytes);
}

static void grow_slots(struct byte_map *map)
{
    const size_t slots_n = map->slots_n > 0 ? 2 * map->slots_n : FIRST_SLOTS;
    uint32_t *slot = memory_new(slots_n, sizeof *slot);
    for (size_t i = 0; i < map->items_n; i++) {
        size_t at = map->item[i].hash & (slots_n - 1);
        while (slot[at] != 0)
            at = (at + 1) & (slots_n - 1);
        slot[at] = (uint32_t)i + 1;
    }
    free(map->slot);
    map->slot = slot;
    map->slots_n = slots_n;
}

/* byte_map_add — returns the number of the string, which is copied. 1 ≤ n ≤ BYTE_MAP_STRING_MAX. */
static uint32_t byte_map_add(struct byte_map *map, const uint8_t *bytes, size_t n)
{
    const uint64_t hash = XXH3_64bits(bytes, n);
    ASSERTF(n >= 1 && n <= BYTE_MAP_STRING_MAX && map->items_n < UINT32_MAX - 1,
            "%zu bytes, %zu strings", n, map->items_n);
    map->item = memory_grow(map->item, map->items_n, &map->items_cap, sizeof *map->item);
    map->bytes = memory_grow(map->bytes, map->bytes_n + n, &map->bytes_cap, 1);
    if (2 * map->items_n >= map->slots_n)
        grow_slots(map);
    /* Finds the slot that holds the string, or the free one where it belongs. */
    size_t at = hash & (map->slots_n - 1);
    for (; map->slot[at] != 0; at = (at + 1) & (map->slots_n - 1)) {
        const struct item *item = map->item + map->slot[at] - 1;
        if (item->hash == hash && item->n == n && memcmp(map->bytes + item->at, bytes, n) == 0)
            break;
    }
    if (map->slot[at] == 0) {
        map->item[map->items_n] = (struct item){hash, map->bytes_n, (uint32_t)n};
        memcpy(map->bytes + map->bytes_n, bytes, n);
        map->bytes_n += n;
        map->slot[at] = (uint32_t)++map->items_n;
    }
    return map->slot[at] - 1;
}

static uint32_t byte_map_count(const struct byte_map *map) { return (uint32_t)map->items_n; }

/* byte_map_bytes — returns the bytes of a string, valid until the next byte_map_add. number <
 * byte_map_count. */
static const uint8_t *byte_map_bytes(const struct byte_map *map, uint32_t number, size_t *n_out)
{
    *n_out = map->item[number].n;
    return map->bytes + map->item[number].at;
}

#define WORD_BYTES_MAX 256
#define BYTES 256
#define COUNT_LEAST 2
#define PROGRESS_EVERY 1024 /* words, before the first merge; then each merge */

/* A pre-token as its tokens. */
struct word {
    size_t first; /* in symbol */
    uint32_t n;
    int64_t count;
};

struct pair {
    int64_t count;
    uint32_t key;        /* its number in the map of pairs */
    uint32_t changed_in; /* the last round that changed the count */
    uint32_t *word;
    uint32_t words_n, words_cap;
};

struct entry {
    int64_t count;
    struct bpe_train_merge merge;
    uint32_t pair;
};

struct bpe_train {
    enum pretoken_kind kind;
    struct byte_map words, tokens, pairs; /* pre-tokens, tokens, pairs of two ids */
    int64_t *count;                       /* occurrences of each pre-token */
    size_t counts_cap;
    struct word *word;
    uint32_t *symbol;
    struct pair *pair;
    size_t pairs_cap;
    struct entry *heap;
    size_t heap_n, heap_cap;
    uint32_t round;    /* counts the first pass and each merge */
    uint32_t *changed; /* pairs whose count has changed in this round */
    size_t changed_n, changed_cap;
    struct bpe_train_merge *merge;
    size_t merges_n, merges_cap;
    bool (*progress)(void *arg, uint32_t tokens); /* the callback of bpe_train_run, or NULL */
    void *progress_arg;
};

static enum status check_progress(const struct bpe_train *train)
{
    if (train->progress == NULL || train->progress(train->progress_arg, bpe_train_tokens(train)))
        return ST_OK;
    return FAIL(ST_RETRY, "stopped after %zu merges", train->merges_n);
}

struct bpe_train *bpe_train_open(enum pretoken_kind kind)
{
    struct bpe_train *train = memory_new(1, sizeof *train);
    uint16_t char_of[BYTES];
    train->kind = kind;
    train->round = 1;
    /* GPT-2's order: the bytes that stand for themselves, then the others. */
    bpe_chars_fill(char_of);
    for (int round = 0; round < 2; round++)
        for (unsigned b = 0; b < BYTES; b++)
            if ((char_of[b] == b) == (round == 0))
                byte_map_add(&train->tokens, &(uint8_t){(uint8_t)b}, 1);
    return train;
}

void bpe_train_close(struct bpe_train *train)
{
    if (train == NULL)
        return;
    for (uint32_t i = 0; train->pair != NULL && i < byte_map_count(&train->pairs); i++)
        free(train->pair[i].word);
    byte_map_free(&train->words);
    byte_map_free(&train->tokens);
    byte_map_free(&train->pairs);
    free(train->count);
    free(train->word);
    free(train->symbol);
    free(train->pair);
    free(train->heap);
    free(train->changed);
    free(train->merge);
    free(train);
}

/* ---- counting ---- */

void bpe_train_add(struct bpe_train *train, const uint8_t *text, size_t n_bytes)
{
    const uint8_t *const end = text + n_bytes;
    for (const uint8_t *p = text, *stop; p < end; p = stop) {
        stop = pretoken_end(train->kind, p, end);
        const uint32_t before = byte_map_count(&train->words);
        if (stop - p > WORD_BYTES_MAX)
            continue;
        train->count = memory_grow(train->count, before, &train->counts_cap, sizeof *train->count);
        const uint32_t i = byte_map_add(&train->words, p, (size_t)(stop - p));
        train->count[i] = i == before ? 1 : train->count[i] + 1;
    }
}

/* ---- pairs ---- */

/* Adds `by` occurrences of a pair in a word, or removes them; a new pair is added to the map. */
static void count_pair(struct bpe_train *train, uint32_t left, uint32_t right, uint32_t word_i,
                       int64_t by)
{
    const struct bpe_train_merge merge = {left, right};
    const uint32_t before = byte_map_count(&train->pairs);
    train->pair = memory_grow(train->pair, before, &train->pairs_cap, sizeof *train->pair);
    const uint32_t i = byte_map_add(&train->pairs, (const uint8_t *)&merge, sizeof merge);
    struct pair *pair = train->pair + i;
    if (i == before)
        *pair = (struct pair){.key = i};
    if (pair->changed_in != train->round) {
        train->changed = memory_grow(train->changed, train->changed_n, &train->changed_cap,
                                     sizeof *train->changed);
        pair->changed_in = train->round;
        train->changed[train->changed_n++] = pair->key;
    }
    pair->count += by;
    if (by < 0 || (pair->words_n > 0 && pair->word[pair->words_n - 1] == word_i))
        return;
    size_t cap = pair->words_cap;
    pair->word = memory_grow(pair->word, pair->words_n, &cap, sizeof *pair->word);
    pair->words_cap = (uint32_t)cap;
    pair->word[pair->words_n++] = word_i;
}

/* ---- the heap: the pair that occurs most often is first ---- */

static bool is_before(const struct entry *a, const struct entry *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return a->merge.left != b->merge.left ? a->merge.left < b->merge.left
                                          : a->merge.right < b->merge.right;
}

static void heap_push(struct bpe_train *train, struct entry entry)
{
    train->heap = memory_grow(train->heap, train->heap_n, &train->heap_cap, sizeof entry);
    size_t i = train->heap_n++;
    for (; i > 0 && is_before(&entry, train->heap + (i - 1) / 2); i = (i - 1) / 2)
        train->heap[i] = train->heap[(i - 1) / 2];
    train->heap[i] = entry;
}

/* Adds an entry for each pair that has changed. */
static void push_changed(struct bpe_train *train)
{
    for (size_t i = 0; i < train->changed_n; i++) {
        const struct pair *pair = train->pair + train->changed[i];
        struct entry entry = {.count = pair->count, .pair = pair->key};
        size_t n;
        memcpy(&entry.merge, byte_map_bytes(&train->pairs, pair->key, &n), sizeof entry.merge);
        if (entry.count >= COUNT_LEAST)
            heap_push(train, entry);
    }
    train->changed_n = 0;
    train->round++;
}

/* ---- merging ---- */

static enum status load_words(struct bpe_train *train)
{
    const uint32_t words_n = byte_map_count(&train->words);
    size_t total = 0, n;
    for (uint32_t i = 0; i < words_n; i++, total += n)
        (void)byte_map_bytes(&train->words, i, &n);
    train->word = memory_new(words_n, sizeof *train->word);
    train->symbol = memory_new(total, sizeof *train->symbol);
    size_t at = 0;
    for (uint32_t i = 0; i < words_n; i++) {
        const uint8_t *bytes = byte_map_bytes(&train->words, i, &n);
        train->word[i] = (struct word){at, (uint32_t)n, train->count[i]};
        if (i % PROGRESS_EVERY == 0)
            TRY(check_progress(train));
        for (size_t j = 0; j < n; j++)
            train->symbol[at + j] = byte_map_add(&train->tokens, bytes + j, 1);
        for (size_t j = 1; j < n; j++)
            count_pair(train, train->symbol[at + j - 1], train->symbol[at + j], i, train->count[i]);
        at += n;
    }
    push_changed(train);
    return ST_OK;
}

static void merge_word(struct bpe_train *train, struct bpe_train_merge merge, uint32_t made,
                       uint32_t word_i)
{
    struct word *word = train->word + word_i;
    uint32_t *symbol = train->symbol + word->first, kept = 0;
    for (uint32_t i = 0; i < word->n; kept++) {
        if (i + 1 == word->n || symbol[i] != merge.left || symbol[i + 1] != merge.right) {
            symbol[kept] = symbol[i++];
            continue;
        }
        /* Updates the counts around this merge. */
        const uint32_t neighbour[2] = {kept > 0 ? symbol[kept - 1] : BPE_NONE,
                                       i + 2 < word->n ? symbol[i + 2] : BPE_NONE};
        const int64_t count = train->word[word_i].count;
        if (neighbour[0] != BPE_NONE) {
            count_pair(train, neighbour[0], merge.left, word_i, -count);
            count_pair(train, neighbour[0], made, word_i, count);
        }
        if (neighbour[1] != BPE_NONE) {
            count_pair(train, merge.right, neighbour[1], word_i, -count);
            count_pair(train, made, neighbour[1], word_i, count);
        }
        symbol[kept] = made;
        i += 2;
    }
    word->n = kept;
}

static void merge_pair(struct bpe_train *train, const struct entry *entry)
{
    struct pair *pair = train->pair + entry->pair;
    uint32_t *word = pair->word;
    const uint32_t words_n = pair->words_n;
    /* Finds the token of both. Another pair may have made the same bytes before. */
    struct bpe_train_merge merge = entry->merge;
    uint8_t bytes[2 * WORD_BYTES_MAX];
    size_t left, right;
    const uint8_t *first = byte_map_bytes(&train->tokens, merge.left, &left),
                  *second = byte_map_bytes(&train->tokens, merge.right, &right);
    memcpy(bytes, first, left);
    memcpy(bytes + left, second, right);
    const uint32_t made = byte_map_add(&train->tokens, bytes, left + right);
    pair->word = NULL; /* train->pair may move */
    pair->words_n = pair->words_cap = 0;
    for (uint32_t i = 0; i < words_n; i++)
        merge_word(train, entry->merge, made, word[i]);
    free(word);
    train->pair[entry->pair].count = 0;
    push_changed(train);
    train->merge =
        memory_grow(train->merge, train->merges_n, &train->merges_cap, sizeof *train->merge);
    train->merge[train->merges_n++] = entry->merge;
}

enum status bpe_train_run(struct bpe_train *train, uint32_t vocab,
                          bool (*progress)(void *arg, uint32_t tokens), void *arg)
{
    train->progress = progress;
    train->progress_arg = arg;
    TRY(load_words(train));
    while (bpe_train_tokens(train) < vocab && train->heap_n > 0) {
        struct entry *heap = train->heap;
        const struct entry entry = heap[0], last = heap[--train->heap_n];
        size_t i = 0;
        for (size_t child; (child = 2 * i + 1) < train->heap_n; i = child) {
            child += child + 1 < train->heap_n && is_before(heap + child + 1, heap + child);
            if (!is_before(heap + child, &last))
                break;
            heap[i] = heap[child];
        }
        heap[i] = last;
        if (train->pair[entry.pair].count != entry.count)
            continue;
        merge_pair(train, &entry);
        TRY(check_progress(train));
    }
    return ST_OK;
}

uint32_t bpe_train_tokens(const struct bpe_train *train) { return byte_map_count(&train->tokens); }

const uint8_t *bpe_train_bytes(const struct bpe_train *train, uint32_t id, size_t *n_out)
{
    return byte_map_bytes(&train->tokens, id, n_out);
}

const struct bpe_train_merge *bpe_train_merges(const struct bpe_train *train, size_t *n_out)
{
    *n_out = train->merges_n;
    return train->merge;
}

void bpe_train_size(const struct bpe_train *train, int64_t *bytes_out, int64_t *tokens_out)
{
    size_t n;
    *bytes_out = *tokens_out = 0;
    for (uint32_t i = 0; train->word != NULL && i < byte_map_count(&train->words); i++) {
        (void)byte_map_bytes(&train->words, i, &n);
        *bytes_out += train->count[i] * (int64_t)n;
        *tokens_out += train->count[i] * train->word[i].n;
    }
}
