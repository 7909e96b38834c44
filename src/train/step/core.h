/* step_core — the state of a step that stays the same from open to close, for all its files and
 * features: the config, this rank's place among ranks, its shard of the model, the stream and the
 * store. It must not know batches, losses, updates or features: they belong to struct step
 * (step/inside.h), which features do not see. */
#ifndef CONVOY_TRAIN_STEP_CORE_H
#define CONVOY_TRAIN_STEP_CORE_H

#include <stdbool.h>

#include "base/arena.h"
#include "comm/core/part.h"
#include "mesh/mesh_comm.h"
#include "mesh/part_map.h"
#include "mesh/state.h"
#include "mesh/tensor_axis.h"
#include "train/step/memory.h"

enum { STEP_ARENA_ACTS, STEP_ARENA_SCRATCH, STEP_ARENA_INPUT, STEP_ARENA_N };

/* The replica of a rank (LOCAL_STEPS, feature/step_local.h). Without it all ranks are one. */
struct step_local {
    bool is_on;
    int replica, replicas; /* not is_on: 0 of 1 */
    int rank, ranks;       /* number in the replica, and its size */
    struct comm *world;    /* comm of all ranks; borrowed */
    struct comm *inside;   /* comm of the replica; NULL: one rank, or one replica */
    /* comm of the ranks with this number in all replicas; NULL: one replica */
    struct comm *across;
    struct part_extent own; /* this rank's part of the table */
    void *memory;
    int64_t memory_bytes;           /* without compress_bytes */
    struct grad_compress *compress; /* quantises the differences; NULL: they are not quantised */
    int64_t compress_bytes;
    uint16_t *sent;                 /* COMPRESS=bf16: own.elems rounded differences; else NULL */
    float *outer, *momentum, *work; /* own.elems each */
    bool is_apart;                  /* replicas have parameters of their own, not the outer ones */
    /* a rank's message to the others of its replica; NULL: one rank */
    float *chunk;
};

struct step_core {
    /* the step that contains it, for the functions of passes (step/feature.h) */
    struct step *step;
    struct step_config config; /* config of this rank's replica */
    struct step_local local;   /* the replica's place among all */
    struct comm *comm_alone;   /* comm of one rank, if the config or the data axis has none */
    struct mesh_comm mesh;
    /* this rank counts for the ranks that have the same samples */
    bool counts_targets, counts_losses;
    int64_t samples; /* the most samples of a step on this rank */
    /* micro-batches of a step before each data rank's; NULL: equal numbers, or virtual shards */
    const int *deal;
    int64_t own_tokens; /* tokens of a sample that this rank computes */
    /* shard that this rank computes; config.dims: the whole model */
    struct model_dims dims;
    const struct model_ops *model;
    /* trained parameters of dims: of the adapter if there is one, else of the model */
    struct param_table table;
    struct step_pipe *pipe;   /* NULL: one stage (step/pipe.h) */
    struct param_table whole; /* the same of config.dims, if dims are only a shard */
    bool has_whole;
    /* frozen parameters of the model, if there is an adapter: of dims, of config.dims */
    struct {
        struct param_table table, whole;
        struct state state;
        struct part_map map;
    } frozen;
    struct param_table all_stages; /* config.shards > 0: table of the last tensor rank */
    struct tensor_axis tensor, context;
    const struct model_axis *tensor_axis, *context_axis; /* for struct pass */
    struct tensor partial; /* gradients of one unit that the tensor axis adds up */
    /* With config.sentinel_every: sums of bits. Memory of the device, and a pinned copy of either
     * array. */
    struct {
        struct optim_sums *updates; /* sums of each bucket's updates; NULL: without */
        uint64_t *checksums;        /* feature/step_checksums.h */
        int checksums_n;            /* checksums in use */
        void *host;
    } sums;
    struct stream *stream;
    struct store *store;
    struct state state;  /* state of the whole model, on all ranks */
    struct part_map map; /* with has_whole */
};

/* step_core — returns the core of a step. */
struct step_core *step_core(const struct step *step);
/* step_world — returns the comm of all ranks of all replicas. */
struct comm *step_world(const struct step_core *s);
/* step_task — returns the kind of its samples. */
enum feed_task step_task(const struct step_core *s);
/* step_sample_losses — returns the number of losses of a sample. */
int64_t step_sample_losses(const struct step_core *s);
/* step_checksums_n — returns the number of checksums for which there is room: of each array of each
 * tensor, and of the frozen parameters. */
