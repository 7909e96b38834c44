/* trainer — the training loop: reads batches, runs steps, publishes numbers, saves checkpoints.
 *
 * One struct holds all its inputs; it reads no settings. Between steps it reads requests from the
 * board and publishes its numbers there. It must not know HTTP, processes, or where its numbers are
 * shown. */
#ifndef CONVOY_TRAIN_TRAINER_H
#define CONVOY_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"
#include "base/status.h"
#include "comm/core/comm.h"
#include "data/feed.h"
#include "dev/cuda/cuda.h"
#include "mesh/store/layout.h"
#include "mesh/grad/compress.h"
#include "model/model.h"
#include "train/step/optim.h"
#include "train/step/lr_schedule.h"
#include "train/generate/sampling.h"
#include "train/checkpoint/async.h"
#include "train/peer_copy/peer_copy.h"
#include "train/step/step.h"

enum trainer_resume { TRAINER_RESUME_AUTO, TRAINER_RESUME_NEVER, TRAINER_RESUME_REQUIRED };
enum trainer_fault {
    TRAINER_FAULT_NONE,
    TRAINER_FAULT_KILL,
    TRAINER_FAULT_STALL,
    TRAINER_FAULT_NAN,
    TRAINER_FAULT_SLOW,    /* from that step on, this rank's steps last three times as long */
    TRAINER_FAULT_FLIP,    /* one bit of one parameter of this rank changes */
    TRAINER_FAULT_ENOSPC,  /* the next checkpoint fails: the disk is full */
    TRAINER_FAULT_SPIKE,   /* the gradient norm is a million */
    TRAINER_FAULT_GRADIENT /* one bit of one gradient of this rank changes */
};

/* A function that is called on each rank before the first step, with result NULL, and after each
 * step. It may make collective calls of the step. If it fails, the run ends. */
typedef enum status trainer_look(void *arg, struct step *step, const struct step_result *result);

struct trainer_config {
    /* The trainer itself sets is_loaded and the heartbeat. */
    struct step_config step;
    enum dev_cuda_attention attention; /* the device's choice, for the memory plan */
    bool is_atomic; /* also for the plan: cuDNN may compute the backward pass in any order */
    struct board *board;
    int worker_i;
    const char *model_path;   /* source of the initial weights, see weights.h; "": random */
    const char *model_name;   /* MODEL as the user wrote it, for messages; NULL: model_path */
    const char *adapter_path; /* source of the initial adapter, see adapter.h; "" or NULL: drawn */
    bool ignores_tensors;     /* ignores tensors of the model at model_path, see load.h */
    struct feed *feed, *val_feed; /* val_feed NULL: no evaluation */
    int64_t epochs, steps;        /* steps 0: from epochs */
    int64_t stop_after;           /* the last step of this process; 0: the last of the run */
    struct lr_schedule_config lr_schedule;
    const char *checkpoint_dir; /* "": none */
    int64_t checkpoint_every;   /* 0: only at the end */
    int checkpoint_keep;
    enum checkpoint_async_mode checkpoint_mode;
    enum trainer_resume resume;
    bool is_repeated; /* not the first generation of the job: a start at step 0 is reported */
    enum peer_copy_mode peer_copies;
    /* ranks of generations (ON_LOSS=shrink); equal: the number is fixed */
    int ranks_min, ranks_max;
    int peer_copy_fd; /* memory that outlives this process (peer_copy.h); -1: no copies */
    int64_t eval_every;
    const char *metrics_file;    /* "": none */
    const char *tensorboard_dir; /* "" or NULL: none */
    const char *run_name;        /* subfolder of tensorboard_dir; "" or NULL: none */
    /* steps between samples of text; 0: none, and the next two are not read */
    int64_t sample_every;
    const char *sample_prompt;
    struct sampling_params sampling_params;
    const struct tokenizer *tokenizer; /* borrowed; NULL: GPT-2's */
    /* TASK=chat: samples of text are answers to sample_prompt, and the tokens that count in the
     * loss are recorded; borrowed; NULL: another task */
    const struct chat *chat;
    const char *settings_json; /* for the checkpoint, see checkpoint.h */
    const char *commits_json;  /* likewise, and for the ledger */
    /* for the ledger: the settings that decide rounding; NULL: none */
    const char *layout_json;
    /* with virtual shards: the parts of this rank's device that decide the bits of its results, the
     * same on all ranks; NULL: not compared */
    const char *arithmetic;
    const char *version; /* for the checkpoint */
    bool is_terminal;    /* draw a progress bar */
    bool is_brief;       /* this rank prints the few lines of a node other than node 0 */
    int64_t log_every;   /* as console.every */
    /* rank 0: called after each step; may be NULL */
    void (*on_step)(void *arg, double step_ms, const struct step_result *result);
    void *on_step_arg;
    trainer_look *look; /* NULL: not called */
    void *look_arg;
    enum trainer_fault fault; /* what to inject … */
    int64_t fault_step;       /* … before this step, counted from 1 */
};

/* trainer_planned_ms — returns the estimated time of a step, at least 1. peak_flops: of all ranks
 * together; 0: unknown, and the estimate assumes a slow GPU. */
int64_t trainer_planned_ms(const struct trainer_config *config, double peak_flops, int ranks);
/* trainer_run — runs until the planned steps are done (ST_OK), a request stops it (ST_TERMINATED,
 * ST_INTERRUPTED or ST_RETRY, after a checkpoint if checkpoint_dir is set), or it fails. A lost
 * rank or an aborted comm is ST_PEER. Collective: all ranks call it with the same config, except
 * folders and files. Only rank 0 reads and writes these, so only its values count. */
enum status trainer_run(const struct trainer_config *config);

#endif
