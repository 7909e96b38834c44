/* step_inside — a step as its own files share it: step.c (memory, state), step/mesh.c (its place
 * among ranks), step/context.c (its positions of samples), step_local.c (replicas). step/run.c
 * (the update), step/async.c (the end of a step on GPUs), step/eval.c, step/slice.c (slices of the
 * state). Other files use step.h. */
#ifndef CONVOY_TRAIN_STEP_INSIDE_H
#define CONVOY_TRAIN_STEP_INSIDE_H

#include <stdbool.h>

#include "base/arena.h"
#include "mesh/mesh_comm.h"
#include "mesh/part_map.h"
#include "mesh/state.h"
#include "mesh/tensor_axis.h"
#include "train/step/step.h"
#include "train/feature/step_local.h"
#include "train/feature/step_shard_check.h"

struct step_pipe;        /* train/step/pipe.h */
struct step_update_sums; /* train/feature/step_update_sums.h */

/* config.balances: of this rank, since the last deal was looked at. */
struct step_shards_pace {
    double *all; /* milliseconds of a shard, of each data rank */
    double ms;   /* of computing */
    int64_t steps, shards;
};

enum { STEP_ARENA_ACTS, STEP_ARENA_SCRATCH, STEP_ARENA_INPUT, STEP_ARENA_N };
#define STEP_SUMS 8
#define STEP_COUNTS 7 /* numbers that ranks add up at the start of a step (step/run.c) */

struct step {
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
    struct step_pipe *pipe;   /* NULL: one stage */
    struct param_table whole; /* of config.dims, where dims are a part */
    bool has_whole;
    struct param_table all_stages; /* config.shards > 0: of the last tensor rank */
    struct tensor_axis tensor, context;
    const struct model_axis *tensor_axis, *context_axis; /* for struct pass */
    struct tensor partial; /* gradients that the tensor axis adds up, of one unit */
    struct stream *stream;
    struct store *store;
    struct step_update_sums *update_sums; /* NULL: updates do not check what they read */
    struct state state;                   /* of the whole model, on all ranks */
    struct part_map map;                  /* has_whole */
    struct arena arena[STEP_ARENA_N];
    struct model_acts *acts;
    struct tensor tokens, targets, first_key, mask, starts, ends, losses; /* on the device */
    struct tensor grad_scale; /* (2) f64: the factor; is_async: and the square of the norm */
    struct tensor loss_sum;   /* (1) f64, is_async: input of grad_scale */
    struct tensor logits;     /* LM (V), QA (B·T,2) f32 */
    struct muon_room muon;    /* OPTIMIZER=muon */
    struct optim_span *spans, *cut;
    int64_t spans_n;
    struct batch batch;      /* on the host, `samples` */
    struct batch own, taken; /* with a context axis: own positions; these in a batch's place */
    float *losses_host;      /* one for each sample's losses; pinned, like the next */
    double *grad_scale_host; /* is_async: grad_scale as read back */
    int64_t readback_bytes;  /* of both */
    struct dev_event *results_ready; /* is_async: losses_host and grad_scale_host are valid */
    bool is_async;                   /* the device skips an update by itself (step/async.c) */
    struct step_ranks *ranks;        /* is_async with several ranks; else NULL */
    double lr_next;                  /* is_async: of the update that this step begins */
    int64_t step_next;
    double sums[STEP_SUMS]; /* numbers that are being summed over ranks */
    double *shard_sums;     /* config.shards > 0: the loss of each on each context rank, votes */
    struct step_shards_pace pace;
    struct step_shard_check check;
    double scale, scale_end;
    struct step_loss_scale loss_scale;
    struct step_spikes spikes;
    int vote;
    /* of the update that ran last, or is deferred */
    double lr;
    int64_t step_i; /* of those that were made, from 0 */
    int64_t lap_ns;
};

/* step_grad_clip — the limit of the norm. Without a loss scale it is rounded to f32, which keeps
 * the bits of runs that computed the factor in f32. */
double step_grad_clip(const struct step *s);
void step_heartbeat(const struct step *s);
/* step_plan_arenas — takes what passes need; the part and the store's place are known.
 * step_store_config — of the step's store. */
enum status step_plan_arenas(struct step *s, struct arena arena[STEP_ARENA_N]);
struct store_config step_store_config(struct step *s);
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
 * _partial_elems: of s->partial.
 * _sum_partial: in the last micro-batch of the step, or of each virtual shard, after a unit's
 *   backward: adds up the gradients that each rank of the tensor axis has a part of. first: the
 *   micro-batch's first sample on this rank. */
