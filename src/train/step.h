/* step — one update of one worker: device memory for parameters, gradients, moments and
 * activations, and the walk over it.
 *
 * step_run: for each micro-batch forward and backward over the units, then the global norm,
 * clipping and the optimiser. Losses are sums over tokens; they are divided once, here, by the
 * tokens of the global batch (batch.c). Several ranks may train one model: rank r of R takes the
 * r-th of R equal runs of each step's samples, and what is between the ranks is the store's affair
 * (mesh/store.h). Then every call is collective but those that only look. Must not know the board,
 * checkpoints or settings. */
#ifndef CONVOY_TRAIN_STEP_H
#define CONVOY_TRAIN_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/core/comm.h"
#include "data/feed.h"
#include "dev/dev.h"
#include "mesh/store.h"
#include "model/model.h"
#include "train/batch.h"
#include "train/optim.h"

/* The factor of the loss on its way back, and so of all gradients, which keeps 16-bit floats (f16)
 * from losing the small ones: halved, and the step done again, when a gradient is infinite; doubled
 * after STEP_LOSS_SCALE_GROWTH_STEPS steps without. A power of two; 0: none (the other types, whose
 * exponents reach as far as f32's). */
#define STEP_LOSS_SCALE_INIT 65536.0
#define STEP_LOSS_SCALE_MAX 16777216.0
#define STEP_LOSS_SCALE_GROWTH_STEPS 2000
struct step_loss_scale {
    double factor;
    int64_t steps; /* done since it changed */
};

struct step_config {
    struct dev *dev;
    struct comm *comm;           /* borrowed; NULL: a step of one rank, alone */
    struct store_settings store; /* how ranks hold and exchange the state, and its 16-bit dtype */
    struct model_dims dims;
    int64_t batch_samples;  /* of a micro-batch */
    int64_t global_samples; /* of a step; a multiple of batch_samples times ranks */
    int64_t seq_tokens;
    struct optim_config optim;
    enum model_recompute recompute;
    float dropout;
    uint64_t seed;
    /* only step_eval, step_logits and step_spans: no memory for gradients and moments */
    bool is_eval;
    /* CUDA_GRAPH=off: what goes to a GPU goes at once, one operation after the other */
    bool is_eager;
    /* parameters will be loaded by the caller (step_part): they start as zeros, not drawn */
    bool is_loaded;
    /* called between units and micro-batches: still alive; NULL allowed */
    void (*heartbeat)(void *arg);
    void *heartbeat_arg;
};

struct step_result {
    double loss;       /* of the global batch, before the update */
    double grad_norm;  /* before clipping */
    double compute_ms; /* all of step_run but wait_ms; of which (with the waiting inside): */
    double forward_ms, backward_ms, norm_ms, update_ms;
    double head_ms; /* head: forward and backward. Each is a sum over micro-batches */
    double comm_ms; /* busy_ms of comm_times: beside computation or not */
    double wait_ms; /* wait_ms of comm_times: this thread blocked in communication */
    int again;      /* how often the step was done again with a smaller loss scale */
    int vote;       /* the greatest that any rank chose with step_vote; the same on all */
};

struct step;
/* all memory taken, parameters at their initial values */
enum status step_open(const struct step_config *config, struct step **out);
void step_close(struct step *step); /* accepts NULL */

/* step_vote — a number (0 … STEP_VOTES-1) that this rank puts in with each step_run from now
 * on, so that ranks can agree on what comes after a step without a message of its own. */
#define STEP_VOTES 6
void step_vote(struct step *step, int vote);
/* step_loss_scale, step_set_loss_scale — the loss scale that the next step begins with: part of the
 * state. */
struct step_loss_scale step_loss_scale(const struct step *step);
void step_set_loss_scale(struct step *step, struct step_loss_scale scale);
/* step_run — the update number step_i (from 0) on samples [sample_first, + global_samples) of the
 * feed. When the loss or norm is not finite the parameters are left as they were and ST_NOT_FINITE
 * says the values. inject_nan: FAULT=nan, makes one gradient NaN. */
enum status step_run(struct step *step, const struct feed *feed, int64_t step_i,
                     int64_t sample_first, double lr, bool inject_nan, struct step_result *out);
/* step_run_batch — the same on this rank's samples, which the caller holds: what step_run does once
 * it has asked the feed. When a rank's samples are refused (ST_BAD_DATA) the others get ST_PEER. A
 * rank that is lost: ST_PEER, and then step_close. */
enum status step_run_batch(struct step *step, const struct batch *batch, int64_t step_i,
                           int64_t sample_first, double lr, bool inject_nan,
                           struct step_result *out);
/* step_eval — mean loss over samples [0, samples) of the feed (LM: per token), dropout off, nothing
 * changed. stop() is asked between batches; when it says true on any rank: ST_RETRY on all. */
enum status step_eval(struct step *step, const struct feed *feed, int64_t samples,
                      bool (*stop)(void *arg), void *arg, double *loss_out);
/* step_logits — LM: the logits (V, on the host) of what follows n tokens, 1 ≤ n ≤ seq_tokens, each
 * in [0, V). Dropout off, nothing changed. */
enum status step_logits(struct step *step, const int32_t *tokens, int64_t n, float *out);
/* step_spans — QA: the logits (samples, T, 2) of start and end, on the host, of a batch of at most
 * batch_samples samples. Dropout off, nothing changed. */
enum status step_spans(struct step *step, const struct batch *batch, float *out);

/* State, for checkpoints. part 0: parameters, 1: first moment (adam_m or momentum), 2: second. */
int step_parts(const struct step *step);
const struct param_table *step_table(const struct step *step);
struct stream *step_stream(const struct step *step);
/* step_read, step_write — elements [first, first + n) of a part, to and from the host, however the
 * state is spread: rank 0 only, while the others are in step_state_serve; then step_state_end with
 * what became of it. With one rank nobody follows, and the calls may stand alone. As
 * store_state.h. */
enum status step_read(struct step *step, int part, int64_t first, int64_t n, float *dst);
enum status step_write(struct step *step, int part, int64_t first, int64_t n, const float *src);
enum status step_state_end(struct step *step, enum status st);
enum status step_state_serve(struct step *step);
/* Where a part lies whole, as it does with one rank, and with SHARD=none: addresses of the device.
 * With several ranks a part of a step's work may be left to the beginning of the next: step_drain
 * does it first. */
enum status step_drain(struct step *step);
float *step_part(struct step *step, int part);
/* the same, for copies on step_stream */
struct tensor step_tensor(const struct step *step, int part);
/* of the last step_run, before clipping */
struct tensor step_grads(const struct step *step);
/* step_set_params — parameters [first, first + n) of this rank alone become values (host), for the
 * next pass too. */
enum status step_set_params(struct step *step, int64_t first, int64_t n, const float *values);
struct step_memory {
    struct store_memory store;
    int64_t passes;      /* activations, scratch, inputs */
    int64_t activations; /* of these */
    int64_t batch;       /* a step's samples, in the host's memory */
    int64_t scratch;     /* of its stream on a GPU (dev_info); 0 on a CPU */
};
/* step_plan — what step_open would take on rank `rank` of `ranks`, whose device's memory is apart
 * from the host's or not. Of the config dev, comm and the callbacks are not looked at. */
enum status step_plan(const struct step_config *config, int rank, int ranks, bool is_discrete,
                      struct step_memory *out);
struct step_memory step_memory(const struct step *step);
int64_t step_memory_bytes(const struct step *step); /* taken by this step: planned = taken */
/* products really done by one step_run, on all ranks */
double step_flops(const struct step *step);

#endif
