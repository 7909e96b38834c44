/* step_inside — the whole of a step, only for its own files: step.c (life, state), step/memory.c,
 * step/run.c (the story of a step), step/pass.c (its passes), step/end.c (its loss and norm),
 * step/update.c (the optimiser), step/eval.c and step/dry.c. Features and the pipeline see
 * step/core.h and step/feature.h, and other files step.h. */
#ifndef CONVOY_TRAIN_STEP_INSIDE_H
#define CONVOY_TRAIN_STEP_INSIDE_H

#include "train/step/feature.h"
#include "train/step/memory.h"

#define STEP_FEATURES_MAX 16
#define STEP_SUMS 8
#define STEP_COUNTS (4 + STEP_CHANGED) /* numbers that ranks add up at the start of a step */

/* What passes read, on the device. */
struct step_inputs {
    struct tensor tokens, targets, first_key, mask, starts, ends;
};

/* step/update.c. lr, step_i: of the update that ran last, or is deferred; step_i counts those that
 * were made, from 0. */
struct step_update {
    struct muon_room muon; /* OPTIMIZER=muon */
    struct optim_span *spans, *cut;
    int64_t spans_n;
    struct optim_sums *sums; /* of the bits of a bucket (step_want_sums); NULL: not wanted */
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
    struct tensor losses;     /* of a micro-batch, on the device */
    struct tensor logits;     /* LM (V), QA (B·T,2) f32 */
    struct tensor grad_scale; /* (2) f64: the factor; is_on: and the square of the norm */
    struct batch batch, own;  /* on the host: samples of a step; own positions of them */
    float *losses_host;       /* one for each sample's losses; pinned */
    int64_t readback_bytes;   /* of what is pinned */
    struct step_async async;
    struct step_update update;
    double sums[STEP_SUMS]; /* numbers that are being summed over ranks */
    double *end_sums;       /* the same: losses and votes (step/end.c) */
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

/* step_grad_clip — the limit of the norm. Without a loss scale it is rounded to f32, which keeps
 * the bits of runs that computed the factor in f32.
 * step_loss_factor — what losses and gradients are multiplied by. */
double step_grad_clip(const struct step *s);
double step_loss_factor(const struct step *s);

/* Memory (step/memory.c).
 * _arenas: divides the arenas for passes; the part and the store's place are set before.
 * _take: allocates the arenas, and memory for what is read back. _check: asserts that the sizes are
 * those of the plan. step_store_config: of the step's store. step_place_of: of an open step. */
enum status step_memory_arenas(struct step *s, struct arena arena[STEP_ARENA_N]);
enum status step_memory_take(struct step *s);
enum status step_memory_check(const struct step *s);
void step_memory_log(const struct step *s);
struct store_config step_store_config(struct step *s);
struct step_place step_place_of(const struct step *s);

/* The end of the passes (step/end.c): loss, norm and vote of all ranks, to *now->r, and the factor
 * of the gradients, on the device.
 * _open: after the store. _close: accepts a step without it.
 * step_end_set_vote: the highest that any rank has; votes: how many have each. */
void step_end_open(struct step *s);
void step_end_close(struct step *s);
enum status step_end(struct step *s, struct step_now *now);

/* The same where the device decides.
 * _takes: is_on of a step at a place.
 * _plan: the bytes that _open allocates there, of the device and of the host each.
 * _memory: the bytes that it allocated.
 * _open: allocates what several ranks need. _close: accepts a step without it.
 * _begin: before a step's first pass.
 * _losses: adds up the losses of a micro-batch on the device, and copies them to the host. */
bool step_async_takes(const struct step_config *c, const struct step_place *place);
int64_t step_async_plan(const struct step *s, const struct step_place *place);
int64_t step_async_memory(const struct step *s);
enum status step_async_open(struct step *s);
void step_async_close(struct step *s);
enum status step_async_begin(struct step *s);
enum status step_async_losses(struct step *s, const struct pass *p, const struct step_micro *m);

/* Updates (step/update.c).
 * _open: after _describe; _close.
 * _bucket: runs the optimiser on one bucket of the store; arg: the step.
 * step_update: begins that of a step; parts of it may be deferred to the next one. */
void step_update_open(struct step *s);
void step_update_close(struct step *s);
enum status step_update_bucket(void *arg, int bucket);
enum status step_update(struct step *s, const struct step_now *now);

#endif
