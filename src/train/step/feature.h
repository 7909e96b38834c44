/* step_feature — how an optional part of a training step joins it. A feature has a table of hooks,
 * a struct of its own, and registers both when the step opens (step.c has the list, whose order is
 * that of the hooks). The run loop (step/run.c) walks the tables and names no feature.
 *
 * A feature sees struct step_core, the numbers of the step under way, and the passes below. It must
 * not see struct step. All hooks may be NULL, and all run on the step's thread, on all ranks
 * alike. */
#ifndef CONVOY_TRAIN_STEP_FEATURE_H
#define CONVOY_TRAIN_STEP_FEATURE_H

#include "train/step/core.h"

/* A micro-batch of a step, on this rank. */
struct step_micro {
    int64_t first; /* its first sample there */
    bool is_last;  /* of the step */
    enum step_fault fault;
    bool is_check; /* of no shard of this rank: its gradients are only compared */
};

/* What follows when loss and norm are known. */
enum step_decision {
    STEP_DECISION_UPDATE,
    STEP_DECISION_SKIP,  /* no update */
    STEP_DECISION_REPEAT /* the passes once more */
};

/* Numbers of the head of a step in which a rank may report that its state has changed by itself;
 * added up over all ranks. */
#define STEP_CHANGED 3

/* The step under way. */
struct step_now {
    const struct feed *feed; /* NULL: the caller holds the samples */
    struct batch batch;      /* this rank's samples, and of each its own positions */
    int64_t step_i;
    int64_t sample_first; /* of the global batch, in the feed */
    double lr;
    enum step_fault fault;
    double *changed;   /* STEP_CHANGED numbers: this rank's, and from COUNTED on the sums */
    bool needs_counts; /* FORWARD computes losses, so counts of targets are awaited before it */
    bool is_counted;   /* they are known */
    struct comm_ticket counts;
    enum step_decision decision;
    struct step_result *r;
};

/* When hooks of a step run.
 * BEGIN    the samples are there.
 * COUNTED  the numbers that ranks add up at the head of a step are known. The last step's update is
 *          complete, or deferred to this one's forward passes.
 * FORWARD  before this rank's own passes; again with each repetition.
 * REDUCE   loss and norm of all ranks are known. REPEAT ends the walk.
 * DECIDE   nothing of the state has changed, but for an update that the device decides on.
 * END      the update was begun, or skipped. */
enum step_phase {
    STEP_PHASE_BEGIN,
    STEP_PHASE_COUNTED,
    STEP_PHASE_FORWARD,
    STEP_PHASE_REDUCE,
    STEP_PHASE_DECIDE,
    STEP_PHASE_END,
    STEP_PHASE_N
};

struct step_feature {
    const char *name;
    enum status (*phase[STEP_PHASE_N])(void *self, struct step_now *now);
    /* A pass begins, through the stage's run of layers number `at` of all runs in the order of this
     * pass's data flow; 0 without stages. May change where it writes gradients, and its axes. */
    void (*pass)(void *self, const struct step_micro *m, int at, struct pass *p);
    /* rows that another stage is about to get: written by the stream */
    enum status (*rows)(void *self, struct tensor rows, int64_t elems);
    /* a micro-batch's gradients of a unit are written, before anything reads them */
    enum status (*unit_bwd)(void *self, const struct step_micro *m, int unit);
    /* this rank's gradients of a unit are complete, and on their way to other ranks. From the last
     * unit to unit 0; a stage of a pipeline calls it for each of its own units, and for unit 0,
     * which it may lack, when it has done all its passes and messages. The state of the step before
     * is complete, and the update of this one has not begun, but on devices that decide */
    enum status (*unit_done)(void *self, int unit);
    /* the optimiser has read and written a bucket, but for what Muon updates */
    void (*bucket_updated)(void *self, int bucket);
    void (*close)(void *self);
};

/* step_feature_add — when the step opens: self belongs to the step from now on, and .close frees
 *   it.
 * step_feature_find — of a step: self, as it was added; NULL: the step does not have the
 *   feature. */
void step_feature_add(struct step_core *s, const struct step_feature *feature, void *self);
void *step_feature_find(const struct step *step, const struct step_feature *feature);

