/* pipe_split — which layers of a model each chunk of a pipeline gets, by the costs of the layers,
 * the embedding and the head: pure arithmetic. It must not know the schedule.
 *
 * Chunk j of stages · chunks belongs to stage j % stages and is its own chunk j / stages. The first
 * chunk also has the embedding, the last one the head. */
#ifndef CONVOY_MESH_PIPE_SPLIT_H
#define CONVOY_MESH_PIPE_SPLIT_H

#include "model/model.h"

/* pipe_split_costs — computes the floating point operations for a token, forward and backward,
 * recomputation included: cost[0] of the embedding, cost[1 + i] of layer i, cost[layers + 1] of the
 * head. The embedding copies and adds 3·C elements. The recomputation of RECOMPUTE=light is not
 * counted. */
void pipe_split_costs(const struct model_dims *dims, int64_t t, struct model_recomputed recompute,
                      double *cost);

/* pipe_split — assigns layers [first[j], first[j + 1]) to chunk j, at least one; first has room for
 * stages · chunks + 1 numbers. The cost of the costliest chunk is as small as possible; of such
 * splits, the least sum of squares is chosen. ST_BAD_SETTING: there are fewer layers than
 * chunks. */
enum status pipe_split(const double *cost, int64_t layers, int stages, int chunks, int64_t *first);

/* pipe_split_shard — sets the layers of a stage, and whether it lacks embedding or head. The rest
 * of
 * *shard is unchanged. */
void pipe_split_shard(const int64_t *first, int stages, int chunks, int stage,
                      struct model_shard *shard);

#endif
