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

struct step_feature; /* train/step/feature.h */

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
    const struct step_feature *feature; /* the caller's own (step/feature.h); NULL: none */
    void *feature_arg;
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

/* step_run_forget_sent — local: what was sent since the last step is not of the next one: an
 * evaluation or a checkpoint. Else it is, for a part of an update's communication runs beside the
 * next step. */
void step_run_forget_sent(struct step *step);

/* step_vote — local: a number in [0, STEP_VOTES) that this rank sends with the loss of each further
 * step. Ranks agree on what follows a step without a message of its own. */
#define STEP_VOTES 6
void step_vote(struct step *step, int vote);

/* step_loss_scale, step_loss_scale_set — local: the scale that the next step starts with. It
 * belongs to the state of a run. Setting it does nothing if the dtype needs none. */
struct step_loss_scale step_loss_scale(const struct step *step);
void step_loss_scale_set(struct step *step, struct step_loss_scale scale);

/* What SPIKE adds to the state of a run, for checkpoints. Local. The optimiser counts updates, so a
 * step that was skipped is none to it. */
struct step_spikes {
    int64_t skipped_n; /* steps of the run without an update, so far */
    struct spike_history history;
};
void step_spikes(const struct step *step, struct step_spikes *out);
void step_spikes_set(struct step *step, const struct step_spikes *spikes);

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
 * step_local_state_parts_of — how many parts it has at most, without a step.
 * step_local_is_apart — whether replicas have parameters of their own now, not the outer ones. */
#define STEP_PARTS_MAX 3
extern const char *const step_part_names[STEP_PARTS_MAX]; /* of a rank's own, for messages */
int step_parts(const struct step *step);
const struct state *step_state(const struct step *step);
int step_local_state_parts_of(const struct step_config *config, int ranks);
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

/* step_grads — the gradients of the last step, before clipping; after step_drain.
 * step_batch — this rank's samples of the last step_run. */
struct tensor step_grads(const struct step *step);
const struct batch *step_batch(const struct step *step);

/* step_flip — local: FAULT=flip, on this rank only; store_params_flip (mesh/store/store.h). */
enum status step_flip(struct step *step, int bit, struct store_flip *out);

/* step_flops — of the matrix products of a step of so many samples, on all ranks */
double step_flops(const struct step *step, int64_t samples);

#endif
