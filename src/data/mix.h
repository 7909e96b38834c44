/* mix — several data sets in one run, each with its share: DATA="a.bin:0.7,b.jsonl:0.3".
 *
 * Items are separated by commas; the weight follows the last colon. Either every item has a weight,
 * or none: then they are one data set, file after file. A comma or colon in an address is written
 * %2C or %3A.
 *
 * The item of sample j is a pure function of (seed, j). Samples come in equal cycles of 65,536
 * positions. In a cycle every item has its share of the positions, in an order drawn from the seed
 * (unshuffled: as evenly as possible). Each item's samples come in that item's own order and
 * epochs. It must not know files. */
#ifndef CONVOY_DATA_MIX_H
#define CONVOY_DATA_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MIX_ITEMS_MAX 64
#define MIX_CYCLE 65536

struct mix_item {
    char *data;    /* without the weight */
    double weight; /* weight in DATA; 0: none */
};

struct mix {
    struct mix_item item[MIX_ITEMS_MAX];
    int n;
    bool is_weighted;
};

/* mix_parse — parses DATA. Without weights: is_weighted is false, and data is the one item. Fails
 * ST_BAD_SETTING: an empty item, too many, a weight that is missing or too small for one position
 * in a cycle. */
enum status mix_parse(const char *data, struct mix *out);
void mix_free(struct mix *mix); /* accepts a zeroed struct; may be called twice */

struct mix_order;
/* mix_order_open — computes the order. The shares of a cycle follow the weights, by largest
 * remainder. */
struct mix_order *mix_order_open(const struct mix *mix, uint64_t seed, bool is_shuffled);
void mix_order_close(struct mix_order *order); /* accepts NULL */
/* mix_order_at — returns the item of sample j ≥ 0; *sample_out: the number of that item's sample,
 * from 0 over its epochs. As j grows, each item's samples come in order, and none is skipped. */
int mix_order_at(const struct mix_order *order, int64_t j, int64_t *sample_out);
int64_t mix_order_share(const struct mix_order *order, int item_i); /* samples in a cycle */

#endif
