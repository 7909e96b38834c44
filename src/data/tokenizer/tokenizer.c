/* tokenizer — see tokenizer.h. A text is copied only if it changes: plain ASCII with a byte-level
 * vocabulary is merged in place. */
#include "data/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "data/tokenizer/normal_text.h"

/* added_tokens — finds the leftmost of several strings in a text, the longest if several begin at
 * one position. Must not know the meaning of the strings. */

struct added_one {
    uint32_t id;
    uint32_t n;
    uint8_t *text;
    bool is_special, is_word, strips_left, strips_right;
};

struct added_tokens {
    size_t n, longest;
    bool has_words, has_strips; /* some string is_word; some strips */
    uint32_t from[257];         /* strings that begin with byte b: item[from[b], from[b + 1]) */
    uint64_t two[1024];         /* first two bytes that some string has */
    struct added_one item[];
};

/* added_tokens_new — makes an empty set for at most `most` strings. */
static struct added_tokens *added_tokens_new(size_t most)
{
    return memory_new(1, sizeof(struct added_tokens) + most * sizeof(struct added_one));
}

/* accepts NULL */
static void added_tokens_close(struct added_tokens *added)
{
    if (added == NULL)
        return;
    for (size_t i = 0; i < added->n; i++)
        free(added->item[i].text);
    free(added);
}

/* added_tokens_put — adds text[0, n), the string of `one`, before the first search; n ≥ 1. */
static void added_tokens_put(struct added_tokens *added, const struct tokenizer_added *one,
                             const uint8_t *text, size_t n)
{
    uint8_t *copy = memcpy(memory_new(1, n), text, n);
    added->item[added->n++] =
        (struct added_one){one->id,          (uint32_t)n,      copy, one->is_special, one->is_word,
                           one->strips_left, one->strips_right};
    added->longest = n > added->longest ? n : added->longest;
    added->has_words = added->has_words || one->is_word;
    added->has_strips = added->has_strips || one->strips_left || one->strips_right;
}

