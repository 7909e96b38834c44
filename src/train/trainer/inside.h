/* trainer_inside — declarations for the files of the trainer: trainer.c (the loop), trainer/begin.c
 * (before the first step), trainer/ledger.c (the ledger), trainer/end.c (after the last). Other
 * files use trainer.h. */
#ifndef CONVOY_TRAIN_TRAINER_INSIDE_H
#define CONVOY_TRAIN_TRAINER_INSIDE_H

#include "format/tfevents.h"
#include "train/trainer/console.h"
#include "train/trainer/consensus.h"
#include "train/trainer/ledger_file.h"
#include "base/memory.h"
#include "train/trainer/metrics_file.h"
#include "train/trainer/sample_text.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/step.h"
#include "train/trainer/trainer.h"

#define TRAINER_LAST 10 /* number of losses in the summary's mean */

struct trainer {
    const struct trainer_config *config;
    struct consensus consensus;
    bool is_rank0;         /* this rank writes files and prints */
    bool is_first_of_node; /* is_brief of the config */
    /* times as in struct step_result, summed over all steps but the first, which touches new
     * memory. If there is only one step it counts. parallel_ms: time of these steps */
    double parallel_ms, pipe_ms, pipe_wait_ms, tensor_ms, context_ms;
    bool is_sharded;         /* ranks hold shards of the state */
    bool are_passes_divided; /* all ranks are needed for a forward pass */
    /* the state is not one array in host memory: several ranks, a device with memory of its own,
     * LOCAL_STEPS or Muon */
    bool needs_transfer;
    bool has_checkpoint_dir;    /* rank 0 has a checkpoint folder */
    bool is_enospc_done;        /* FAULT=enospc was injected */
    double compute_ms;          /* computing time of the last step */
    enum board_request request; /* the highest request of all ranks when the last step began */
    struct step *step;
    struct checkpoint *checkpoint;             /* NULL: no CHECKPOINT_DIR, or not rank 0 */
    struct checkpoint_async *checkpoint_async; /* NULL: nothing to save yet */
    struct checkpoint_async_last last_checkpoint;
    int64_t step_recorded;       /* step of the last checkpoint in the ledger */
    struct ledger_file *ledger;  /* NULL: as checkpoint */
    struct peer_copy *peer_copy; /* NULL: no copies in peers' memory */
    bool is_from_memory;         /* the state comes from peer_copy */
    bool is_found;               /* it comes from there, or from a checkpoint */
    /* rank 0, with an adapter: the sum of the frozen weights (load.h) */
    char base_sha256[MODEL_SHA256_MAX];
    struct metrics_file metrics;
    struct tfevents *events;         /* NULL: no TENSORBOARD_DIR */
    struct sample_text *sample_text; /* NULL: no SAMPLE_EVERY */
    struct console console;
    struct console_pace pace;
    struct memory memory;
    struct board_worker numbers;
    double peak_flops;

    struct checkpoint_progress progress; /* progress of the run */
    int64_t steps;                       /* planned steps */
    int64_t end;                         /* last step of this process */
    int64_t samples;                     /* samples planned by EPOCHS, if STEPS is not set */
    int64_t samples_left;                /* left out after the last step: fewer than one step */
    struct lr_schedule_unit schedule;    /* unit of the learning rate; with STEPS its steps */
    int64_t schedule_steps;              /* all steps of the schedule */
    int64_t step_first, samples_first;   /* steps and samples done when this process began */
    int64_t step_evaluated;              /* last evaluated step; -1: none */
    int64_t step_compared;               /* last compared step; 0: none */
    bool is_state_right; /* a step failed because of a wrong result, before it changed the state */
    double loss_first, loss_last[TRAINER_LAST], val_loss;
    int64_t loss_first_step;
    double loss_applied;    /* loss of the last step that made an update */
    double steps_ms;        /* time spent in steps, for the summary */
    int64_t files_check_ms; /* time of the next check that no data file is gone */
    double stall_ms;        /* time that training waited for checkpoints since the last step */
};

