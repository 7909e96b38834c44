/* mix — several data sets in one run, each with its share: DATA="a.bin:0.7,b.jsonl:0.3".
 *
 * Items have commas between and a weight behind the last colon. Every item has one, or none has:
 * then they are one data set, file after file, and this room has nothing to do. Sample number j
 * comes from an item that is a pure function of (seed, j): time runs in cycles of 65,536 samples,
 * the same each, in which every item has its share of places, in an order drawn from the seed
 * (unshuffled: as even as can be). Each item's places take its samples in its own order, so each
 * runs through its own epochs. A comma or colon in an address is written %2C or %3A. Must not know
 * files. */
#ifndef CONVOY_DATA_MIX_H
#define CONVOY_DATA_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MIX_ITEMS_MAX 64
#define MIX_CYCLE 65536

struct mix_item {
    char *data;    /* without its weight */
    double weight; /* as given; 0: none */
};

struct mix {
    struct mix_item item[MIX_ITEMS_MAX];
    int n;
    bool is_weighted;
};

/* mix_parse — a pure function. Without weights: is_weighted false, one item, data as it is. Fails
 * ST_BAD_SETTING: an empty item, too many, a weight that is missing or too small to come up in a
 * cycle. */
enum status mix_parse(const char *data, struct mix *out);
void mix_free(struct mix *mix); /* accepts a zeroed one, twice */

struct mix_order;
/* mix_order_open — shares of a cycle by largest remainder of the weights. */
enum status mix_order_open(const struct mix *mix, uint64_t seed, bool is_shuffled,
                           struct mix_order **out);
void mix_order_close(struct mix_order *order); /* accepts NULL */
/* mix_order_at — which item sample j ≥ 0 comes from, and which of that item's samples it is,
 * counted from 0 over its epochs: as j grows, each item's samples come in order, none left out. */
int mix_order_at(const struct mix_order *order, int64_t j, int64_t *sample_out);
int64_t mix_order_share(const struct mix_order *order, int item_i); /* samples a cycle */

#endif