static inline int step_checksums_n(const struct step_core *s)
{
    return STEP_ARRAYS_MAX * s->table.params_n + 1;
}
/* step_heartbeat — calls config.heartbeat, if it is set. */
void step_heartbeat(const struct step_core *s);

/* ---- the rank's place in the mesh (step/mesh.c) ---- */

/* step_mesh_open — opens the communicators. */
enum status step_mesh_open(struct step_core *s);
/* step_mesh_close — closes the communicators; accepts a step without them. */
void step_mesh_close(struct step_core *s);
/* step_mesh_data — returns the comm of the ranks that have the same parameters. */
struct comm *step_mesh_data(const struct step_core *s);
/* step_mesh_data_rank — returns this rank's position along the data axis, which decides its
 * samples. */
int step_mesh_data_rank(const struct step_core *s);
/* step_mesh_data_ranks — returns the length of the data axis. */
int step_mesh_data_ranks(const struct step_core *s);
/* step_mesh_context_ranks — returns the number of ranks that share the positions of a sample. */
int step_mesh_context_ranks(const struct step_core *s);
/* step_mesh_store_rank — returns this rank's number in the comm of step_mesh_data. */
int step_mesh_store_rank(const struct step_core *s);
/* step_mesh_store_rank_at — returns that number of the rank at a coordinate. */
int step_mesh_store_rank_at(const struct mesh *mesh, const struct mesh_coord *at);
/* step_mesh_store_ranks — returns the number of ranks in that comm. */
int step_mesh_store_ranks(const struct step_core *s);
/* step_mesh_place — sets the place in the mesh of a step without communicators, for a plan. */
enum status step_mesh_place(struct step_core *s, int rank, int ranks);
/* step_mesh_describe — computes the dims, tables, samples and counts of this rank. */
enum status step_mesh_describe(struct step_core *s, bool is_discrete);
/* step_mesh_rank_table — describes the step_own_table of rank `rank` in a job of `ranks`, on GPUs
 * (is_discrete) or CPUs, without a step. The caller frees it. */
enum status step_mesh_rank_table(const struct step_config *c, int ranks, int rank, bool is_discrete,
                                 struct param_table *out);
/* step_mesh_forget — frees the tables of step_mesh_describe. */
void step_mesh_forget(struct step_core *s);
/* step_mesh_open_state — makes the maps from the model shards to the whole model. The store is
 * open. */
enum status step_mesh_open_state(struct step_core *s);
/* step_mesh_open_axes — opens the axes through which passes call other ranks. Call it after
 * step_mesh_describe. */
enum status step_mesh_open_axes(struct step_core *s);
/* step_mesh_exact — returns the store's place for EXACT=layout. Call it after step_mesh_describe,
 * with config.shards > 0 only. */
struct store_exact_place step_mesh_exact(const struct step_core *s);
/* step_mesh_samples — returns the number of samples of a data rank in a step of `all` samples. */
int64_t step_mesh_samples(const struct step_core *s, int data_rank, int64_t all);
/* step_mesh_samples_most — returns the largest of these numbers of all data ranks. */
int64_t step_mesh_samples_most(const struct step_core *s, int64_t all);
/* step_mesh_sample_first — returns the index in the step of this rank's first sample. */
int64_t step_mesh_sample_first(const struct step_core *s, int64_t all);
/* step_mesh_idle_passes — if this rank has fewer micro-batches than another, requests parameters
 * as often as the missing passes would, and computes nothing. With SHARD=full each pass all-gathers
 * parameters, which needs all ranks. */
enum status step_mesh_idle_passes(struct step_core *s, int64_t all);
/* step_mesh_partial_elems — returns the elements of s->partial. */
int64_t step_mesh_partial_elems(const struct step_core *s);
/* step_mesh_sum_partial — adds up over the tensor axis the gradients of a unit that are partial on
 * each rank. Call it after the unit's backward pass in the last micro-batch of a step, or of each
 * virtual shard. first: the micro-batch's first sample on this rank. */
enum status step_mesh_sum_partial(struct step_core *s, int64_t first, int unit);

/* ---- replicas (feature/step_local.c) ---- */

