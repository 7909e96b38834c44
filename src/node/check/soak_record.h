/* check_soak_record — checksums of what a few training steps compute: logits before the first one,
 * and of each step the loss, the gradient of every tensor and every tensor afterwards. Two records
 * that differ tell what differed first. Must not know how they are compared. */
#ifndef CONVOY_NODE_CHECK_SOAK_RECORD_H
#define CONVOY_NODE_CHECK_SOAK_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/step/step.h"

/* In the order in which they are computed: the logits; then of each step its loss, `tensors`
 * gradients and `tensors` weights. */
struct check_soak_record {
    int steps, tensors, n;
    uint64_t *sum; /* n */
};

/* Makes an empty record of `steps` steps of a model. */
void check_soak_record_init(struct check_soak_record *r, const struct param_table *table,
                            int steps);
/* Frees the record; may be called twice. */
void check_soak_record_free(struct check_soak_record *r);

/* check_soak_record_logits, _step — put what the model computes into the record. Collective where
 * the step has several ranks; SHARD=none. _step: after step number step_i of the record. host: of
 * as many floats as the table has elements, or the vocabulary. */
enum status check_soak_record_logits(struct check_soak_record *r, struct step *step, int64_t vocab,
                                     float *host);
enum status check_soak_record_step(struct check_soak_record *r, struct step *step, int step_i,
                                   double loss, float *host);

/* check_soak_record_differs — the first place at which two records differ; -1: nowhere.
 * check_soak_record_about — what is there: "the gradient of wte.weight in step 2". Returns out. */
int check_soak_record_differs(const struct check_soak_record *a, const struct check_soak_record *b);
const char *check_soak_record_about(const struct check_soak_record *r,
                                    const struct param_table *table, int at, char *out, size_t cap);

/* check_soak_record_digest — one number for a record: of all; of what replicas share, all but the
 * logits; of what they share whatever devices they have, losses and gradients that were summed. */
enum check_soak_record_part {
    CHECK_SOAK_RECORD_ALL,
    CHECK_SOAK_RECORD_REPLICA,
    CHECK_SOAK_RECORD_SUMS,
    CHECK_SOAK_RECORD_PARTS
};
uint64_t check_soak_record_digest(const struct check_soak_record *r,
                                  enum check_soak_record_part part);

/* The records of all ranks of a group: which ranks differ? */
struct check_soak_vote {
    uint64_t digest, kind; /* ranks of one kind must have one digest */
    bool is_left_out;      /* it is known to be wrong: it does not vote */
    bool differs;          /* out: from most of its kind */
    bool is_unclear;       /* out: its kind differs, and as many have another digest */
    int model;             /* out: a rank with the digest that most have */
};
/* Finds which of n ranks differ from most of their kind, in O(n²). */
void check_soak_record_vote(struct check_soak_vote *votes, int n);

#endif
