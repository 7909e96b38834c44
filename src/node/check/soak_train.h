/* check_soak_train — the training of a soak: a small model, synthetic data, a few steps from one
 * state, in rounds; and whether each rank got its samples of a step and its weights of a model.
 * Must not know what checksums of training are compared with, nor rows. */
#ifndef CONVOY_NODE_CHECK_SOAK_TRAIN_H
#define CONVOY_NODE_CHECK_SOAK_TRAIN_H

#include "measure/measure_time.h"
#include "node/check/soak_record.h"

struct check_soak_train_config {
    struct dev *dev;
    struct comm *comm; /* of the ranks that train together; NULL: one */
    struct model_dims dims;
    enum dtype dtype;
    enum layout_shard shard; /* other than NONE: weights alone are compared (_weights) */
    int64_t batch_samples, seq_tokens;
    int steps;        /* of a round */
    bool takes_first; /* for tests: the first round trains on the samples of rank 0 */
};

struct check_soak_train {
    struct check_soak_train_config config;
    int rank, ranks;
    struct step *step;
    struct feed *feed;
    struct check_soak_record first, now; /* of the first round; of the last one */
    uint64_t *sample; /* checksums of this rank's samples, steps × batch_samples, of a round */
    float *host;      /* for a part of the state, or for logits */
    float *state[3];  /* of the beginning, on rank 0 */
    struct step_loss_scale scale;
    uint64_t digest[CHECK_SOAK_RECORD_PARTS]; /* of all rounds so far */
    int rounds, differs; /* differs: the first place where a round was not the first one; -1 */
    struct measure_best step_time;
};

/* check_soak_train_open — collective, as all of these; draws the weights. _close accepts what a
 * failed open left. */
enum status check_soak_train_open(const struct check_soak_train_config *config,
                                  struct check_soak_train *t);
void check_soak_train_close(struct check_soak_train *t);

/* check_soak_train_round — the steps once more, from the state of the beginning. flip_step: before
 * that step (from 0) this rank inverts a bit of a weight; -1: it does not. */
enum status check_soak_train_round(struct check_soak_train *t, int flip_step);

/* Checks, collectively and after a round with several ranks, that each sample of each step was
 * trained on by one rank, once. *lost_out: a sample of step *step_out (from 0) for which that is
 * not so; -1: there is none. The same on all ranks. */
enum status check_soak_train_samples(const struct check_soak_train *t, int *step_out,
                                     int *lost_out);
/* Returns the index of an item of `wanted` that `trained` lacks, in any order; -1: there is none. n
 * of each. Called here, and for tests. */
int check_soak_train_lost(const uint64_t *trained, const uint64_t *wanted, int n);
/* Gives all ranks a pattern of rank 0 as weights and reads it back, collectively. *is_right_out:
 * this rank then holds the pattern; with shards only rank 0 looks. */
enum status check_soak_train_distribution(const struct check_soak_train_config *config,
                                          bool *is_right_out);

#endif