/* Compares by first byte, then the longest first, then the smallest id. */
static int by_byte(const void *a, const void *b)
{
    const struct added_one *x = a, *y = b;
    if (x->text[0] != y->text[0])
        return x->text[0] < y->text[0] ? -1 : 1;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* added_tokens_sort — sorts the strings, between the last added_tokens_put and the first search. */
static void added_tokens_sort(struct added_tokens *added)
{
    qsort(added->item, added->n, sizeof *added->item, by_byte);
    memset(added->from, 0, sizeof added->from);
    for (size_t i = 0; i < added->n; i++) {
        added->from[added->item[i].text[0] + 1]++;
        const struct added_one *one = added->item + i;
        const uint32_t first = (uint32_t)one->text[0] << 8;
        for (uint32_t b = 0; b < 256; b++)
            if (one->n == 1 || one->text[1] == b)
                added->two[(first | b) >> 6] |= (uint64_t)1 << (b & 63);
    }
    for (int b = 0; b < 256; b++)
        added->from[b + 1] += added->from[b];
}

static inline bool may_begin(const struct added_tokens *added, const uint8_t *p, const uint8_t *end)
{
    if (added->from[p[0]] == added->from[p[0] + 1])
        return false;
    const uint32_t two = (uint32_t)p[0] << 8 | p[1 < end - p];
    return end - p < 2 || (added->two[two >> 6] >> (two & 63) & 1);
}

/* added_tokens_next — returns the next string at or after p, and its beginning; NULL: none.
 * keeps_special: special tokens are not searched. */
static const struct added_one *added_tokens_next(const struct added_tokens *added,
                                                 bool keeps_special, const uint8_t *p,
                                                 const uint8_t *end, const uint8_t **at_out)
{
    for (; p < end; p++) {
        if (!may_begin(added, p, end))
            continue;
        for (size_t i = added->from[*p]; i < added->from[*p + 1]; i++) {
            const struct added_one *one = added->item + i;
            if (one->n > (size_t)(end - p) || memcmp(one->text, p, one->n) != 0 ||
                (keeps_special && one->is_special))
                continue;
            *at_out = p;
            return one;
        }
    }
    return NULL;
}

/* added_tokens_spans — returns true if a string, whole or cut off by end, may contain the position
 * `at`, or reach beyond it with the white space and the neighbours that count. touches: or end
 * there. */
static bool added_tokens_spans(const struct added_tokens *added, const uint8_t *text,
                               const uint8_t *at, const uint8_t *end, bool touches)
{
    const uint8_t *p = (size_t)(at - text) < added->longest ? text : at - added->longest;
    touches = touches || added->has_words || added->has_strips;
    if (added->has_strips && (at[-1] >= 0x80 || normal_text_is_space(at[-1])))
        return true;
    for (; p < at + added->has_words; p++) {
        if (!may_begin(added, p, end))
            continue;
        for (size_t i = added->from[*p]; i < added->from[*p + 1]; i++) {
            const struct added_one *one = added->item + i;
            const size_t seen = one->n < (size_t)(end - p) ? one->n : (size_t)(end - p);
            if (one->n + touches > (size_t)(at - p) && memcmp(one->text, p, seen) == 0)
                return true;
        }
    }
    return false;
}

/* Returns true if no word character is next to [at, stop) in [text, end). */
static bool stands_alone(const uint8_t *text, const uint8_t *at, const uint8_t *stop,
                         const uint8_t *end)
{
    size_t n;
    return (at == text || !normal_text_is_word(normal_text_char_before(text, at, &n))) &&
           (stop == end || !normal_text_is_word(normal_text_char(stop, end, &n)));
}

/* Returns the beginning of the white space that ends at p. */
static const uint8_t *space_before(const uint8_t *text, const uint8_t *p)
{
    size_t n;
    while (p > text && normal_text_is_space(normal_text_char_before(text, p, &n)))
        p -= n;
    return p;
}

/* Returns the end of the white space that begins at p. */
static const uint8_t *space_after(const uint8_t *p, const uint8_t *end)
{
    size_t n;
    while (p < end && normal_text_is_space(normal_text_char(p, end, &n)))
        p += n;
    return p;
}

/* A shorter text is not worth the memory of a cache of words. */
#define TOKENIZER_CACHE_FROM ((size_t)1 << 16)

struct tokenizer {
    struct tokenizer_config config; /* its name and added tokens: see below */
    char *name;
    struct added_tokens *raw, *normalized; /* NULL: there are none */
    uint64_t *is_added; /* a bit for each id: an added token that is not special */
    bool needs_line;    /* a cut must be before a line end: added tokens may hide in the raw text */
    uint64_t identity[2];
};

/* One text that is being encoded. */
struct tokenizer_run {
    const struct tokenizer *tokenizer;
    struct bpe_cache *cache;
    const struct encode_watch *watch;
    bool is_begin;          /* the text begins a document; else it continues one */
    bool keeps_special;     /* names of special tokens stay text */
    uint8_t *copy, *spaced; /* a segment normalised; a segment with a space before it */
    size_t copy_cap, spaced_cap;
    size_t n_bytes;                  /* length of the whole text */
    struct normal_work *normal_work; /* NULL: not used so far */
    struct split_work *split_work;
    uint32_t *out;
    size_t n;
};

/* ---- texts to ids ---- */

static void reserve_buffer(uint8_t **buffer, size_t *cap, size_t need)
{
    if (need > *cap)
        *buffer = memory_resize(*buffer, *cap = need, 1);
}

/* Encodes one pre-token. */
static enum status put_word(void *arg, const uint8_t *p, size_t n)
{
    struct tokenizer_run *run = arg;
    return bpe_encode(run->tokenizer->config.bpe, PRETOKEN_KIND_WHOLE, run->cache, run->watch, p, n,
                      run->out, &run->n);
}

static enum status put_words(struct tokenizer_run *run, const uint8_t *p, size_t n)
{
    const struct tokenizer_config *config = &run->tokenizer->config;
    if (config->split != NULL) {
        if (run->split_work == NULL)
            run->split_work = split_work_new(config->split, run->watch,
                                             tokenizer_cap(run->tokenizer, run->n_bytes));
        return split_run(run->split_work, p, n, put_word, run);
    }
    return bpe_encode(config->bpe, config->kind, run->cache, run->watch, p, n, run->out, &run->n);
}

/* Returns true if a word begins here that gets a space before it. each: in every segment; first: in
 * the first of a document. A text that continues one begins within a segment. */
static bool needs_space(const struct tokenizer_run *run, bool at_start, bool each, bool first)
{
    return at_start ? run->is_begin && (each || first) : each;
}

/* Encodes text without added tokens, with a space before it if the rule requires it. */
static enum status put_segment(struct tokenizer_run *run, const uint8_t *p, size_t n, bool at_start)
{
    const enum tokenizer_prefix prefix = run->tokenizer->config.prefix;
    const bool is_spaced = needs_space(run, at_start, prefix == TOKENIZER_PREFIX_ALL,
                                       prefix == TOKENIZER_PREFIX_SPACED);
    if (!is_spaced || n == 0 || *p == ' ')
        return put_words(run, p, n);
    reserve_buffer(&run->spaced, &run->spaced_cap, n + 1);
    run->spaced[0] = ' ';
    memcpy(run->spaced + 1, p, n);
    return put_words(run, run->spaced, n + 1);
}

typedef enum status segment_fn(struct tokenizer_run *run, const uint8_t *p, size_t n,
                               bool at_start);

/* Splits off the added tokens, and passes the text between them to `put`. */
static enum status split_added(struct tokenizer_run *run, const struct added_tokens *added,
                               const uint8_t *text, size_t n_bytes, bool at_start, segment_fn *put)
{
    const uint8_t *p = text, *end = text + n_bytes, *from = text, *at;
    const struct added_one *one;
    if (added == NULL)
        return put(run, text, n_bytes, at_start);
    while ((one = added_tokens_next(added, run->keeps_special, from, end, &at)) != NULL) {
        const uint8_t *stop = at + one->n;
        from = stop;
        if (one->is_word && !stands_alone(text, at, stop, end))
            continue;
        if (one->strips_left)
            at = space_before(text, at);
        if (one->strips_right)
            stop = space_after(stop, end);
        if (at > p)
            TRY(put(run, p, (size_t)(at - p), at_start && p == text));
        run->out[run->n++] = one->id;
        p = stop;
    }
    return p < end ? put(run, p, (size_t)(end - p), at_start && p == text) : ST_OK;
}

/* Replaces p[0, n) by its normal form, with the space of FIRST and SEGMENT, if that is
 * different. */
static enum status normalize_text(struct tokenizer_run *run, const uint8_t **p, size_t *n,
                                  bool at_start)
{
    const struct tokenizer_config *config = &run->tokenizer->config;
    if (config->normal != NULL) {
        if (run->normal_work == NULL)
            run->normal_work = normal_work_new(config->normal, run->watch, run->n_bytes);
        TRY(normal_run(run->normal_work, needs_space(run, at_start, true, false), p, n));
    }
    const bool is_spaced = needs_space(run, at_start, config->prefix == TOKENIZER_PREFIX_SEGMENT,
                                       config->prefix == TOKENIZER_PREFIX_FIRST);
    const bool changes = (config->is_nfc || config->is_spm) && !normal_text_is_ascii(*p, *n);
    if (!is_spaced && !changes)
        return ST_OK;
    reserve_buffer(&run->copy, &run->copy_cap, NORMAL_TEXT_GROWTH * *n + 1);
    run->copy[0] = ' ';
    uint8_t *to = run->copy + is_spaced;
    size_t made = *n;
    if (!changes)
        memcpy(to, *p, *n);
    else if (config->is_spm)
        made = normal_text_spm(*p, *n, to);
    else
        TRY(normal_text_form(NORMAL_FORM_NFC, run->watch, *p, *n, to, &made));
    *p = run->copy;
    *n = made + is_spaced;
    return ST_OK;
}

/* Encodes text without added tokens that are split off before normalisation. */
static enum status put_normal(struct tokenizer_run *run, const uint8_t *p, size_t n, bool at_start)
{
    if (n == 0)
        return ST_OK;
    TRY(normalize_text(run, &p, &n, at_start));
    if (n == 0)
        return ST_OK;
    return split_added(run, run->tokenizer->normalized, p, n, at_start, put_segment);
}

/* Frees the memory of a run. */
static void end_run(struct tokenizer_run *run)
{
    bpe_cache_free(run->cache);
    normal_work_free(run->normal_work);
    split_work_free(run->split_work);
    free(run->copy);
    free(run->spaced);
}

static enum status encode_run(struct tokenizer_run *run, const void *text, size_t n_bytes,
                              bool at_start, size_t *n_out)
{
    run->n_bytes = n_bytes;
    if (n_bytes >= TOKENIZER_CACHE_FROM)
        run->cache = bpe_cache_new();
    const enum status st =
        split_added(run, run->tokenizer->raw, text, n_bytes, at_start, put_normal);
    *n_out = run->n;
    end_run(run);
    return st;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const void *text, size_t n_bytes,
                             bool is_begin, uint32_t *out, size_t *n_out)
{
    return tokenizer_encode_watched(tokenizer, NULL, text, n_bytes, is_begin, out, n_out);
}

enum status tokenizer_encode_watched(const struct tokenizer *tokenizer,
                                     const struct encode_watch *watch, const void *text,
                                     size_t n_bytes, bool is_begin, uint32_t *out, size_t *n_out)
{
    struct tokenizer_run run = {
        .tokenizer = tokenizer, .watch = watch, .is_begin = is_begin, .out = out};
    return encode_run(&run, text, n_bytes, true, n_out);
}

enum status tokenizer_encode_turn(const struct tokenizer *tokenizer,
                                  const struct encode_watch *watch, const void *text,
                                  size_t n_bytes, bool is_begin, uint32_t *out, size_t *n_out)
{
    struct tokenizer_run run = {.tokenizer = tokenizer,
                                .watch = watch,
                                .is_begin = true,
                                .keeps_special = true,
                                .out = out};
    return encode_run(&run, text, n_bytes, is_begin, n_out);
}

enum status tokenizer_normal_bytes(const struct tokenizer *tokenizer, const void *text, size_t n,
                                   size_t *n_out)
{
    struct tokenizer_run run = {.tokenizer = tokenizer, .n_bytes = n};
    const uint8_t *p = text;
    if (tokenizer->config.normal != NULL && !normal_has_edges(tokenizer->config.normal)) {
        *n_out = SIZE_MAX / 2;
        return ST_OK;
    }
    const enum status st = normalize_text(&run, &p, &n, true); /* not begun: no space */
    *n_out = n;
    end_run(&run);
    return st;
}

bool tokenizer_is_plain_added(const struct tokenizer *tokenizer, uint32_t id)
{
    return tokenizer->is_added[id / 64] >> (id % 64) & 1;
}

uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *name)
{
    for (uint32_t id = 0; id < tokenizer_vocab(tokenizer); id++) {
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(tokenizer, id, &n);
        if (bytes != NULL && n == strlen(name) && memcmp(bytes, name, n) == 0)
            return id;
    }
    return TOKENIZER_NONE;
}

