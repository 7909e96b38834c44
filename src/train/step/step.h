/* step — one optimiser step of one worker: forward and backward over its micro-batches, the
 * gradient norm, clipping and the update. Also evaluation and logits with the same memory.
 *
 * Words: a *micro-batch* is the batch_samples samples of one forward and backward pass. A *global
 * batch* is the samples of one step on all ranks. A *unit* is what is sharded together: the
 * embedding, a transformer block, or the final norm and head (model/param.h).
 *
 * Memory. The store (mesh/store/store.h) holds parameters, gradients and moments; the step adds
 * activations, scratch and inputs. All of it is allocated by step_open and none afterwards.
 *
 * Loss. A pass computes sums over tokens (QA: over answers). They are divided once, here, by the
 * number of targets in the global batch (batch.h). The result does not depend on how the batch is
 * cut into micro-batches and ranks.
 *
 * Ranks. They form a mesh (mesh/mesh.h). The r-th of R ranks along the data axis trains on the r-th
 * of R equal ranges of each step's samples; the store moves parameters and gradients between them.
 * Ranks along the tensor axis share matrices and have the same samples. Functions are collective:
 * all ranks call them in the same order. Those that are not say "local". A lost rank makes a
 * collective call fail with ST_PEER; after that only step_close may be called.
 *
 * A step belongs to one thread. It must not know the board, checkpoints or settings. */
#ifndef CONVOY_TRAIN_STEP_H
#define CONVOY_TRAIN_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/core/comm.h"
#include "data/feed.h"
#include "dev/dev.h"
#include "mesh/mesh.h"
#include "mesh/state.h"
#include "mesh/store/state.h"
#include "model/model.h"
#include "train/step/batch.h"
#include "train/step/muon.h"
#include "train/step/optim.h"
#include "train/feature/spike.h"

/* The loss scale of f16, whose small gradients would become zero: the loss, and so every gradient,
 * is multiplied by a power of two, and the optimiser divides it out. A gradient that overflows
 * halves the factor, and the step runs again. After STEP_LOSS_SCALE_GROWTH_STEPS steps without an
 * overflow the factor doubles, up to STEP_LOSS_SCALE_MAX. Other types have no scale: factor 0. */
#define STEP_LOSS_SCALE_INIT 65536.0
#define STEP_LOSS_SCALE_MAX 16777216.0
#define STEP_LOSS_SCALE_GROWTH_STEPS 2000
struct step_loss_scale {
    double factor;
    int64_t steps; /* since the factor changed */
};

/* LOCAL_STEPS (step_local.h): ranks form replicas that share parameters in outer steps only. A
 * replica trains on its share of a global batch; loss and norm of a step are means over
 * replicas. */
#define STEP_LOCAL_REPLICAS_MAX 16 /* a checkpoint has parts of each (CKPT_PARTS_MAX) */
struct step_local_config {
    int64_t steps;       /* from one outer step to the next; 0: none, and the rest is not read */
    int replica_ranks;   /* neighbouring ranks, those of a node; 0: all are one replica */
    double lr, momentum; /* of the outer step (outer.h) */
    enum grad_compress_kind compress; /* form of the outer gradients on their way */
};

/* A size that grows over the first steps of a run: the samples of a step, the window of
 * attention. */
struct warmup {
    int64_t from, steps; /* steps 0: none */
};

