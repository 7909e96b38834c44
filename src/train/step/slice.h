/* step_slice — slices of a step's state, for copies in peers' memory (peer_copy/peer_copy.h). Ranks
 * along the data and context axes share one shard of the model, and each has a slice of that
 * shard's state (mesh/store/state.h). It must not know where copies are kept.
 *
 * All functions but step_slice_why need a step for which step_slice_why returns NULL. */
#ifndef CONVOY_TRAIN_STEP_SLICE_H
#define CONVOY_TRAIN_STEP_SLICE_H

#include "train/step/step.h"

/* step_slice_why — returns the reason why the state of such a step has no slices, as a clause for
 * messages, or NULL if it has them. */
const char *step_slice_why(const struct step_config *config);
/* step_slice_elems_of — returns the elements of a rank's slice in a job of `ranks` ranks, on GPUs
 * (is_discrete) or CPUs, without a step. */
enum status step_slice_elems_of(const struct step_config *config, int ranks, int rank,
                                bool is_discrete, int64_t *out);
/* step_slice_elems_most — returns the elements of the largest slice in such a job. */
enum status step_slice_elems_most(const struct step_config *config, int ranks, bool is_discrete,
                                  int64_t *out);
/* step_slice — returns store_slice of a rank with the same shard of the model. */
struct state step_slice(const struct step *step, int rank);
/* step_slice_other — returns the slice of rank `rank` in a job of `ranks` ranks. The step may have
 * another number of ranks, but the same tensor ranks and stages. A write keeps the elements that
 * this rank holds: after all elements of all slices have been written, this rank has its state. The
 * slice cannot be read. */
struct state step_slice_other(struct step *step, int ranks, int rank);
/* step_slice_has_all — returns true if this rank has the slices of all ranks with its shard. */
bool step_slice_has_all(const struct step *step);

#endif
