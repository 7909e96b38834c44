/* trainer — the loop: batches in, steps, numbers out, checkpoints at the right moments.
 *
 * It is told everything in one struct (only the worker knows settings), looks at the board between
 * steps, and posts to it. It must not know HTTP, processes or where its numbers are shown. */
#ifndef CONVOY_TRAIN_TRAINER_H
#define CONVOY_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"
#include "base/status.h"
#include "comm/core/comm.h"
#include "data/feed.h"
#include "dev/dev.h"
#include "mesh/layout.h"
#include "mesh/grad_compress.h"
#include "model/model.h"
#include "train/optim.h"
#include "train/lr_schedule.h"
#include "train/sampling.h"
#include "train/checkpoint_async.h"
#include "train/step.h"

enum trainer_resume { TRAINER_RESUME_AUTO, TRAINER_RESUME_NEVER, TRAINER_RESUME_REQUIRED };
enum trainer_fault {
    TRAINER_FAULT_NONE,
    TRAINER_FAULT_KILL,
    TRAINER_FAULT_STALL,
    TRAINER_FAULT_NAN,
    TRAINER_FAULT_SLOW,  /* this rank's steps take three times as long from there on */
    TRAINER_FAULT_FLIP,  /* one bit of one parameter of this rank */
    TRAINER_FAULT_ENOSPC /* the next checkpoint finds no room */
};

struct trainer_config {
    /* The step that the run makes; the trainer itself sets is_loaded and the heartbeat. */
    struct step_config step;
    struct board *board;
    int worker_i;
    const char *model_path;       /* where initial weights come from, see weights.h; "": random */
    struct feed *feed, *val_feed; /* val_feed NULL: no evaluation */
    int64_t epochs, steps;        /* steps 0: from epochs */
    struct lr_schedule_config lr_schedule;
    const char *checkpoint_dir; /* "": none */
    int64_t checkpoint_every;   /* 0: at the end only */
    int checkpoint_keep;
    enum checkpoint_async_mode checkpoint_mode;
    enum trainer_resume resume;
    int64_t eval_every;
    const char *metrics_file;    /* "": none */
    const char *tensorboard_dir; /* "" or NULL: none */
    const char *run_name;        /* its folder there; "" or NULL: no folder of its own */
    /* steps between samples of text; 0: none, and what follows is not looked at */
    int64_t sample_every;
    const char *sample_prompt;
    struct sampling_params sampling_params;
    const char *settings_json; /* for the checkpoint, see config_diff.h */
    const char *version;       /* for the checkpoint */
    bool is_terminal;          /* progress bar */
    int64_t log_every;         /* LOG_EVERY, as console.h */
    enum trainer_fault fault;  /* what to rehearse … */
    int64_t fault_step;        /* … when this step, counted from 1, begins */
};

/* trainer_planned_ms — a step at peak_flops of all ranks together (0: not known, a slow GPU's is
 * taken); at least 1. */
int64_t trainer_planned_ms(const struct trainer_config *config, double peak_flops, int ranks);
/* trainer_run — with several ranks all call it, with the same settings but what is about folders
 * and files: those count on rank 0, which alone writes and reads them. Lost ranks and an aborted
 * comm are ST_PEER.
 *
 * It runs until the steps are done (ST_OK), a request ends it (ST_TERMINATED, ST_INTERRUPTED,
 * ST_RETRY, after a checkpoint when checkpoint_dir is set), or it fails. */
enum status trainer_run(const struct trainer_config *config);

#endif
