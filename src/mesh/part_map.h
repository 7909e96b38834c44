/* part_map — where the tensors of a model's parts lie in the whole model. Pure arithmetic on
 * parameter tables; it must not know ranks, memory or files.
 *
 * - A part is the share of the model that one tensor rank of one pipeline stage computes
 *   (model/model_shard.c). Its table has some of the whole model's tensors, each by its name, whole
 *   or cut (struct param_cut), in the whole model's order.
 * - Several parts may hold the same elements: norms, key heads if there are fewer than ranks, the
 *   token embedding that the last stage shares with the first. They are read from the part with the
 *   lowest number, and written to all.
 * - A tensor is a row of stripes; a part has the same elements of each (struct param_stripes).
 *
 * So a range of the whole table is one range of a part's table, with padding between tensors: one
 * message carries it, and no elements outside the range. */
#ifndef CONVOY_MESH_PART_MAP_H
#define CONVOY_MESH_PART_MAP_H

#include "model/param.h"

struct part_map_tensor {
    int64_t own_at;               /* offset in the part's table */
    struct param_stripes stripes; /* n 0: the part does not have the tensor */
    bool is_source;               /* its elements are read from this part */
};

struct part_map {
    const struct param_table *whole; /* borrowed */
    int parts_n;
    struct part_map_tensor *tensor; /* (parts_n, whole->params_n) */
};

/* A range of a part's table. */
struct part_map_range {
    int64_t first, n;
};

/* part_map_init — makes a map in which no part has a tensor yet. */
void part_map_init(const struct param_table *whole, int parts_n, struct part_map *out);
/* part_map_add — adds the tensors of part `part`. Add parts in ascending order. table: the part's
 * table; it is not kept. ST_BUG: it has a tensor that is not of the whole model. */
enum status part_map_add(struct part_map *map, int part, const struct param_table *table);
/* part_map_check — checks the map after all parts were added. ST_BUG: an element is in no part. */
enum status part_map_check(const struct part_map *map);
void part_map_free(struct part_map *map); /* may be called twice */

/* The following functions work on elements [first, first + n) of the whole table. */

/* part_map_sources — returns the range of a part's table that holds the elements that are read from
 * this part; n 0: there are none. */
struct part_map_range part_map_sources(const struct part_map *map, int part, int64_t first,
                                       int64_t n);
/* part_map_held — returns the range of a part's table that holds all elements that the part has. */
struct part_map_range part_map_held(const struct part_map *map, int part, int64_t first, int64_t n);
/* part_map_copy_to_whole — copies the elements that are read from this part from `own`, which holds
 * the range, to whole (n). Other elements of `whole` keep their values. */
void part_map_copy_to_whole(const struct part_map *map, int part, int64_t first, int64_t n,
                            struct part_map_range range, const float *own, float *whole);
/* part_map_copy_from_whole — copies the elements that the part has from whole (n) to `own`; padding
 * becomes zero. */
void part_map_copy_from_whole(const struct part_map *map, int part, int64_t first, int64_t n,
                              struct part_map_range range, const float *whole, float *own);
/* part_map_pad — sets padding in whole (n) to zero. */
void part_map_pad(const struct part_map *map, int64_t first, int64_t n, float *whole);

#endif
