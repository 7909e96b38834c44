/* trainer_inside — what the files of the trainer share: trainer.c (the loop), trainer_begin.c
 * (before the first step), trainer_end.c (after the last). Other rooms and files use trainer.h.
 * Must not know more than they do. */
#ifndef CONVOY_TRAIN_TRAINER_INSIDE_H
#define CONVOY_TRAIN_TRAINER_INSIDE_H

#include "format/tfevents.h"
#include "train/console.h"
#include "train/consensus.h"
#include "base/memory.h"
#include "train/metrics_file.h"
#include "train/pace.h"
#include "train/sample_text.h"
#include "train/checkpoint.h"
#include "train/step.h"
#include "train/trainer.h"

#define TRAINER_LAST 10 /* losses in the summary's mean */

struct trainer {
    const struct trainer_config *config;
    struct consensus consensus;
    bool is_rank0;   /* of the consensus: the one that writes and speaks */
    bool is_sharded; /* the state lies in parts on several ranks */
    /* it cannot be written where it lies: on several ranks, or in memory that is not the host's */
    bool needs_transfer;
    bool has_checkpoint_dir;    /* rank 0 has a checkpoint folder */
    bool is_enospc_done;        /* FAULT=enospc has struck */
    double compute_ms;          /* of the last step */
    enum board_request request; /* what any rank had been asked when the last step began */
    struct step *step;
    struct checkpoint *checkpoint;             /* NULL: no CHECKPOINT_DIR */
    struct checkpoint_async *checkpoint_async; /* NULL until there is something to save */
    struct checkpoint_async_last last_checkpoint;
    struct metrics_file metrics;
    struct tfevents *events;         /* NULL: no TENSORBOARD_DIR */
    struct sample_text *sample_text; /* NULL: no SAMPLE_EVERY */
    struct console console;
    struct pace pace;
    struct memory memory;
    struct board_worker numbers;
    double peak_flops;

    struct checkpoint_progress progress; /* where the run stands */
    int64_t steps;                       /* planned */
    int64_t step_first;                  /* done before this process began */
    int64_t step_evaluated;              /* -1 none */
    double loss_first, loss_last[TRAINER_LAST], val_loss;
    double steps_ms;        /* time in steps, for the summary */
    int64_t files_check_ms; /* when to look again whether all data are there */
    double stall_ms;        /* waited for a checkpoint since the last step */
};

void trainer_heartbeat(void *arg); /* arg: the trainer */
void trainer_publish(struct trainer *t, enum board_phase phase);
/* trainer_begin — where to go on, memory, weights: everything before the first step. With all steps
 * done already there is no memory. */
enum status trainer_begin(struct trainer *t);
void trainer_end(struct trainer *t); /* what a run comes to, for people */

#endif
