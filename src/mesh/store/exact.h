/* store_exact — EXACT=layout: the virtual shards of a store's ranks (shard_tree.h), if
 * store_config.shards is not 0. */
#ifndef CONVOY_MESH_STORE_EXACT_H
#define CONVOY_MESH_STORE_EXACT_H

#include "mesh/store/store.h"

/* A rank's passes work on its shards one after the other, counted from 0. */

/* store_exact_deal — returns the shards of each rank: begin (ranks + 1), as in shard_tree.h; equal
 * runs until store_exact_redeal. */
const int *store_exact_deal(const struct store *s);
/* store_exact_fits — returns true if every rank has memory for a deal. */
bool store_exact_fits(const struct store *s, const int *begin);
/* store_exact_redeal — changes to another deal for which store_exact_fits is true. Call it between
 * two steps, on all ranks. */
enum status store_exact_redeal(struct store *s, const int *begin);
/* store_exact_bind — lets *p write the gradients of a shard. Call it before the shard's first
 * pass. */
void store_exact_bind(const struct store *s, int shard, struct pass *p);
/* store_exact_add — makes the additions of the tree that follow this shard, for elements [first,
 * first + n) of the table. Call it after a unit's backward in the last micro-batch of a shard; in
 * the step's last micro-batch before store_post_backward. */
enum status store_exact_add(struct store *s, int shard, int64_t first, int64_t n);
/* store_exact_partials — returns the number of sums of its shards that a rank has at the end; these
 * join the sums of other ranks. */
int store_exact_partials(const struct store *s);
/* store_exact_partial — returns the memory of the k-th of these sums, laid out as passes write
 * gradients. */
struct tensor store_exact_partial(const struct store *s, int k);

#endif
