/* tensor_axis — the calls of a model to the ranks that share its matrices or its samples (struct
 * model_axis), over a comm. It must not know layers.
 *
 * A call runs in the order of the stream. If calls stay on the device the host does not wait;
 * otherwise it waits until the call is done. The shares of ranks are the parts of the comm
 * (part.h), so each is a multiple of 16 elements. */
#ifndef CONVOY_MESH_TENSOR_AXIS_H
#define CONVOY_MESH_TENSOR_AXIS_H

#include "comm/core/comm.h"
#include "model/model.h"

struct grad_tree; /* mesh/grad/tree.h */
/* A comm of the axis. tree: adds instead of the comm if is_fixed is set and the comm's order of
 * sums depends on the nodes of its ranks; else NULL. */
struct tensor_axis_group {
    struct comm *comm;
    struct grad_tree *tree;
    int *begin; /* deal of the tree: each rank has one part of a sum */
};

struct tensor_axis {
    struct model_axis model; /* calls for struct pass; refers to this struct, which must not move */
    struct tensor_axis_group all; /* its comm is borrowed */
    /* the neighbours that have the same key heads; comm NULL: no split */
    struct tensor_axis_group keys;
    /* number of these neighbours; 1: each rank has its own key heads, or all have the same */
    int keys_n;
    double blocked_ms; /* milliseconds since the last tensor_axis_blocked_ms */
};

/* tensor_axis_open — opens the axis. Collective among the ranks of comm, the tensor group of a
 * rank's dims (model_shard_dims); comm NULL: one rank, model_axis_self. is_fixed: sums have the
 * same bits wherever the ranks are; if a tree is needed for that, they lie in host memory and are
 * fp32. Fails as comm_split does. ST_RETRY: out of memory for the sums. */
enum status tensor_axis_open(struct comm *comm, const struct model_dims *dims, bool is_fixed,
                             struct tensor_axis *out);
/* tensor_axis_of_context — opens the same calls among the ranks that share samples, without key
 * heads. Local. */
enum status tensor_axis_of_context(struct comm *comm, bool is_fixed, struct tensor_axis *out);
/* tensor_axis_blocked_ms — returns the time in which calls blocked their caller, in milliseconds
 * since its last call, or since the axis was opened. Calls that stay on a device are not counted,
 * because no host thread measures them. */
double tensor_axis_blocked_ms(struct tensor_axis *a);
/* tensor_axis_close — closes the axis. Call it before the comm is closed. Accepts a
 * zero-initialised struct, and a second call. */
void tensor_axis_close(struct tensor_axis *a);

#endif