size_t tokenizer_cap(const struct tokenizer *tokenizer, size_t n_bytes)
{
    const struct tokenizer_config *config = &tokenizer->config;
    /* A segment has a byte at least, and may get others before it. */
    const size_t n = config->normal != NULL ? normal_most(config->normal, n_bytes) : n_bytes;
    return !config->is_nfc && !config->is_spm && config->prefix == TOKENIZER_PREFIX_NONE
               ? n
               : NORMAL_TEXT_GROWTH * n + 1;
}

size_t tokenizer_prompt_cap(const struct tokenizer *tokenizer, size_t n_bytes)
{
    return tokenizer_cap(tokenizer, n_bytes) + 1;
}

enum status tokenizer_prompt(const struct tokenizer *tokenizer, const void *text, size_t n_bytes,
                             uint32_t *out, size_t *n_out)
{
    const uint32_t begin = tokenizer->config.begin, end = tokenizer->config.end;
    const uint32_t first = begin == TOKENIZER_NONE && n_bytes == 0 ? end : begin;
    size_t n = first != TOKENIZER_NONE;
    if (n > 0)
        out[0] = first;
    TRY(tokenizer_encode(tokenizer, text, n_bytes, true, out + n, n_out));
    *n_out += n;
    return ST_OK;
}

/* ---- cuts ---- */

