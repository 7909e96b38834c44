/* peer_copy — copies of the state in the memory of peers (PEER_COPIES): after each step, or on GPUs
 * after every n-th, each rank's slice (mesh/store/state.h) is kept by itself and by a rank of
 * another node. After a loss the job continues from them, without a disk; at most the finished
 * steps since the last copy are repeated. The number of ranks along the data axis may be smaller or
 * larger than when the copies were made: then each slice is sent from its keeper to all ranks.
 *
 * Order of life: open, find; then if a state was found restore, once there is a step; unit_done in
 * each step; close. All but clear, suspect, close and stats are collective. Decision 058 explains
 * why a copy is never torn or of two steps. Must not know checkpoints, the board or the
 * supervisor. */
#ifndef CONVOY_TRAIN_PEER_COPY_H
#define CONVOY_TRAIN_PEER_COPY_H

#include "train/peer_copy/choice.h"
#include "train/step/step.h"

enum peer_copy_mode {
    PEER_COPY_MODE_AUTO, /* if it is possible, and there is memory for it */
    PEER_COPY_MODE_OFF,
    PEER_COPY_MODE_ON /* else the run is refused */
};

/* peer_copy_why — returns the reason why a run of `nodes` nodes has no copies, for messages, or
 * NULL if it has them when memory is free. */
const char *peer_copy_why(const struct step_config *config, int nodes);
/* The slices of a rank: its own, and the slice that it keeps. With TP and PP they differ in
 * size. */
struct peer_copy_sizes {
    /* slices of the rank at this place; 0: it keeps none */
    int64_t slice_elems[PEER_COPY_KINDS];
    int64_t slot_elems[PEER_COPY_KINDS]; /* room for each, also with the fewest ranks */
};
/* peer_copy_world — describes the ranks of a generation. */
enum status peer_copy_world(const struct step_config *config, const struct comm_place *place,
                            struct peer_copy_world *out);
/* peer_copy_sizes — computes the sizes of the slices of the rank at a place, if there may be
 * ranks_min to ranks_max ranks, on GPUs (is_discrete) or CPUs. */
enum status peer_copy_sizes(const struct step_config *config, const struct comm_place *place,
                            int ranks_min, int ranks_max, bool is_discrete,
                            struct peer_copy_sizes *out);
/* peer_copy_bytes — computes the host memory that this rank needs for them. */
enum status peer_copy_bytes(const struct step_config *config, const struct comm_place *place,
                            int ranks_min, int ranks_max, bool is_discrete, int64_t *out);

struct peer_copy_config {
    struct comm *comm; /* comm of all ranks that sends the copies; borrowed */
    /* the step's comm of all ranks; another one than `comm` if copies have a queue of their own */
    struct comm *step_comm;
    struct dev *dev; /* device of the step */
    /* steps from one copy to the next; 0: a CPU copies each step, and for a GPU the interval is
     * measured */
    int every;
    int fd; /* a memfd that outlives this process; borrowed */
    struct peer_copy_world world;
    struct peer_copy_sizes sizes;
    int ranks_max; /* largest number of ranks */
    /* hash of model, layout, settings, data: copies with another one are not used */
    uint64_t fingerprint;
    int64_t reserve_bytes; /* memory that this rank will allocate besides, later */
    bool logs_cost;        /* rank 0 logs the cost of copies, once */
    void (*heartbeat)(void *arg);
    void *heartbeat_arg;
};

struct peer_copy;
/* peer_copy_open — allocates or finds the memory. *out NULL: some rank has no room, which rank 0
 * has logged. */
enum status peer_copy_open(const struct peer_copy_config *config, struct peer_copy **out);
/* peer_copy_clear — drops the copies of this rank: the state may contain the cause of a failure. */
void peer_copy_clear(struct peer_copy *copy);
/* peer_copy_suspect — marks the copies of this generation that may contain a change; no rank uses
 * them. Call it on all ranks, because the one rank may not return, if memory of a rank (is_own: of
 * this one) changed by itself: its state after `steps` steps may be wrong, and all later states on
 * all ranks. If no slice travels, the other ranks have copied that step from their own memory:
 * these copies are right, and only the one rank drops its copies of the step. Accepts copy NULL. */
void peer_copy_suspect(struct peer_copy *copy, const struct step *step, int64_t steps, bool is_own);
void peer_copy_close(struct peer_copy *copy); /* waits for copies in progress; accepts NULL */

/* peer_copy_find — looks for a state that is whole in the memory of all ranks together, and not
 * older than the checkpoint of saved_step (-1: none; the same on all ranks) by more than one step,
 * as a copy of each step may be. *found_out true: progress is set. Else rank 0 logs the reason, if
 * there are any copies at all. */
enum status peer_copy_find(struct peer_copy *copy, int64_t saved_step, bool *found_out,
                           struct checkpoint_progress *progress);
/* peer_copy_restore — makes the state that was found the state of the step on all ranks. If the
 * copies were made by another number of ranks, the state is on several nodes again only after the
 * next step's copy. */
enum status peer_copy_restore(struct peer_copy *copy, struct step *step);
/* peer_copy_unit_done — implements the hook of that name (train/step/feature.h): begins the copy of
 * the state with this progress at the last unit, and continues it at each other unit. If slices are
 * sent from stage to stage, all of it is done at unit 0; if copies have a queue of their own, all
 * of it begins at the first unit. On a GPU the step's stream waits at unit 0 until the slices have
 * left its memory. Does nothing if this state is copied already, or need not be. */
enum status peer_copy_unit_done(struct peer_copy *copy, struct step *step,
                                const struct checkpoint_progress *progress, int unit);

/* peer_copy_interval_of — returns the least interval for which copies make steps at most 2 %
 * longer, and a copy has arrived when the next one begins. without_ms, with_ms: duration of a step
 * without a copy, and with one; travel_ms: time from a copy's begin to its end. Pure. */
int peer_copy_interval_of(double without_ms, double with_ms, double travel_ms);

struct peer_copy_stats {
    /* step of the newest complete copy of this rank's own slice; -1: none */
    int64_t step;
    int64_t bytes; /* size of the copies that this rank writes in a step */
    /* time by which a copy delays a step; NAN: not measured yet */
    double ms;
    double bytes_per_second; /* NAN: none yet */
    int64_t every;           /* steps from one copy to the next; 0: being measured; -1: no copies */
    int64_t memory_bytes;    /* host memory of this rank for them */
};
/* peer_copy_stats — returns the numbers of the copies. copy NULL: all are unknown. */
void peer_copy_stats(const struct peer_copy *copy, struct peer_copy_stats *out);

#endif
