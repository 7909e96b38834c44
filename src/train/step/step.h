/* step — one optimiser step of one worker: forward and backward over its micro-batches, the
 * gradient norm, clipping and the update. Also evaluation and logits with the same memory.
 *
 * Words: a *micro-batch* is the batch_samples samples of one forward and backward pass. A *global
 * batch* is the samples of one step on all ranks. A *unit* is a group of tensors that is sharded
 * together: the embedding, a transformer block, or the final norm and head (model/param.h).
 *
 * Memory. The store (mesh/store/store.h) holds parameters, gradients and moments; the step adds
 * activations, scratch and inputs. step_open allocates all of it, and nothing is allocated
 * afterwards.
 *
 * Loss. A pass computes sums over tokens (QA: over answers). They are divided once, here, by the
 * number of targets in the global batch (batch.h). The result does not depend on how the batch is
 * cut into micro-batches and ranks.
 *
 * Ranks. They form a mesh (mesh/mesh.h). The r-th of R ranks along the data axis trains on the r-th
 * of R ranges of each step's samples, equal ones without BALANCE=auto; the store moves parameters
 * and gradients between them. Ranks along the tensor axis share matrices and have the same samples.
 * Functions are collective: all ranks call them in the same order. The comment of a function that
 * is not collective contains "local". A lost rank makes a collective call fail with ST_PEER; after
 * that only step_close may be called.
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
#include "train/step/spike.h"

/* The loss scale of f16, whose small gradients would become zero: the loss, and so every gradient,
 * is multiplied by a power of two, and the optimiser divides it out. A gradient that overflows
 * halves the factor, and the step runs again. After STEP_LOSS_SCALE_GROWTH_STEPS steps without an
 * overflow the factor doubles, up to STEP_LOSS_SCALE_MAX. Other types have no scale: factor 0. */
#define STEP_LOSS_SCALE_INIT 65536.0
#define STEP_LOSS_SCALE_MAX 16777216.0
#define STEP_LOSS_SCALE_GROWTH_STEPS 2000
struct step_loss_scale {
    double factor;
    int64_t steps; /* steps since the factor changed */
};

/* LOCAL_STEPS (step_local.h): ranks form replicas that share parameters in outer steps only. A
 * replica trains on its share of a global batch; loss and norm of a step are means over
 * replicas. */
#define STEP_LOCAL_REPLICAS_MAX 16 /* a checkpoint has arrays of each (CKPT_ARRAYS_MAX) */
struct step_local_config {
    /* steps from one outer step to the next; 0: none, and the rest is not read */
    int64_t steps;
    int replica_ranks;   /* number of neighbouring ranks in a replica, a node's; 0: all ranks */
    double lr, momentum; /* learning rate and momentum of the outer step */
    enum grad_compress_kind compress; /* form in which outer gradients are sent */
};

/* A size that grows over the first steps of a run: the samples of a step, the window of
 * attention. */
struct warmup {
    int64_t from, steps; /* steps 0: none */
};

struct step_feature; /* train/step/feature.h */

