/* store_exact — EXACT=layout: the virtual shards of a store's ranks (shard_tree.h), where
 * store_config.shards is not 0. */
#ifndef CONVOY_MESH_STORE_EXACT_H
#define CONVOY_MESH_STORE_EXACT_H

#include "mesh/store/store.h"

/* A rank's passes work on its shards one after the other, counted from 0.
 * _deal    which shards each rank has: begin (ranks + 1), as shard_tree.h says; equal runs until
 *          _redeal.
 * _takes   whether every rank has room for a deal.
 * _redeal  between two steps, on all ranks: another deal, one that _takes.
 * _bind    makes *p write the gradients of a shard; before its first pass.
 * _add     after a unit's backward in the last micro-batch of a shard: adds up what the tree
 *          adds then, of elements [first, first + n) of the table. In the step's last micro-batch
 *          before store_post_backward.
 * _pieces  how many sums of its shards a rank has at the end, which join those of other ranks.
 *          _piece: where the gradients of the k-th are written, as by a pass. */
const int *store_exact_deal(const struct store *s);
bool store_exact_takes(const struct store *s, const int *begin);
enum status store_exact_redeal(struct store *s, const int *begin);
void store_exact_bind(const struct store *s, int shard, struct pass *p);
enum status store_exact_add(struct store *s, int shard, int64_t first, int64_t n);
int store_exact_pieces(const struct store *s);
struct tensor store_exact_piece(const struct store *s, int k);

#endif