struct step_config {
    struct dev *dev;
    struct comm *comm;              /* of all ranks; borrowed; NULL: one rank */
    int axis_ranks[MESH_AXES];      /* 0: 1. DATA is not read: it has what the others leave */
    int pipe_chunks;                /* of a stage; 0: 1 */
    struct store_settings store;    /* sharding, compression, dtype of the compute copy */
    struct step_local_config local; /* needs a store without shards and compression; DATA only */
    struct model_dims dims;
    int64_t batch_samples;  /* of a micro-batch */
    int64_t global_samples; /* of a global batch; a multiple of batch_samples, and, where shards is
                             * 0, of that times data ranks */
    int64_t seq_tokens;     /* of a sample; at most dims.context */
    /* EXACT=layout: virtual shards of a global batch; the result depends on them, not on how many
     * ranks there are. At least as many as data ranks; each has whole micro-batches. 0: none */
    int shards;
    bool balances;      /* shards: dealt by the speed of each data rank (step_shards_balance) */
    bool checks_shards; /* shards: step_shard_check_ask will be called: room for one more */
    struct warmup batch_warmup;  /* samples of a global batch; `from` divides global_samples */
    struct warmup window_warmup; /* LM: latest tokens that a token attends to, up to seq_tokens */
    bool masks_documents;        /* LM: attention stays within documents (feed_batch.first_key) */
    struct optim_config optim;
    struct spike_config spike;         /* not OFF: the host decides on each update, on GPUs too */
    struct model_recomputed recompute; /* activations to recompute in the backward pass */
    float dropout;                     /* 0 … 1: share of activations dropped in training */
    uint64_t seed;                     /* of initial parameters and dropout */
    bool is_eval;                      /* no training: no memory for gradients and moments */
    bool is_eager;                     /* launch operations one by one, no CUDA graphs */
    int comm_sms;                      /* multiprocessors that products leave to NCCL; 0: none */
    bool is_timed;                     /* rank 0 logs the time of each operation; is_eager, too */
    bool checks_updates;               /* on CPUs: step_update_sums_verify */
    bool is_loaded; /* the caller loads parameters: they start as zeros, not drawn */
    /* called in the last micro-batch after each unit's backward, from the last unit to unit 0: the
     * state of the step before is complete, and the update of this one has not begun; NULL: not
     * called. A stage calls it for each of its own units, and for unit 0, which it may lack, when
     * it has done all its passes and messages. Not with an update on the device */
    enum status (*unit_done)(void *arg, int unit);
    void *unit_done_arg;
    void (*heartbeat)(void *arg); /* called after each block and allocation; may be NULL */
    void *heartbeat_arg;
};

/* Times are milliseconds of this rank, summed over micro-batches. On a GPU the phases measure how
 * long their launches took, not the kernels. */
struct step_result {
    double loss;       /* mean over the global batch, before the update */
    double grad_norm;  /* global norm, before clipping */
    double compute_ms; /* the whole call without wait_ms */
    /* Phases of the call, with the waiting inside them; head: forward and backward of the head. */
    double forward_ms, head_ms, backward_ms, norm_ms, update_ms;
    double comm_ms;     /* busy_ms of comm_times: the transport was busy */
    double wait_ms;     /* wait_ms of comm_times: this thread was blocked on it; over NCCL near 0 */
    int64_t sent_bytes; /* bytes_sent of comm_times, since the last step: to other ranks */
    double update_wait_ms;        /* the part of wait_ms inside update_ms; a GPU: 0 */
    double pipe_ms, pipe_wait_ms; /* of a stage: in its passes; waiting in them for a message */
    /* Blocked in calls of the tensor axis, and of the context axis: a part of wait_ms, as
     * pipe_wait_ms is. 0: they stay on the device. */
    double tensor_ms, context_ms;
    int retries;                /* runs repeated with a smaller loss scale */
    struct spike_verdict spike; /* cause NONE: the update was made; else it was left out */
    int vote;                   /* the highest vote of all ranks (step_vote) */
    int outer_steps;            /* LOCAL_STEPS: 1 if step_local_sync made one, else 0 */
    bool is_compared;           /* a virtual shard of each rank was computed twice */
};

/* step_mesh — the mesh of so many ranks. ST_BAD_SETTING: as mesh_make.
 * step_mesh_divides_state — whether a rank of so many holds less than the state of the whole model:
 * shards of it, or a part.
 * step_mesh_divides_passes — whether a forward pass asks other ranks: for that, or for a part of
 * its samples.
 * step_mesh_whole_table — step_whole_table of a job with this number of ranks, on GPUs
 * (is_discrete) or CPUs; the caller frees it. */
enum status step_mesh(const struct step_config *config, int ranks, struct mesh *out);
enum status step_mesh_whole_table(const struct step_config *config, int ranks, bool is_discrete,
                                  struct param_table *out);
bool step_mesh_divides_state(const struct step_config *config, int ranks);
bool step_mesh_divides_passes(const struct step_config *config, int ranks);

/* step_warmup_at — the size of a warm-up in step s, counted from 0: `from` in the first one, then
 * on a straight line towards `to`, which it has from step `steps` on; always `from` and a multiple
 * of `unit`, rounded down. from in [1, to]; unit ≥ 1. Pure. */
int64_t step_warmup_at(const struct warmup *warmup, int64_t to, int64_t unit, int64_t s);

/* step_samples_at — the samples of step step_i: global_samples, or fewer in the batch warm-up.
 * step_has_first_key — attention of training reads feed_batch.first_key. */
int64_t step_samples_at(const struct step_config *config, int64_t step_i);
/* Returns the samples of the first `steps` steps of a run, at most INT64_MAX / 2. */
int64_t step_samples_before(const struct step_config *config, int64_t steps);
/* Returns the whole steps in *samples from step step_i on. *samples becomes the samples that are
 * left, fewer than the next step. */
