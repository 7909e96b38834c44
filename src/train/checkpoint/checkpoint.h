/* checkpoint — moves the state of a step to and from a checkpoint folder: finds where to resume,
 * reads it, saves.
 *
 * A checkpoint contains the model's dimensions (which must agree with the run), the settings that
 * shape the sequence of losses (a difference is logged as a warning), and the run's progress. Order
 * of life: open (locks the folder), find, attach the step, save, close. On rank 0 only.
 * It must not know the board, processes, or when to save. */
#ifndef CONVOY_TRAIN_CHECKPOINT_H
#define CONVOY_TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/ckpt.h"
#include "format/ledger.h"
#include "model/model.h"
#include "train/weights/load.h"
#include "train/step/lr_schedule.h"
#include "train/step/step.h"

struct checkpoint_config {
    const struct model_dims *dims;
    const char *dir;           /* CHECKPOINT_DIR */
    int keep;                  /* CHECKPOINT_KEEP */
    const char *settings_json; /* settings that shape the losses, as a JSON object */
    const char *commits_json;  /* as in ckpt.h; NULL or "": none */
    const char *version;
    uint64_t seed, data_fingerprint;
    struct heartbeat heartbeat;
    /* the state is not one array in host memory (several ranks, a device with memory of its own, or
     * moments that not all tensors have): it is loaded with state_write */
    bool needs_transfer;
};

/* The progress of a run. */
struct checkpoint_progress {
    int64_t step;    /* updates done */
    int64_t samples; /* number of the next sample */
    int64_t tokens;  /* tokens trained on */
    int64_t trained; /* TASK=chat: tokens that counted in the loss */
    struct step_loss_scale scale;
    struct step_spikes spikes;
    int64_t outer_steps; /* LOCAL_STEPS */
    struct lr_schedule_unit schedule;
    /* not in a checkpoint: */
    bool is_apart;         /* LOCAL_STEPS: step_local_is_apart */
    struct ledger_run run; /* the last steps with the same outcome; no generation */
    uint64_t frozen;       /* with an adapter: hash of the sum of the frozen weights; 0: unknown */
};

/* One array of a step's state. */
struct checkpoint_put {
    struct step *step;
    int array;
};
/* checkpoint_target — returns the load target of an array. put must stay valid as long as the
 * target. needs_transfer: as in checkpoint_config. */
struct load_target checkpoint_target(struct checkpoint_put *put, bool needs_transfer);

struct checkpoint; /* holds the lock of the folder */
/* checkpoint_open — locks the folder of checkpoints until checkpoint_close. ST_BAD_SETTING: another
 * process holds the lock. */
enum status checkpoint_open(const struct checkpoint_config *config, struct checkpoint **out);
void checkpoint_close(struct checkpoint *checkpoint); /* accepts NULL */
/* checkpoint_find — finds the newest checkpoint that looks valid and keeps it open for
 * checkpoint_attach. *found_out false: there is none. path_cap: FILE_PATH_MAX.
 * Fails with ST_BAD_DATA if there are checkpoints but none is valid, and with ST_BAD_SETTING if
 * model or optimiser differ; the message has both values. Other differences are logged as
 * warnings. */
enum status checkpoint_find(struct checkpoint *checkpoint, struct checkpoint_progress *progress,
                            bool *found_out, char *path, size_t path_cap);
/* checkpoint_set_base — sets the sum of the weights to which the adapter belongs, for checkpoints
 * from now on (model_adapter.base_sha256). ST_BAD_SETTING: the checkpoint that was found has
 * another; the message has both. model: the path of the weights. */
enum status checkpoint_set_base(struct checkpoint *checkpoint, const char *sha256,
                                const char *model);
/* checkpoint_verify — verifies the checkpoint that checkpoint_find found, if no checkpoint_attach
 * will load it. If it is damaged, finds the newest valid one as checkpoint_find does. */
enum status checkpoint_verify(struct checkpoint *checkpoint, struct checkpoint_progress *progress,
                              bool *found_out, char *path, size_t path_cap);
/* checkpoint_attach — sets the step to save from (borrowed until close). First it loads the
 * checkpoint that checkpoint_find found into the step, and verifies it meanwhile. If it is damaged,
 * the checkpoint before is loaded, and progress and path change. */
enum status checkpoint_attach(struct checkpoint *checkpoint, struct step *step,
                              struct checkpoint_progress *progress, char *path, size_t path_cap);
/* checkpoint_save — writes a checkpoint and its path. copy: the step's arrays one after the other,
 * each laid out by step_whole_table; any thread may call it then, one at a time. copy NULL: reads
 * the state from host memory if it is `here`, or else calls state_read for ranges, while the other
 * ranks are in state_serve. heartbeat NULL: the config's. Blocks until the checkpoint is on
 * disk. */
enum status checkpoint_save(struct checkpoint *checkpoint,
                            const struct checkpoint_progress *progress, const float *copy,
                            const struct heartbeat *heartbeat, char *path, size_t path_cap);

/* checkpoint_aside — moves the checkpoints of earlier runs, and the ledger of their samples, to
 * DIR/before-<number>/, so that two runs never mix (RESUME=never). The caller holds the lock of the
 * folder. ST_STORE: something could not be moved. */
enum status checkpoint_aside(const char *dir);

#endif
