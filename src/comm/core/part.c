/* part — even, aligned parts of a buffer. */
#include "comm/core/part.h"

#include "base/assert.h"

struct part_extent part_extent(int64_t elems, int parts_n, int part_i)
{
    ASSERTF(elems >= 0 && elems <= INT64_MAX >> 16 && parts_n >= 1 && part_i >= 0 &&
                part_i < parts_n,
            "%lld elements, part %d of %d", (long long)elems, part_i, parts_n);
    int64_t units = elems / PART_ALIGN + (elems % PART_ALIGN != 0);
    int64_t first = units * part_i / parts_n * PART_ALIGN,
            end = units * (part_i + 1) / parts_n * PART_ALIGN;
    first = first < elems ? first : elems;
    end = end < elems ? end : elems;
    return (struct part_extent){.first = first, .elems = end - first};
}

int64_t part_rail(int64_t elems, int nodes, int locals, int local, struct part_extent *out)
{
    int64_t rail_elems = 0;
    for (int v = 0; v < nodes; v++) {
        out[v] = (struct part_extent){rail_elems,
                                      part_extent(elems, nodes * locals, v * locals + local).elems};
        rail_elems += out[v].elems;
    }
    return rail_elems;
}