enum status step_mesh_open(struct step *s);
void step_mesh_close(struct step *s);
struct comm *step_mesh_data(const struct step *s);
int step_mesh_data_rank(const struct step *s);
int step_mesh_data_ranks(const struct step *s);
int step_mesh_context_ranks(const struct step *s);
int step_mesh_store_rank(const struct step *s);
int step_mesh_store_rank_at(const struct mesh *mesh, const struct mesh_coord *at);
int step_mesh_store_ranks(const struct step *s);
enum status step_mesh_place(struct step *s, int rank, int ranks);
enum status step_mesh_describe(struct step *s, bool is_discrete);
enum status step_mesh_rank_table(const struct step_config *c, int ranks, int rank,
                                 struct param_table *out);
void step_mesh_forget(struct step *s);
enum status step_mesh_open_state(struct step *s);
enum status step_mesh_open_axes(struct step *s);
struct store_exact_place step_mesh_exact(const struct step *s);
int64_t step_mesh_partial_elems(const struct step *s);
enum status step_mesh_sum_partial(struct step *s, int64_t first, int unit);

/* Own positions of samples (step/context.c).
 * _bytes: of host memory that _open takes: for a step's own tokens and targets.
 * _open, _close: with a context axis; _close accepts a step without it.
 * _batch: the tokens and targets of own positions, with what is of whole samples as it is in the
 *   batch; the batch itself without a context axis. Valid until the next call.
 * _part_bytes, _part_open, _part: the same for any batch of so many samples, with memory for own
 *   positions in *own, which its owner frees.
 * _tokens: with a context axis: own ones of the n tokens of a sample, and 0 behind them. */
int64_t step_context_bytes(const struct step *s);
enum status step_context_open(struct step *s);
void step_context_close(struct step *s);
const struct batch *step_context_batch(struct step *s, const struct batch *batch);
int64_t step_context_part_bytes(const struct step *s, int64_t samples);
enum status step_context_part_open(const struct step *s, int64_t samples, struct batch *own);
struct batch step_context_part(const struct step *s, const struct batch *batch, struct batch *own);
const int32_t *step_context_tokens(struct step *s, const int32_t *tokens, int64_t n);
/* Virtual shards (step_shards.c).
 * step_micro: a micro-batch of a step, on this rank: its first sample there.
 * _check: whether a configuration has virtual shards that the ranks along the data axis can share.
 *   ST_BAD_SETTING.
 * _shorten: for a plan: a configuration of steps of so many samples; of virtual shards, where it
 *   has some, one for each micro-batch.
 * _open, _close: with config.shards; _close accepts a step without.
 * _most: samples of a step on any rank, at most.
 * _samples: of `all` of a step, those of this rank. _first: which of them is its first one, of n.
 * _idle: before the passes of a rank that has fewer shards than another one: as many passes more
 *   in which it only takes part in gathers of parameters, as SHARD=full makes them in each.
 * _bind: where *p writes gradients, and whether it adds to them.
 * _add: after a unit's backward: what the tensor axis and the tree of shards add then.
 * _loss: this step's loss and the highest vote, from the losses of this rank; collective; also the
 *   square of the norm. */
struct step_micro {
    int64_t first;
    bool is_last; /* of the step */
    enum step_fault fault;
    bool is_check; /* of no shard of this rank: its gradients are compared alone */
};
enum status step_shards_check(const struct step_config *c, const struct mesh *mesh);
void step_shards_shorten(struct step_config *c, int64_t samples);
enum status step_shards_open(struct step *s);
void step_shards_close(struct step *s);
int64_t step_shards_most(const struct step_config *c, int ranks);
int64_t step_shards_samples(const struct step *s, int64_t all);
int64_t step_shards_first(const struct step *s, int64_t n);
enum status step_shards_idle(struct step *s);
void step_shards_bind(const struct step *s, int64_t first, struct pass *p);
enum status step_shards_add(struct step *s, int64_t first, int unit);
enum status step_shards_loss(struct step *s, const struct batch *batch, double *norm_sq,
                             struct step_result *r);
/* BALANCE=auto: how many virtual shards of a step each rank computes, by how long one needs. Pure
 * arithmetic. */
/* A deal: rank r has shards [begin[r], begin[r + 1]), at least one (mesh/store/shard_tree.h). */
struct balance {
    const double *ms; /* of a shard, of each rank; positive */
    int shards, ranks;
    const int *begin;                           /* the deal now: ranks + 1 */
    bool (*takes)(void *arg, const int *begin); /* whether there is memory for a deal */
    void *arg;
};

