/* balance — how many virtual shards of a step each rank computes, by how long one takes it. Pure
 * arithmetic. Must not know steps or stores. */
#ifndef CONVOY_TRAIN_BALANCE_H
#define CONVOY_TRAIN_BALANCE_H

#include <stdbool.h>

/* A deal: rank r has shards [begin[r], begin[r + 1]), at least one (mesh/shard_tree.h). */
struct balance {
    const double *ms; /* of a shard, of each rank; positive */
    int shards, ranks;
    const int *begin;                           /* the deal now: ranks + 1 */
    bool (*takes)(void *arg, const int *begin); /* whether there is memory for a deal */
    void *arg;
};

/* balance_deal — true: a deal, in begin (ranks + 1), whose slowest rank ends at least a twentieth
 * earlier than now. Runs begin at multiples of a power of two where that costs little, because
 * unaligned ones are sent in more pieces. The same on all ranks that have the same numbers. */
#define BALANCE_GAIN 0.95
bool balance_deal(const struct balance *b, int *begin);

#endif
