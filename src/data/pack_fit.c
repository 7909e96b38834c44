/* pack_fit — see pack_fit.h. Samples with the same room form a list; a tree of bits finds the least
 * room for which there is one. */
#include "data/pack_fit.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"

#define LEVELS 4 /* of 64 bits for each bit above: 2^24 rooms */
#define NONE (-1)

struct fit {
    int32_t seq_tokens;
    uint64_t *bits[LEVELS]; /* bit r of level 0: a sample has room for r tokens */
    int32_t *newest;        /* (seq_tokens + 1) of the samples with that room */
    int32_t *before;        /* (n) of a sample: the one that had its room before it */
    int32_t *order;         /* (n) pieces, the longest first */
    int32_t *number;        /* (n) of a sample, by its first piece */
    int32_t samples_n;
};

/* ---- memory ---- */

static bool take(int32_t **out, int64_t n)
{
    *out = malloc((size_t)n * sizeof **out);
    return *out != NULL;
}

static enum status fit_init(struct fit *fit, int32_t n, int32_t seq_tokens)
{
    *fit = (struct fit){.seq_tokens = seq_tokens};
    bool is_there = take(&fit->newest, (int64_t)seq_tokens + 1) && take(&fit->before, n) &&
                    take(&fit->order, n) && take(&fit->number, n);
    for (int level = 0; level < LEVELS; level++) {
        fit->bits[level] = calloc((size_t)(seq_tokens >> 6 * (level + 1)) + 1, sizeof(uint64_t));
        is_there = is_there && fit->bits[level] != NULL;
    }
    if (!is_there)
        return FAIL(ST_RETRY, "out of memory: samples of %d documents", n);
    for (int32_t room = 0; room <= seq_tokens; room++)
        fit->newest[room] = NONE;
    return ST_OK;
}

/* ---- rooms ---- */

static void set_bit(struct fit *fit, int32_t room, bool is_there)
{
    for (int level = 0; level < LEVELS; level++, room >>= 6) {
        uint64_t *word = &fit->bits[level][room >> 6], bit = UINT64_C(1) << (room & 63);
        *word = is_there ? *word | bit : *word & ~bit;
        if (!is_there && *word != 0)
            return;
    }
}

/* least_room — the least that is at least `room`; NONE: there is none. */
static int32_t least_room(const struct fit *fit, int32_t room)
{
    int32_t at = room;
    for (int level = 0; level < LEVELS; level++) {
        const int32_t words = (fit->seq_tokens >> 6 * (level + 1)) + 1;
        uint64_t word = at >> 6 < words ? fit->bits[level][at >> 6] >> (at & 63) : 0;
        if (word == 0) {
            at = (at >> 6) + 1;
            continue;
        }
        at += __builtin_ctzll(word);
        for (; level > 0; level--)
            at = at << 6 | __builtin_ctzll(fit->bits[level - 1][at]);
        return at;
    }
    return NONE;
}

static void put(struct fit *fit, int32_t sample, int32_t room)
{
    fit->before[sample] = fit->newest[room];
    fit->newest[room] = sample;
    set_bit(fit, room, true);
}

static int32_t take_newest(struct fit *fit, int32_t room)
{
    const int32_t sample = fit->newest[room];
    fit->newest[room] = fit->before[sample];
    if (fit->newest[room] == NONE)
        set_bit(fit, room, false);
    return sample;
}

/* ---- pieces ---- */

/* sort — the longest first; of equal ones the earlier first. newest counts until fit_init's values
 * are back. */
static void sort(struct fit *fit, const int32_t *tokens, int32_t n)
{
    int32_t *count = fit->newest, at = 0;
    for (int32_t i = 0; i < n; i++) {
        ASSERTF(tokens[i] > 0 && tokens[i] <= fit->seq_tokens, "piece %d has %d tokens", i,
                tokens[i]);
        count[tokens[i]]++;
    }
    for (int32_t length = fit->seq_tokens; length >= 0; length--) {
        const int32_t pieces = count[length] - NONE;
        count[length] = at;
        at += pieces;
    }
    for (int32_t i = 0; i < n; i++)
        fit->order[count[tokens[i]]++] = i;
    for (int32_t length = 0; length <= fit->seq_tokens; length++)
        count[length] = NONE;
}

static void number(struct fit *fit, int32_t n, int32_t *sample)
{
    int32_t next = 0;
    for (int32_t i = 0; i < fit->samples_n; i++)
        fit->number[i] = NONE;
    for (int32_t i = 0; i < n; i++) {
        int32_t *to = &fit->number[sample[i]];
        if (*to == NONE)
            *to = next++;
        sample[i] = *to;
    }
}

enum status pack_fit(const int32_t *tokens, int32_t n, int32_t seq_tokens, int32_t *sample,
                     int32_t *samples_out)
{
    struct fit fit;
    ASSERTF(n > 0 && seq_tokens > 0 && seq_tokens < 1 << 6 * LEVELS, "%d pieces of at most %d", n,
            seq_tokens);
    enum status st = fit_init(&fit, n, seq_tokens);
    if (st == ST_OK) {
        sort(&fit, tokens, n);
        for (int32_t i = 0; i < n; i++) {
            const int32_t piece = fit.order[i], length = tokens[piece];
            int32_t room = least_room(&fit, length);
            sample[piece] = room == NONE ? fit.samples_n++ : take_newest(&fit, room);
            put(&fit, sample[piece], (room == NONE ? fit.seq_tokens : room) - length);
        }
        number(&fit, n, sample);
        *samples_out = fit.samples_n;
    }
    for (int level = 0; level < LEVELS; level++)
        free(fit.bits[level]);
    free(fit.newest);
    free(fit.before);
    free(fit.order);
    free(fit.number);
    return st;
}
