/* mix — see mix.h. */
#include "data/mix.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/rand.h"
#include "base/text.h"

#define MIX_WEIGHT_MAX 1e9
_Static_assert(MIX_CYCLE == 1 << 16,
               "positions in a cycle fit in uint16_t; a power of four permutes fastest");

/* ---- parsing ---- */

/* weight_at — returns the offset of the weight of item[0, n), after its colon; 0: it has none. A
 * colon after "://host" and before a '/' begins the port of an address. */
static size_t weight_at(const char *item, size_t n)
{
    const char *colon = memrchr(item, ':', n), *scheme = memmem(item, n, "://", 3);
    if (colon == NULL || colon == item || colon + 1 == item + n)
        return 0;
    if (scheme != NULL &&
        memchr(scheme + 3, '/', colon > scheme + 3 ? (size_t)(colon - scheme - 3) : 0) == NULL)
        return 0;
    for (const char *c = colon + 1; c < item + n; c++)
        if ((*c < '0' || *c > '9') && *c != '.' && *c != 'e' && *c != 'E' && *c != '-')
            return 0;
    return (size_t)(colon - item) + 1;
}

static enum status read_items(const char *data, struct mix *mix)
{
    for (const char *at = data, *stop;; at = stop + 1) {
        stop = strchrnul(at, ',');
        const size_t n = (size_t)(stop - at);
        struct mix_item *out = mix->item + mix->n;
        const size_t weight = weight_at(at, n), name_n = weight > 0 ? weight - 1 : n;
        char number[32] = "";
        if (mix->n == MIX_ITEMS_MAX)
            return FAIL(ST_BAD_SETTING, "DATA has over %d parts; join some in a folder",
                        MIX_ITEMS_MAX);
        if (n == 0)
            return FAIL(ST_BAD_SETTING, "DATA: part %d of the mixture is empty; check its commas",
                        mix->n + 1);
        if (weight > 0 &&
            (n - weight >= sizeof number ||
             !text_format(number, sizeof number, "%.*s", (int)(n - weight), at + weight) ||
             text_parse_f64(number, 0, MIX_WEIGHT_MAX, &out->weight) != TEXT_OK ||
             out->weight <= 0))
            return FAIL(
                ST_BAD_SETTING,
                "DATA: the weight of part %d, \"%.40s\", is not a number above 0 and up to 1e9",
                mix->n + 1, number);
        out->data = strndup(at, name_n);
        if (out->data == NULL)
            return FAIL(ST_RETRY, "out of memory: the parts of DATA");
        mix->n++;
        if (*stop == '\0')
            return ST_OK;
    }
}

/* Computes the samples of each item in a cycle: integer parts first, then one more for the largest
 * remainders. */
static void compute_shares(const struct mix *mix, int64_t out[MIX_ITEMS_MAX])
{
    double sum = 0, rest[MIX_ITEMS_MAX];
    int64_t left = MIX_CYCLE;
    for (int i = 0; i < mix->n; i++)
        sum += mix->item[i].weight;
    for (int i = 0; i < mix->n; i++) {
        const double share = mix->item[i].weight / sum * MIX_CYCLE;
        out[i] = (int64_t)share < left ? (int64_t)share : left;
        rest[i] = share - (double)out[i];
        left -= out[i];
    }
    for (; left > 0; left--) {
        int best = 0;
        for (int i = 1; i < mix->n; i++)
            if (rest[i] > rest[best])
                best = i;
        out[best]++;
        rest[best] -= 1;
    }
}

static enum status check_weights(struct mix *mix)
{
    int64_t share[MIX_ITEMS_MAX];
    int weights = 0;
    for (int i = 0; i < mix->n; i++)
        weights += mix->item[i].weight > 0;
    mix->is_weighted = weights > 0;
    if (weights == 0)
        return ST_OK;
    for (int i = 0; i < mix->n; i++)
        if (mix->item[i].weight <= 0)
            return FAIL(ST_BAD_SETTING,
                        "DATA: part %d of the mixture, %.200s, has no weight, but others have one; "
                        "set one for each part, as in a.bin:0.7,b.jsonl:0.3",
                        i + 1, mix->item[i].data);
    compute_shares(mix, share);
    for (int i = 0; i < mix->n; i++)
        if (share[i] == 0)
            return FAIL(ST_BAD_SETTING,
                        "DATA: part %d of the mixture, %.200s, has a weight of %g, less than one "
                        "sample in %d; raise it or leave the part out",
                        i + 1, mix->item[i].data, mix->item[i].weight, MIX_CYCLE);
    return ST_OK;
}

