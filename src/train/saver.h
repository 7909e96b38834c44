/* saver — writes checkpoints while training goes on.
 *
 * A save in the midst of training copies parameters and moments (all threads of the device; 1.5 GB
 * of GPT-2 124M in some 70 ms) and leaves the writing to a thread of its own: training waits for
 * the copy only. The copy's memory is taken and touched at start. Where there is none to spare,
 * where the state is small, and at the end of a run, training waits for the disk instead. Never two
 * writings at once. What a save cost, and whether it failed, is told by struct saver_kept, which
 * only the caller's thread changes, in calls of this room. Must not know the board, or when to
 * save. */
#ifndef CONVOY_TRAIN_SAVER_H
#define CONVOY_TRAIN_SAVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "dev/dev.h"
#include "train/snapshot.h"
#include "train/step.h"

/* auto: when the state has SAVER_SMALL_BYTES at least and memory for its copy is there; on:
 * whatever its size, and no memory is a failure; off: never. */
enum saver_mode { SAVER_MODE_AUTO, SAVER_MODE_ON, SAVER_MODE_OFF };
/* written while training waits, in less than a copy of a large one takes */
#define SAVER_SMALL_BYTES ((int64_t)32 << 20)

/* What is kept on disk, and what it has cost so far. */
struct saver_kept {
    int64_t step; /* of the newest whole checkpoint; -1 none */
    int64_t wall_ms;
    int64_t failures, skipped;
    double stall_ms; /* training waited for the last save begun; NAN: none so far */
    double save_ms;  /* the newest checkpoint, from its copy to its commit; NAN: none so far */
    char path[FILE_PATH_MAX];
    char error[256]; /* why the last save failed; "" when it did not */
};

struct saver_config {
    struct snapshot *snapshot; /* attached to step; borrowed, as the step is */
    struct step *step;
    struct dev *dev;
    enum saver_mode mode;
    /* the state lies in parts on several ranks, or in memory that is not the host's: a copy is
     * always needed, and while one is made the other ranks are in step_follow */
    bool is_apart;
    bool is_periodic;        /* saves in the midst will come: else no memory is taken for them */
    int64_t memory_bytes;    /* free to take; -1 unknown */
    struct saver_kept *kept; /* the caller's, valid until close */
    void (*beat)(void *arg); /* while waiting for a writing that advances */
    void *beat_arg;
};

struct saver;
enum status saver_open(const struct saver_config *config, struct saver **out);
void saver_close(struct saver *saver); /* waits for a writing under way; accepts NULL */
/* saver_save — a save in the midst of training; a failure is counted and warned about, no more.
 * While another is being written it is skipped and counted, or waited for when someone asked for
 * this one. true: training waited, see kept->stall_ms. */
bool saver_save(struct saver *saver, const struct snapshot_place *place, bool is_asked);
/* saver_look — between steps: takes note of a writing that has ended. */
void saver_look(struct saver *saver);
/* saver_finish — the run ends here: waits for what is being written, saves this place unless that
 * was it, and says when it could not. */
enum status saver_finish(struct saver *saver, const struct snapshot_place *place);
bool saver_is_writing(const struct saver *saver);

#endif
