/* checkpoint_async — writes checkpoints while training continues.
 *
 * A save during training copies parameters and moments (with all threads of the device; 1.5 GB of
 * GPT-2 124M in some 70 ms) and leaves the writing to a thread of its own. Training waits only for
 * the copy. The copy's memory is allocated and touched at the start.
 *
 * Training waits for the disk instead if memory for the copy is short, if the state is small, and
 * at the end of a run: the state is then written range by range from its own memory. While the
 * state of several ranks is copied or written so, the other ranks are in state_serve. There is
 * never more than one write at a time.
 *
 * The result of each save is in struct checkpoint_async_last. It changes only inside calls of this
 * module, on the caller's thread. It must not know the board, or when to save. */
#ifndef CONVOY_TRAIN_CHECKPOINT_ASYNC_H
#define CONVOY_TRAIN_CHECKPOINT_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "dev/dev.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/step.h"

/* auto: if the state has CHECKPOINT_ASYNC_MIN_BYTES and memory for its copy is free. on: for any
 * size; fails if memory is short. off: never. */
enum checkpoint_async_mode {
    CHECKPOINT_ASYNC_MODE_AUTO,
    CHECKPOINT_ASYNC_MODE_ON,
    CHECKPOINT_ASYNC_MODE_OFF
};
/* a smaller state is written as fast as a large one is copied */
#define CHECKPOINT_ASYNC_MIN_BYTES ((int64_t)32 << 20)

/* The newest checkpoint on disk, and the cost of saving so far. */
struct checkpoint_async_last {
    int64_t step; /* step of the newest valid checkpoint; -1: none */
    int64_t wall_ms;
    int64_t failures, skipped;
    double stall_ms; /* time that training waited for the last save; NAN: none yet */
    double save_ms;  /* time for the newest checkpoint, from copy to commit; NAN: none yet */
    char path[FILE_PATH_MAX];
    char error[1024]; /* why the last save failed; "": it did not */
};

struct checkpoint_async_config {
    struct checkpoint *checkpoint; /* attached to step; both are borrowed */
    struct step *step;
    struct dev *dev;
    enum checkpoint_async_mode mode;
    /* there will be saves during training; false: no memory is allocated for them */
    bool is_periodic;
    int64_t memory_bytes;               /* free memory; -1: unknown */
    struct checkpoint_async_last *last; /* the caller's, valid until close */
    void (*heartbeat)(void *arg);       /* called while the caller waits and the write advances */
    void *heartbeat_arg;
};

struct checkpoint_async;
/* checkpoint_async_open — decides whether writes run next to training, and allocates memory for the
 * copy. ST_BAD_SETTING: mode is ON and there is not enough memory; in mode AUTO training then waits
 * for writes. */
enum status checkpoint_async_open(const struct checkpoint_async_config *config,
                                  struct checkpoint_async **out);
/* checkpoint_async_close — waits for a write in progress. Accepts NULL. */
void checkpoint_async_close(struct checkpoint_async *writer);
/* checkpoint_async_save — saves during training. If that fails, the failure is counted and a
 * warning is logged. If a write is in progress, the save is skipped and counted, or (is_asked: a
 * person requested it) waits. Returns true if training waited; last->stall_ms has the time. */
bool checkpoint_async_save(struct checkpoint_async *writer,
                           const struct checkpoint_progress *progress, bool is_asked);
/* checkpoint_async_poll — records a write that has ended. Call it between steps. */
void checkpoint_async_poll(struct checkpoint_async *writer);
/* checkpoint_async_finish — waits for a write in progress and saves, unless this step is saved
 * already. Call it at the end of a run. Fails if the save fails. */
enum status checkpoint_async_finish(struct checkpoint_async *writer,
                                    const struct checkpoint_progress *progress);

/* checkpoint_async_is_writing — for tests: returns true if a write is in progress. */
bool checkpoint_async_is_writing(const struct checkpoint_async *writer);

#endif