/* The features of this program, in step.c's list; each adds itself to a step that opens, where the
 * config wants it. A new one has a line here and a line there. */
enum status step_loss_scale_add(struct step_core *s);  /* of f16 */
enum status step_update_sums_add(struct step_core *s); /* updates check what they read */
enum status step_shard_check_add(struct step_core *s); /* a virtual shard computed twice */
enum status step_shards_add(struct step_core *s);      /* EXACT=layout */
enum status step_local_add(struct step_core *s);       /* LOCAL_STEPS */
enum status step_spikes_add(struct step_core *s);      /* SPIKE */

/* Returns the bytes of host memory that comparisons of shards need if a step can compare; else
 * 0. */
int64_t step_shard_check_bytes(const struct step_core *s);

/* Updates.
 * step_want_sums  each update of a bucket sums the bits that it reads and writes in *sums, from
 *                 zero.
 * step_update_spans  what the optimiser updates of a local shard; valid until the next call.
 * step_steps_updated  steps done with the update that was made last, or is deferred.
 * step_skipped_n, step_loss_scale_of  numbers that the step reads: steps of the run that made no
 *                 update, so far; the loss scale. */
void step_want_sums(struct step *step, struct optim_sums *sums);
int64_t step_update_spans(const struct step *step, const struct store_local_shard *a,
                          const struct optim_span **out);
int64_t step_steps_updated(const struct step *step);
void step_set_steps_updated(struct step *step, int64_t steps);
int64_t *step_skipped_n(struct step *step);
struct step_loss_scale *step_loss_scale_of(struct step *step);

/* Passes, for features and for stages of a pipeline (step/run.c, step/pass.c).
 * step_pass        of so many samples, without gradients.
 * step_pass_train  of a micro-batch with gradients; sample: its first one, in the global batch.
 * step_pass_scale  sets the scale of its loss, which counts of targets decide.
 * step_pass_begin  calls the hooks.
 * step_copy_inputs  copies samples [first, first + p->b) of the batch, of own positions, to the
 *                  device.
 * step_copy_losses  to host memory, at sample `first` of step_losses.
 * step_forward     everything below the head; through all stages.
 * step_zero_added  zeroes gradients that are only added to. No update may be deferred any more.
 * step_write_fault  FAULT=nan and spike, after a unit's backward pass. p: that pass.
 * step_unit_bwd    a micro-batch's gradients of a unit are written: calls the hooks, and after the
 *                  last one reduces them. A stage of a pipeline reduces unit 0 after all passes:
 * step_unit_reduce
 * step_micro_fwd, _bwd  a micro-batch: forward pass; head and backward pass.
 * step_lap         adds the time since the last lap to *ms. On a GPU this is only that of
 *                  launching.
 * step_add_waits   adds the times of communication since the last call. Returns the milliseconds
 *                  waited. */
struct pass step_pass(const struct step *step, int64_t samples);
struct pass step_pass_train(const struct step *step, int64_t sample, int64_t step_i);
void step_pass_scale(const struct step *step, struct pass *p);
void step_pass_begin(struct step *step, const struct step_micro *m, int at, struct pass *p);
enum status step_rows(struct step *step, struct tensor rows, int64_t elems);
enum status step_copy_inputs(struct step *step, const struct batch *batch, int64_t first,
                             struct pass *p);
enum status step_copy_losses(struct step *step, const struct pass *p, int64_t first);
const float *step_losses(const struct step *step);
enum status step_forward(struct step_core *s, const struct pass *p);
enum status step_unshard_head(struct step_core *s);
enum status step_zero_added(struct step_core *s, const struct pass *p);
enum status step_write_fault(struct step *step, const struct pass *p, int unit,
                             enum step_fault fault);
enum status step_unit_bwd(struct step *step, const struct step_micro *m, int unit);
enum status step_unit_reduce(struct step *step, int unit);
enum status step_micro_fwd(struct step *step, struct pass *p, const struct step_micro *m);
enum status step_micro_bwd(struct step *step, struct pass *p, const struct step_micro *m,
                           struct step_result *r);
void step_lap(struct step *step, double *ms);
double step_add_waits(const struct step_core *s, struct step_result *r);

#endif