/* Returns true if the character before is the same in NFC. Else its class may be another. */
static bool stands_before(const uint8_t *text, const uint8_t *at)
{
    const uint8_t *p = at - 1;
    while (p > text && at - p < 4 && (*p & 0xc0) == 0x80)
        p--;
    return normal_text_stands(p, at);
}

/* Returns true if an ASCII letter ends at `at` and a space or a line feed begins there. */
static bool is_edge(const uint8_t *at)
{
    const uint8_t before = at[-1] | 0x20;
    return before >= 'a' && before <= 'z' && (*at == ' ' || *at == '\n');
}

static bool is_safe(const struct tokenizer *tokenizer, const uint8_t *text, const uint8_t *at,
                    const uint8_t *end)
{
    if (tokenizer->config.normal != NULL && !is_edge(at))
        return false;
    if (tokenizer->config.is_nfc && !(normal_text_stands(at, end) && stands_before(text, at)))
        return false;
    if (tokenizer->needs_line && *at != '\n' && *at != '\r')
        return false;
    /* After an added token a word begins as at the beginning. */
    const bool touches = tokenizer->config.prefix == TOKENIZER_PREFIX_SEGMENT ||
                         tokenizer->config.prefix == TOKENIZER_PREFIX_ALL;
    if (tokenizer->raw != NULL && added_tokens_spans(tokenizer->raw, text, at, end, touches))
        return false;
    return tokenizer->normalized == NULL ||
           !added_tokens_spans(tokenizer->normalized, text, at, end, touches);
}

