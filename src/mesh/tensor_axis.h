/* tensor_axis — what a model asks of the ranks that share its matrices (struct model_axis), over a
 * comm. It must not know layers.
 *
 * A call runs in the order of the stream. Where calls stay on the device the host does not wait;
 * elsewhere it waits until the call is done. The parts of ranks are those of the comm (part.h), so
 * each is a multiple of 16 elements. */
#ifndef CONVOY_MESH_TENSOR_AXIS_H
#define CONVOY_MESH_TENSOR_AXIS_H

#include "comm/core/comm.h"
#include "model/model.h"

struct tensor_axis {
    struct model_axis model; /* for struct pass; refers to this struct, which must not move */
    struct comm *comm;       /* borrowed */
    struct comm *keys;       /* of the neighbours that have the same key heads; NULL: no split */
    int keys_n; /* how many these are; 1: each rank has its own, or all have the same */
};

/* tensor_axis_open — collective among the ranks of comm, the tensor group of a rank's dims
 * (model_part_dims). Fails as comm_split does.
 * tensor_axis_close — before the comm is closed. Zero-initialised is accepted, and a second
 * call. */
enum status tensor_axis_open(struct comm *comm, const struct model_dims *dims,
                             struct tensor_axis *out);
void tensor_axis_close(struct tensor_axis *a);

#endif