struct step_config {
    struct dev *dev;
    struct comm *comm;              /* comm of all ranks; borrowed; NULL: one rank */
    int axis_ranks[MESH_AXES];      /* 0: 1. DATA is not read; its size follows from the others */
    int pipe_chunks;                /* chunks of layers on a stage; 0: 1 */
    struct store_settings store;    /* sharding, compression, dtype of the compute copy */
    struct step_local_config local; /* needs a store without shards and compression; DATA only */
    struct model_dims dims;
    int64_t batch_samples; /* samples of a micro-batch */
    /* samples of a global batch, a multiple of batch_samples; if shards is 0, each data rank has
     * one micro-batch or more */
    int64_t global_samples;
    int64_t seq_tokens; /* tokens of a sample; at most dims.context */
    /* EXACT=layout: number of virtual shards of a global batch. The result depends on it, and not
     * on the number of ranks. There are at least as many shards as data ranks. Each consists of
     * whole micro-batches. 0: none */
    int shards;
    bool balances;      /* work is dealt by the speed of each data rank (feature/step_balance.h) */
    bool checks_shards; /* with shards: allocate one shard more, for step_shard_check_ask */
    struct warmup batch_warmup;  /* samples of a global batch; `from` divides global_samples */
    struct warmup window_warmup; /* LM: latest tokens that a token attends to, up to seq_tokens */
    bool masks_documents;        /* LM: attention stays within documents (feed_batch.first_key) */
    bool restarts_positions;     /* with masks_documents: learned positions count from a document's
                                    first token */
    struct optim_config optim;
    struct spike_config spike;         /* not OFF: the host decides on each update, on GPUs too */
    struct model_recomputed recompute; /* activations to recompute in the backward pass */
    float dropout;                     /* 0 … 1: share of activations dropped in training */
    uint64_t seed;                     /* seed of initial parameters and dropout */
    bool is_eval;                      /* no training: no memory for gradients and moments */
    bool is_eager;                     /* launch operations one by one, no CUDA graphs */
    int comm_sms;                      /* multiprocessors that products leave to NCCL; 0: none */
    bool is_timed;                     /* rank 0 logs the time of each operation; is_eager, too */
    int64_t sentinel_every; /* steps between comparisons of states; 0: none. Not 0: updates
                                          sum the bits that they read and write, too */
    bool is_loaded;         /* the caller loads parameters: they start as zeros, not drawn */
    const struct step_feature *feature; /* a feature of the caller (step/feature.h); NULL: none */
    void *feature_arg;
    void (*heartbeat)(void *arg); /* called after each block and allocation; may be NULL */
    void *heartbeat_arg;
};

/* Times are milliseconds on this rank, summed over micro-batches. On a GPU the phases measure the
 * time of kernel launches, not of the kernels. */
struct step_result {
    double loss;       /* mean over the global batch, before the update */
    double grad_norm;  /* global norm, before clipping */
    int64_t targets;   /* LM: tokens of the global batch that count in the loss; QA: 0 */
    double compute_ms; /* the whole call without wait_ms */
    /* Phases of the call, with the waiting inside them; head: forward and backward of the head. */
    double forward_ms, head_ms, backward_ms, norm_ms, update_ms;
    double comm_ms; /* busy_ms of comm_times: the transport was busy */
    double wait_ms; /* wait_ms of comm_times: this thread was blocked on it; over NCCL near 0 */
    /* bytes_sent of comm_times: bytes sent to other ranks since the last step */
    int64_t sent_bytes;
    int64_t micro_batches; /* micro-batches of this rank; repeated ones count once */
    double update_wait_ms; /* the share of wait_ms inside update_ms; a GPU: 0 */
    /* time in a stage's passes; the share of it spent waiting for messages */
    double pipe_ms, pipe_wait_ms;
    /* Time blocked in calls of the tensor axis and of the context axis. Like pipe_wait_ms, it is
     * included in wait_ms. 0 if these calls stay on the device. */
    double tensor_ms, context_ms;
    int retries;                /* runs repeated with a smaller loss scale */
    struct spike_verdict spike; /* cause NONE: the update was made; else it was left out */
    int vote;                   /* the highest vote of all ranks (step_vote) */
    int outer_steps;            /* LOCAL_STEPS: 1 if step_local_sync made an outer step, else 0 */
    bool is_compared;           /* a virtual shard of each rank was computed twice */
};

/* step_mesh — computes the mesh of `ranks` ranks. ST_BAD_SETTING: as mesh_make. */
enum status step_mesh(const struct step_config *config, int ranks, struct mesh *out);
/* step_mesh_whole_table — describes the step_whole_table of a job with `ranks` ranks, on GPUs
 * (is_discrete) or CPUs. The caller frees it. */
enum status step_mesh_whole_table(const struct step_config *config, int ranks, bool is_discrete,
                                  struct param_table *out);