/* Returns the last edge in text[0, n_bytes), after its beginning; 0: there is none. */
static size_t edge_cut(const uint8_t *text, size_t n_bytes)
{
    for (size_t at = n_bytes; at > 1;)
        if (is_edge(text + --at))
            return at;
    return 0;
}

size_t tokenizer_cut(const struct tokenizer *tokenizer, const void *text, size_t n_bytes)
{
    const struct tokenizer_config *config = &tokenizer->config;
    const uint8_t *bytes = text;
    if ((config->split != NULL && !split_has_edges(config->split)) ||
        (config->normal != NULL && !normal_has_edges(config->normal)))
        return 0;
    for (size_t cut = n_bytes; cut > 0;) {
        cut = config->split != NULL ? edge_cut(bytes, cut) : pretoken_cut(config->kind, bytes, cut);
        if (cut > 0 && is_safe(tokenizer, bytes, bytes + cut, bytes + n_bytes))
            return cut;
    }
    return 0;
}

/* ---- making one ---- */

/* Normalises an added token that is found in normalised text like a text, and adds it. */
static enum status add_normalized(struct tokenizer *tokenizer, const struct tokenizer_added *added)
{
    struct tokenizer_run run = {.tokenizer = tokenizer};
    const uint8_t *p = added->text;
    size_t n = added->n;
    enum status st = normalize_text(&run, &p, &n, false); /* with the space of each segment */
    if (tokenizer->config.normal != NULL ||
        (tokenizer->config.is_nfc && !normal_text_is_ascii(added->text, added->n)))
        tokenizer->needs_line = true;
    if (st == ST_OK && n == 0)
        st = FAIL(ST_BAD_DATA,
                  "%s: the added token %.*s (id %u) is nothing in normalised text; set "
                  "\"normalized\": false for it",
                  tokenizer->name, (int)added->n, (const char *)added->text, added->id);
    if (st == ST_OK && ((tokenizer->needs_line && memchr(p, '\n', n) != NULL) ||
                        (tokenizer->config.is_spm && n > 1 && memchr(p + 1, ' ', n - 1) != NULL) ||
                        (tokenizer->config.is_spm && (added->strips_left || added->strips_right))))
        st = FAIL(ST_BAD_DATA,
                  "%s: the added token %.*s (id %u) is normalised and holds or strips spaces or a "
                  "line end, which is not supported; set \"normalized\": false for it",
                  tokenizer->name, (int)added->n, (const char *)added->text, added->id);
    if (st == ST_OK)
        added_tokens_put(tokenizer->normalized, added, p, n);
    end_run(&run);
    return st;
}

