/* check_soak_parts — what each rank gets: its samples of a step, and its weights of a model. Must
 * not know rows. */
#ifndef CONVOY_NODE_CHECK_SOAK_PARTS_H
#define CONVOY_NODE_CHECK_SOAK_PARTS_H

#include "node/check_soak_train.h"

/* check_soak_parts_samples — collective, after a round with several ranks: was each sample of each
 * step trained on by one rank, once? *lost_out: a sample of step *step_out (from 0) for which that
 * is not so; -1: it is. The same on all ranks. */
enum status check_soak_parts_samples(const struct check_soak_train *t, int *step_out,
                                     int *lost_out);

/* check_soak_parts_lost — for tests: an index in `wanted` of which `trained` has not as many, in
 * any order; -1: they are the same. n of each. ST_RETRY: out of memory. */
enum status check_soak_parts_lost(const uint64_t *trained, const uint64_t *wanted, int n,
                                  int *lost_out);

/* check_soak_parts_weights — collective: rank 0 gives all ranks a pattern as weights and reads it
 * back. *is_right_out: what this rank then holds is the pattern; with shards rank 0 alone looks. */
enum status check_soak_parts_weights(const struct check_soak_train_config *config,
                                     bool *is_right_out);

#endif
