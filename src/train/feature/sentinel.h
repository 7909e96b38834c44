/* sentinel — finds the faulty rank, in a run and in the soak of a check: a vote over checksums of
 * data that ranks hold or compute alike, and the first difference between two computations that
 * several ranks made together. Pure arithmetic. It must not know states or how ranks
 * communicate. */
#ifndef CONVOY_TRAIN_SENTINEL_H
#define CONVOY_TRAIN_SENTINEL_H

#include <stdbool.h>
#include <stdint.h>

/* The most frequent of n checksums. */
struct sentinel_vote {
    int most;         /* the first checksum with the most equals; -1: n is 0 */
    int odd;          /* the first that differs from it; -1: none does */
    bool is_majority; /* more than half are equal to it */
    bool is_tied;     /* another checksum has the same number of equals */
};
/* Counts the votes, in O(n) if more than half are equal to the first one, else in O(n²). */
struct sentinel_vote sentinel_vote(const uint64_t *sum, int n);

/* A rank's vote if there are several kinds of ranks. The ranks of one kind must have one
 * checksum. */
struct sentinel_ballot {
    uint64_t sum, kind;
    bool is_left_out; /* it was found wrong before, so it does not vote */
    bool differs;     /* out: it differs from most of its kind */
    bool is_unclear;  /* out: its kind differs, and two checksums have the most votes */
    int most;         /* out: a rank with its kind's most frequent checksum; -1: none votes */
};
/* Finds the ranks, out of n, that differ from most of their kind. */
void sentinel_count(struct sentinel_ballot *ballots, int n);

/* A checksum of one result of a computation. order: its position in data flow; equal on all ranks
 * of a stage at the same entry. */
struct sentinel_entry {
    uint64_t order, sum;
};

/* sentinel_first — compares `places` pairs of lists of n entries in ascending order, the shorter
 * ones filled up with zeros: one[place · n + i] and other[place · n + i]. Returns the place of the
 * first entry that differs; -1: there is none, or first entries of several places differ. */
int sentinel_first(const struct sentinel_entry *one, const struct sentinel_entry *other, int places,
                   int n);

#endif