static size_t count_added(const struct tokenizer_config *config, bool is_normalized)
{
    size_t n = 0;
    for (size_t i = 0; i < config->added_n; i++)
        n += config->added[i].is_normalized == is_normalized;
    return n;
}

static enum status put_added(struct tokenizer *tokenizer, const struct tokenizer_config *config)
{
    const size_t raw = count_added(config, false), normalized = count_added(config, true);
    if (raw > 0)
        tokenizer->raw = added_tokens_new(raw);
    if (normalized > 0)
        tokenizer->normalized = added_tokens_new(normalized);
    tokenizer->is_added = memory_new(bpe_vocab(config->bpe) / 64 + 1, sizeof *tokenizer->is_added);
    for (size_t i = 0; i < config->added_n; i++) {
        const struct tokenizer_added *one = config->added + i;
        if (!one->is_special && one->id < bpe_vocab(config->bpe))
            tokenizer->is_added[one->id / 64] |= UINT64_C(1) << (one->id % 64);
        if (one->is_normalized)
            TRY(add_normalized(tokenizer, one));
        else
            added_tokens_put(tokenizer->raw, one, one->text, one->n);
    }
    if (raw > 0)
        added_tokens_sort(tokenizer->raw);
    if (normalized > 0)
        added_tokens_sort(tokenizer->normalized);
    return ST_OK;
}

/* Returns a hash of the steps, 0: there are none. */
static uint64_t steps_identity(const struct tokenizer_config *config)
{
    const uint64_t facts[] = {config->split != NULL ? split_identity(config->split) : 0,
                              config->normal != NULL ? normal_identity(config->normal) : 0};
    return config->split != NULL || config->normal != NULL ? XXH3_64bits(facts, sizeof facts) : 0;
}

/* Hashes everything that ids depend on. Identities of tokenizers without steps and flags must stay
 * the same. */
static void set_identity(struct tokenizer *tokenizer, const struct tokenizer_config *config)
{
    uint64_t facts[] = {0,          0, config->kind, config->is_nfc, config->is_spm, config->prefix,
                        config->end};
    const uint64_t steps = steps_identity(config);
    bpe_identity(config->bpe, facts);
    XXH128_hash_t sum = XXH3_128bits(facts, sizeof facts);
    for (size_t i = 0; i < config->added_n; i++) {
        const struct tokenizer_added *one = config->added + i;
        const uint64_t flags = (uint64_t)one->is_normalized + 2 * (uint64_t)one->is_word +
                               4 * (uint64_t)one->strips_left + 8 * (uint64_t)one->strips_right;
        const uint64_t more[] = {sum.low64, sum.high64, one->id, flags,
                                 XXH3_64bits(one->text, one->n)};
        sum = XXH3_128bits(more, sizeof more);
    }
    if (steps != 0) {
        const uint64_t more[] = {sum.low64, sum.high64, steps};
        sum = XXH3_128bits(more, sizeof more);
    }
    tokenizer->identity[0] = sum.low64;
    tokenizer->identity[1] = sum.high64;
}

