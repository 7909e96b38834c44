/* step_inside — struct step, only for its own files: step.c (life, state), step/memory.c,
 * step/run.c (the sequence of a step), step/pass.c (its passes), step/end.c (its loss and norm),
 * step/update.c (the optimiser), step/eval.c and step/dry.c. Features and the pipeline see
 * step/core.h and step/feature.h, and other files step.h. */
#ifndef CONVOY_TRAIN_STEP_INSIDE_H
#define CONVOY_TRAIN_STEP_INSIDE_H

#include "train/step/feature.h"
#include "train/step/memory.h"

#define STEP_FEATURES_MAX 16
#define STEP_SUMS 8
#define STEP_COUNTS (4 + STEP_CHANGED) /* numbers that ranks add up at the start of a step */

/* The inputs of passes, on the device; and the hits of an evaluated batch (LM, model.h). */
struct step_inputs {
    struct tensor tokens, targets, first_key, positions, mask, starts, ends, hits;
};

/* step/update.c. lr and step_i belong to the update that ran last, or is deferred. step_i counts
 * updates, from 0. */
struct step_update {
    struct muon_room muon; /* OPTIMIZER=muon */
    struct optim_span *spans, *cut;
    int64_t spans_n;
    double lr;
    int64_t step_i;
    int64_t skipped_n; /* steps of the run that made no update */
};

/* A step whose update the device skips by itself (step/end.c). */
struct step_async {
    bool is_on;
    struct tensor loss_sum;          /* (1) f64: input of grad_scale */
    double *grad_scale_host;         /* grad_scale as read back; pinned */
    struct dev_event *results_ready; /* the host has grad_scale and losses */
    struct step_ranks *ranks;        /* several ranks; else NULL */
};

struct step {
    struct step_core core;
    struct arena arena[STEP_ARENA_N];
    struct model_acts *acts;
    struct step_inputs in;
    struct tensor losses;     /* losses of a micro-batch, on the device */
    struct tensor logits;     /* LM (V), QA (B·T,2) f32 */
    struct tensor grad_scale; /* (2) f64: the factor; async.is_on: also the square of the norm */
    struct batch batch, own;  /* on the host: samples of a step; own positions of them */
    float *losses_host;       /* losses of each sample; pinned */
    int64_t readback_bytes;   /* size of the pinned memory */
    struct step_async async;
    struct step_update update;
    double sums[STEP_SUMS]; /* numbers that are being summed over ranks */
    double *end_sums;       /* more such numbers: losses and votes (step/end.c) */
    double scale, scale_end;
    struct step_loss_scale loss_scale;
    int vote;
    int64_t lap_ns;
    struct {
        const struct step_feature *hooks;
        void *self;
    } feature[STEP_FEATURES_MAX];
    int features_n;
};

/* step_grad_clip — returns the limit of the norm. Without a loss scale it is rounded to f32, which
 * keeps the bits of runs that computed the factor in f32. */
double step_grad_clip(const struct step *s);
/* step_loss_factor — returns the factor by which losses and gradients are multiplied. */
double step_loss_factor(const struct step *s);

/* ---- memory (step/memory.c) ---- */

/* step_memory_arenas — divides the arenas for passes. This rank's shard of the model and the
 * store's place are set before. */
enum status step_memory_arenas(struct step *s, struct arena arena[STEP_ARENA_N]);
/* step_memory_alloc — allocates the arenas, and host memory for results that are read back. */
enum status step_memory_alloc(struct step *s);
/* step_memory_check — asserts that the allocated sizes are the planned sizes. */
enum status step_memory_check(const struct step *s);
/* step_memory_log — logs on rank 0 the memory of a rank, by purpose; nothing for one CPU rank. */
void step_memory_log(const struct step *s);
/* step_store_config — returns the config of the step's store. */
struct store_config step_store_config(struct step *s);
/* step_place_of — returns the place of an open step. */
struct step_place step_place_of(const struct step *s);

/* ---- the end of the passes (step/end.c) ---- */

/* step_end_open — allocates memory for the sums. Call it after the store is open. */
void step_end_open(struct step *s);
/* step_end_close — accepts a step without that memory. */
void step_end_close(struct step *s);
/* step_end — computes loss, norm and vote of all ranks, in *now->r, and on the device the factor of
 * the gradients. */
enum status step_end(struct step *s, struct step_now *now);

/* ---- the end of the passes if the device decides on the update ---- */

/* step_async_is_possible — returns true if the device decides in a step at this place. */
bool step_async_is_possible(const struct step_config *c, const struct step_place *place);
/* step_async_plan — returns the bytes that step_async_open allocates there, both on the device and
 * on the host. */
int64_t step_async_plan(const struct step *s, const struct step_place *place);
/* step_async_memory — returns the bytes that it allocated. */
int64_t step_async_memory(const struct step *s);
/* step_async_open — allocates memory for the results of several ranks. */
enum status step_async_open(struct step *s);
/* step_async_close — accepts a step without that memory. */
void step_async_close(struct step *s);
/* step_async_begin — divides the memory of results for a step of `samples` samples on all ranks,
 * and writes this rank's vote. Call it before the step's first pass. */
enum status step_async_begin(struct step *s, int64_t samples);
/* step_async_losses — adds up the losses of a micro-batch on the device, and copies them to the
 * host. */
enum status step_async_losses(struct step *s, const struct pass *p, const struct step_micro *m);

/* ---- updates (step/update.c) ---- */

/* step_update_open — computes the ranges of the update. Call it after step_mesh_describe. */
void step_update_open(struct step *s);
/* step_update_close — frees the ranges; accepts a step without them. */
void step_update_close(struct step *s);
/* step_update_bucket — runs the optimiser on one bucket of the store. arg: the step. */
enum status step_update_bucket(void *arg, int bucket);
/* step_update — begins the update of a step. Buckets of it may be deferred to the next step. */
enum status step_update(struct step *s, const struct step_now *now);

#endif
