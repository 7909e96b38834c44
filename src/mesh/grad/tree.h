/* grad_tree — sums of gradients over the ranks along the tree of virtual shards (shard_tree.h), if
 * the comm's own sums follow another tree. Must not know units or steps.
 *
 * Each rank has one or several partial sums of a bucket's gradient. It sends to each rank that
 * rank's part of them; the owner adds the partials of all ranks in the order of shard_tree_join.
 * A rank sends the bytes of one reduce-scatter for each partial of the rank with most partials.
 *
 * In host memory everything runs in the comm's thread, bucket after bucket. On a device a partial
 * is sent from where it lies, and kernels/combine.h adds: one kernel if each rank has one partial
 * and the ranks are a power of two, else one for each subtree of this kind. With NCCL both are work
 * of its stream, and no host waits. */
#ifndef CONVOY_MESH_GRAD_TREE_H
#define CONVOY_MESH_GRAD_TREE_H

#include "comm/core/comm.h"
#include "comm/core/part.h"

#define GRAD_TREE_PARTIALS_MAX 64 /* partials of a rank: at most two for each level of the tree */

struct grad_tree_config {
    struct comm *comm;
    const int *begin; /* the deal (shard_tree.h); borrowed until grad_tree_close */
    int contexts;     /* neighbouring ranks that have the same shards; else 1 */
    int buckets_n;
    /* Partials lie in the memory of dev, a discrete device, and buckets have equal parts. received:
     * memory there for grad_tree_received_elems; borrowed. NULL: partials lie in host memory. */
    struct dev *dev;
    float *received;
};

/* grad_tree_received_elems — returns the elements of config.received. begin, ranks: as in
 * shard_tree.h, without contexts; elems: elements of the largest bucket. */
int64_t grad_tree_received_elems(const int *begin, int ranks, int64_t elems);

struct grad_tree;
/* grad_tree_open — allocates memory for the partials of all ranks. ST_RETRY: out of memory. */
enum status grad_tree_open(const struct grad_tree_config *config, struct grad_tree **out);
void grad_tree_close(struct grad_tree *t); /* accepts NULL; no call may be in progress */

/* grad_tree_begin — starts to sum a bucket of `elems` f32 numbers, and returns. partial: this
 * rank's partials. to_all: buffer for the whole sum; NULL: to_own gets this rank's part. Either may
 * lie in partial[0]. The buffers belong to the call until the ticket is waited for. */
enum status grad_tree_begin(struct grad_tree *t, int bucket, const float *const *partial,
                            int64_t elems, float *to_all, float *to_own,
                            struct comm_ticket *ticket);

#endif