enum status mix_parse(const char *data, struct mix *out)
{
    struct mix mix = {0};
    enum status st = read_items(data, &mix);
    if (st == ST_OK)
        st = check_weights(&mix);
    if (st == ST_OK && !mix.is_weighted) {
        mix_free(&mix);
        mix.item[0].data = memory_text(data);
        mix.n = 1;
    }
    if (st != ST_OK) {
        mix_free(&mix);
        return st;
    }
    *out = mix;
    return ST_OK;
}

void mix_free(struct mix *mix)
{
    for (int i = 0; i < MIX_ITEMS_MAX; i++)
        free(mix->item[i].data);
    *mix = (struct mix){0};
}

/* ---- order ---- */

struct mix_order {
    int items_n;
    int64_t share[MIX_ITEMS_MAX];
    uint8_t item[MIX_CYCLE];
    uint16_t rank[MIX_CYCLE]; /* positions of the same item before this one in the cycle */
};

struct mix_order *mix_order_open(const struct mix *mix, uint64_t seed, bool is_shuffled)
{
    struct mix_order *order = memory_new(1, sizeof *order);
    order->items_n = mix->n;
    compute_shares(mix, order->share);
    /* At each position every item is credited its share; the item with the most credit gets the
     * position and pays for it. This is as even as possible for any number of items. */
    int64_t credit[MIX_ITEMS_MAX] = {0};
    uint8_t *even = memory_new(MIX_CYCLE, 1);
    for (int p = 0; p < MIX_CYCLE; p++) {
        int best = 0;
        for (int i = 0; i < order->items_n; i++) {
            credit[i] += order->share[i];
            if (credit[i] > credit[best])
                best = i;
        }
        credit[best] -= MIX_CYCLE;
        even[p] = (uint8_t)best;
    }
    uint16_t used[MIX_ITEMS_MAX] = {0};
    for (uint64_t p = 0; p < MIX_CYCLE; p++) {
        order->item[p] =
            even[is_shuffled ? rand_permute(seed, RAND_STREAM(MIX, 0), p, MIX_CYCLE) : p];
        order->rank[p] = used[order->item[p]]++;
    }
    free(even);
    return order;
}

void mix_order_close(struct mix_order *order) { free(order); }
int64_t mix_order_share(const struct mix_order *order, int item_i) { return order->share[item_i]; }

int mix_order_at(const struct mix_order *order, int64_t j, int64_t *sample_out)
{
    const int64_t cycle = j / MIX_CYCLE, position = j % MIX_CYCLE;
    const int item = order->item[position];
    *sample_out = cycle * order->share[item] + order->rank[position];
    return item;
}

#ifdef FUZZ
#include <stdio.h>

/* The shares of an accepted mixture fill a cycle. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mix mix;
    char *text = strndup((const char *)data, size);
    if (mix_parse(text, &mix) == ST_OK) {
        int64_t share[MIX_ITEMS_MAX], sum = 0;
        ASSERT(mix.n >= 1 && mix.n <= MIX_ITEMS_MAX &&
               (mix.is_weighted || strcmp(mix.item[0].data, text) == 0));
        for (int i = 0; i < mix.n; i++)
            ASSERT(mix.item[i].data != NULL && (mix.item[i].weight > 0) == mix.is_weighted);
        if (mix.is_weighted)
            compute_shares(&mix, share);
        for (int i = 0; mix.is_weighted && i < mix.n; i++)
            sum += share[i];
        ASSERT(!mix.is_weighted || sum == MIX_CYCLE);
        mix_free(&mix);
    }
    free(text);
    return 0;
}
#endif
