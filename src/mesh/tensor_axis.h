/* tensor_axis — what a model asks of the ranks that share its matrices, or its samples (struct
 * model_axis), over a comm. It must not know layers.
 *
 * A call runs in the order of the stream. Where calls stay on the device the host does not wait;
 * elsewhere it waits until the call is done. The shares of ranks are the parts of the comm
 * (part.h), so each is a multiple of 16 elements. */
#ifndef CONVOY_MESH_TENSOR_AXIS_H
#define CONVOY_MESH_TENSOR_AXIS_H

#include "comm/core/comm.h"
#include "model/model.h"

struct grad_tree; /* mesh/grad/tree.h */
/* A comm of the axis. tree: adds up in its place, where its own order of sums follows the nodes of
 * its ranks and is_fixed asks for one that does not; else NULL. */
struct tensor_axis_group {
    struct comm *comm;
    struct grad_tree *tree;
    int *begin; /* of the tree: each rank has one part of a sum */
};

struct tensor_axis {
    struct model_axis model;       /* for struct pass; refers to this struct, which must not move */
    struct tensor_axis_group all;  /* its comm is borrowed */
    struct tensor_axis_group keys; /* the neighbours that have the same key heads; comm NULL: no
                                    * split */
    int keys_n;        /* how many these are; 1: each rank has its own, or all have the same */
    double blocked_ms; /* since the last tensor_axis_blocked_ms */
};

/* tensor_axis_open — collective among the ranks of comm, the tensor group of a rank's dims
 * (model_shard_dims); comm NULL: one rank, model_axis_self. is_fixed: sums have the same bits
 * wherever the ranks are; they lie in host memory then, and are fp32. Fails as comm_split does.
 * ST_RETRY: out of memory for the sums. tensor_axis_of_context — the same calls among the ranks
 * that share samples, without key heads. Local.
 * tensor_axis_blocked_ms — the time in which calls blocked their caller, since the last call of
 * it, or since the axis was opened. Calls that stay on a device are not counted: no host thread
 * knows when they run.
 * tensor_axis_close — before the comm is closed. Zero-initialised is accepted, and a second
 * call. */
enum status tensor_axis_open(struct comm *comm, const struct model_dims *dims, bool is_fixed,
                             struct tensor_axis *out);
enum status tensor_axis_of_context(struct comm *comm, bool is_fixed, struct tensor_axis *out);
double tensor_axis_blocked_ms(struct tensor_axis *a);
void tensor_axis_close(struct tensor_axis *a);

#endif
