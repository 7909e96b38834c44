/* checkpoint_async — writes checkpoints while training goes on.
 *
 * A save in the midst of training copies parameters and moments (all threads of the device; 1.5 GB
 * of GPT-2 124M in some 70 ms) and leaves the writing to a thread of its own: training waits for
 * the copy only. The copy's memory is taken and touched at start. Where there is none to spare,
 * where the state is small, and at the end of a run, training waits for the disk instead. Never two
 * writings at once. What a save cost, and whether it failed, is told by struct
 * checkpoint_async_last, which only the caller's thread changes, in calls of this room. Must not
 * know the board, or when to save. */
#ifndef CONVOY_TRAIN_CHECKPOINT_ASYNC_H
#define CONVOY_TRAIN_CHECKPOINT_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "dev/dev.h"
#include "train/checkpoint.h"
#include "train/step.h"

/* auto: when the state has CHECKPOINT_ASYNC_MIN_BYTES at least and memory for its copy is there;
 * on: whatever its size, and no memory is a failure; off: never. */
enum checkpoint_async_mode {
    CHECKPOINT_ASYNC_MODE_AUTO,
    CHECKPOINT_ASYNC_MODE_ON,
    CHECKPOINT_ASYNC_MODE_OFF
};
/* written while training waits, in less than a copy of a large one takes */
#define CHECKPOINT_ASYNC_MIN_BYTES ((int64_t)32 << 20)

/* What is on disk, and what it has cost so far. */
struct checkpoint_async_last {
    int64_t step; /* of the newest whole checkpoint; -1 none */
    int64_t wall_ms;
    int64_t failures, skipped;
    double stall_ms; /* training waited for the last save begun; NAN: none so far */
    double save_ms;  /* the newest checkpoint, from its copy to its commit; NAN: none so far */
    char path[FILE_PATH_MAX];
    char error[256]; /* why the last save failed; "" when it did not */
};

struct checkpoint_async_config {
    struct checkpoint *checkpoint; /* attached to step; borrowed, as the step is */
    struct step *step;
    struct dev *dev;
    enum checkpoint_async_mode mode;
    /* the state lies in parts on several ranks, or in memory that is not the host's: a copy is
     * always needed, and while one is made the other ranks are in step_state_serve */
    bool needs_copy;
    bool is_periodic;     /* saves in the midst will come: else no memory is taken for them */
    int64_t memory_bytes; /* free to take; -1 unknown */
    struct checkpoint_async_last *last; /* the caller's, valid until close */
    void (*heartbeat)(void *arg);       /* while waiting for a writing that advances */
    void *heartbeat_arg;
};

struct checkpoint_async;
enum status checkpoint_async_open(const struct checkpoint_async_config *config,
                                  struct checkpoint_async **out);
/* waits for a writing under way; accepts NULL */
void checkpoint_async_close(struct checkpoint_async *writer);
/* checkpoint_async_save — a save in the midst of training; a failure is counted and warned about,
 * no more. While another is being written it is skipped and counted, or waited for when someone
 * asked for this one. true: training waited, see last->stall_ms. */
bool checkpoint_async_save(struct checkpoint_async *writer,
                           const struct checkpoint_progress *progress, bool is_asked);
/* checkpoint_async_poll — between steps: takes note of a writing that has ended. */
void checkpoint_async_poll(struct checkpoint_async *writer);
/* checkpoint_async_finish — the run ends here: waits for what is being written, saves this progress
 * unless that was it, and says when it could not. */
enum status checkpoint_async_finish(struct checkpoint_async *writer,
                                    const struct checkpoint_progress *progress);
bool checkpoint_async_is_writing(const struct checkpoint_async *writer);

#endif
