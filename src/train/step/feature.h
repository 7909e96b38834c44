/* step_feature — the hooks by which an optional feature of a training step joins it. A feature has
 * a table of hooks and a struct of its own, and registers both when the step opens. step.c has the
 * list of features; its order is the order of the hooks. The run loop (step/run.c) walks the tables
 * and contains no feature's name.
 *
 * A feature sees struct step_core, the numbers of the step in progress, and the passes below. It
 * must not see struct step. All hooks may be NULL, and all run on the step's thread, on all ranks
 * alike. */
#ifndef CONVOY_TRAIN_STEP_FEATURE_H
#define CONVOY_TRAIN_STEP_FEATURE_H

#include "train/step/core.h"

/* A micro-batch of a step, on this rank. */
struct step_micro {
    int64_t first; /* index of its first sample on this rank */
    bool is_last;  /* it is the last one of the step */
    enum step_fault fault;
    bool is_check; /* its gradients are only compared, not reduced */
};

/* The action after the loss and the norm have been computed. */
enum step_decision {
    STEP_DECISION_UPDATE,
    STEP_DECISION_SKIP,  /* no update */
    STEP_DECISION_REPEAT /* repeat the passes */
};

/* Numbers of the head of a step in which a rank may report that its state has changed by itself;
 * added up over all ranks. */
#define STEP_CHANGED 3

/* The step in progress. */
struct step_now {
    const struct feed *feed; /* NULL: the caller holds the samples */
    struct batch batch;      /* own positions of this rank's samples */
    int64_t step_i;
    int64_t sample_first; /* first sample of the global batch, in the feed */
    int64_t samples;      /* samples of the global batch; with LOCAL_STEPS of a replica's */
    double lr;
    enum step_fault fault;
    double *changed;   /* STEP_CHANGED numbers of this rank; from COUNTED on their sums */
    bool needs_counts; /* FORWARD computes losses, so the counts are awaited before it */
    bool is_counted;   /* the counts have arrived */
    struct comm_ticket counts;
    enum step_decision decision;
    struct step_result *r;
};

/* The phases of a step, in which its hooks run.
 *   BEGIN    The samples have been read.
 *   COUNTED  The numbers that ranks add up at the head of a step have arrived. The last step's
 *            update is complete, or deferred to this step's forward passes.
 *   FORWARD  Before this rank's own passes; again before each repetition.
 *   REDUCE   Loss and norm of all ranks have been computed. REPEAT ends the calls of this phase.
 *   DECIDE   The state has not changed, except for an update that the device decides on.
 *   END      The update was begun or skipped. */
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
    /* A pass begins. It goes through the stage's run of layers; `at` is the number of this run
     * among all runs in the order of data flow, or 0 without stages. The hook may change the pass's
     * axes and the memory to which it writes gradients. */
    void (*pass)(void *self, const struct step_micro *m, int at, struct pass *p);
    /* The stream has written rows that are about to be sent to another stage. */
    enum status (*rows)(void *self, struct tensor rows, int64_t elems);
    /* A micro-batch's gradients of a unit are written. Nothing has read them yet. */
    enum status (*unit_bwd)(void *self, const struct step_micro *m, int unit);
    /* This rank's gradients of a unit are complete, and are being sent to other ranks. Called from
     * the last unit to unit 0. A stage of a pipeline calls it for each of its own units, and after
     * all its passes and messages for unit 0, which it may lack. In the order of the step's stream,
     * the state of the previous step is complete, and the update of this step has not begun. */
    enum status (*unit_done)(void *self, int unit);
    /* The optimiser is about to read and write a bucket. */
    enum status (*bucket_update)(void *self, int bucket);
    void (*close)(void *self);
};

/* step_feature_add — registers a feature while the step opens. From then on self belongs to the
 * step, and the hook .close frees it. */
void step_feature_add(struct step_core *s, const struct step_feature *feature, void *self);
/* step_feature_find — returns the self of a feature that was added, or NULL if the step does not
 * have the feature. */
void *step_feature_find(const struct step *step, const struct step_feature *feature);

/* The features of this program, in the order of step.c's list. Each adds itself to a step that
 * opens, if the config enables it. A new feature has a line here and a line there. */
enum status step_loss_scale_add(struct step_core *s);  /* f16 */
enum status step_update_sums_add(struct step_core *s); /* updates check the bits that they read */
enum status step_shard_check_add(struct step_core *s); /* a virtual shard computed twice */
enum status step_shards_add(struct step_core *s);      /* EXACT=layout */
enum status step_balance_add(struct step_core *s);     /* BALANCE=auto */
enum status step_local_add(struct step_core *s);       /* LOCAL_STEPS */
enum status step_spikes_add(struct step_core *s);      /* SPIKE */