/* step_local_place — sets s->local from the config, and changes the config and the place to those
 * within the replica. All other code of a step only sees the replica. ST_BAD_SETTING: the ranks or
 * samples cannot be divided into replicas. */
enum status step_local_place(struct step_core *s, struct step_place *place);
/* step_local_outside — returns the config and the place among all ranks; the inverse of
 * step_local_place. */
void step_local_outside(const struct step_core *s, struct step_config *config,
                        struct step_place *place);
/* step_local_open — splits the comms; s->config.comm becomes the replica's comm. Call it after
 * step_local_place. Collective. */
enum status step_local_open(struct step_core *s);
/* step_local_plan — returns the bytes of host memory that step_local_alloc allocates. Call it when
 * the table is complete. */
int64_t step_local_plan(const struct step_core *s);
/* step_local_alloc — allocates the memory; nothing if not is_on. Collective. */
enum status step_local_alloc(struct step_core *s);
/* step_local_bytes — returns the bytes that it allocated. */
int64_t step_local_bytes(const struct step_core *s);
/* step_local_sync_fill — copies the parameters of the step to the outer parameters. */
enum status step_local_sync_fill(struct step_core *s);
/* step_local_close — frees the memory and closes the comms. Call it before the config's comm is
 * closed. */
void step_local_close(struct step_core *s);

/* step_local_feed_rank — returns this rank's position along the data axes of all replicas, which
 * decides its samples. */
int step_local_feed_rank(const struct step_core *s);
/* step_local_feed_ranks — returns the number of positions. */
int step_local_feed_ranks(const struct step_core *s);

/* Numbers that step_local_sum adds up at the end of a step. */
#define STEP_LOCAL_SUMS (3 + STEP_VOTES)
/* step_local_sum — adds up n numbers over all ranks of all replicas. All ranks get the same bits.
 * Collective; no effect without LOCAL_STEPS. */
enum status step_local_sum(struct step_core *s, double *values, int n);

struct step_dry_listener;
/* step_local_dry_tell — reports the messages between replicas to the listener of a dry step
 * (step/dry.h). Of an outer step it reports the share that falls to each step. */
void step_local_dry_tell(const struct step_core *s, const struct step_dry_listener *listener);

/* step_local_state — returns the state of all replicas, if is_on. */
struct state step_local_state(struct step_core *s);

/* ---- virtual shards (step/mesh.c); config.shards > 0, unless stated otherwise ---- */

/* step_shards_each — returns the number of samples in a shard. */
int64_t step_shards_each(const struct step_core *s);
/* step_shards_of — returns the shard, counted from this rank's first, with this rank's sample
 * `first`. */
int step_shards_of(const struct step_core *s, int64_t first);
/* step_shards_shorten — changes a plan's configuration to steps of `samples` samples, and, if it
 * has virtual shards, to one shard for each micro-batch. */
void step_shards_shorten(struct step_config *c, int64_t samples);
/* step_shards_share — returns the range of a step's samples that a data rank has before any
 * rebalancing; also without shards. Only for tests. */
void step_shards_share(const struct step_config *config, int ranks, int rank, int64_t *first_out,
                       int64_t *samples_out);
/* step_shards_bind — sets the memory to which *p writes gradients, and whether it adds to them.
 * Without shards it has no effect. */
void step_shards_bind(const struct step_core *s, int64_t first, struct pass *p);

/* ---- own positions of samples (step/context.c), if a context group shares them ---- */

/* step_context_batch_bytes — returns the bytes of host memory for the own tokens and targets of
 * `samples` samples. */
int64_t step_context_batch_bytes(const struct step_core *s, int64_t samples);
/* step_context_batch_open — allocates that memory in *own, which its owner frees. */
enum status step_context_batch_open(const struct step_core *s, int64_t samples, struct batch *own);
/* step_context_batch — returns a batch with the tokens and targets of own positions, in *own, and
 * all other arrays of `batch`. Without a context axis it returns the batch itself. */
struct batch step_context_batch(const struct step_core *s, const struct batch *batch,
                                struct batch *own);
/* step_context_tokens — copies the own positions of a sample's first n tokens to *own. Positions
 * from n on become 0. Only with a context axis. */
void step_context_tokens(const struct step_core *s, const int32_t *tokens, int64_t n,
                         struct batch *own);

#endif
