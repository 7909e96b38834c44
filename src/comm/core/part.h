/* part — the rule that divides a buffer among ranks: reduce_scatter, all_gather and the shards of
 * parameters, gradients and optimizer state all use it. Pure arithmetic. Must not know the contents
 * of a buffer. */
#ifndef CONVOY_COMM_PART_H
#define CONVOY_COMM_PART_H

#include <stdint.h>

#define PART_ALIGN \
    16 /* elements: a cache line of fp32, and the alignment of parameters (param.h) */

struct part_extent {
    int64_t first, elems;
};

/* part_extent — returns part part_i of elems elements in parts_n parts. The parts are consecutive.
 * Each but the last is a multiple of PART_ALIGN; sizes are as even as that allows; a part may be
 * empty. */
struct part_extent part_extent(int64_t elems, int parts_n, int part_i);

/* part_rail — packs the parts of rail `local` one after the other. A rail is the ranks with the
 * same local number, one on each node. out[node] is the range of that node's part. Returns the
 * number of elements of all parts together. */
int64_t part_rail(int64_t elems, int nodes, int locals, int local, struct part_extent *out);

#endif
