/* part — which elements of a buffer belong to which rank: reduce_scatter, all_gather and the shards
 * of parameters, gradients and optimizer state all divide buffers by this rule. Pure arithmetic.
 * Must not know what a buffer holds. */
#ifndef CONVOY_COMM_PART_H
#define CONVOY_COMM_PART_H

#include <stdint.h>

#define PART_ALIGN \
    16 /* elements: a cache line of fp32, and the alignment of parameters (param.h) */

struct part_extent {
    int64_t first, elems;
};

/* part_extent — part part_i of elems elements in parts_n parts. The parts are consecutive. Each but
 * the last is a multiple of PART_ALIGN; sizes are as even as that allows; a part may be empty. */
struct part_extent part_extent(int64_t elems, int parts_n, int part_i);

/* part_rail — a rail is the ranks with the same local number, one on each node. Lays the parts of
 * the rail `local` one behind the other: out[node] is the place of that node's part. Returns how
 * many elements they have together. */
int64_t part_rail(int64_t elems, int nodes, int locals, int local, struct part_extent *out);

#endif