/* step_shards_balance_deal — true: a deal, in begin (ranks + 1), whose slowest rank ends at least a
 * twentieth earlier than now. Runs begin at multiples of a power of two where that costs little,
 * because unaligned ones are sent in more pieces. The same on all ranks that have the same numbers.
 * Outside step_shards.c for tests. */
#define BALANCE_GAIN 0.95
bool step_shards_balance_deal(const struct balance *b, int *begin);

/* step_sentinel_exchange — n checksums of each rank; all: rank after rank. Collective, over the
 * world (step_sentinel.c).
 * step_sentinel_exchange_some — of some ranks only, each of which has a slot of its own, of
 * slots_n; own NULL: this rank has none. all: slot after slot. */
enum status step_sentinel_exchange(struct step *s, const uint64_t *own, int n, uint64_t *all);
enum status step_sentinel_exchange_some(struct step *s, const uint64_t *own, int n, int slot,
                                        int slots_n, uint64_t *all);
/* Passes (step/run.c):
 * _pass: of a micro-batch with gradients; sample: its first one, in the global batch.
 * _micro: forward, head and backward. The scale of the loss is known.
 * _set_window: the window of attention in a step, in the batch's first keys. */
struct pass step_run_pass(const struct step *s, int64_t sample, int64_t step_i);
enum status step_run_micro(struct step *s, struct pass *p, const struct step_micro *m,
                           struct step_result *r);
void step_run_set_window(const struct step *s, struct batch *batch, int64_t step_i);
/* For stages of a pipeline (step/run.c):
 * _add_waits: adds the times of communication of this step since the last call. Returns the
 *   milliseconds waited.
 * _lap: adds the time since the last lap to *ms. On a GPU this is only that of launching.
 * _dropout_seed: of a step.
 * _set_vote: the highest one that any rank has; votes: how many have each.
 * _zero_added: zeroes gradients that are only added to. No update may be deferred any more.
 * _write_fault: FAULT=nan and spike, after a unit's backward pass.
 * _unit_done: calls config.unit_done, where there is one. */
double step_run_add_waits(struct step *s, struct step_result *r);
void step_run_lap(struct step *s, double *ms);
uint64_t step_run_dropout_seed(const struct step *s, int64_t step_i);
void step_run_set_vote(struct step_result *r, const double *votes);
enum status step_run_zero_added(struct step *s, const struct pass *p);
enum status step_run_write_fault(struct step *s, int unit, enum step_fault fault);
enum status step_run_unit_done(const struct step *s, int unit);
enum feed_task step_task(const struct step *s);
int64_t step_sample_losses(const struct step *s);
struct pass step_pass(const struct step *s, int64_t samples);
/* step_run_copy_inputs — copies samples [first, first + p->b) of the batch, from
 * step_context_batch, to the device. */
enum status step_run_copy_inputs(struct step *s, const struct batch *batch, int64_t first,
                                 struct pass *p);
enum status step_forward(struct step *s, const struct pass *p); /* everything below the head */
enum status step_unshard_head(struct step *s);
/* to host memory, at sample `first` */
enum status step_run_copy_losses(struct step *s, const struct pass *p, int64_t first);

/* step_async_takes — is_async of a step at a place.
 * step_async_plan — the bytes that step_async_open takes there, of the device and of the host each.
 * step_async_memory — the bytes that it took. */
bool step_async_takes(const struct step_config *c, const struct step_place *place);
int64_t step_async_plan(const struct step *s, const struct step_place *place);
int64_t step_async_memory(const struct step *s);
/* step_async_open — is_async: takes what several ranks need. _close: accepts a step without it.
 * step_async_begin — is_async, before a step's first pass: the numbers of its update. */
enum status step_async_open(struct step *s);
void step_async_close(struct step *s);
enum status step_async_begin(struct step *s, double lr, int64_t step_i);

/* step_async — is_async, after the last micro-batch's backward pass: enqueues the update, then
 * waits for loss and norm and writes them to r. If they are not finite, the update changed
 * nothing. */
enum status step_async(struct step *s, const struct batch *batch, struct step_result *r);
/* step_async_losses — is_async: adds up the losses of a micro-batch on the device, and copies them
 * to the host. */
enum status step_async_losses(struct step *s, const struct pass *p, int64_t first, bool is_last);

/* runs the optimiser on one bucket of the store; arg: the step */
enum status step_run_update(void *arg, int bucket);

#endif