/* step_mesh_divides_state — returns true if, in a job of `ranks` ranks, one rank holds less than
 * the state of the whole model: only shards of it, or with LOCAL_STEPS one replica's. */
bool step_mesh_divides_state(const struct step_config *config, int ranks);
/* step_mesh_divides_passes — returns true if a forward pass needs other ranks, because they hold
 * shards of the model, or compute other positions of the same samples. */
bool step_mesh_divides_passes(const struct step_config *config, int ranks);

struct step;

/* step_open — allocates all memory and draws the initial parameters (is_loaded: zeros). Frozen
 * parameters are zeros until the caller writes them (step_frozen_state). Fails with
 * ST_BAD_SETTING for sizes that do not fit the model, and with ST_RETRY or ST_BAD_SETTING if
 * memory is short (base/memory.h). */
enum status step_open(const struct step_config *config, struct step **out);
void step_close(struct step *step); /* local; accepts NULL */

/* FAULT: the value that is written to one gradient of this rank. */
enum step_fault {
    STEP_FAULT_NONE,
    STEP_FAULT_NAN,
    STEP_FAULT_SPIKE /* a number that makes the norm a million */
};

/* step_run — makes update number step_i (from 0) with samples [sample_first, sample_first + n) of
 * the feed; n is step_samples_at(step_i). If loss or norm is not finite, or a spike (spike.h),
 * parameters, moments and loss scale keep their values on all ranks. The call fails with
 * ST_NOT_FINITE or ST_SPIKE then, unless the spike is skipped. On a GPU the update may still run
 * when the call returns; later calls wait for it. */
enum status step_run(struct step *step, const struct feed *feed, int64_t step_i,
                     int64_t sample_first, double lr, enum step_fault fault,
                     struct step_result *out);

/* step_run_batch — for tests and benchmarks: does the same with a batch that the caller holds. The
 * batch is this rank's share of the samples: n / R of them, with R ranks along the data axis. If a
 * rank refuses its samples, it fails with ST_BAD_DATA and the other ranks with ST_PEER. */
enum status step_run_batch(struct step *step, const struct batch *batch, int64_t step_i,
                           int64_t sample_first, double lr, enum step_fault fault,
                           struct step_result *out);

/* step_run_forget_sent — local: leaves the bytes sent since the last step, by an evaluation or a
 * checkpoint, out of the next step's sent_bytes. Without this call they are included, because some
 * of an update's communication runs during the next step. */
void step_run_forget_sent(struct step *step);

/* Votes are numbers in [0, STEP_VOTES). */
#define STEP_VOTES 6
/* step_vote — local: sets the vote that this rank sends with the loss of each further step; the
 * greatest vote of all ranks is in the step's result. By it ranks agree on the action after a step
 * without an extra message. */
void step_vote(struct step *step, int vote);

/* step_loss_scale — local: returns the scale that the next step starts with. It belongs to the
 * state of a run. */
struct step_loss_scale step_loss_scale(const struct step *step);
/* step_loss_scale_set — local: sets that scale. It has no effect if the dtype needs none. */
void step_loss_scale_set(struct step *step, struct step_loss_scale scale);

/* The state of a run that SPIKE adds, for checkpoints. A skipped step is no update, so the
 * optimiser does not count it. */
struct step_spikes {
    int64_t skipped_n; /* steps of the run without an update, so far */
    struct spike_history history;
};
/* step_spikes — local: copies this state. */
void step_spikes(const struct step *step, struct step_spikes *out);
/* step_spikes_set — local: sets this state. The history stays empty with SPIKE=off. */
void step_spikes_set(struct step *step, const struct step_spikes *spikes);

/* ---- without training: dropout is off, and no parameter changes ---- */

struct step_evaluation {
    double loss;     /* mean; LM: per target */
    double accuracy; /* LM: share of the targets that are the argmax of their logits; QA: NAN */
    int64_t targets; /* LM: targets that count */
};
/* step_eval — evaluates samples [0, samples) of the feed. Calls stop (may be NULL) between batches;
 * if it returns true on any rank, all ranks fail with ST_RETRY. */