int64_t step_count(const struct step_config *config, int64_t step_i, int64_t *samples);
bool step_has_first_key(const struct step_config *config);

struct step;

/* step_open — allocates all memory and draws the initial parameters (is_loaded: zeros). Fails with
 * ST_BAD_SETTING for sizes that do not fit the model, and with ST_RETRY or ST_BAD_SETTING where
 * memory is short (base/memory.h). */
enum status step_open(const struct step_config *config, struct step **out);
void step_close(struct step *step); /* local; accepts NULL */

/* FAULT: what is written to one gradient of this rank. */
enum step_fault {
    STEP_FAULT_NONE,
    STEP_FAULT_NAN,
    STEP_FAULT_SPIKE /* a number that makes the norm a million times as large */
};

/* step_run — update number step_i (from 0) on samples [sample_first, sample_first + n) of the feed,
 * n of step_samples_at. If loss or norm is not finite, or a spike (spike.h), parameters, moments
 * and loss scale keep their values, on all ranks alike. The call fails with ST_NOT_FINITE or
 * ST_SPIKE then, unless the spike is skipped. On a GPU the update may still run when the call
 * returns; later calls wait for it. */
enum status step_run(struct step *step, const struct feed *feed, int64_t step_i,
                     int64_t sample_first, double lr, enum step_fault fault,
                     struct step_result *out);

/* step_run_batch — for tests and benchmarks: step_run on a batch that the caller holds: this rank's
 * share of them, n / R samples, R ranks along the data axis. If a rank refuses its samples, it
 * fails with ST_BAD_DATA and the other ranks with ST_PEER. */
enum status step_run_batch(struct step *step, const struct batch *batch, int64_t step_i,
                           int64_t sample_first, double lr, enum step_fault fault,
                           struct step_result *out);

/* Virtual shards.
 * step_shards_balance — with config.balances, after each step, of which *r is the result: every
 *   STEP_BALANCE_STEPS steps the ranks tell each other how long a shard takes them, and deal the
 *   shards so that all end at about the same time. No bit of a result depends on it. Collective.
 * step_shards_deal — how many shards a data rank has now; outside step_shards.c for tests.
 * step_shards_share — for tests: the samples of a step that a data rank has before any other deal.
 */
#define STEP_BALANCE_STEPS 10
enum status step_shards_balance(struct step *step, const struct step_result *r);
int step_shards_deal(const struct step *step, int data_rank);
void step_shards_share(const struct step_config *config, int ranks, int rank, int64_t *first_out,
                       int64_t *samples_out);

/* step_sentinel — whether all ranks that hold parameters and moments alike hold the same bits of
 * them. Collective; all ranks get the same answer. step_sentinel_compares — whether there is
 * anything to compare: several replicas of whole parameters in host memory, without LOCAL_STEPS. */
struct step_sentinel {
    bool is_same;
    int rank;       /* that differs from more than half; -1: none, for there is no such majority */
    int part;       /* 0 parameters, 1 and 2 moments */
    int first;      /* one of the ranks that differ among themselves */
    int replicas_n; /* how many they are */
};
bool step_sentinel_compares(const struct step *step);
enum status step_sentinel(struct step *step, struct step_sentinel *out);
/* step_sentinel_replica — where parameters lie on this rank of which a change is found, and the
 * rank is named: by a vote, or by the next update. false: it has none. */
struct step_replica {
    const float *parameters;
    int64_t elems;
};
bool step_sentinel_replica(const struct step *step, struct step_replica *out);

/* Parameters and moments that change by themselves. With config.checks_updates each update adds up
 * the bits that it reads, of what this rank updates, and compares the sum with that of the bits
 * that the last update wrote (step_update_sums.c). All ranks get a difference at the head of the
 * next step, which fails: with ST_FAULT on the rank whose memory changed, with ST_PEER on others.
 * step_update_sums_keep     before the first step: the state of so many steps, as it was loaded, is
 *                           what the next update must read. Local.
 * step_update_sums_verify   the same between two steps, from a pass over the state: before it is
 *                           kept, or after a step that failed before its update. Collective.
 * step_update_sums_verify_own  the same, of this rank alone, after another failure. Local.
 * step_update_sums_changed  local: what such a failure has found. */
struct step_changed {
    int ranks_n;   /* whose memory changed; 0: none that is known */
    int rank;      /* which, if it is one; else -1 */
    int64_t steps; /* the state after so many steps may be wrong, and that of all later ones */
};
void step_update_sums_keep(struct step *step, int64_t steps);
enum status step_update_sums_verify(struct step *step);
enum status step_update_sums_verify_own(struct step *step);
struct step_changed step_update_sums_changed(const struct step *step);

