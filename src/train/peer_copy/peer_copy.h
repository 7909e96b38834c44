/* peer_copy — copies of the state in the memory of peers (PEER_COPIES): after each step each rank's
 * slice (mesh/store/state.h) is kept by itself and by a rank of another node. After a loss the job
 * goes on from them, without a disk; at most one finished step is done again. It may go on with
 * fewer or more ranks along the data axis than made the copies: then each slice goes from its
 * holder to all ranks.
 *
 * Order of life: open, find; then if a state was found restore, once there is a step; unit_done in
 * each step; close. All but clear, suspect, close and stats are collective. Decision 058 says
 * why a copy is never torn or of two steps. Must not know checkpoints, the board or the supervisor.
 */
#ifndef CONVOY_TRAIN_PEER_COPY_H
#define CONVOY_TRAIN_PEER_COPY_H

#include "train/peer_copy/choice.h"
#include "train/step/step.h"

enum peer_copy_mode {
    PEER_COPY_MODE_AUTO, /* where it can be, and there is memory for it */
    PEER_COPY_MODE_OFF,
    PEER_COPY_MODE_ON /* or the run is refused */
};

/* peer_copy_why — why a run of so many nodes has no copies; for people; NULL: it has, where memory
 * is free. */
const char *peer_copy_why(const struct step_config *config, int nodes);
/* The slices of a rank: its own, and the one that it keeps. With TP and PP they differ in size. */
struct peer_copy_sizes {
    int64_t slice_elems[PEER_COPY_HOLDINGS]; /* of this place's ranks; 0: it keeps none */
    int64_t slot_elems[PEER_COPY_HOLDINGS];  /* room for each: also of the fewest ranks */
};
/* peer_copy_world — of a place.
 * peer_copy_sizes — of the rank at a place, if there may be ranks_min to ranks_max ranks.
 * peer_copy_bytes — the memory that it takes then. */
enum status peer_copy_world(const struct step_config *config, const struct comm_place *place,
                            struct peer_copy_world *out);
enum status peer_copy_sizes(const struct step_config *config, const struct comm_place *place,
                            int ranks_min, int ranks_max, struct peer_copy_sizes *out);
enum status peer_copy_bytes(const struct step_config *config, const struct comm_place *place,
                            int ranks_min, int ranks_max, int64_t *out);

struct peer_copy_config {
    struct comm *comm; /* of all ranks, borrowed */
    int fd;            /* a memfd that outlives this process; borrowed */
    struct peer_copy_world world;
    struct peer_copy_sizes sizes;
    int ranks_max;         /* the most that there may be */
    uint64_t fingerprint;  /* of all that makes a state what it is: model, layout, settings, data */
    int64_t reserve_bytes; /* that this rank will take beside the copies, and has not yet */
    bool logs_cost;        /* rank 0 logs what copies take, once */
    void (*heartbeat)(void *arg);
    void *heartbeat_arg;
};

struct peer_copy;
/* peer_copy_open — takes or finds the memory. *out NULL: some rank has no room, which rank 0 has
 * logged. */
enum status peer_copy_open(const struct peer_copy_config *config, struct peer_copy **out);
/* peer_copy_clear — forgets what this rank holds: the state may hold the cause of a failure. */
void peer_copy_clear(struct peer_copy *copy);
/* peer_copy_suspect — memory of a rank changed by itself (is_own: of this one): its state after so
 * many steps may be wrong, and that of later ones on all ranks. Of the copies that this generation
 * makes, no rank uses those that may hold it any more. All ranks mark that, since the one may not
 * come back. Where no slice travels, the others have made their copies of that step from their own
 * memory: those are right, and only the one rank forgets what it holds of it. Accepts copy NULL. */
void peer_copy_suspect(struct peer_copy *copy, const struct step *step, int64_t steps, bool is_own);
void peer_copy_close(struct peer_copy *copy); /* waits for what is under way; accepts NULL */

/* peer_copy_find — *found_out: a state is whole in the memory of all ranks together: progress is
 * its. Else rank 0 logs what is missing, if there is anything at all. */
enum status peer_copy_find(struct peer_copy *copy, bool *found_out,
                           struct checkpoint_progress *progress);
/* peer_copy_restore — what was found becomes the state of the step on all ranks. With copies of
 * another number of ranks than before it is on several nodes again after the next step's copy. */
enum status peer_copy_restore(struct peer_copy *copy, struct step *step);
/* peer_copy_unit_done — the hook of that name (train/step/feature.h): begins the copy of the state
 * with this progress at the last unit, and goes on with it at each other one. Where slices go from
 * stage to stage, all of it is at unit 0. Does nothing if it is copied. */
enum status peer_copy_unit_done(struct peer_copy *copy, struct step *step,
                                const struct checkpoint_progress *progress, int unit);

struct peer_copy_stats {
    int64_t step;            /* of the newest complete copy of this rank's own slice; -1: none */
    int64_t bytes;           /* of the copies that this rank writes in a step */
    double ms;               /* training waited for the last of them; NAN: none yet */
    double bytes_per_second; /* NAN: none yet */
};
/* peer_copy_stats — copy NULL: nothing is known. */
void peer_copy_stats(const struct peer_copy *copy, struct peer_copy_stats *out);

#endif
