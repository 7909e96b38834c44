/* check_soak_train — the training of a soak: the trainer trains a small model on synthetic data for
 * a few steps, in rounds that begin with the same weights. It keeps checksums of each round: of the
 * logits before the first step, and for each step of the loss, of the gradient of every tensor and
 * of every tensor afterwards. It also checks whether each rank got its samples of a step and its
 * weights of a model. Must not know the checksums of other ranks, nor rows. */
#ifndef CONVOY_NODE_CHECK_SOAK_TRAIN_H
#define CONVOY_NODE_CHECK_SOAK_TRAIN_H

#include "measure/measure_time.h"
#include "node/check/soak.h"
#include "train/trainer/trainer.h"

struct check_soak_train_config {
    struct dev *dev;
    struct comm *comm; /* comm of the ranks that train together; NULL: one rank */
    struct model_dims dims;
    enum dtype dtype;
    enum layout_shard shard;
    int64_t batch_samples;
    int steps;
    /* folder to resume from its newest checkpoint, and to save one at the end; NULL: none */
    const char *dir;
};

/* check_soak_train_run — trains, and calls look as described at trainer_config. Collective. */
enum status check_soak_train_run(const struct check_soak_train_config *config, trainer_look *look,
                                 void *arg);

/* Contents of a digest.
 *   ALL      all checksums
 *   REPLICA  all but the logits: equal on replicas with equal devices
 *   SUMS     losses and gradients that were summed: equal on replicas with any devices */
enum check_soak_scope { CHECK_SOAK_ALL, CHECK_SOAK_REPLICA, CHECK_SOAK_SUMS, CHECK_SOAK_SCOPES };

struct check_soak_train {
    /* configuration of each round; the caller sets it, all other fields are zero */
    struct check_soak_train_config config;
    int ranks, rounds;
    uint64_t digest[CHECK_SOAK_SCOPES]; /* digests of all rounds so far */
    uint64_t first_digest;              /* digest of all checksums of the first round */
    char differed[128]; /* first difference from the first round: "the loss of step 2"; "": none */
    struct measure_best step_time;
    /* the round in progress: */
    enum check_soak_flip flip;
    int steps_done;
    struct measure_instant begin;
    uint64_t *first, *now; /* checksums of the first round and of the present one */
    int now_n;
    uint64_t *sample; /* checksums of this rank's samples, steps × batch_samples */
    float *host;      /* buffer for weights or logits */
};

/* check_soak_train_round — trains one round, with an inverted bit before its last step but one.
 * Collective. */
enum status check_soak_train_round(struct check_soak_train *t, enum check_soak_flip flip);
/* check_soak_train_free — frees all memory. Accepts the state after a failed round. */
void check_soak_train_free(struct check_soak_train *t);

/* check_soak_train_samples — checks that each sample of each step was trained on by one rank, once.
 * Collective, after a round with several ranks. *lost_out: a sample of step *step_out (from 0) that
 * was not; -1: there is none. The result is the same on all ranks. */
enum status check_soak_train_samples(const struct check_soak_train *t, int *step_out,
                                     int *lost_out);
/* check_soak_train_lost — returns the index of an item of `wanted` that `trained` lacks, in any
 * order; -1: there is none. Both have n items. Public for tests. */
int check_soak_train_lost(const uint64_t *trained, const uint64_t *wanted, int n);

/* check_soak_train_distribution — sends a pattern from rank 0 to all ranks as weights and reads it
 * back. Collective. *is_right_out: this rank then holds the pattern; with shards only rank 0 checks
 * it. */
enum status check_soak_train_distribution(const struct check_soak_train_config *config,
                                          bool *is_right_out);

/* check_soak_train_sum — returns a checksum of values without padding. Padding is always zero,
 * whatever is written there. */
uint64_t check_soak_train_sum(const struct param_table *table, const float *values);

#endif