enum status tokenizer_new(const struct tokenizer_config *config, struct tokenizer **out)
{
    struct tokenizer *tokenizer = memory_new(1, sizeof *tokenizer);
    tokenizer->config = *config;
    tokenizer->name = memory_text(config->name);
    tokenizer->config.name = NULL;
    tokenizer->config.added = NULL;
    tokenizer->config.added_n = 0;
    const enum status st = put_added(tokenizer, config);
    if (st != ST_OK) {
        tokenizer_close(tokenizer);
        return st;
    }
    if (!config->is_built_in)
        set_identity(tokenizer, config);
    *out = tokenizer;
    return ST_OK;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    bpe_close(tokenizer->config.bpe);
    split_close(tokenizer->config.split);
    normal_close(tokenizer->config.normal);
    added_tokens_close(tokenizer->raw);
    added_tokens_close(tokenizer->normalized);
    free(tokenizer->is_added);
    free(tokenizer->name);
    free(tokenizer);
}

/* ---- facts ---- */

const char *tokenizer_name(const struct tokenizer *tokenizer) { return tokenizer->name; }
uint32_t tokenizer_vocab(const struct tokenizer *tokenizer)
{
    return bpe_vocab(tokenizer->config.bpe);
}
uint32_t tokenizer_begin(const struct tokenizer *tokenizer) { return tokenizer->config.begin; }
uint32_t tokenizer_end(const struct tokenizer *tokenizer) { return tokenizer->config.end; }

const struct tokenizer_config *tokenizer_config_of(const struct tokenizer *tokenizer)
{
    return &tokenizer->config;
}

static void visit_set(const struct added_tokens *set, bool is_normalized,
                      void (*fn)(void *arg, const struct tokenizer_added *added), void *arg)
{
    for (size_t i = 0; set != NULL && i < set->n; i++)
        fn(arg, &(struct tokenizer_added){.id = set->item[i].id,
                                          .text = set->item[i].text,
                                          .n = set->item[i].n,
                                          .is_normalized = is_normalized,
                                          .is_special = set->item[i].is_special});
}

void tokenizer_visit_added(const struct tokenizer *tokenizer,
                           void (*fn)(void *arg, const struct tokenizer_added *added), void *arg)
{
    visit_set(tokenizer->raw, false, fn, arg);
    visit_set(tokenizer->normalized, true, fn, arg);
}

void tokenizer_identity(const struct tokenizer *tokenizer, uint64_t out[2])
{
    memcpy(out, tokenizer->identity, sizeof tokenizer->identity);
}

bool tokenizer_is_same(const struct tokenizer *a, const struct tokenizer *b)
{
    uint64_t x[2], y[2];
    bpe_identity(a->config.bpe, x);
    bpe_identity(b->config.bpe, y);
    return memcmp(x, y, sizeof x) == 0 && a->config.kind == b->config.kind &&
           a->config.is_nfc == b->config.is_nfc && a->config.is_spm == b->config.is_spm &&
           a->config.prefix == b->config.prefix && a->config.end == b->config.end &&
           steps_identity(&a->config) == steps_identity(&b->config);
}

const uint8_t *tokenizer_bytes(const struct tokenizer *tokenizer, uint32_t id, size_t *n_out)
{
    return bpe_bytes(tokenizer->config.bpe, id, n_out);
}
