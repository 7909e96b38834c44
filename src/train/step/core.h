/* step_core — what a step is from open to close, as all of its files and features see it: the
 * config, this rank's place among ranks, its part of the model, the stream and the store. Nothing
 * here changes in a step. It must not know batches, losses, updates or features: those are of
 * struct step (step/inside.h), which features do not see. */
#ifndef CONVOY_TRAIN_STEP_CORE_H
#define CONVOY_TRAIN_STEP_CORE_H

#include <stdbool.h>

#include "base/arena.h"
#include "mesh/mesh_comm.h"
#include "mesh/part_map.h"
#include "mesh/state.h"
#include "mesh/tensor_axis.h"
#include "train/step/step.h"
#include "train/feature/step_local.h"

enum { STEP_ARENA_ACTS, STEP_ARENA_SCRATCH, STEP_ARENA_INPUT, STEP_ARENA_N };

struct step_core {
    struct step *step;         /* the whole: for the functions of passes (step/feature.h) */
    struct step_config config; /* of this rank's replica */
    struct step_local local;   /* the replica's place among all */
    struct comm *comm_alone;   /* of one rank: where the config, or the data axis, has no comm */
    struct mesh_comm mesh;
    bool counts_targets, counts_losses; /* this rank, of those with the same samples */
    int64_t samples;                    /* of a step, on this rank */
    int64_t own_tokens;                 /* of a sample, on this rank */
    struct model_dims dims;             /* what this rank computes; config.dims: the whole model */
    const struct model_ops *model;
    struct param_table table; /* of dims */
    struct step_pipe *pipe;   /* NULL: one stage (step/pipe.h) */
    struct param_table whole; /* of config.dims, where dims are a part */
    bool has_whole;
    struct param_table all_stages; /* config.shards > 0: of the last tensor rank */
    struct tensor_axis tensor, context;
    const struct model_axis *tensor_axis, *context_axis; /* for struct pass */
    struct tensor partial; /* gradients that the tensor axis adds up, of one unit */
    struct stream *stream;
    struct store *store;
    struct state state;  /* of the whole model, on all ranks */
    struct part_map map; /* has_whole */
};

/* step_core — of a step.
 * step_world — the comm of all ranks of all replicas.
 * step_task, step_sample_losses — the kind of its samples; how many losses one has.
 * step_heartbeat — calls config.heartbeat, where there is one. */
struct step_core *step_core(const struct step *step);
struct comm *step_world(const struct step_core *s);
enum feed_task step_task(const struct step_core *s);
int64_t step_sample_losses(const struct step_core *s);
void step_heartbeat(const struct step_core *s);

/* The rank's place in the mesh (step/mesh.c).
 * _open, _close: the communicators; _close accepts a step without them.
 * _data: of the ranks that have the same parameters.
 * _data_rank, _data_ranks: along the data axis: which samples are this rank's.
 * _context_ranks: between how many the positions of a sample are divided.
 * _store_rank, _store_ranks: of _data. _store_rank_at: of the rank at a coordinate.
 * _place: of a step without communicators, for a plan.
 * _describe: what this rank computes: dims, tables, samples, counts. _forget: frees the tables.
 * _rank_table: step_own_table of any of so many ranks, without a step; the caller frees it.
 * _open_state: where the parts of the whole model's state are; the store is open.
 * _open_axes: what passes need of other ranks; after _describe.
 * _exact: with config.shards, after _describe: the store's place for it.
 * _samples: of `all` of a step, those of this rank. _sample_first: which of them is its first one,
 *   of n.
 * _partial_elems: of s->partial.
 * _sum_partial: in the last micro-batch of the step, or of each virtual shard, after a unit's
 *   backward: adds up the gradients that each rank of the tensor axis has a part of. first: the
 *   micro-batch's first sample on this rank. */
enum status step_mesh_open(struct step_core *s);
void step_mesh_close(struct step_core *s);
struct comm *step_mesh_data(const struct step_core *s);
int step_mesh_data_rank(const struct step_core *s);
int step_mesh_data_ranks(const struct step_core *s);
int step_mesh_context_ranks(const struct step_core *s);
int step_mesh_store_rank(const struct step_core *s);
int step_mesh_store_rank_at(const struct mesh *mesh, const struct mesh_coord *at);
int step_mesh_store_ranks(const struct step_core *s);
enum status step_mesh_place(struct step_core *s, int rank, int ranks);
enum status step_mesh_describe(struct step_core *s, bool is_discrete);
enum status step_mesh_rank_table(const struct step_config *c, int ranks, int rank,
                                 struct param_table *out);
void step_mesh_forget(struct step_core *s);
enum status step_mesh_open_state(struct step_core *s);
enum status step_mesh_open_axes(struct step_core *s);
struct store_exact_place step_mesh_exact(const struct step_core *s);
int64_t step_mesh_samples(const struct step_core *s, int64_t all);
int64_t step_mesh_sample_first(const struct step_core *s, int64_t n);
int64_t step_mesh_partial_elems(const struct step_core *s);
enum status step_mesh_sum_partial(struct step_core *s, int64_t first, int unit);

/* Virtual shards (step/mesh.c); config.shards > 0, unless said otherwise.
 * _each: the samples of a shard. _of: the shard that sample `first` of this rank is in.
 * _check: whether the ranks along the data axis can share the shards of a configuration, if it has
 *   any. ST_BAD_SETTING.
 * _shorten: for a plan: a configuration of steps of so many samples; of virtual shards, where it
 *   has some, one for each micro-batch.
 * _most: samples of a step on any rank, at most; without shards, too.
 * _share: the samples of a step that a data rank has before any other deal; without shards, too.
 * _bind: where *p writes gradients, and whether it adds to them; without shards nothing. */
int64_t step_shards_each(const struct step_core *s);
int step_shards_of(const struct step_core *s, int64_t first);
enum status step_shards_check(const struct step_config *c, const struct mesh *mesh);
void step_shards_shorten(struct step_config *c, int64_t samples);
int64_t step_shards_most(const struct step_config *c, int ranks);
void step_shards_share(const struct step_config *config, int ranks, int rank, int64_t *first_out,
                       int64_t *samples_out);
void step_shards_bind(const struct step_core *s, int64_t first, struct pass *p);

/* Own positions of samples (step/context.c), where a context group shares them.
 * _part_bytes, _part_open: host memory for own tokens and targets of so many samples, in *own,
 *   which its owner frees.
 * _part: the tokens and targets of own positions, in *own, with what is of whole samples as it is
 *   in the batch; the batch itself without a context axis.
 * _tokens: with a context axis: own ones of the n tokens of a sample, and 0 after them. */
int64_t step_context_part_bytes(const struct step_core *s, int64_t samples);
enum status step_context_part_open(const struct step_core *s, int64_t samples, struct batch *own);
struct batch step_context_part(const struct step_core *s, const struct batch *batch,
                               struct batch *own);
void step_context_tokens(const struct step_core *s, const int32_t *tokens, int64_t n,
                         struct batch *own);

#endif
