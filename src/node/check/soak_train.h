/* check_soak_train — the training of a soak: a small model and synthetic data, trained by the
 * trainer for a few steps, in rounds that begin with the same weights. Of each round it keeps
 * checksums: of the logits before the first step, and of each step the loss, the gradient of every
 * tensor and every tensor afterwards. Also whether each rank got its samples of a step and its
 * weights of a model. Must not know what checksums other ranks have, nor rows. */
#ifndef CONVOY_NODE_CHECK_SOAK_TRAIN_H
#define CONVOY_NODE_CHECK_SOAK_TRAIN_H

#include "measure/measure_time.h"
#include "node/check/soak.h"
#include "train/trainer/trainer.h"

struct check_soak_train_config {
    struct dev *dev;
    struct comm *comm; /* of the ranks that train together; NULL: one */
    struct model_dims dims;
    enum dtype dtype;
    enum layout_shard shard;
    int64_t batch_samples;
    int steps;
    const char *dir; /* resumes from its newest checkpoint, and saves one at the end; NULL: none */
};

/* Trains, and calls look as trainer_config has it. Collective. */
enum status check_soak_train_run(const struct check_soak_train_config *config, trainer_look *look,
                                 void *arg);

/* What a digest is of: all checksums; those that replicas share, all but the logits; those that
 * they share whatever devices they have, losses and gradients that were summed. */
enum check_soak_part { CHECK_SOAK_ALL, CHECK_SOAK_REPLICA, CHECK_SOAK_SUMS, CHECK_SOAK_PARTS };

struct check_soak_train {
    struct check_soak_train_config config; /* of each round; set by the caller, the rest zero */
    int ranks, rounds;
    uint64_t digest[CHECK_SOAK_PARTS]; /* of all rounds so far */
    uint64_t first_digest;             /* of all checksums of the first round */
    char differed[128]; /* what was first not as in the first round: "the loss of step 2"; "" */
    struct measure_best step_time;
    /* of the round under way */
    enum check_soak_flip flip;
    int steps_done;
    struct measure_instant begin;
    uint64_t *first, *now; /* checksums of the first round and of this one */
    int now_n;
    uint64_t *sample; /* checksums of this rank's samples, steps × batch_samples */
    float *host;      /* for weights, or for logits */
};

/* Trains one round, with an inverted bit before its last step but one. Collective. */
enum status check_soak_train_round(struct check_soak_train *t, enum check_soak_flip flip);
/* Frees all; accepts what a failed round left. */
void check_soak_train_free(struct check_soak_train *t);

/* Checks, collectively and after a round with several ranks, that each sample of each step was
 * trained on by one rank, once. *lost_out: a sample of step *step_out (from 0) for which that is
 * not so; -1: there is none. The same on all ranks. */
enum status check_soak_train_samples(const struct check_soak_train *t, int *step_out,
                                     int *lost_out);
/* Returns the index of an item of `wanted` that `trained` lacks, in any order; -1: there is none. n
 * of each. Outside its file for tests. */
int check_soak_train_lost(const uint64_t *trained, const uint64_t *wanted, int n);

/* Gives all ranks a pattern of rank 0 as weights and reads it back, collectively. *is_right_out:
 * this rank then holds the pattern; with shards only rank 0 looks. */
enum status check_soak_train_distribution(const struct check_soak_train_config *config,
                                          bool *is_right_out);

/* Returns a checksum of values without padding, which is zero whatever is written there. */
uint64_t check_soak_train_sum(const struct param_table *table, const float *values);

#endif