/* A virtual shard computed twice (step_shard_check.h); config.checks_shards. All are local.
 * step_shard_check_ask — on all ranks: the next step_run compares one shard of each group along the
 *   data axis, if there are several. turn > 0: which one; it should count comparisons. If two
 *   computations differ the step makes no update and fails: on the rank that is wrong with
 *   ST_FAULT, on the others, and where no rank can be named, with ST_PEER.
 * step_shard_check_found — after a step_run that failed.
 * step_shard_check_flip — FAULT=gradient: the next step_run inverts a bit in a gradient of this
 *   rank, or of what it gives to others, in passes of these kinds. In a step without a comparison
 *   the own passes are the last micro-batch, and only gradients have such bits. */
enum step_shard_pass {
    STEP_SHARD_PASS_OWN = 1,   /* of this rank's shard that is compared */
    STEP_SHARD_PASS_CHECK = 2, /* of the next group's */
    STEP_SHARD_PASS_AGAIN = 4  /* of the shard of which two computations differ */
};
enum step_shard_found {
    STEP_SHARD_FOUND_NONE,   /* no difference: the step failed otherwise, or did not */
    STEP_SHARD_FOUND_ONCE,   /* computed again it was right: the state is as it should be */
    STEP_SHARD_FOUND_LASTING /* it was wrong again, or none was named: the state may be wrong */
};
struct step_shard_flip {
    unsigned passes; /* of enum step_shard_pass; 0: none */
    int give; /* of what the pass gives to other ranks, which: from 1; 0: a unit's gradient */
    int unit;
    int64_t elem; /* of the unit, without padding; of what is given, in words of 32 bits, modulo */
    int bit;      /* 0 … 31 */
};
void step_shard_check_ask(struct step *step, int64_t turn);
enum step_shard_found step_shard_check_found(const struct step *step);
void step_shard_check_flip(struct step *step, const struct step_shard_flip *flip);

/* step_run_forget_sent — local: what was sent since the last step is not of the next one: an
 * evaluation or a checkpoint. Else it is, for a part of an update's communication runs beside the
 * next step. */
void step_run_forget_sent(struct step *step);

/* step_vote — local: a number in [0, STEP_VOTES) that this rank sends with the loss of each further
 * step. Ranks agree on what follows a step without a message of its own. */
#define STEP_VOTES 6
void step_vote(struct step *step, int vote);

/* step_local_sync — Makes an outer step if one is due after so many updates, or if is_last: all
 * replicas then have the outer parameters. Adds its times and number to *r. Call it after each
 * step_run of a run with LOCAL_STEPS. */
enum status step_local_sync(struct step *step, int64_t steps_done, bool is_last,
                            struct step_result *r);

/* step_loss_scale, step_set_loss_scale — local: the scale that the next step starts with. It
 * belongs to the state of a run. Setting it does nothing if the dtype needs none. */
struct step_loss_scale step_loss_scale(const struct step *step);
void step_set_loss_scale(struct step *step, struct step_loss_scale scale);

/* What SPIKE adds to the state of a run, for checkpoints. Local. The optimiser counts updates, so a
 * step that was skipped is none to it. */
struct step_spikes {
    int64_t skipped_n; /* steps of the run without an update, so far */
    struct spike_history history;
};
void step_spikes(const struct step *step, struct step_spikes *out);
void step_set_spikes(struct step *step, const struct step_spikes *spikes);

/* Without training. Dropout is off, and no parameter changes.
 * step_eval — mean loss over samples [0, samples) of the feed (LM: per token). Calls stop (may be
 * NULL) between batches; if it returns true on any rank, all ranks fail with ST_RETRY. */
enum status step_eval(struct step *step, const struct feed *feed, int64_t samples,
                      bool (*stop)(void *arg), void *arg, double *loss_out);
/* step_eval_losses — LM, is_eval: the loss (samples, T) of each target, in host memory, for up to
 * batch_samples samples; 0 where the target is ignored. One rank alone. */
enum status step_eval_losses(struct step *step, const struct batch *batch, float *out);
/* step_logits — LM: logits (V), in host memory, of the token after n tokens; 1 ≤ n ≤ seq_tokens,
 * each token in [0, V). */
enum status step_logits(struct step *step, const int32_t *tokens, int64_t n, float *out);
/* step_spans — QA: logits (samples, T, 2) of start and end, in host memory, for up to batch_samples
 * samples. */
enum status step_spans(struct step *step, const struct batch *batch, float *out);

