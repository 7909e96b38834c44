/* tensor_virtual — several parts of a layer on one rank (VIRTUAL_TP): each computes what a rank of
 * a tensor axis of all parts would, to the bit. Such a part is a virtual rank of that axis. It must
 * not know layers.
 *
 * The passes of a rank's virtual ranks take turns (base/coroutine.h). Each runs until it calls the
 * axis. When all have called, the call is carried out: within this rank's memory, and, where the
 * axis has other ranks, among them, along the tree of shard_tree.h with one leaf for each virtual
 * rank. So the passes of a model need not know how many there are on a rank.
 *
 * Rank r of the axis has virtual ranks [r·n, r·n + n), and these must be a whole subtree of that
 * tree: one rank has all, or both numbers are powers of two. Tensors lie in host memory; the bits
 * are those of a larger axis where what is added is fp32. */
#ifndef CONVOY_MESH_TENSOR_VIRTUAL_H
#define CONVOY_MESH_TENSOR_VIRTUAL_H

#include "model/model.h"

#define TENSOR_VIRTUAL_MAX 64

/* tensor_virtual_check — ST_BAD_SETTING: `parts` virtual ranks are not such runs on so many
 * ranks. */
enum status tensor_virtual_check(int parts, int ranks);

struct tensor_virtual;

/* tensor_virtual_open — of a rank with n virtual ranks, at least 2. ranks: the axis of the ranks;
 * NULL: this one alone; used until tensor_virtual_close. op: of the device of the tensors. Local.
 * ST_RETRY: out of memory or threads.
 * tensor_virtual_set_ranks — between two runs: another struct for the same axis of the ranks.
 * tensor_virtual_close — accepts NULL; before the axis of the ranks is closed. */
enum status tensor_virtual_open(const struct model_axis *ranks, const struct op_table *op, int n,
                                struct tensor_virtual **out);
void tensor_virtual_set_ranks(struct tensor_virtual *v, const struct model_axis *ranks);
void tensor_virtual_close(struct tensor_virtual *v);

/* tensor_virtual_axis — of own virtual rank i, for the work of tensor_virtual_run.
 * tensor_virtual_run — work(arg, i) of each own virtual rank, in turns. All make the same calls of
 * their axes. Returns the first failure; after one no further call is carried out. */
const struct model_axis *tensor_virtual_axis(const struct tensor_virtual *v, int i);
enum status tensor_virtual_run(struct tensor_virtual *v, enum status (*work)(void *arg, int i),
                               void *arg);

#endif