/* step_sentinel_submit — submits to the device the work of a comparison of states; for a plan,
 * which needs no result. */
enum status step_sentinel_submit(struct step_core *s);
/* Returns the bytes of host memory that comparisons of shards need if a step can compare; else
 * 0. */
int64_t step_shard_check_bytes(const struct step_core *s);

/* ---- updates ---- */

/* step_update_spans — returns the number of ranges of a local shard that the optimiser updates.
 * *out is valid until the next call. */
int64_t step_update_spans(const struct step *step, const struct store_local_shard *a,
                          const struct optim_span **out);
/* step_steps_updated — returns the number of steps done with the update that was made last, or is
 * deferred. */
int64_t step_steps_updated(const struct step *step);
/* step_set_steps_updated — sets that number. */
void step_set_steps_updated(struct step *step, int64_t steps);
/* step_skipped_n — returns the address of the number of steps of the run that made no update. */
int64_t *step_skipped_n(struct step *step);
/* step_loss_scale_of — returns the address of the loss scale. */
struct step_loss_scale *step_loss_scale_of(struct step *step);

/* ---- passes, for features and for stages of a pipeline (step/run.c, step/pass.c) ---- */

/* step_pass — returns a pass of `samples` samples, without gradients. */
struct pass step_pass(const struct step *step, int64_t samples);
/* step_pass_train — returns a pass of a micro-batch with gradients. sample: its first sample, in
 * the global batch. */
struct pass step_pass_train(const struct step *step, int64_t sample, int64_t step_i);
/* step_pass_scale — sets the scale of a pass's loss. It depends on the counts of targets. */
void step_pass_scale(const struct step *step, struct pass *p);
/* step_pass_begin — calls the hooks `pass`. */
void step_pass_begin(struct step *step, const struct step_micro *m, int at, struct pass *p);
/* step_rows — calls the hooks `rows`. */
enum status step_rows(struct step *step, struct tensor rows, int64_t elems);
/* step_copy_inputs — copies the own positions of samples [first, first + p->b) of the batch to the
 * device. */
enum status step_copy_inputs(struct step *step, const struct batch *batch, int64_t first,
                             struct pass *p);
/* step_copy_losses — copies losses to host memory, at sample `first` of step_losses. */
enum status step_copy_losses(struct step *step, const struct pass *p, int64_t first);
/* step_losses — returns the losses of this rank's samples, in host memory. */
const float *step_losses(const struct step *step);
/* step_forward — runs all layers below the head, through all stages. */
enum status step_forward(struct step_core *s, const struct pass *p);
/* step_unshard_head — all-gathers the parameters that the head reads. */
enum status step_unshard_head(struct step_core *s);
/* step_zero_added — zeroes the gradients that passes only add to; skips_embed: except the token
 * embedding's. No update may be deferred any more. */
enum status step_zero_added(struct step_core *s, const struct pass *p, bool skips_embed);
/* step_write_fault — writes FAULT=nan and spike to a gradient after a unit's backward pass. p: that
 * pass. */
enum status step_write_fault(struct step *step, const struct pass *p, int unit,
                             enum step_fault fault);
/* step_unit_bwd — calls the hooks, and after the last micro-batch reduces the gradients, except
 * unit 0 of a stage of a pipeline. Call it when a micro-batch's gradients of a unit are written. */
enum status step_unit_bwd(struct step *step, const struct step_micro *m, int unit);
/* step_unit_reduce — reduces the gradients of a unit. A stage of a pipeline calls it for unit 0
 * after all passes. */
enum status step_unit_reduce(struct step *step, int unit);
/* step_micro_fwd — runs the forward pass of a micro-batch. */
enum status step_micro_fwd(struct step *step, struct pass *p, const struct step_micro *m);
/* step_micro_bwd — runs the head and the backward pass of a micro-batch. */
enum status step_micro_bwd(struct step *step, struct pass *p, const struct step_micro *m,
                           struct step_result *r);
/* step_lap — adds the time since the last call to *ms. On a GPU this is only the time of
 * launches. */
void step_lap(struct step *step, double *ms);
/* step_add_waits — adds the times of communication since the last call. Returns the milliseconds
 * waited. */
double step_add_waits(const struct step_core *s, struct step_result *r);

#endif