/* The state of training (mesh/state.h). Two tables give the place of a tensor in a part:
 *   step_whole_table  of the whole model, for step_state and everything that concerns files; the
 *                     same on all ranks
 *   step_own_table    of what this rank computes, for step_tensor and step_grads
 * They are one table, with one address, where each rank computes the whole model. All of these are
 * local.
 *
 * step_parts — of a rank's own state: 0 parameters, 1 first moment (AdamW's m, or momentum), 2
 *   second moment.
 * step_state — of the whole model, on all ranks; with LOCAL_STEPS of all replicas.
 * step_state_parts_of — how many parts it has at most, without a step.
 * step_local_is_apart — whether replicas have parameters of their own now, not the outer ones. */
#define STEP_PARTS_MAX 3
extern const char *const step_part_names[STEP_PARTS_MAX]; /* of a rank's own, for messages */
int step_parts(const struct step *step);
const struct state *step_state(const struct step *step);
int step_state_parts_of(const struct step_config *config, int ranks);
bool step_local_is_apart(const struct step *step);
int step_local_replicas(const struct step *step);
const struct param_table *step_whole_table(const struct step *step);
const struct param_table *step_own_table(const struct step *step);
struct stream *step_stream(const struct step *step);

/* step_drain — before a part that lies on this rank is read there: a part of an update may be
 *   deferred to the next step.
 * step_tensor — on the device: a part of this rank's table that is whole on it (no other ranks
 *   share it, or SHARD=none), and that all tensors have. */
enum status step_drain(struct step *step);
struct tensor step_tensor(const struct step *step, int part);
float *step_part(struct step *step, int part); /* its address */

/* Slices of the state (mesh/store/state.h), for copies in peers' memory (peer_copy/peer_copy.h).
 * Ranks along the data and context axes share one part of the model, and each has a slice of that
 * part's state.
 * Only for step_slice_why NULL.
 * step_slice_why — why the state of such a step has no slices; a clause for people; NULL: it has.
 * step_slice_elems_of — of a rank's slice, on so many ranks, without a step. _most: of the largest.
 * step_slice — store_slice of one of all ranks, with the same part of the model.
 * step_slice_other — the slice of one of `ranks`, of which the step may have another number, with
 *   the same tensor ranks and stages. Written is what this rank holds of it: a rank that has got
 *   all of all slices has its state. It is not read.
 * step_slice_has_all — does this rank have the slices of all ranks with its part? */
const char *step_slice_why(const struct step_config *config);
enum status step_slice_elems_of(const struct step_config *config, int ranks, int rank,
                                int64_t *out);
enum status step_slice_elems_most(const struct step_config *config, int ranks, int64_t *out);
struct state step_slice(const struct step *step, int rank);
struct state step_slice_other(struct step *step, int ranks, int rank);
bool step_slice_has_all(const struct step *step);

/* step_grads — the gradients of the last step, before clipping; after step_drain.
 * step_batch — this rank's samples of the last step_run. */
struct tensor step_grads(const struct step *step);
const struct batch *step_batch(const struct step *step);

/* step_flip — local: FAULT=flip, on this rank only; store_params_flip (mesh/store/store.h). */
enum status step_flip(struct step *step, int bit, struct store_flip *out);

/* Bytes on this rank. */
struct step_memory {
    struct store_memory store;
    int64_t passes;      /* activations, scratch and inputs, on the device */
    int64_t activations; /* contained in passes */
    int64_t batch;       /* samples of a step, in host memory */
    int64_t scratch;     /* of the stream on a GPU (dev_info); 0 on a CPU */
    int64_t gathered;    /* losses of all ranks on the device, over NCCL; else 0 */
    int64_t readback;    /* results in host memory: this rank's, and those of gathered */
    int64_t outer;       /* LOCAL_STEPS: outer parameters and momentum, in host memory */
};
/* rank, ranks: of all. is_discrete: the device has memory of its own. stays_on_device: as
 * comm_stays_on_device. */
struct step_place {
    int rank, ranks;
    bool is_discrete, stays_on_device;
};
/* step_plan — the memory that step_open would take at a place. Reads neither dev, comm nor the
 * callbacks of the config. ST_BAD_SETTING: the model, or its division among ranks and replicas, is
 * none. Local, as the functions below. */
enum status step_plan(const struct step_config *config, const struct step_place *place,
                      struct step_memory *out);

/* step_memory — public for tests: what was taken; equals the plan. */
struct step_memory step_memory(const struct step *step);

int64_t step_memory_bytes(const struct step *step); /* state and passes */
/* step_flops — of the matrix products of a step of so many samples, on all ranks */
double step_flops(const struct step *step, int64_t samples);

#endif