void trainer_heartbeat(void *arg); /* arg: the trainer */
/* trainer_publish — publishes the phase and all numbers of this worker on the board. Counts as a
 * heartbeat. */
void trainer_publish(struct trainer *t, enum board_phase phase);
/* trainer_begin — does all work before the first step: finds where to resume, allocates memory,
 * loads weights. If all steps are done already, it allocates nothing. */
enum status trainer_begin(struct trainer *t);
/* ---- the ledger of the run (trainer/ledger.c) ---- */

/* trainer_ledger_open — exchanges the names of the ranks' devices, and opens the ledger. Call it
 * before the first step. Collective. */
enum status trainer_ledger_open(struct trainer *t);
/* trainer_ledger_add — records a step that is done, on all ranks. */
void trainer_ledger_add(struct trainer *t, const struct step_result *result, int64_t samples);
/* trainer_ledger_checkpoint — records a checkpoint that was committed since the last call. */
void trainer_ledger_checkpoint(struct trainer *t);
void trainer_end(struct trainer *t); /* prints the summary of a run to the console */
/* trainer_model_name — returns the name of the model for messages. */
static inline const char *trainer_model_name(const struct trainer_config *config)
{
    return config->model_name ? config->model_name : config->model_path;
}

/* Writes to the console why this process has no step to do. */
void trainer_end_early(const struct trainer *t);

/* ---- comparisons of replicas and of virtual shards (trainer/sentinel.c) ----
 * Collective, unless stated otherwise. */
/* trainer_sentinel_ask — requests that the next step compares virtual shards, if that is due. */
void trainer_sentinel_ask(const struct trainer *t);
/* trainer_sentinel_flip — makes the next step invert a bit in a gradient of this rank
 * (FAULT=gradient). Call it on one rank, before that step. */
void trainer_sentinel_flip(const struct trainer *t);
/* trainer_sentinel_obey — local, before a step: inverts the bit that `rehearse` ordered
 * (board_flip_order), if it cannot reach a checkpoint. */
enum status trainer_sentinel_obey(struct trainer *t);
/* trainer_sentinel — fails on all ranks if replicas differ, with ST_FAULT on the faulty one. Call
 * it after a step, and before a checkpoint is saved. */
enum status trainer_sentinel(struct trainer *t, bool before_save);
/* trainer_sentinel_begin — local, before the first step: logs which parameters replicas compare,
 * and their address. */
void trainer_sentinel_begin(struct trainer *t);
/* trainer_sentinel_explain — fails with ST_FAULT on the faulty rank, if a step that returned st
 * failed because of its numbers, and the state of a rank changed or replicas differ. Else returns
 * st. */
enum status trainer_sentinel_explain(struct trainer *t, enum status st);
/* trainer_sentinel_sums_end — local, after a generation that returned st, if the job continues from
 * copies: checks this rank's memory. A change is logged, and returned by
 * step_update_sums_changed. */
void trainer_sentinel_sums_end(struct trainer *t, enum status st);
/* ---- copies in peers' memory (trainer/copy.c) ----
 * All but trainer_copy_publish and trainer_copy_end are collective. */
/* trainer_copy_begin — opens the copies, and finds the state from which the run continues:
 * is_from_memory and progress are set. */
enum status trainer_copy_begin(struct trainer *t);
/* trainer_copy_restore — loads that state into the step. */
enum status trainer_copy_restore(struct trainer *t);
/* The feature (step_config.feature) that begins copies within a step; its argument is the
 * trainer. */
extern const struct step_feature trainer_copy_feature;
/* trainer_copy_publish — sets the copies' numbers for the board. */
void trainer_copy_publish(struct trainer *t);
/* trainer_copy_end — closes the copies. st: the status of the generation. */
void trainer_copy_end(struct trainer *t, enum status st);

#endif
