/* added_tokens — see added_tokens.h. A set of first bytes, then one of first two bytes, passes over
 * nearly all places of a text; the others compare the strings that begin with that byte. */
#include "data/added_tokens.h"

#include <stdlib.h>
#include <string.h>

struct added_one {
    uint32_t id;
    uint32_t n;
    uint8_t *text;
};

struct added_tokens {
    size_t n, most;
    size_t longest;
    uint32_t from[257]; /* those that begin with byte b: item[from[b], from[b + 1]) */
    uint64_t two[1024]; /* first two bytes that some string has */
    struct added_one item[];
};

enum status added_tokens_new(size_t most, struct added_tokens **out)
{
    struct added_tokens *added = calloc(1, sizeof *added + most * sizeof *added->item);
    if (added == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu added tokens", most);
    added->most = most;
    *out = added;
    return ST_OK;
}

void added_tokens_close(struct added_tokens *added)
{
    if (added == NULL)
        return;
    for (size_t i = 0; i < added->n; i++)
        free(added->item[i].text);
    free(added);
}

enum status added_tokens_put(struct added_tokens *added, uint32_t id, const uint8_t *text, size_t n)
{
    uint8_t *copy = added->n < added->most ? malloc(n) : NULL;
    if (copy == NULL)
        return FAIL(ST_RETRY, "out of memory: an added token of %zu bytes", n);
    memcpy(copy, text, n);
    added->item[added->n++] = (struct added_one){id, (uint32_t)n, copy};
    added->longest = n > added->longest ? n : added->longest;
    return ST_OK;
}

/* By first byte, then the longest first, then the smallest id. */
static int by_byte(const void *a, const void *b)
{
    const struct added_one *x = a, *y = b;
    if (x->text[0] != y->text[0])
        return x->text[0] < y->text[0] ? -1 : 1;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void added_tokens_sort(struct added_tokens *added)
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

const uint8_t *added_tokens_next(const struct added_tokens *added, const uint8_t *p,
                                 const uint8_t *end, uint32_t *id_out, size_t *n_out)
{
    for (; p < end; p++) {
        if (!may_begin(added, p, end))
            continue;
        for (size_t i = added->from[*p]; i < added->from[*p + 1]; i++) {
            const struct added_one *one = added->item + i;
            if (one->n > (size_t)(end - p) || memcmp(one->text, p, one->n) != 0)
                continue;
            *id_out = one->id;
            *n_out = one->n;
            return p;
        }
    }
    return end;
}

bool added_tokens_spans(const struct added_tokens *added, const uint8_t *text, const uint8_t *at,
                        const uint8_t *end, bool touches)
{
    const uint8_t *p = (size_t)(at - text) < added->longest ? text : at - added->longest;
    for (; p < at; p++) {
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
