/* trainer_inside — what the files of the trainer share: trainer.c (the loop), trainer/begin.c
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
    /* of all steps but the first, which touches new memory (of a single one, too), as in struct
     * step_result; parallel_ms: these steps in all */
    double parallel_ms, pipe_ms, pipe_wait_ms, tensor_ms, context_ms;
    bool is_sharded;         /* ranks hold shards or parts of the state */
    bool are_passes_divided; /* all ranks take part in a forward pass */
    /* the state is not one array in host memory: several ranks, or a device with memory of its
     * own */
    bool needs_transfer;
    bool has_checkpoint_dir;    /* rank 0 has a checkpoint folder */
    bool is_enospc_done;        /* FAULT=enospc was injected */
    double compute_ms;          /* of the last step */
    enum board_request request; /* the highest request of all ranks when the last step began */
    struct step *step;
    struct checkpoint *checkpoint;             /* NULL: no CHECKPOINT_DIR, or not rank 0 */
    struct checkpoint_async *checkpoint_async; /* NULL: nothing to save yet */
    struct checkpoint_async_last last_checkpoint;
    int64_t step_recorded;       /* of the last checkpoint in the ledger */
    struct ledger_file *ledger;  /* NULL: as checkpoint */
    struct peer_copy *peer_copy; /* NULL: no copies in peers' memory */
    bool is_from_memory;         /* the state is the one that peer_copy has found */
    struct metrics_file metrics;
    struct tfevents *events;         /* NULL: no TENSORBOARD_DIR */
    struct sample_text *sample_text; /* NULL: no SAMPLE_EVERY */
    struct console console;
    struct console_pace pace;
    struct memory memory;
    struct board_worker numbers;
    double peak_flops;

    struct checkpoint_progress progress; /* how far the run is */
    int64_t steps;                       /* planned */
    int64_t end;                         /* the last of them that this process does */
    int64_t samples;                     /* planned by EPOCHS if STEPS is not set */
    int64_t samples_left;                /* left out after the last step: fewer than one step */
    struct lr_schedule_unit schedule;    /* unit of the learning rate; with STEPS its steps */
    int64_t schedule_steps;              /* all steps of the schedule */
    int64_t step_first, samples_first;   /* done when this process began */
    int64_t step_evaluated;              /* -1: none */
    int64_t step_compared;               /* 0: none */
    bool is_state_right; /* a step failed by a wrong result, before it changed the state */
    double loss_first, loss_last[TRAINER_LAST], val_loss;
    int64_t loss_first_step;
    double loss_applied;    /* of the last step that made an update */
    double steps_ms;        /* time spent in steps, for the summary */
    int64_t files_check_ms; /* when to check again that no data file is gone */
    double stall_ms;        /* training waited for checkpoints since the last step */
};

void trainer_heartbeat(void *arg); /* arg: the trainer */
void trainer_publish(struct trainer *t, enum board_phase phase);
/* trainer_begin — everything before the first step: finds where to resume, allocates memory, loads
 * weights. If all steps are done already, it allocates nothing. */
enum status trainer_begin(struct trainer *t);
/* The ledger of the run (trainer/ledger.c).
 * _open: collective: the ranks say what devices they have. Before the first step.
 * _add: a step is done, on all ranks.
 * _checkpoint: records one that was committed since the last call. */
enum status trainer_ledger_open(struct trainer *t);
void trainer_ledger_add(struct trainer *t, const struct step_result *result, int64_t samples);
void trainer_ledger_checkpoint(struct trainer *t);
void trainer_end(struct trainer *t); /* the summary of a run, on the console */
/* Writes to the console why this process has no step to do. */
void trainer_end_early(const struct trainer *t);

/* Comparing replicas, and virtual shards (trainer/sentinel.c; collective).
 * _ask      before a step: it compares virtual shards if that is due.
 * _flip     before a step, on one rank: FAULT=gradient.
 * trainer_sentinel  after a step, or before a checkpoint is saved: fails on all ranks where
 *                   replicas differ, with ST_FAULT on the one that is wrong.
 * _begin    before the first step: logs what replicas compare, and where it lies. Not collective.
 * _explain  a step has ended with st: fails if it has failed by its numbers and the state of a rank
 *           changed or replicas differ, with ST_FAULT there; else returns st.
 * _sums_end  local: the generation has ended with st, and the job goes on from copies: looks at
 *            this rank's memory; what it finds is logged, and is in step_update_sums_changed. */
void trainer_sentinel_ask(const struct trainer *t);
void trainer_sentinel_flip(const struct trainer *t);
enum status trainer_sentinel(struct trainer *t, bool before_save);
void trainer_sentinel_begin(struct trainer *t);
enum status trainer_sentinel_explain(struct trainer *t, enum status st);
void trainer_sentinel_sums_end(struct trainer *t, enum status st);
/* Copies in peers' memory (trainer/copy.c; all but _publish and _end are collective):
 * _begin    opens them, and finds the state to go on from: is_from_memory and progress are set.
 * _restore  loads it into the step.
 * _feature  step_config.feature: begins copies within a step; its argument is the trainer.
 * _publish  to the numbers of the board.
 * _end      closes them; st: how the generation ended. */
enum status trainer_copy_begin(struct trainer *t);
enum status trainer_copy_restore(struct trainer *t);
extern const struct step_feature trainer_copy_feature;
void trainer_copy_publish(struct trainer *t);
void trainer_copy_end(struct trainer *t, enum status st);

#endif
