/* step_slice — slices of a step's state, for copies in peers' memory (peer_copy/peer_copy.h). Ranks
 * along the data and context axes share one part of the model, and each has a slice of that part's
 * state (mesh/store/state.h). It must not know where copies are kept.
 *
 * Only for step_slice_why NULL.
 * step_slice_why — why the state of such a step has no slices; a clause for people; NULL: it has.
 * step_slice_elems_of — of a rank's slice, on so many ranks, without a step. _most: of the largest.
 * step_slice — store_slice of one of all ranks, with the same part of the model.
 * step_slice_other — the slice of one of `ranks`, of which the step may have another number, with
 *   the same tensor ranks and stages. Written is what this rank holds of it: a rank that has got
 *   all of all slices has its state. It is not read.
 * step_slice_has_all — does this rank have the slices of all ranks with its part? */
#ifndef CONVOY_TRAIN_STEP_SLICE_H
#define CONVOY_TRAIN_STEP_SLICE_H

#include "train/step/step.h"

const char *step_slice_why(const struct step_config *config);
enum status step_slice_elems_of(const struct step_config *config, int ranks, int rank,
                                int64_t *out);
enum status step_slice_elems_most(const struct step_config *config, int ranks, int64_t *out);
struct state step_slice(const struct step *step, int rank);
struct state step_slice_other(struct step *step, int ranks, int rank);
bool step_slice_has_all(const struct step *step);

#endif
