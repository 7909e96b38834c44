/* sentinel — which rank is wrong: a vote over checksums of what ranks hold or compute alike, and
 * the first difference of two computations that several ranks made together. Pure arithmetic. It
 * must not know states or how ranks communicate. */
#ifndef CONVOY_TRAIN_SENTINEL_H
#define CONVOY_TRAIN_SENTINEL_H

#include <stdint.h>

#define SENTINEL_SAME (-1)      /* all have one checksum */
#define SENTINEL_UNDECIDED (-2) /* no checksum has more than half of the votes */

/* sentinel_vote — of n > 0 checksums: the first that differs from the one that more than half of
 * them have, or one of the two above. */
int sentinel_vote(const uint64_t *sum, int n);

/* A checksum of one result of a computation. order: of data flow; equal on all ranks of a stage at
 * the same entry. */
struct sentinel_entry {
    uint64_t order, sum;
};

/* sentinel_first — of `places` pairs of lists of n entries in ascending order, the shorter ones
 * filled up with zeros: one[place · n + i] and other[place · n + i]. Returns the place of the first
 * entry that differs; -1: there is none, or first entries of several places differ. */
int sentinel_first(const struct sentinel_entry *one, const struct sentinel_entry *other, int places,
                   int n);

#endif