enum status step_eval(struct step *step, const struct feed *feed, int64_t samples,
                      bool (*stop)(void *arg), void *arg, struct step_evaluation *out);
/* step_eval_losses — writes the loss (samples, T) of each target to host memory, for up to
 * batch_samples samples; 0 if the target is ignored. LM, is_eval, one rank only. */
enum status step_eval_losses(struct step *step, const struct batch *batch, float *out);
/* step_logits — computes the logits (V), in host memory, of the token after n tokens; 1 ≤ n ≤
 * seq_tokens, each token in [0, V). LM only. */
enum status step_logits(struct step *step, const int32_t *tokens, int64_t n, float *out);
/* step_spans — computes the logits (samples, T, 2) of start and end, in host memory, for up to
 * batch_samples samples. QA only. */
enum status step_spans(struct step *step, const struct batch *batch, float *out);

/* ---- the state of training (mesh/state.h) ----
 * All functions here are local. A table gives the offset of a tensor in an array. There are two:
 * step_whole_table and step_own_table. If each rank computes the whole model, both return the same
 * address. */
#define STEP_ARRAYS_MAX 3
/* names of a rank's arrays, for messages */
extern const char *const step_array_names[STEP_ARRAYS_MAX];
/* step_arrays — returns the number of arrays of a rank's own state: array 0 is the parameters, 1
 * the first moment (AdamW's m, or momentum), 2 the second moment. */
int step_arrays(const struct step *step);
/* step_state — returns the state of the whole model on all ranks; with LOCAL_STEPS, of all
 * replicas. */
const struct state *step_state(const struct step *step);
/* step_local_state_arrays_of — returns the largest number of arrays that this state can have,
 * without a step. */
int step_local_state_arrays_of(const struct step_config *config, int ranks);
/* step_local_is_apart — returns true while replicas have parameters of their own, which are not the
 * outer parameters. */
bool step_local_is_apart(const struct step *step);
/* step_local_replicas — returns the number of replicas; 1 without LOCAL_STEPS. */
int step_local_replicas(const struct step *step);
/* step_whole_table — returns the table of the whole model, for step_state and all files. It is the
 * same on all ranks. */
const struct param_table *step_whole_table(const struct step *step);
/* step_own_table — returns the table of the model shard that this rank computes, for
 * step_tensor and step_grads. */
const struct param_table *step_own_table(const struct step *step);
/* step_frozen_table — returns the parameters of the whole model that an adapter leaves frozen; the
 * table is empty if there is no adapter. */
const struct param_table *step_frozen_table(const struct step *step);
/* step_frozen_state — returns their state: array 0 can be written. */
const struct state *step_frozen_state(const struct step *step);
/* step_stream — returns the stream of all passes and updates; valid until step_close. */
struct stream *step_stream(const struct step *step);

/* step_drain — completes an update that was partly deferred to the next step. Call it before
 * you read an array of the state in this rank's memory. */
enum status step_drain(struct step *step);
/* step_tensor — returns an array of this rank's table, on the device. The array must lie whole on
 * this rank (no other ranks share it, or SHARD=none), and all tensors must have it. */
struct tensor step_tensor(const struct step *step, int array);
float *step_array(struct step *step, int array); /* address of step_tensor */

/* step_grads — returns the gradients of the last step, before clipping. Call step_drain first. */
struct tensor step_grads(const struct step *step);
/* step_batch — returns this rank's samples of the last step_run. */
const struct batch *step_batch(const struct step *step);

/* step_flip — local: inverts a bit on this rank only, as store_params_flip (mesh/store/state.h)
 * does (FAULT=flip). */
enum status step_flip(struct step *step, int bit, struct store_flip *out);

/* step_flops — returns the floating-point operations of the matrix products in a step of `samples`
 * samples, on all ranks. */
double step_flops(const struct step *step, int64_t samples);

#endif
